"""C kernels for CPUs and the Llama-like model that uses them."""
