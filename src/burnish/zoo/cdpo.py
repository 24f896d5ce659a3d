"""A note on DPO with noisy preferences & relationship to IPO."""

from __future__ import annotations

from typing import Annotated

from burnish.method import Option
from burnish.methods import Arguments, register, variant
from burnish.methods.preference import dpo
from burnish.papers import Paper

CDPO = Paper("cdpo", "", "A note on DPO with noisy preferences & relationship to IPO")

FlipRate = Annotated[float, Option("Chance that a label is wrong.", at_least=0, below=0.5)]


@register(
    CDPO,
    family="preference",
    summary="DPO with label smoothing: a label is wrong with a known chance.",
    when="Some labels are wrong, and margins should stay bounded.",
)
@variant(dpo)
def cdpo(*, eps: FlipRate = 0.1) -> Arguments:
    """Conservative DPO.

    l(a, b) = -log s( beta [lr_a - lr_b] ),  lr = log pi(y|x) - log ref(y|x)
    L = (1 - eps) l(w, l) + eps l(l, w),  mean over pairs

    Its optimum is a margin of log((1 - eps)/eps). It is `dpo` with label_smoothing eps, under a name of its own; the
    note that introduced it has no number of its own for eps.
    """
    return {"label_smoothing": eps}
