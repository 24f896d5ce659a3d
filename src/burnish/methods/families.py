"""Importing this module fills the table: one import per family."""

from burnish.methods import (  # noqa: F401
    advantages,
    agents,
    baselines,
    constrained,
    corrections,
    decoding,
    distillation,
    exploration,
    hybrid,
    imitation,
    lengths,
    offline,
    policy,
    preference,
    regularised,
    reward,
    right_and_wrong,
    surrogates,
    token_weights,
    values,
)
