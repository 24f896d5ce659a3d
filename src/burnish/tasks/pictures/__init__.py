"""Tasks whose prompts have pictures that are drawn by rule, for models that see."""
