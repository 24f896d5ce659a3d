"""Reward models with several heads: ensembles, heads with an uncertainty, one head per group of users."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from burnish import credit, draw, learn, rollout, select
from burnish.credit.reward import Clusters, bags, clustered, normal_noise
from burnish.learn.reward_head import all_but_head, head_rows
from burnish.learn.terms import reward as terms
from burnish.learn.terms import reward_heads as heads_terms
from burnish.method import Clock, Method, Option, Phase, chain, method, roles, trained
from burnish.methods import papers, register
from burnish.methods.reward import END

Heads = Annotated[int, Option("Heads of the reward model.", at_least=1)]
FirstShare = Annotated[float, Option("The share of the run that the first stage takes.", above=0, below=1)]


def first_stage(share: float) -> Callable[[Clock], float]:
    """1 in the first share of the run, then 0: for a phase's `times`."""
    return lambda clock: float(clock.step < share * clock.of)


def second_stage(share: float) -> Callable[[Clock], float]:
    """0 in the first share of the run, then 1."""
    return lambda clock: float(clock.step >= share * clock.of)


@register(
    papers.REWARD_ENSEMBLES,
    family="reward",
    summary="An ensemble of reward models: k heads, each trained on a bootstrap sample of its own.",
    when="A policy over-optimises one reward model: heads that disagree say where not to trust it.",
)
def reward_ensemble(
    task: draw.Source,
    *,
    heads: Heads = 5,
    centre: Annotated[float, Option("Keeps scores around 0.", at_least=0)] = 0.0,
) -> Method:
    """k Bradley-Terry heads on one backbone.

    L = mean over heads j of b_j [ -log s( r_j(x, y_w) - r_j(x, y_l) ) + centre (r_jw + r_jl)^2 ],  b_j ~ Poisson(1)

    b_j is drawn once for each pair and head: a bootstrap sample. Use it with `ensemble(DIR, how=mean | worst |
    uncertainty)`: the mean, the minimum (WCO) or mean - lambda variance (UWO), lambda 0.5 for best-of-n and 0.1 for
    PPO. The paper trains k = 5 whole models that differ in their seed: train reward_model with several --seed and pass
    all their directories to `ensemble`; heads on one backbone are cheaper and agree more. heads = 1 without the
    bootstrap is reward_model.
    """
    return method(
        draw=draw.pairs(task),
        rollout=rollout.given("chosen", "rejected", reader="rm"),
        select=select.given_pairs(),
        credit=chain(END, bags(heads)),
        learn=learn.Learn(terms.head_pairs(slice(0, heads), bags="bags", centre=centre, on=learn.CLAIMED)),
        models=roles("rm", rm=trained(outputs=heads)),
        product="rm",
    )


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
            heads_terms.uncertain_heads(heads, floor, likelihood),
            rest=all_but_head,
            move=head_rows(slice(1, 1 + 2 * heads)),
        ),
        name="heads",
        times=second_stage(first),
    )
    return Method(models=roles("rm", rm=trained(outputs=1 + 2 * heads)), phases=(stage1, stage2), product="rm")


@register(
    papers.MAXMIN_RLHF,
    family="reward",
    summary="One reward model per group of users; who belongs to which group is learned.",
    when="Annotators disagree by taste, and nobody should be left behind by the average.",
    trial={"user": "answer"},
    example="burnish train maxmin_rm --task pairs.jsonl",
)
def maxmin_rm(
    task: draw.Source,
    *,
    groups: Annotated[int, Option("Groups of users.", at_least=1)] = 2,
    user: Annotated[str, Option("The column that says who compared the replies.")] = "user",
    warmup: Annotated[int, Option("Steps in which users stay in their first group.", at_least=0)] = 10,
) -> Method:
    """MaxMin-RLHF's reward models, by expectation maximisation with hard assignments; one head per group.

    E:  u(user) = argmax_u sum over the user's pairs of log s( r_u(y_w) - r_u(y_l) )
    M:  L = -log s( r_u(y_w) - r_u(y_l) ), u the user's group;  mean over pairs

    Users begin in group (number of the user) modulo groups. A user's sum has the newest value of each of its pairs; E
    and M alternate batch by batch, where the paper refits each model completely in 10 rounds. Its use: `maxmin(DIR)`
    rewards with the group whose mean over the batch is the lowest. Groups share a backbone. groups = 1 is reward_model.
    """
    if groups > 1:  # with fewer users than groups a head would never be trained, and then used
        draw.require_column(task, (user,), f"user={user}", "who compared the replies", "groups=1")
        draw.require_values(task, user, groups, f"groups={groups}")
    return method(
        draw=draw.pairs(task),
        rollout=rollout.given("chosen", "rejected", reader="rm"),
        select=select.given_pairs(),
        credit=chain(END, clustered(Clusters(groups), user, warmup)),
        learn=learn.Learn(terms.chosen_head_pairs("cluster", on=learn.CLAIMED)),
        models=roles("rm", rm=trained(outputs=groups)),
        product="rm",
    )
