"""Processes that run what cannot be trusted: limits, guards, seccomp, Landlock, and messages to and from them."""
