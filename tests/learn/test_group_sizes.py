"""A loss divides by sizes of the data: of lists of another length than the option's, of groups that lost a trace."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import pytest
import torch
from conftest import SMALL, build_cast, coin, credited, doubled
from gradients import apart
from test_learn import TASK, gradients

from burnish.core.method import Method
from burnish.core.types import Group, Trace
from burnish.learn.learn import measure
from burnish.methods.hybrid import luffy
from burnish.models.build import Models
from burnish.tasks.data import Dataset
from burnish.tasks.table import source
from burnish.tasks.task_set import rewarded
from burnish.zoo.copg import copg_online
from burnish.zoo.pro import pro
from burnish.zoo.rl_plus import rl_plus
from burnish.zoo.semi_offline_rl import semi_offline_rl

PAIRS = rewarded(source("sort"), coin)


def logp(models: Models, trace: Trace, *authors: str) -> torch.Tensor:
    with torch.no_grad():
        return models["policy"].outputs([trace.tokens], [trace.by(*authors)], {"logp"})["logp"].double()


@pytest.mark.parametrize("scores", [[3.0, 1.0, 0.5], [2.0, 1.5, 1.0, -1.0, -3.0]], ids=["three", "five"])
def test_pro_weighs_imitation_by_the_length_of_the_list(scores: list[float], small_model: Path) -> None:
    """sft (K - 1)^2 of K = 3 is 4, of K = 5 16; --n 4, which would be 9, is about replies that are sampled."""
    rows = [
        {"prompt": f"Say {i}.", "responses": [f"{i} {'x' * k}" for k in range(len(scores))], "scores": scores}
        for i in range(30)
    ]
    built = pro(Dataset(rows), n=4, sft=0.05)
    models = doubled(build_cast(built, small_model))
    for phase, groups, step in credited(built, models):
        total = 0.0
        for group in groups:
            means = [float(logp(models, trace, "demo").mean()) for trace in group.traces]
            best = -float(logp(models, group.traces[0], "demo").sum())
            total += 0.05 * (len(scores) - 1) ** 2 * best / len(groups)
            for k in range(len(scores) - 1):
                gaps = [scores[k] - scores[-1], *(scores[k] - r for r in scores[k + 1 :])]
                terms = torch.tensor([m * gap for m, gap in zip(means[k:], gaps, strict=True)])
                total += float(torch.logsumexp(terms, 0) - terms[0]) / len(groups)
        assert measure(groups, phase.learn, step) == pytest.approx(total, rel=1e-5)


@pytest.mark.parametrize("n", [3, 4])
def test_copg_divides_by_the_replies_that_are_left(n: int, small_model: Path) -> None:
    """mean over prompts of 1/(K-1) sum over pairs (R_i - R_j)^2, K = n - 1 in the first group and n in the others."""
    built = copg_online(TASK, n=n, beta=0.3)
    models = doubled(build_cast(built, small_model))
    for phase, groups, step in apart(built, models):
        assert {len(group.traces) for group in groups} == {n}
        groups[0].traces.pop()
        groups[0].pairs = [pair for pair in groups[0].pairs or () if n - 1 not in pair]
        total = 0.0
        for group in groups:
            rewards = [
                trace.scores["reward"]
                - 0.3 * float((logp(models, trace, "policy") - trace.streams["ref"][trace.by("policy")]).sum())
                for trace in group.traces
            ]
            pairs = sum((a - b) ** 2 for a, b in combinations(rewards, 2))
            total += pairs / (len(rewards) - 1) / len(groups)
        assert measure(groups, phase.learn, step) == pytest.approx(total, rel=1e-5)


@pytest.mark.parametrize("n", [3, 5])
def test_semi_offline_sums_over_the_fills_that_are_left(n: int, small_model: Path) -> None:
    """The gradient of two prompts is the mean of theirs, although one of them has lost a fill."""
    built = semi_offline_rl(PAIRS, n=n, smoothing=0.0)
    models = doubled(build_cast(built, small_model))
    ((phase, groups, step),) = credited(built, models)
    for number, trace in enumerate(trace for group in groups for trace in group.traces):
        trace.streams["adv"] = torch.full((len(trace),), 1.0 + number)
    groups = [group for group in groups if all(trace.by("policy").any() for trace in group.traces[:n])][:2]
    groups[0].traces.pop(0)
    plan = phase.learn.with_terms(phase.learn.terms[0])
    apart_, together = (
        [gradients(models, plan, [group], step) for group in groups],
        gradients(models, plan, groups, step),
    )
    assert float((together - sum(apart_) / 2).norm() / together.norm()) < 1e-9


@pytest.mark.parametrize("build", [luffy, rl_plus])
@pytest.mark.parametrize("lost", [0, -1], ids=["a sample", "the demonstration"])
def test_sums_of_two_authors_are_over_all_sequences(build: Callable[..., Method], lost: int, small_model: Path) -> None:
    """Sums of tokens over all sequences x longest reply: sizes times gradients add up, whoever wrote what was lost."""
    built = build(PAIRS, n=4, entropy=0.0)
    models = doubled(build_cast(built, small_model))
    ((phase, groups, step),) = credited(built, models)
    for number, trace in enumerate(trace for group in groups for trace in group.traces):
        for name in {"adv", "demo_adv"} & set(trace.streams):
            trace.streams[name] = torch.full((len(trace),), 1.0 + number)
    groups = groups[:2]
    groups[0].traces.pop(lost)

    def sized(groups: list[Group]) -> torch.Tensor:
        size = sum(len(group.traces) for group in groups) * SMALL.max_new_tokens
        return gradients(models, phase.learn, groups, step) * size

    both = sized(groups)
    assert float((both - sized(groups[:1]) - sized(groups[1:])).norm() / both.norm()) < 1e-9
    alone = [trace for trace in groups[1].traces if "demo" in trace.tags]
    if build is luffy:  # one demonstration alone: -A sum of f(p), over one sequence
        p = logp(models, alone[0], "demo").exp()
        adv = float(alone[0].streams["demo_adv"][-1])
        single = measure([Group(groups[1].task, alone)], phase.learn, step)
        assert single == pytest.approx(-adv * float((p / (p + 0.1)).sum()) / SMALL.max_new_tokens, rel=1e-5)
