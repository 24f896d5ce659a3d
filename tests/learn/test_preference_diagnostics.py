"""Diagnostics of preference runs: gradient entanglement, top-k mass, diversity and win rates, by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from conftest import SMALL, build_cast
from guards import guards

from burnish import credit, draw, learn, rollout, score, select
from burnish.core.loop import loop, note_samples
from burnish.core.method import frozen, method, roles
from burnish.core.step import Notes
from burnish.core.types import Group, Task, Trace, Turn
from burnish.evals.evaluate import Evaluation
from burnish.learn.entanglement import entanglement, top_mass
from burnish.tasks.table import source

pytestmark = guards("learn/terms", "select")


def reply(states: list[list[float]], p: list[list[float]], tokens: list[int]) -> tuple[torch.Tensor, ...]:
    return torch.tensor(states), torch.tensor(p), torch.tensor(tokens)


def test_entanglement_by_hand() -> None:
    """One token, V = 2, H = 1: g = (e - p) h. g_w = (0.5, -0.5) 2 = (1, -1).

    Against token 1 with p = (3/4, 1/4), h = 1: g_l = (-0.75, 0.75), <g_w, g_l> = -1.5, cosine -1, and 2 > -1.5.
    Against the same token after h = 4: g_l = (2, -2), <g_w, g_l> = 4 > |g_w|^2 = 2: DPO lowers both.
    """
    chosen = reply([[2.0]], [[0.5, 0.5]], [0])
    assert entanglement(chosen, reply([[1.0]], [[0.75, 0.25]], [1])) == pytest.approx((-1.5, -1.0, 1.0))
    assert entanglement(chosen, reply([[4.0]], [[0.5, 0.5]], [0])) == pytest.approx((4.0, 1.0, 0.0))


def test_entanglement_is_that_of_autograd() -> None:
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(7, 5, generator=generator, requires_grad=True)
    gradients, replies = [], []
    for length in (4, 6):
        states, tokens = torch.randn(length, 5, generator=generator), torch.randint(7, (length,), generator=generator)
        logp = torch.log_softmax(states @ weight.T, -1)
        (gradient,) = torch.autograd.grad(logp[torch.arange(length), tokens].sum(), weight)
        gradients.append(gradient.flatten())
        replies.append((states, torch.softmax(states @ weight.detach().T, -1), tokens))
    inner, cosine, raises = entanglement(replies[0], replies[1])
    assert inner == pytest.approx(float(gradients[0] @ gradients[1]), rel=1e-4)
    assert cosine == pytest.approx(float(torch.cosine_similarity(gradients[0], gradients[1], 0)), rel=1e-4)
    assert raises == float(gradients[0] @ gradients[0] > gradients[0] @ gradients[1])


def test_top_mass_by_hand() -> None:
    p = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.25, 0.25, 0.25, 0.25]])
    assert top_mass(p, 2).tolist() == pytest.approx([0.7, 0.5])
    assert top_mass(p).tolist() == pytest.approx([1.0, 1.0]), "fewer tokens than ten"


@pytest.mark.parametrize("every", [0, 2])
def test_it_is_measured_when_asked_and_changes_no_weight(every: int, small_model: Path) -> None:
    from dataclasses import replace

    task = source("sort")
    dpo = method(
        draw=draw.pairs(task),
        rollout=rollout.given("chosen", "rejected"),
        score=score.given_order("chosen", "rejected"),
        select=select.best_vs_worst(),
        credit=credit.ref(),
        learn=learn.Learn(learn.dpo(0.1, on="demo")),
        models=roles(ref=frozen("policy")),
    )
    curves = []
    for settings in (SMALL, replace(SMALL, diagnose_every=every)):
        reports = list(loop(dpo, build_cast(dpo, small_model, settings), settings, steps=3))
        curves.append([report.metrics["reply/loss"] for report in reports])
    assert curves[0] == curves[1]
    there = ["reply/gradient_cosine" in report.metrics for report in reports]
    assert there == ([True, False, True] if every else [False] * 3)
    if every:
        metrics = reports[0].metrics
        assert -1 <= metrics["reply/gradient_cosine"] <= 1 and 0 < metrics["reply/top10_mass"] < 1
        assert 0 <= metrics["reply/raises_chosen"] <= 1


def sampled(*tokens: list[int]) -> Group:
    prompt = Turn(torch.tensor([9]), "task")
    return Group(Task("question", "?", {}, "k"), [Trace((prompt, Turn(torch.tensor(t), "policy"))) for t in tokens])


def test_diversity_by_hand() -> None:
    """Two of three replies differ; of six bigrams 12 23 12 23 12 24 three are different. A lone reply says nothing."""
    notes = Notes()
    note_samples([sampled([1, 2, 3], [1, 2, 3], [1, 2, 4]), sampled([5, 6])], notes, "policy")
    assert notes.means()["distinct_replies"] == pytest.approx(2 / 3)
    assert notes.means()["distinct_bigrams"] == pytest.approx(0.5)
    note_samples([sampled([1], [2])], notes, "policy")
    assert notes.means()["distinct_replies"] == pytest.approx((2 / 3 + 1) / 2), "the mean over groups"


def test_win_rate_by_hand() -> None:
    """Rewards (1, 0) against (1, 0): tie, win, loss, tie = 1/2; against (0, 0): win, win, tie, tie = 3/4."""

    def rewarded(*rows: tuple[float, ...]) -> Evaluation:
        return Evaluation((), (), rows, (), 0.0)

    mine = rewarded((1.0, 0.0), (1.0, 0.0))
    assert mine.wins_against(rewarded((1.0, 0.0), (0.0, 0.0))).mean == pytest.approx((0.5 + 0.75) / 2)
    assert mine.wins_against(mine).mean == 0.5
