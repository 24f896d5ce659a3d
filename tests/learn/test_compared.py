"""The factories of terms on compared replies: numbers by hand, their notes, and the gradient laws for pairs, lists and
labels.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conftest import SMALL, build_cast, doubled
from gradients import apart, assert_same, gradient
from torch import Tensor

from burnish.core.loop import run_phase
from burnish.core.method import Method, method
from burnish.core.parts import Part, chain, everything
from burnish.core.roles import frozen, roles
from burnish.core.schedules import linear
from burnish.core.step import Step
from burnish.core.types import Clock
from burnish.credit.kl_baseline import kl_baseline
from burnish.credit.sequence import shared
from burnish.credit.streams import ref
from burnish.credit.verdicts import label
from burnish.draw.tasks import prompts
from burnish.learn.learn import Learn
from burnish.learn.maths.preference import Replies, logistic
from burnish.learn.term import Live, Term
from burnish.learn.terms.compared import list_term, pair_term, unpaired_term
from burnish.learn.terms.rows import row_mean
from burnish.rollout.sample import sample
from burnish.score.verify import verify
from burnish.select.pairs import every_pair, ranked
from burnish.tasks.table import source
from burnish.tasks.task_set import rewarded


def seen(streams: dict[str, list[float]], lists: tuple[tuple[int, ...], ...] = ()) -> tuple[Live, Tensor]:
    """Three replies of 2, 1 and 1 tokens with log-probs -1, -2 | -1 | -4; pairs (0, 1) and (2, 1)."""
    logp = torch.tensor([-1.0, -2.0, -1.0, -4.0], dtype=torch.float64, requires_grad=True)
    row = torch.tensor([0, 0, 1, 2])
    found = {name: torch.tensor(numbers, dtype=torch.float64) for name, numbers in streams.items()}
    pairs, group = torch.tensor([[0, 1], [2, 1]]), torch.zeros(3, dtype=torch.long)
    return Live({"logp": logp}, found, row, 3, pairs, list(lists), group, Clock(0, 11)), logp


REF = {"ref": [-1.5, -2.5, -2.0, -2.0]}  # log-ratios 0.5 + 0.5, 1, -2


def noted(live: Live) -> dict[str, list[float]]:
    return {name: (x if where is None else x[where]).tolist() for name, (x, where) in live.noted.items()}


def test_a_pair_loss_sees_both_replies_and_notes_them_apart() -> None:
    """Sums -3, -1, -4 and log-ratios 1, 1, -2: margins 0 and 0.5 x -3."""
    term = pair_term(lambda w, r, beta: logistic(beta * (w.logratio - r.logratio)), beta=0.5)
    live, _ = seen(REF)
    assert term.loss(live).tolist() == pytest.approx([math.log(2), math.log(1 + math.exp(1.5))])
    assert (term.unit, term.streams, term.live, term.authors) == ("pair", ("ref",), ("logp", "entropy"), ("policy",))
    assert noted(live) == {
        "margin": [0.0, -1.5],
        "accuracy": [0.5, 0.0],
        "ties": [1.0, 0.0],
        "chosen_logp": [-3.0, -4.0],
        "rejected_logp": [-1.0, -1.0],
        "length_gap": [1.0, 0.0],
        "prefers_longer": [],  # the first pair's log-ratios are equal, the second's lengths
    }


def test_without_a_reference_and_normalised_by_length() -> None:
    """SimPO with beta 2, gamma 0.5: means -1.5, -1, -4; margins 2 x -0.5 - 0.5 and 2 x -3 - 0.5."""
    term = pair_term(
        lambda w, r, beta: logistic(beta * (w.logratio - r.logratio) - 0.5), beta=2.0, anchor=None, reduce=row_mean
    )
    live, _ = seen({})
    assert term.streams == ()
    assert term.loss(live).tolist() == pytest.approx([math.log(1 + math.exp(1.5)), math.log(1 + math.exp(6.5))])


def test_lengths_other_anchors_margins_and_token_weights_reach_the_loss() -> None:
    found: list[tuple[Replies, Replies, float]] = []

    def loss(w: Replies, r: Replies, beta: float) -> Tensor:
        found.append((w, r, beta))
        return w.logratio - r.logratio

    term = pair_term(loss, beta=linear(0.0, 1.0), streams=("old",), marks=("gap",), weight="w", on="demo", name="mine")
    assert term.streams == ("ref", "old", "gap", "w") and term.authors == ("demo",) and term.name == "mine"
    live, logp = seen({**REF, "old": [-1.0, -1.0, -1.0, -1.0], "gap": [7, 7, 3, 5], "w": [1.0, 0.5, 1.0, 2.0]})
    term.loss(live).sum().backward()
    ((w, r, beta),) = found
    assert beta == 0.0 and len(w) == 2
    assert w.tokens.tolist() == [2, 1] and r.tokens.tolist() == [1, 1]
    assert w["old"].tolist() == [-2.0, -1.0] and w["gap"].tolist() == [7.0, 5.0] and r["gap"].tolist() == [3.0, 3.0]
    assert w.logp.tolist() == [-1 - 2 * 0.5, -8.0] and w.logratio.tolist() == [0.75, -4.0]
    assert logp.grad is not None and logp.grad.tolist() == [1.0, 0.5, -2.0, 2.0]
    assert not w.detach().logratio.requires_grad


def test_a_list_loss_sees_its_replies_best_first() -> None:
    """Plackett-Luce of log-ratios 1, -2 (list 1, 2) and 1, 1, -2 (list 0, 1, 2)."""

    def plackett_luce(replies: Replies, beta: float) -> Tensor:
        s = beta * replies.logratio
        return (torch.logcumsumexp(s.flip(0), 0).flip(0) - s).sum()

    term = list_term(plackett_luce, beta=1.0)
    live, _ = seen(REF, ((1, 2), (0, 1, 2)))
    e = math.exp
    first = math.log(e(1) + e(-2)) - 1
    assert term.unit == "list"
    assert term.loss(live).tolist() == pytest.approx([first, first + math.log(2 * e(1) + e(-2)) - 1])
    assert noted(live) == {"accuracy": [1.0, 0.5], "chosen_logp": [-1.0, -3.0], "rejected_logp": [-4.0, -4.0]}
    empty, _ = seen(REF)
    assert term.loss(empty).shape == (0,) and term.loss(empty).requires_grad


def test_an_unpaired_loss_reads_labels_and_a_baseline() -> None:
    """KTO: 1 - sigmoid(beta (logratio - z)) for desirable replies, 1 - sigmoid(beta (z - logratio)) for others."""

    def kto(replies: Replies, beta: float) -> Tensor:
        sign = replies["label"].sign()
        return 1 - torch.sigmoid(beta * sign * (replies.logratio - replies["z"]))

    term = unpaired_term(kto, beta=2.0, marks=("z",))
    assert term.unit == "sequence" and term.streams == ("ref", "label", "z")
    live, _ = seen({**REF, "label": [1.0, 1.0, -1.0, 1.0], "z": [0.5] * 4})
    s = [0.5, -0.5, -2.5]
    assert term.loss(live).tolist() == pytest.approx([1 / (1 + math.exp(2 * x)) for x in s])
    assert noted(live) == {
        "chosen_logp": [-3.0, -4.0],
        "rejected_logp": [-1.0],
        "chosen_logratio": [1.0, -2.0],
        "rejected_logratio": [1.0],
    }


# ------------------------------------------------------------------------------------------------------- gradient laws


TASK = rewarded(source("sort"), lambda completions: [float(len(text)) for text in completions])


def by(select: Part, credit: Part, term: Term) -> Method:
    return method(
        draw=prompts(TASK),
        rollout=sample(4),
        score=verify(TASK),
        select=select,
        credit=credit,
        learn=Learn(term),
        models=roles(ref=frozen("policy")),
    )


def listwise(replies: Replies, beta: float) -> Tensor:
    s = beta * replies.logratio
    return (torch.logcumsumexp(s.flip(0), 0).flip(0) - s).sum()


def kto(replies: Replies, beta: float) -> Tensor:
    return 1 - torch.sigmoid(beta * replies["label"] * (replies.logratio - replies["baseline"]))


METHODS = {
    "pairs": lambda: by(
        every_pair(),
        chain(ref(), shared("reward", "gold")),
        pair_term(
            lambda w, r, beta: logistic(beta * (w.logratio - r.logratio) - 0.1 * (w["gold"] - r["gold"])),
            beta=0.3,
            marks=("gold",),
            reduce=row_mean,
        ),
    ),
    "lists": lambda: by(ranked(), ref(), list_term(listwise, beta=0.3)),
    "labels": lambda: by(
        everything,
        chain(ref(), label(9.5), kl_baseline("policy")),
        unpaired_term(kto, beta=0.3, marks=("baseline",)),
    ),
}


@pytest.mark.parametrize("kind", sorted(METHODS))
def test_micro_batches_packing_and_order_cannot_change_the_gradient(kind: str, small_model: Path) -> None:
    built = METHODS[kind]()
    ((phase, groups, step),) = apart(built, doubled(build_cast(built, small_model)))
    whole = gradient(groups, phase.learn, step)
    assert float(whole.abs().max()) > 1e-5
    for budget in (1, 150):
        assert_same(whole, gradient(groups, phase.learn, step, replace(SMALL, token_budget=budget)), f"budget {budget}")
    assert_same(whole, gradient(groups[::-1], phase.learn, step), "the order of groups")
    assert_same(whole, gradient(groups, phase.learn, step, packed=False), "packing")


def test_the_kl_baseline_is_that_of_other_prompts_whatever_the_order(small_model: Path) -> None:
    """0 where the policy is the reference; else the mean over replies to other prompts, computed here one by one."""
    built = METHODS["labels"]()
    models = doubled(build_cast(built, small_model))
    step = Step(Clock(0, 10), models, SMALL)
    groups = run_phase(replace(built.phases[0], learn=Learn(), credit=everything), step, {}, [])
    part = kl_baseline("policy")
    part.call(groups, step)
    assert groups[0].traces[0].streams["baseline"].tolist()[0] == pytest.approx(0.0, abs=1e-6)
    with torch.no_grad():
        for p in models["policy"].module.parameters():
            p.add_(0.05 * torch.randn(p.shape, generator=torch.Generator().manual_seed(0), dtype=p.dtype))
    models["policy"].weights_moved()
    ordered = sorted(((t.index, g.task.key, t) for g in groups for t in g.traces), key=lambda one: one[:2])
    traces = [trace for _, _, trace in ordered]
    apart_by = []
    for i, asked in enumerate(traces):
        reply = traces[(i + 1) % len(traces)].turns[1]
        row = torch.cat([asked.turns[0].tokens, reply.tokens])
        mask = torch.arange(len(row)) >= len(asked.turns[0])
        logp = [models[name].outputs([row], [mask], {"logp"})["logp"].sum().item() for name in ("policy", "ref")]
        apart_by.append(logp[0] - logp[1])
    part.call(groups, step)
    found = groups[0].traces[0].streams["baseline"]
    assert float(found[0]) == pytest.approx(max(0.0, sum(apart_by) / len(apart_by)), abs=1e-4)
    assert len({float(t.streams["baseline"][0]) for t in traces}) == 1
    part.call(groups[::-1], step)
    assert torch.equal(groups[0].traces[0].streams["baseline"], found)


@pytest.mark.parametrize("seed", [0, 1])
def test_the_kl_baseline_is_not_that_of_own_replies(seed: int, small_model: Path) -> None:
    """Two references that give the replies less than the policy does, so that no number is cut off at 0."""
    built = METHODS["labels"]()
    models = doubled(build_cast(built, small_model))
    step = Step(Clock(0, 10), models, SMALL)
    groups = run_phase(replace(built.phases[0], learn=Learn(), credit=everything), step, {}, [])
    with torch.no_grad():
        for p in models["ref"].module.parameters():
            p.add_(0.1 * torch.randn(p.shape, generator=torch.Generator().manual_seed(seed), dtype=p.dtype))
    models["ref"].weights_moved()
    ordered = sorted(((t.index, g.task.key, t) for g in groups for t in g.traces), key=lambda one: one[:2])
    traces = [trace for _, _, trace in ordered]

    def mean_ratio(shift: int) -> float:
        total = 0.0
        for i, asked in enumerate(traces):
            reply = traces[(i + shift) % len(traces)].turns[1]
            row = torch.cat([asked.turns[0].tokens, reply.tokens])
            mask = torch.arange(len(row)) >= len(asked.turns[0])
            logp = [models[name].outputs([row], [mask], {"logp"})["logp"].sum().item() for name in ("policy", "ref")]
            total += logp[0] - logp[1]
        return total / len(traces)

    kl_baseline("policy").call(groups, step)
    found = float(groups[0].traces[0].streams["baseline"][0])
    assert found > 0.1 and found == pytest.approx(mean_ratio(1), abs=1e-4)
    assert abs(found - mean_ratio(0)) > 0.05, "own replies have another mean, or nothing is tested"
