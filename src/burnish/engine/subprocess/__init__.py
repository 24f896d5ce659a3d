"""Engines in another process, on a copy of the weights: vLLM, or burnish's own engine."""
