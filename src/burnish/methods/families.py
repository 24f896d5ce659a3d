"""Importing this module fills the table: one import per family."""

from burnish.methods import (  # noqa: F401
    agents,
    baselines,
    decoding,
    distillation,
    hints,
    hybrid,
    imitation,
    offline,
    policy,
    preference,
    resets,
    reward,
    surrogates,
    values,
)
