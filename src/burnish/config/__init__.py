"""The options of a run: declared once, read from flags, YAML and keyword arguments, checked and explained."""
