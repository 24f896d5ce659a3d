"""Models and tokenizers of the plainest kind, read by burnish itself: what they need is imported in no time, and on a CPU
they compute with fewer passes over memory. Whatever is not plain goes through transformers (cast/load.py)."""
