"""Weights saved by one layout of processes load in another: one rank or two over gloo, all weights or adapters."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from runs import go, tensors
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

import burnish
from burnish.checkpoint import checkpoint
from burnish.checkpoint.async_save import Saver
from burnish.config.options import configure
from burnish.core.loop import loop
from burnish.methods.table import find
from burnish.models.ranks import Ranks
from burnish.run.folder import Folder
from burnish.run.train import Observer, Run, prepare

WORLD, SECONDS = 2, 90
STEPS = 3


def work(rank: int, folder: Path, meeting: Path) -> None:
    """One of two ranks: resume a run of one process for one step, and save it together."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{meeting}", rank=rank, world_size=WORLD, timeout=timedelta(seconds=SECONDS)
    )
    place, stored = Folder.open(folder)
    name = stored.pop("method")
    stored["token_budget"] = 60  # several micro-batches, so that each rank has some
    run = prepare(find(name), configure(find(name), name, stored), place if rank == 0 else Folder(folder))
    run.models.ranks = Ranks(rank, WORLD)
    dist.barrier()
    with Saver(folder, run.memories(), run.models, run=place.identity(), keep=9) as saver:
        for report in loop(run.method, run.models, run.settings, steps=STEPS, start=run.start):
            saver.save(report.clock.step + 1)
        saver.wait()
    dist.barrier()
    dist.destroy_process_group()


def together(folder: Path, meeting: Path) -> None:
    running = multiprocessing.spawn(work, (folder, meeting), nprocs=WORLD, join=False)
    assert running is not None
    try:
        deadline = time.monotonic() + SECONDS
        while not running.join(timeout=1):
            assert time.monotonic() < deadline, f"the ranks were not done after {SECONDS} s"
    finally:
        for process in running.processes:
            process.kill()


class Begun(Observer):
    """What the policy of a run says before its first step."""

    def started(self, run: Run) -> None:
        with torch.no_grad():
            self.logits = run.models["policy"].module(input_ids=torch.arange(4, 20)[None]).logits


@pytest.mark.slow
@pytest.mark.parametrize("lora", [None, 4])
def test_one_rank_then_two_then_one(lora: int | None, small_model: Path, tmp_path: Path) -> None:
    if not dist.is_gloo_available():
        pytest.skip("this torch has no gloo")
    if lora:
        pytest.importorskip("peft")
    more: dict[str, Any] = {"lora": lora, "lr": 1e-3, "prompts": 4}
    go("sft", small_model, tmp_path / "alone", steps=STEPS, **more)
    go("sft", small_model, tmp_path / "shared", steps=2, **more)
    together(tmp_path / "shared", tmp_path / "meeting")
    last = tmp_path / "shared" / "checkpoints" / "step-000003"
    assert not checkpoint.damage(last)
    file = "adapter_model.safetensors" if lora else "model.safetensors"
    mine, theirs = (
        load_file(tmp_path / run / "checkpoints" / "step-000003" / "policy" / file) for run in ("alone", "shared")
    )
    assert mine.keys() == theirs.keys()
    for name, weight in mine.items():
        assert torch.allclose(weight, theirs[name], atol=2e-5, rtol=1e-4), name
    result = burnish.resume(tmp_path / "shared", steps=4)
    assert result.model is not None and tensors(result.model)


def test_a_checkpoint_is_a_model_for_transformers_and_for_burnish(small_model: Path, tmp_path: Path) -> None:
    """Full weights, adapters (through peft's own loading in transformers), and either as --model of another run."""
    pytest.importorskip("peft")
    for name, lora in (("full", None), ("lora", 4)):
        go("sft", small_model, tmp_path / name, steps=2, lora=lora, lr=1e-2)
        policy = tmp_path / name / "checkpoints" / "step-000001" / "policy"
        model = AutoModelForCausalLM.from_pretrained(policy, local_files_only=True)
        held = tensors(policy)
        for key, weight in model.named_parameters():
            if lora is None and f"model.safetensors/{key}" in held:
                assert weight.detach().numpy().tobytes() == held[f"model.safetensors/{key}"], key
        assert any("lora" in key for key, _ in model.named_parameters()) == bool(lora)
        begun = Begun()
        go("sft", policy, tmp_path / f"{name}-next", steps=1, observer=begun)
        ids = torch.arange(4, 20)[None]
        assert torch.allclose(begun.logits, model.eval()(input_ids=ids).logits, atol=1e-4), (
            "it starts from these weights"
        )
    go("ppo", tmp_path / "lora" / "model", tmp_path / "ppo", n=2, updates=1, steps=1)  # the critic starts from them too
    with pytest.raises(ValueError, match=r"holds LoRA adapters of rank 4; --lora 4 goes on training them"):
        go("sft", tmp_path / "lora" / "model", tmp_path / "no", lora=2)
    on = Begun()
    result = go("dpo", tmp_path / "lora" / "model", tmp_path / "on", lora=4, steps=1, lr=1e-2, observer=on)
    started = AutoModelForCausalLM.from_pretrained(tmp_path / "lora" / "model", local_files_only=True).eval()
    assert torch.allclose(on.logits, started(input_ids=torch.arange(4, 20)[None]).logits, atol=1e-4)
    assert result.model is not None and (result.model / "adapter_config.json").is_file()
    go("tr_dpo", small_model, tmp_path / "follows", lora=2, steps=2, sync=1, lr=1e-2)  # its reference follows
