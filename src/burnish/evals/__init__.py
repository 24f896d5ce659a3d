"""Evaluation: held-out tasks, measures, the arena, reward models, the best checkpoint."""
