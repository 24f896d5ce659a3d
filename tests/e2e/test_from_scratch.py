"""examples/grpo_from_scratch.py: one step of it equals one step of the loop, and it learns to be run by hand."""

from __future__ import annotations

import importlib.util
import runpy
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
from conftest import build_cast
from transformers import AutoModelForCausalLM, AutoTokenizer

from burnish.core.loop import loop
from burnish.core.step import Settings
from burnish.methods.table import find
from burnish.models.known_models import TINY
from burnish.tasks.table import source

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "grpo_from_scratch.py"
LR = 1e-4


def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("grpo_from_scratch", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def load() -> torch.nn.Module:
    return AutoModelForCausalLM.from_pretrained(TINY, dtype=torch.float32).eval()


def test_one_step_equals_one_step_of_the_loop() -> None:
    """The same replies, rewards, loss and (to fp32 rounding) the same weights after the update."""
    scratch, tasks = example(), source("add")
    settings = Settings(prompts=4, max_new_tokens=24, lr=LR)
    method = find("grpo").build(tasks, n=4, eps=0.2, beta=0.04)
    models = build_cast(method, TINY, settings)
    report = next(loop(method, models, settings, steps=16))
    groups = report.groups["main"]

    tokenizer, policy, reference = AutoTokenizer.from_pretrained(TINY), load(), load()
    optimiser = torch.optim.AdamW(policy.parameters(), lr=LR, weight_decay=0.0)
    before = {name: p.detach().clone() for name, p in policy.named_parameters()}
    options = SimpleNamespace(n=4, longest=24, seed=0, step=0, eps=0.2, beta=0.04)
    batch = [group.task for group in groups]
    ours = [scratch.rollout(policy, tokenizer, task, 4, 24, 0, 0) for task in batch]
    for one, other in zip(ours, groups, strict=True):
        for mine, theirs in zip(one.traces, other.traces, strict=True):
            assert mine.turns[1].tokens.tolist() == theirs.turns[1].tokens.tolist()
            assert torch.allclose(mine.turns[1].logp, theirs.turns[1].logp, atol=1e-5)

    reward, loss = scratch.grpo_step(policy, reference, optimiser, tokenizer, tasks, batch, options)
    assert reward == report.metrics["reward"] and 0 < reward < 1
    assert abs(loss - report.metrics["pg/loss"] - 0.04 * report.metrics["kl/loss"]) < 1e-5

    trained = dict(models["policy"].module.named_parameters())
    moved = torch.cat([(p.detach() - before[name]).flatten() for name, p in policy.named_parameters()])
    theirs = torch.cat([(trained[name].detach() - before[name]).flatten() for name in before])
    assert moved.abs().max() > 0.5 * LR  # the first step of AdamW moves a weight by about lr
    apart = (moved - theirs).abs()
    # where a gradient is near 0, AdamW's first step is its sign: rounding may turn a few
    assert apart.mean() < 0.01 * LR and (apart > 0.1 * LR).float().mean() < 0.01


def test_it_runs_as_a_script_and_is_short(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(EXAMPLE.read_text().splitlines()) <= 150
    words = [str(EXAMPLE), "--steps", "1", "--prompts", "2", "--n", "2", "--longest", "6"]
    monkeypatch.setattr(sys, "argv", words)
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    assert capsys.readouterr().out.startswith("step 1/1  reward ")
