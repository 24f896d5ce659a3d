"""The public Python API: train, resume, evaluate, generate, and what they return."""
