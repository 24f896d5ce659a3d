"""The loss maths: pure functions on tensors, usable without the rest of burnish. None of them averages.

Their signatures say the shapes (shapes.py): PerToken [N], OverVocabulary [N, V], PerReply [R], PerPair [P], PerListed
[K] of one list, OneNumber [], and AnyShape, which is the same wherever it stands in one function.
"""

from typing import TYPE_CHECKING

from burnish.util.lazy import lazy_names

if TYPE_CHECKING:
    from burnish.learn.maths.distillation import generalised_jsd as generalised_jsd
    from burnish.learn.maths.divergence import k1 as k1
    from burnish.learn.maths.divergence import k2 as k2
    from burnish.learn.maths.divergence import k3 as k3
    from burnish.learn.maths.imitation import nll as nll
    from burnish.learn.maths.imitation import phi_weight as phi_weight
    from burnish.learn.maths.policy import clipped_surrogate as clipped_surrogate
    from burnish.learn.maths.policy import reinforce as reinforce
    from burnish.learn.maths.preference import bradley_terry as bradley_terry
    from burnish.learn.maths.preference import dpo_logistic as dpo_logistic
    from burnish.learn.maths.preference import logistic as logistic
    from burnish.learn.maths.value import clipped_squared_error as clipped_squared_error
    from burnish.learn.maths.value import squared_error as squared_error
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
