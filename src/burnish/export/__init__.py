"""What comes out: model directories, GGUF files, model cards, and uploads to the hub."""
