"""Terms: the loss maths, tied to units, streams and norms."""

from typing import TYPE_CHECKING

from burnish.util.lazy import lazy_names

if TYPE_CHECKING:
    from burnish.learn.terms.compared import list_term as list_term
    from burnish.learn.terms.compared import pair_term as pair_term
    from burnish.learn.terms.compared import unpaired_term as unpaired_term
    from burnish.learn.terms.distillation import distil as distil
    from burnish.learn.terms.imitation import imitate as imitate
    from burnish.learn.terms.policy import entropy_bonus as entropy_bonus
    from burnish.learn.terms.policy import kl_k3 as kl_k3
    from burnish.learn.terms.policy import pg_clip as pg_clip
    from burnish.learn.terms.policy import pg_reinforce as pg_reinforce
    from burnish.learn.terms.preference import dpo as dpo
    from burnish.learn.terms.reward import score_pairs as score_pairs
    from burnish.learn.terms.value import value_clip as value_clip
    from burnish.learn.terms.value import value_mse as value_mse
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
