"""The reference's log-probs are computed once per reply of a data set, and a resumed run does not notice."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import torch
from conftest import SMALL, build_cast
from guards import guards

import burnish
from burnish.api.train import resume
from burnish.checkpoint.diff import differences, log_rows
from burnish.core.roles import frozen, roles
from burnish.core.step import Step
from burnish.core.types import Clock, Task
from burnish.credit.cached import LogpCache, cached_ref
from burnish.credit.streams import ref
from burnish.rollout.given import given
from burnish.tasks.table import source

pytestmark = guards("credit/cached.py", "checkpoint")


def rows(path: Path, n: int) -> Path:
    lines = [{"prompt": f"say {i}", "chosen": f"yes {i}", "rejected": f"no {i * 7}"} for i in range(n)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_a_generated_task_is_not_cached() -> None:
    assert cached_ref(source("sort")).name == ref().name and not cached_ref(source("sort")).state


def test_the_second_epoch_reads_the_first_ones_numbers(small_model: Path) -> None:
    models = build_cast(SimpleNamespace(models=roles(ref=frozen("policy"))), small_model)  # type: ignore[arg-type]
    tasks = [Task("pair", f"say {i}", {"chosen": f"yes {i}", "rejected": "no"}, str(i)) for i in range(3)]
    cache = LogpCache()
    part = cached_ref(source("sort"), cache=cache)
    found = []
    for epoch in range(2):
        step = Step(Clock(epoch, 2), models, SMALL)
        groups = part.call(given("chosen", "rejected").call(tasks[epoch:], step), step)
        found.append({t.index: t.streams["ref"] for g in groups for t in g.traces if g.task.key == "1"})
        assert step.notes.values()["reference_cached"] == float(epoch)
    assert all(
        torch.equal(
            a,
            b,
        )
        or torch.equal(a.nan_to_num(7), b.nan_to_num(7))
        for a, b in zip(*(f.values() for f in found), strict=True)
    )
    plain = Step(Clock(0, 1), models, SMALL)
    (group,) = ref().call(given("chosen", "rejected").call(tasks[1:2], plain), plain)
    assert torch.allclose(group.traces[0].streams["ref"], found[1][0], atol=1e-5, equal_nan=True)


def test_the_cache_is_saved_bit_for_bit_and_has_a_limit() -> None:
    cache = LogpCache(capacity=5)
    cache.keep("a", torch.tensor([-0.1, float("nan"), -3.0]))
    cache.keep("b", torch.tensor([-1.0, -2.0, -3.0]))
    copy = LogpCache()
    copy.load_state_dict(json.loads(json.dumps(cache.state_dict())))
    assert list(copy.logps) == ["a"] and copy.size == 3
    assert torch.equal(copy.logps["a"].nan_to_num(9), cache.logps["a"].nan_to_num(9))
    empty = LogpCache()
    empty.load_state_dict(LogpCache().state_dict())
    assert not empty.logps


def test_a_run_over_several_epochs_resumes_bit_for_bit(small_model: Path, tmp_path: Path) -> None:
    import shutil

    data, straight, halted = rows(tmp_path / "pairs.jsonl", 6), tmp_path / "straight", tmp_path / "halted"
    burnish.train(
        "dpo",
        task=str(data),
        model=str(small_model),
        out=str(straight),
        steps=4,
        prompts=2,
        lr=1e-3,
        eval_tasks=0,
        save_every=2,
        device="cpu",
    )
    shutil.copytree(straight, halted)
    shutil.rmtree(halted / "checkpoints" / "step-000004")
    shutil.rmtree(halted / "model", ignore_errors=True)
    resume(halted)
    assert not differences(straight, halted)
    assert log_rows(straight, "metrics")[-1]["reference_cached"] > 0
