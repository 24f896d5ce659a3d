"""Programs that a model wrote, in isolated processes."""
