"""Datasets made with models: preference pairs, rated tasks, labelled steps, dialogues, filtered rows."""
