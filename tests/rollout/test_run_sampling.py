"""--temperature, --top-p, --top-k, --min-p and --repetition-penalty: the trainer's distribution is the sampler's."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import SMALL, build_cast, coin, doubled
from torch import Tensor

import burnish
from burnish.compose.chunked import chunked
from burnish.core.method import Method, method
from burnish.core.roles import frozen, roles
from burnish.core.step import Step
from burnish.core.types import Clock, Group, Sampling, Trace, how_drawn
from burnish.credit.group import group_relative
from burnish.credit.streams import behaviour, ref
from burnish.draw.tasks import prompts
from burnish.engine.local import LocalEngine, Request
from burnish.engine.transformers_engine import TransformersEngine
from burnish.learn.learn import Learn
from burnish.learn.terms import kl_k3, pg_clip
from burnish.method import chain
from burnish.methods.table import find
from burnish.models.model import Model
from burnish.rollout.sample import sample
from burnish.score.verify import verify
from burnish.store import open_store
from burnish.tasks.table import source
from burnish.tasks.task_set import rewarded

TASK = rewarded(source("sort"), coin)
CUT = Sampling(0.8, 0, 0.6, 0.0, 1.5, as_drawn=True)


def clipped() -> Method:
    return method(
        draw=prompts(TASK),
        rollout=sample(3),
        score=verify(TASK),
        credit=chain(group_relative(), behaviour(), ref()),
        learn=Learn(pg_clip(0.2), kl_k3(coef=0.1)),
        models=roles(ref=frozen("policy")),
    )


def step_of(base: Path, sampling: Sampling, **more: Any) -> Step:
    return Step(Clock(0, 10), build_cast(clipped(), base), replace(SMALL, sampling=sampling, **more))


def sampled(step: Step) -> list[Group]:
    (phase,) = clipped().phases
    return phase.rollout.call(phase.draw.call(step), step)


def plain_logits(policy: Model, trace: Trace) -> Tensor:
    """[t, V] in fp64: what the model says before each sampled token, with nothing done to it."""
    with torch.no_grad():
        return policy.outputs([trace.tokens], [trace.by("policy")], {"logits"})["logits"].double()


def by_hand(logits: Tensor, before: list[int], how: Sampling) -> Tensor:
    """[V] log-probs of the next token, from the definitions: penalty, temperature, then the smallest set of top_p."""
    z = logits.clone()
    for token in set(before):
        z[token] = z[token] / how.repetition_penalty if z[token] > 0 else z[token] * how.repetition_penalty
    p = torch.softmax(z / how.temperature, -1)
    kept, total = [], 0.0
    for token in p.argsort(descending=True).tolist():
        if total >= how.top_p:
            break
        kept.append(token)
        total += float(p[token])
    found = torch.full_like(p, -math.inf)
    found[kept] = (p[kept] / p[kept].sum()).log()
    return found


def test_recorded_and_trained_log_probs_are_those_of_the_definition(small_model: Path) -> None:
    step = step_of(small_model, CUT)
    policy = step.models["policy"]
    sizes = []
    for trace in (trace for group in sampled(step) for trace in group.traces):
        said, ids = trace.turns[-1], trace.tokens.tolist()
        assert said.allowed is not None and said.logp is not None
        mask = trace.by("policy")
        with torch.no_grad():
            live = policy.outputs([trace.tokens], [mask], {"logp", "entropy"}, how_drawn([trace], [mask]))
        for t, (row, among) in enumerate(zip(plain_logits(policy, trace), said.allowed.by_token(), strict=True)):
            at = len(ids) - len(said) + t
            expected = by_hand(row, ids[:at], CUT)
            assert set(among.tolist()) == set(expected.isfinite().nonzero()[:, 0].tolist())
            assert abs(float(expected[ids[at]]) - float(said.logp[t])) < 1e-5
            assert abs(float(expected[ids[at]]) - float(live["logp"][t])) < 1e-5
            p = expected[expected.isfinite()]
            assert abs(float(-(p.exp() * p).sum()) - float(live["entropy"][t])) < 1e-5
            sizes.append(len(among))
    assert 1 < sum(sizes) / len(sizes) < 100  # a part of the vocabulary, and not always one token


def test_the_gradient_is_that_of_the_restricted_distribution(small_model: Path) -> None:
    step = step_of(small_model, CUT)
    traces = [trace for group in sampled(step) for trace in group.traces][:3]
    models = doubled(step.models)
    policy, masks = models["policy"], [trace.by("policy") for trace in traces]

    def gradient(total: Tensor) -> Tensor:
        policy.optimiser.zero()
        total.backward()
        return torch.cat([p.grad.flatten() for p in policy.module.parameters() if p.grad is not None]).clone()

    drawn = policy.outputs([t.tokens for t in traces], masks, {"logp"}, how_drawn(traces, masks))["logp"]
    weights = torch.linspace(-1, 2, len(drawn), dtype=drawn.dtype)
    fast, total = gradient((weights * drawn).sum()), torch.zeros((), dtype=torch.float64)
    found = []
    for trace, mask in zip(traces, masks, strict=True):
        said, ids = trace.turns[-1], trace.tokens.tolist()
        assert said.allowed is not None
        logits = policy.outputs([trace.tokens], [mask], {"logits"})["logits"]
        for t, (row, among) in enumerate(zip(logits, said.allowed.by_token(), strict=True)):
            at = len(ids) - len(said) + t
            seen = torch.zeros(len(row), dtype=torch.bool)
            seen[ids[:at]] = True
            z = torch.where(seen, torch.where(row > 0, row / 1.5, row * 1.5), row) / 0.8
            found.append(z[ids[at]] - torch.logsumexp(z[among.long()], 0))
    total = (weights * torch.stack(found)).sum()
    slow = gradient(total)
    assert float((fast - slow).norm() / slow.norm()) < 1e-9


def test_the_general_path_says_what_the_fast_one_says(small_model: Path) -> None:
    policy = build_cast(clipped(), small_model)["policy"]
    how = CUT.named()
    requests = [Request(policy.chat.prompt(TASK.task("train", i % 3)), i, 9, **how) for i in range(6)]
    requests.append(Request(requests[0].prompt, 77, 5))  # one from the whole distribution among them
    runner = policy.working.current()
    fast = LocalEngine(runner, policy.chat, policy.context).generate(requests)
    slow = TransformersEngine(runner, policy.chat, policy.context).generate(requests)
    for one, other in zip(fast, slow, strict=True):
        assert torch.equal(one.tokens, other.tokens) and torch.allclose(one.logp, other.logp, atol=1e-5)
        assert (one.allowed is None) == (other.allowed is None)
        if one.allowed is not None and other.allowed is not None:
            assert torch.equal(one.allowed.sizes, other.allowed.sizes) and torch.equal(
                one.allowed.ids, other.allowed.ids
            )
            assert len(one.allowed.sizes) == len(one.tokens)
    assert fast[-1].allowed is None and all(sample.allowed is not None for sample in fast[:-1])


def test_a_reply_in_chunks_keeps_what_each_token_was_drawn_among(small_model: Path) -> None:
    whole = sampled(step_of(small_model, CUT))
    step = step_of(small_model, CUT, chunk=4)
    (phase,) = chunked(clipped()).phases
    groups = phase.rollout.call(phase.draw.call(step), step)
    for _ in range(4):
        groups += phase.rollout.call([], step)
    assert len(groups) == len(whole)
    for group in groups:
        (same,) = (other for other in whole if other.task.key == group.task.key)
        for one, other in zip(group.traces, same.traces, strict=True):
            mine, its = one.turns[-1].allowed, other.turns[-1].allowed
            assert mine is not None and its is not None
            assert torch.equal(mine.ids, its.ids) and torch.equal(mine.sizes, its.sizes)


@pytest.mark.parametrize("options", [{"top_p": 0.8}, {"temperature": 0.7, "top_k": 20, "repetition_penalty": 1.2}])
def test_the_ratio_of_fresh_replies_is_exactly_one(options: dict[str, float], tmp_path: Path) -> None:
    """--exact stops the run if a single log-prob of the trainer differs from the sampler's in one bit."""
    small: dict[str, Any] = {"prompts": 4, "n": 4, "max_new_tokens": 8, "eval_tasks": 0, "device": "cpu"}
    run = burnish.train("grpo", task="sort", steps=2, exact=True, out=tmp_path / "run", **small, **options)
    with open_store(run.folder) as store:
        rows = store.sql("SELECT value FROM metrics WHERE name = 'mismatch/logp'")
        assert [row["value"] for row in rows] == [0.0, 0.0]


def test_a_preference_loss_is_about_the_whole_distribution() -> None:
    """top_p only chooses what a preference method compares; its log-ratios stay those of the policy."""
    assert find("grpo").build(TASK).sampled(top_p=0.9).as_drawn
    assert find("lite_ppo").build(TASK).sampled().as_drawn
    assert not find("grpo").build(TASK).sampled(temperature=0.7).as_drawn
    assert not find("online_dpo").build(TASK).sampled(top_p=0.9).as_drawn
    assert find("sppo").build(TASK).sampled(temperature=1.0) == Sampling(1.0, 0, 0.9)


def test_options_that_would_change_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match=r"sft samples no replies, so that --top-p, --top-k would change nothing"):
        find("sft").build(source("sort")).sampled(top_p=0.9, top_k=3)
    with pytest.raises(ValueError, match="dpo_vp samples in a way of its own, so that --temperature would"):
        find("dpo_vp").build(TASK).sampled(temperature=0.5)
