"""Judges, as far as they are text: questions and their words, how answers are read, votes, limits, cache, endpoint.

What asks models of a run is in burnish/score/judges; rewards by name are in burnish/scorers.
"""
