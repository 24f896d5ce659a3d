"""Pure functions behind the reward shapes: lengths, repetition, similarity, calibration, multipliers. No models."""
