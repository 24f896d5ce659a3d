"""Small helpers without knowledge of training: files, processes, memory, tensors."""
