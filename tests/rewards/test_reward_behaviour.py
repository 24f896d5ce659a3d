"""What the ideas of reward models do, on a small random model: margins, debiasing, users, wrong labels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import build_cast
from guards import guards

from burnish.core.loop import loop
from burnish.core.method import Method
from burnish.core.step import Settings, Step
from burnish.core.types import Clock, Group
from burnish.methods.table import find
from burnish.models.build import Models
from burnish.models.save import save_directory
from burnish.score.data import personal
from burnish.score.debias import data_replies, training_tasks
from burnish.score.heads import answered, end_outputs
from burnish.tasks.resolve import resolve_task
from burnish.tasks.source import Source
from burnish.zoo.armorm import spearman

pytestmark = guards("rewards", "score", "learn/terms", "learn/maths")

SIDES = ("chosen", "rejected")
FAST = Settings(prompts=8, max_new_tokens=16, lr=3e-3)


def data(path: Path, rows: list[dict[str, Any]]) -> Source:
    path.write_text("\n".join(map(json.dumps, rows)))
    return resolve_task(str(path))


def after(method: Method, model: Path, steps: int) -> tuple[Models, list[dict[str, float]]]:
    models = build_cast(method, model, FAST)
    return models, [report.metrics for report in loop(method, models, FAST, steps=steps)]


def taste(user: str, i: int, wants: str) -> dict[str, Any]:
    """A user who prefers the reply with one letter to that with the other."""
    other = {"a": "b", "b": "a"}[wants]
    return {"prompt": f"{i}?", "chosen": wants * 3, "rejected": other * 3, "user": user}


def test_a_margin_drives_scores_further_apart(small_model: Path, tmp_path: Path) -> None:
    """Without one the loss is content with a small gap: its gradient at a gap of 3 is 1/20 of that with margin 3."""
    task = data(tmp_path / "pairs.jsonl", [taste("u", i, "a") for i in range(40)])
    gaps = {m: after(find("reward_model").build(task, margin=m), small_model, 40)[1][-1] for m in (0.0, 3.0)}
    assert gaps[3.0]["end/margin"] > gaps[0.0]["end/margin"] + 1
    assert gaps[0.0]["end/accuracy"] == gaps[3.0]["end/accuracy"] == 1.0


def test_debiased_attributes_do_not_follow_verbosity(small_model: Path, tmp_path: Path) -> None:
    """Raters gave longer replies more for quality: as fitted, quality ranks as length does; in the saved head not."""
    rows = []
    for i in range(40):
        row: dict[str, Any] = {"prompt": f"{i}?"}
        for side, length, word in (("chosen", 3 + i % 5, "abcd"[i % 4]), ("rejected", 1 + i % 3, "dcba"[i // 4 % 4])):
            row[side], row[f"{side}_length"] = word * length, length / 8
            row[f"{side}_quality"] = 0.6 * length / 8 + 0.1 * "abcd".index(word)  # by its length and by its letter
        rows.append(row)
    task = data(tmp_path / "pairs.jsonl", rows)
    found = {}
    for verbosity in ("length", ""):
        models, _ = after(find("armorm").build(task, rows=32, verbosity=verbosity), small_model, 1)
        step = Step(Clock(0, 1), models, FAST)
        found[verbosity] = end_outputs(data_replies(task, 32, step, "rm"), step, "rm")
    raw = found[""]
    assert spearman(raw[:, 0], raw[:, 1]) > 0.5, "as rated, quality goes with length"
    assert spearman(found["length"][:, 0], raw[:, 1]) <= 0.04 and not found["length"][:, 1].any()
    letters = torch.tensor(["abcd".index(str(t.given[side])[0]) for t in training_tasks(task, 32) for side in SIDES])
    kept, before = (spearman(found[one][:, 0], letters.double()) for one in ("length", ""))
    assert kept > before, "what the rating says of the content stands out"


def test_a_user_of_another_taste_finds_the_other_group(small_model: Path, tmp_path: Path) -> None:
    """Three users like a, one likes b, and they begin in groups 0, 1, 0, 1: only the right ones stay together."""
    likes = {"u0": "a", "u1": "a", "u2": "a", "u3": "b"}
    rows = [taste(user, i, wants) for i in range(16) for user, wants in likes.items()]
    method = find("maxmin_rm").build(data(tmp_path / "pairs.jsonl", rows), warmup=4)
    after(method, small_model, 24)
    (clusters,) = (state for part in method.phases[0].credit for state in part.state)
    found = {user: clusters.of(user) for user in likes}  # type: ignore[attr-defined]
    assert found["u0"] == found["u1"] == found["u2"] != found["u3"]


def test_a_latent_tells_users_of_opposite_tastes_apart(small_model: Path, tmp_path: Path) -> None:
    """No single score can be right for more than half of them; with the user's other pairs it is for nearly all."""
    rows = [taste(f"u{i % 4}", i // 4, "ab"[i % 2]) for i in range(64)]  # the prompt says nothing of the user
    task = data(tmp_path / "pairs.jsonl", rows)
    _, plain = after(find("reward_model").build(task), small_model, 30)
    models, found = after(find("vpl").build(task, latent=4), small_model, 60)
    assert sum(metrics["end/accuracy"] for metrics in plain[-10:]) / 10 < 0.75
    assert sum(metrics["end/accuracy"] for metrics in found[-10:]) / 10 > 0.8  # a user alone in its batch is unknown
    step = Step(Clock(0, 1), models, FAST)
    liked = {}
    for wants in "ab":
        context = [t for t in training_tasks(task, 40) if t.given["chosen"] == wants * 3][:4]
        asked = training_tasks(task, 1)[0]
        chat = models["rm"].chat
        group = Group(asked, [answered(asked, text, chat, 99) for text in ("aaa", "bbb")])
        personal(context, author="demo").call([group], step)
        liked[wants] = [trace.scores["reward"] for trace in group.traces]
    assert liked["a"][0] > liked["a"][1] and liked["b"][0] < liked["b"][1]


def test_an_ensemble_that_knows_better_flips_wrong_labels(small_model: Path, tmp_path: Path) -> None:
    """A quarter of the labels is wrong. The judge was trained on right ones: it flips the wrong, and no other."""
    clean = data(tmp_path / "clean.jsonl", [taste("u", i, "a") for i in range(40)])
    judge, _ = after(find("reward_ensemble").build(clean, heads=3), small_model, 15)
    save_directory(judge["rm"].module, judge["rm"].chat, tmp_path / "judge")
    rows = [taste("u", i, "b" if i % 4 == 0 else "a") for i in range(60)]
    options = {"flip": 0.3, "soft": 0.0, "top": 0.0, "margin": 0.0, "count": 40}
    method = find("denoised_reward_model").build(
        data(tmp_path / "noisy.jsonl", rows), ensemble=str(tmp_path / "judge"), **options
    )
    models, found = after(method, small_model, 15)
    flipped = sum(metrics["flipped"] for metrics in found) / len(found)
    assert flipped == pytest.approx(0.25, abs=0.08)
    assert found[-1]["end/accuracy"] == 1.0, "after the flips all pairs agree"
