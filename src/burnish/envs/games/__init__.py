"""Environments in the box: generated games of several turns with levels, rules, an expert, state keys and forks."""
