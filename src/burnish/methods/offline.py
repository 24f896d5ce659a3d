"""Pairwise, sequence-level and off-policy policy gradients."""
