"""Optional fast paths: Triton kernels, C kernels for CPUs and CUDA graphs. Only the registry imports them."""
