"""An ensemble delays over-optimisation: the tiny model, best-of-n against the verifier as the gold standard."""

from __future__ import annotations

import json
import random
import statistics
from pathlib import Path

import pytest
import torch
from torch import Tensor

from burnish.core.loop import loop
from burnish.core.roles import Role
from burnish.core.step import Settings, Step
from burnish.core.types import Clock, Group
from burnish.evals.reward_eval import best_of_curve
from burnish.methods.table import find
from burnish.models.build import build
from burnish.models.known_models import resolve
from burnish.rollout.sample import sample
from burnish.score import aggregate
from burnish.score.heads import Scale, end_outputs
from burnish.score.judge import judge, reply_text
from burnish.tasks.resolve import resolve_task
from burnish.tasks.table import source

SETTINGS = Settings(prompts=8, max_new_tokens=48, lr=1e-4)
SORT = source("sort")
MEMBERS, ROWS, NOISE = 4, 96, 0.25


def noisy_pairs(path: Path, member: int) -> Path:
    """Two thirds of 96 pairs, of which a quarter has its labels the wrong way round: a bootstrap of its own."""
    rows = []
    for i in range(ROWS):
        task = SORT.task("train", i)
        sides = [task.given["demo"], task.given["mistake"]]
        if random.Random(f"noise{i}").random() < NOISE:
            sides.reverse()
        prompt = task.prompt if isinstance(task.prompt, str) else task.prompt[-1]["content"]
        rows.append({"prompt": prompt, "chosen": sides[0], "rejected": sides[1]})
    random.Random(member).shuffle(rows)
    file = path / f"{member}.jsonl"
    file.write_text("\n".join(map(json.dumps, rows[: int(0.67 * ROWS)])))
    return file


def member_scores(file: Path, member: int, groups: list[Group]) -> Tensor:
    """The scores of sampled replies by a reward model that was trained for 16 steps."""
    method = find("reward_model").build(resolve_task(str(file)))
    models = build(method.models, resolve("tiny"), SETTINGS, device="cpu")
    list(loop(method, models, SETTINGS, steps=16, seed=member))
    traces = [trace for group in groups for trace in group.traces]
    return end_outputs(traces, Step(Clock(0, 1), models, SETTINGS), "rm")[:, 0]


@pytest.mark.slow
def test_an_ensemble_delays_over_optimisation(tmp_path: Path) -> None:
    """The best of 64 by one reward model is worth less than its best of 8; mean - 2 variance keeps more of it."""
    policy = build({"policy": Role("frozen", "base")}, resolve("tiny"), SETTINGS, device="cpu")
    tasks = [SORT.task("heldout", i) for i in range(24)]
    groups = sample(64).call(tasks, Step(Clock(0, 1), policy, SETTINGS))
    asked = [(group.task, trace) for group in groups for trace in group.traces]
    texts = [reply_text(trace, policy["policy"].chat) for _, trace in asked]
    flat = iter(verdict.score for verdict in judge(SORT, [task for task, _ in asked], texts))
    gold = [[next(flat) for _ in group.traces] for group in groups]
    scores = torch.stack([member_scores(noisy_pairs(tmp_path, m), m, groups) for m in range(MEMBERS)], -1)
    scores = Scale(len(scores))(scores)

    def curve(proxy: Tensor) -> dict[int, float]:
        rows = [part.tolist() for part in proxy.split([len(group.traces) for group in groups])]
        return {one.n: one.gold.mean for one in best_of_curve(rows, gold)}

    single = [curve(scores[:, m]) for m in range(MEMBERS)]
    alone = {n: statistics.fmean(one[n] for one in single) for n in single[0]}
    careful = curve(aggregate.uncertainty_weighted(scores, 2.0))
    assert alone[64] < alone[8] - 0.2, f"one reward model is over-optimised: {alone}"
    assert careful[32] > alone[32] + 0.03 and careful[64] > alone[64] + 0.02, f"{careful} against {alone}"
    assert max(careful.values()) > max(alone.values())
