"""Fills of given replies: where they differ, what they were drawn from, what is read while learning, and the limits."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from conftest import SMALL, build_cast, credited, doubled
from test_learn import TASK, gradients

from burnish.core.step import Step
from burnish.core.types import Clock
from burnish.learn.learn import Learn
from burnish.methods.imitation import sft
from burnish.zoo.semi_offline_rl import filled, mask_token, semi_offline_rl


def walked(small_model: Path, **options):
    built = semi_offline_rl(TASK, **{"n": 4, **options})
    models = doubled(build_cast(built, small_model))
    ((phase, groups, step),) = credited(built, models)
    return models, phase, groups, step


def test_a_fill_keeps_what_is_not_masked(small_model: Path) -> None:
    """Fills of one task share their places; elsewhere they are the static reply, and the last token always is."""
    models, _, groups, _ = walked(small_model)
    for group in groups:
        fills = [trace for trace in group.traces if "fill" in trace.tags]
        assert len(fills) == 4
        static = models["policy"].chat.reply(str(group.task.given["rejected"]))
        for fill in fills:
            assert torch.equal(fill.by("policy"), fills[0].by("policy"))
            start = len(fill.turns[0])
            kept = ~fill.by("policy")[start:]
            assert torch.equal(fill.tokens[start:][kept], static[kept]) and bool(kept[-1])
        assert len({tuple(fill.tokens.tolist()) for fill in fills}) > 1


def test_drawn_tokens_carry_the_log_probs_of_the_masked_reading(small_model: Path) -> None:
    """log pi at a masked place, with the mask read in all of them: one token at a time, the slow way."""
    models, _, groups, _ = walked(small_model)
    policy = models["policy"]
    fill = groups[0].traces[0]
    read = torch.where(fill.by("policy"), torch.tensor(mask_token(policy)), fill.tokens)
    with torch.no_grad():
        logp = torch.log_softmax(policy.module(read[None]).logits[0], -1)
    for turn, start, end in fill.spans():
        if turn.author == "policy":
            for k in range(start, end):
                assert float(logp[k - 1, fill.tokens[k]]) == pytest.approx(float(turn.logp[k - start]), abs=1e-5)


def test_learning_reads_the_masks(small_model: Path) -> None:
    """One fill by hand: A = 1 on one trace, 0 on the rest, so the loss is -weight n (1/|M|) sum of log
    pi with masks.
    """
    models, phase, groups, step = walked(small_model, weight=0.5)
    term = phase.learn.terms[0]
    for k, trace in enumerate(groups[0].traces):
        trace.streams["adv"] = torch.full((len(trace),), float(k == 0))
    mine = gradients(models, Learn(term, embed=phase.learn.embed), groups[:1], step)
    fill, policy = groups[0].traces[0], models["policy"]
    policy.optimiser.zero()
    logp = torch.log_softmax(policy.module(fill.streams["read"][None]).logits[0], -1)
    places = fill.by("policy").nonzero()[:, 0]
    at_places = logp[places - 1, fill.tokens[places]]
    fills = 4  # sequences that the term claims: its mean over them, times n, is their sum
    (-0.5 * 4 * at_places.mean() / fills).backward()
    theirs = torch.cat([p.grad.flatten() for p in policy.module.parameters()])
    assert float((mine - theirs).norm() / theirs.norm()) < 1e-9


def test_without_masks_it_is_imitation(small_model: Path) -> None:
    """share = 0: nothing is drawn, nothing is hidden, and with no smoothing the loss is that of `sft`."""
    models, phase, groups, step = walked(small_model, share=0.0, smoothing=0.0)
    mine = gradients(models, phase.learn, groups, step)
    built = sft(TASK)
    models = doubled(build_cast(built, small_model))
    ((phase, groups, step),) = credited(built, models)
    theirs = gradients(models, phase.learn, groups, step)
    assert float((mine - theirs).norm() / theirs.norm()) < 1e-9


def test_the_same_clock_draws_the_same_fills(small_model: Path) -> None:
    built = semi_offline_rl(TASK, n=3)
    models = build_cast(built, small_model)
    rollout = filled("rejected", 3, 0.4)

    def texts(tick: int) -> list[list[int]]:
        step = Step(Clock(2, 10, tick=tick), models, SMALL)
        tasks = built.phases[0].draw.call(step)
        return [trace.tokens.tolist() for group in rollout.call(tasks, step) for trace in group.traces]

    assert texts(0) == texts(0) != texts(1)


def test_a_share_beyond_one_is_refused() -> None:
    with pytest.raises(ValueError, match="option 'share' is 1.5; it must be between 0 and 1"):
        semi_offline_rl(TASK, share=1.5)
