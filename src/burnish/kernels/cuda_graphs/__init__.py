"""CUDA graphs: captured training passes and decode steps."""
