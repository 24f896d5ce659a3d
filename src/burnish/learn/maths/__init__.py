"""The loss maths: pure functions on tensors, usable without the rest of burnish. None of them averages."""

from burnish.learn.maths.distillation import generalised_jsd
from burnish.learn.maths.divergence import k1, k2, k3
from burnish.learn.maths.imitation import nll, phi_weight
from burnish.learn.maths.policy import clipped_surrogate, reinforce
from burnish.learn.maths.preference import bradley_terry, dpo_logistic, logistic
from burnish.learn.maths.value import clipped_squared_error, squared_error

__all__ = [
    "bradley_terry",
    "clipped_squared_error",
    "clipped_surrogate",
    "dpo_logistic",
    "generalised_jsd",
    "k1",
    "k2",
    "k3",
    "logistic",
    "nll",
    "phi_weight",
    "reinforce",
    "squared_error",
]
