"""Reward-Robust RLHF in LLMs (arXiv 2409.15360)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from torch import Tensor

from burnish import credit, draw, learn, rollout, select
from burnish.credit.reward import bags, normal_noise
from burnish.learn.norms import unit_mean
from burnish.learn.reward_head import all_but_head, head_rows
from burnish.learn.term import Live, Term
from burnish.learn.terms import reward as terms
from burnish.learn.terms.reward import row_numbers, row_scores
from burnish.method import Clock, Method, Option, Phase, chain, roles, trained
from burnish.methods import papers, register
from burnish.methods.reward import END

Heads = Annotated[int, Option("Heads of the reward model.", at_least=1)]
FirstShare = Annotated[float, Option("The share of the run that the first stage takes.", above=0, below=1)]


def gaussian_error(mean: Tensor, std: Tensor, noise: Tensor, target: Tensor, likelihood: float) -> Tensor:
    """How a head that gives a mean and a standard deviation fits a target, per entry.

        (1 - likelihood) (mean + std noise - target)^2 + likelihood [ (mean - target)^2 / (2 std^2) + log std ]

    The first is the squared error of a reparameterised sample (arXiv 2409.15360), whose expectation (mean - target)^2 +
    std^2 drives std to 0. The second is the Gaussian likelihood, whose optimum is std^2 = the expected squared error.
    """
    sampled = (mean + std * noise - target).square()
    nll = (mean - target).square() / (2 * std.square()) + std.log()
    return (1 - likelihood) * sampled + likelihood * nll


def uncertain_heads(heads: int, floor: float, likelihood: float, *, trainee: str = "rm", name: str = "heads") -> Term:
    """BRME's second stage: k means and deviations fitted to output 0, held; the mean over heads, by bootstrap sample.

    Outputs 1 .. k are the means, the next k the logarithms of the deviations, which are at least `floor`. Streams:
    "bags" [T, k] and "noise" [T, k].
    """

    def loss(live: Live) -> Tensor:
        scores = row_scores(live)
        target = scores[:, :1].detach()
        mean, std = scores[:, 1 : 1 + heads], scores[:, 1 + heads : 1 + 2 * heads].exp().clamp(min=floor)
        bag, noise = (row_numbers(live, stream).to(scores) for stream in ("bags", "noise"))
        live.note("error", (mean - target).abs().mean(-1))
        live.note("std", std.mean(-1))
        return (bag * gaussian_error(mean, std, noise, target, likelihood)).mean(-1)

    return Term(
        name=name,
        on=(),
        unit="sequence",
        loss=loss,
        live=("score",),
        streams=("bags", "noise"),
        norm=unit_mean,
        trainee=trainee,
    )


def first_stage(share: float) -> Callable[[Clock], float]:
    """1 in the first share of the run, then 0: for a phase's `times`."""
    return lambda clock: float(clock.step < share * clock.of)


def second_stage(share: float) -> Callable[[Clock], float]:
    """0 in the first share of the run, then 1."""
    return lambda clock: float(clock.step >= share * clock.of)


@register(
    papers.BRME,
    family="reward",
    summary="A reward model whose heads give a mean and a standard deviation, for a robust reward.",
    when="The reward should be trusted as far as its model is sure of it.",
)
def brme(
    task: draw.Source,
    *,
    heads: Heads = 5,
    first: FirstShare = 0.5,
    floor: Annotated[float, Option("The least standard deviation of a head.", above=0)] = 0.05,
    likelihood: Annotated[
        float,
        Option(
            "Share of the Gaussian likelihood in the second stage; 0 is the squared error alone.", at_least=0, at_most=1
        ),
    ] = 0.5,
) -> Method:
    """Bayesian reward model ensemble: output 0 is a Bradley-Terry head, then come k means and k log deviations.

    stage 1:  L = -log s( r(x, y_w) - r(x, y_l) ), the whole model
    stage 2:  L = mean over heads of b_j { (1 - a) (mu_j + sigma_j eps - r)^2 + a [ (mu_j - r)^2 / 2 sigma_j^2 + log
              sigma_j ] }, only the heads; r the first stage's score, held; b_j ~ Poisson(1); a = likelihood

    Its use: `brme(DIR, share=lambda)`: lambda r_nominal + (1 - lambda) min over heads of the batch's mean, r_nominal
    the mean of the surest head. Departures (the paper's text was available in a reading only): a squared error alone
    drives sigma to its floor, so half of the loss is the likelihood; heads get bootstrap samples, which the reading
    leaves open.
    """
    replies = rollout.given("chosen", "rejected", reader="rm")
    stage1 = Phase(
        draw=draw.pairs(task),
        rollout=replies,
        select=select.given_pairs(),
        credit=END,
        learn=learn.Learn(terms.head_pairs(slice(0, 1), on=learn.CLAIMED)),
        name="preference",
        times=first_stage(first),
    )
    stage2 = Phase(
        draw=draw.pairs(task),
        rollout=replies,
        credit=chain(credit.claim("heads", "demo", positions="end"), bags(heads), normal_noise(heads)),
        learn=learn.Learn(
            uncertain_heads(heads, floor, likelihood),
            rest=all_but_head,
            move=head_rows(slice(1, 1 + 2 * heads)),
        ),
        name="heads",
        times=second_stage(first),
    )
    return Method(models=roles("rm", rm=trained(outputs=1 + 2 * heads)), phases=(stage1, stage2), product="rm")
