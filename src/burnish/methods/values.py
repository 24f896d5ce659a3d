"""Methods with a value model, or with values from sampled continuations."""
