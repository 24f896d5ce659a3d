"""Outputs of a model over rows of tokens: packing, prefix trees, attention, log-probs."""
