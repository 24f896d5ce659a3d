"""Importing this module fills the table: one import per family."""

from burnish.methods import agents, decoding, distillation, hybrid, imitation, policy, preference, reward  # noqa: F401
