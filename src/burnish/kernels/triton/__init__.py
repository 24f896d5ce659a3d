"""GPU kernels (Triton) and the decoder that is built from them."""
