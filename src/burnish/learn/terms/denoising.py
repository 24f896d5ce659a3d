"""Terms on the steps of a denoiser, whose distributions are Gaussians with one std (forward/denoise.py)."""

from __future__ import annotations

from torch import Tensor

from burnish.core.schedules import Schedule
from burnish.learn.norms import Norm, token_mean
from burnish.learn.term import Authors, Live, Term


def kl_steps(
    *, coef: Schedule, against: str = "ref", norm: Norm = token_mean, on: Authors = "policy", name: str = "kl"
) -> Term:
    """KL(pi || pi_against) of each step, without sampling:  |mu - mu_against|^2 / (2 std^2).

    Exact for the steps of a denoiser. Of words it is 4 (1 - sum sqrt(p q)), the KL to the second order in p - q.
    """

    def loss(live: Live) -> Tensor:
        return 0.5 * (live.drift - live.outputs[f"{against}.drift"]).square().sum(-1)

    return Term(name=name, on=on, unit="token", loss=loss, live=("drift", f"{against}.drift"), norm=norm, coef=coef)
