"""Diffusion Model Alignment Using Direct Preference Optimization (arXiv 2311.12908)."""

from __future__ import annotations

from burnish.methods import Arguments, opt, register, variant
from burnish.methods.preference import dpo
from burnish.papers import Paper

DIFFUSION_DPO = Paper("diffusion-dpo", "2311.12908", "Diffusion Model Alignment Using Direct Preference Optimization")


@register(
    DIFFUSION_DPO,
    family="preference",
    summary="DPO on pairs of pictures, with the denoising loss in place of the log-prob.",
    when="You have pairs of pictures and a model that draws (docs/denoisers.md).",
    example="burnish train diffusion_dpo --model tiny-flow --task paint:2",
    trial={"beta": 0.1},
)
@variant(dpo)
def diffusion_dpo(*, beta: opt.Beta = 5000.0) -> Arguments:
    """L = -log sigmoid( -beta / 2 [ (e(x_w) - e_ref(x_w)) - (e(x_l) - e_ref(x_l)) ] )
    e(x) = mean |u - u_theta(x_t)|^2

    It is `dpo` with -e / 2 for the log-prob: the view `random` of a given picture (docs/denoisers.md). beta is the
    paper's beta T with the mean over pixels, as in the released code (C). u is the velocity; the paper predicts the
    noise, whose error is (1 - t)^2 times this one, and Flow-DPO (arXiv 2501.13918) weighs as here. Departure: the two
    pictures of a pair have levels and noise of their own, not the same. On a model of words it is `dpo`.
    """
    return {"beta": beta}
