"""Importing this module fills the table: one import per family."""

from burnish.methods import (  # noqa: F401
    agents,
    baselines,
    decoding,
    distillation,
    hybrid,
    imitation,
    nash,
    offline,
    policy,
    preference,
    reward,
    self_imitation,
    surrogates,
    values,
)
