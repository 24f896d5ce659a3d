"""The embedded engine, piece by piece: storage, attention of decoded rows, sampling, scheduling."""
