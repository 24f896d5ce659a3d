"""Ratio surrogates, importance corrections and token weighting on group advantages."""
