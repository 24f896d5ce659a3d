"""Learn Your Reference Model for Real Good Alignment (arXiv 2404.09656)."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn
from burnish.core.roles import ema
from burnish.method import Method, Option
from burnish.methods import opt, register
from burnish.methods.given_pairs import from_pairs
from burnish.papers import Paper

TR_DPO = Paper("tr-dpo", "2404.09656", "Learn Your Reference Model for Real Good Alignment")


@register(
    TR_DPO,
    family="preference",
    summary="DPO whose reference follows the policy.",
    when="DPO over-optimises against a fixed reference in a long run.",
    trial={"sync": 1},
)
def tr_dpo(
    task: draw.Source,
    *,
    beta: opt.Beta = 0.1,
    alpha: Annotated[
        float, Option("Share of the policy in an update of the reference; 1 copies it.", above=0, at_most=1)
    ] = 0.6,
    sync: Annotated[
        float, Option("Steps between two updates of the reference; below 1, a share of all steps.", above=0)
    ] = 0.25,
) -> Method:
    """TR-DPO.

    L = -log s( beta [lr_w - lr_l] ),  mean over pairs;  lr = log pi(y|x) - log ref(y|x)
    every `sync` steps: w_ref <- alpha w + (1 - alpha) w_ref

    alpha = 1 is the paper's hard update; alpha below 1 its soft one. Departure: the paper tunes the two apart, 0.6 for
    the soft update of each step and 512 steps for the hard one, in runs of its length; here a soft update is made after
    each quarter of the run. A reference that never moves (sync beyond the run) is DPO.
    """
    return from_pairs(task, learn.dpo(beta, on="demo"), credit=credit.ref(), ref=ema("policy", 1 - alpha, every=sync))
