"""Terms: the loss maths, tied to units, streams and norms."""

from burnish.learn.terms.compared import list_term, pair_term, unpaired_term
from burnish.learn.terms.distillation import distil
from burnish.learn.terms.imitation import imitate
from burnish.learn.terms.policy import entropy_bonus, kl_k3, pg_clip, pg_reinforce
from burnish.learn.terms.preference import dpo
from burnish.learn.terms.reward import score_pairs
from burnish.learn.terms.value import value_clip, value_mse

__all__ = [
    "distil",
    "dpo",
    "entropy_bonus",
    "imitate",
    "kl_k3",
    "list_term",
    "pair_term",
    "pg_clip",
    "pg_reinforce",
    "score_pairs",
    "unpaired_term",
    "value_clip",
    "value_mse",
]
