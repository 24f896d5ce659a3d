"""Scoring of replies in separate processes: reward functions, verifiers, sandbox, time limits, process guard."""
