"""Runs over several processes or machines."""
