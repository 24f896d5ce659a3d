"""Checkpoints: format, background saving, comparison of two runs."""
