"""Importing this module fills the table: one import per family."""

from burnish.methods import (  # noqa: F401
    agents,
    baselines,
    decoding,
    distillation,
    hybrid,
    imitation,
    offline,
    offline_values,
    policy,
    preference,
    reward,
    segments,
    surrogates,
    values,
)
