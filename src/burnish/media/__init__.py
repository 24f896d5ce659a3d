"""Pictures as tokens that are named by their content: ids, decoding with limits, the one processor, the store."""
