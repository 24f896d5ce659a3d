"""Public benchmarks: their usual prompts, how replies are read, and the data in their own formats."""
