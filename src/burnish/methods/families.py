"""Importing this module fills the table: one import per family."""

from burnish.methods import (  # noqa: F401
    agents,
    baselines,
    corrections,
    decoding,
    distillation,
    hybrid,
    imitation,
    offline,
    policy,
    preference,
    reward,
    right_and_wrong,
    surrogates,
    token_weights,
    values,
)
