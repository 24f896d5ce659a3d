"""Importing this module fills the table: one import per family."""

from burnish.methods import (  # noqa: F401
    agents,
    baselines,
    constrained,
    decoding,
    distillation,
    hybrid,
    imitation,
    offline,
    policy,
    preference,
    regularised,
    reward,
    surrogates,
    values,
)
