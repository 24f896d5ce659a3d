"""Evolving rubrics, panels of judges, and principles: numbers by hand, what they are with their idea off, attacks."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import SMALL, build_cast, make_model
from judge_server import JudgeServer, prompt_of, serving
from test_judge_scorers import Replies, at, scored, scorer_of
from test_judges import blocks_of

from burnish.cli import main
from burnish.core.loop import loop
from burnish.core.scorer import is_failed
from burnish.core.seeds import rng
from burnish.core.task import Task
from burnish.core.types import Clock
from burnish.judges import read
from burnish.methods.table import find
from burnish.tasks.data.dataset import Dataset
from burnish.tasks.principled import ONLY, Principled, negated, scores_of, with_principles
from burnish.tasks.table import source
from burnish.zoo.multicritique import focal_ranking

# ------------------------------------------------------------------------------------------------------------- meta_po


def meta_judge(body: dict[str, Any]) -> str:
    text = prompt_of(body)
    if "write a better rubric" in text:
        return "5 | is right\n5 | is short\n5 | is polite"
    return "Scores: 3, 4" if "3 | is right" not in text and "is polite" not in text else "Scores: 3, 3, 3"


def at_step(made: Replies, step: int, reply: str = "a reply") -> tuple[float, dict[str, float]]:
    made.step = replace(made.step, clock=Clock(step, 30), notes=type(made.step.notes)())
    (trace,) = made.scored("q", [reply])
    return trace.scores["reward/meta_po"], made.step.notes.means()


def test_a_rubric_is_refined_every_few_steps_and_its_scale_jumps(small_model: Path) -> None:
    """Items of 5: 3 + 4 = 7; after a refinement three items of 3 each: 9 for a no better reply; as shares 0.7, 0.6."""
    with serving(meta_judge) as server:
        for scale, before, after in (("sum", 7.0, 9.0), ("share", 0.7, 0.6)):
            text = f"meta_po({at(server)}, rubric='5 | is right\\n5 | is short', every=2, scale={scale})"
            made = Replies(small_model, scorer_of(text))
            assert at_step(made, 0)[0] == pytest.approx(before) and at_step(made, 1)[0] == pytest.approx(before)
            value, notes = at_step(made, 2)
            assert value == pytest.approx(after) and notes["rubric_version"] == 1
            assert at_step(made, 2)[1]["rubric_version"] == 1, "once per step"
            (memory,) = made.scorer.part.state
            other = Replies(small_model, scorer_of(text))
            other.scorer.part.state[0].load_state_dict(json.loads(json.dumps(memory.state_dict())))
            assert at_step(other, 3)[0] == pytest.approx(after), "a resumed run has the refined rubric"
            assert [one["step"] for one in memory.state_dict()["versions"]] == [0, 2]
        fixed = Replies(small_model, scorer_of(f"meta_po({at(server)}, rubric='5 | is right\\n5 | is short', every=0)"))
        assert [at_step(fixed, step)[0] for step in (0, 10, 20)] == [7.0, 7.0, 7.0]


def test_a_refinement_that_cannot_be_read_changes_nothing(small_model: Path) -> None:
    def judge(body: dict[str, Any]) -> str:
        return "I would ask for more." if "write a better rubric" in prompt_of(body) else "Scores: 9"

    with serving(judge) as server:
        made = Replies(small_model, scorer_of(f"meta_po({at(server)}, every=1)"))
        assert at_step(made, 0)[0] == 9.0
        value, notes = at_step(made, 1)
        assert value == 9.0 and notes["rubric_version"] == 0 and notes["judge_unread"] == 0.5
    with serving(lambda body: "Scores: 6, 1") as server:
        (trace,), _ = scored(small_model, f"meta_po({at(server)}, rubric='5 | a\\n5 | b')", "q", ["a reply"])
    assert is_failed(trace), "6 of 5 is no score"


# ------------------------------------------------------------------------------------------------------- multicritique


def panel(first: JudgeServer, second: JudgeServer, more: str = "") -> str:
    judges = "+".join(f"endpoint({one.url}, m, cache=off)" for one in (first, second))
    return f"multicritique(judges={judges}{more})"


def test_a_panel_adds_its_flaws_and_a_meta_judge_drops_wrong_ones(small_model: Path) -> None:
    """Flaws 4, 2 and 3: 1 - 9 / 14; the meta judge confirms the first as 4 and the third as 2: 1 - 6 / 14."""

    def chief(body: dict[str, Any]) -> str:
        assert blocks_of(prompt_of(body))["flaws"] == "1. wrong\n2. rude\n3. long"
        return "1 | 4\n2 | 0\n3 | 2"

    with serving(lambda body: "4 | wrong\n2 | rude") as a, serving(lambda body: "3 | long") as b, serving(chief) as c:
        (plain, empty), _ = scored(small_model, panel(a, b), "q", ["a reply", "Solution"])
        assert plain.scores["reward/multicritique"] == pytest.approx(1 - 9 / 14)
        assert empty.scores["reward/multicritique"] == 0.0
        meta = f", meta=endpoint({c.url}, m, cache=off)"
        (trace,), _ = scored(small_model, panel(a, b, meta), "q", ["a reply"])
    assert trace.scores["reward/multicritique"] == pytest.approx(1 - 6 / 14)
    assert trace.note["critique"] == "4 | wrong\n2 | long"


def test_no_flaw_is_the_best_and_no_critique_is_a_failure(small_model: Path) -> None:
    with serving(lambda body: "0 | none") as a, serving(lambda body: "nice!") as b:
        (trace,), step = scored(small_model, panel(a, b), "q", ["a reply"])
        assert trace.scores["reward/multicritique"] == 1.0 and step.notes.means()["judge_unread"] == 0.5
        (trace,), _ = scored(small_model, panel(b, b), "q", ["a reply"])
        assert is_failed(trace)
    assert read.numbered_severities("1 | 7\n2 | 9\n1 | 3\n5 | 2", 3, 7) == [(0, 3)]


def test_the_focal_loss_becomes_bradley_terry() -> None:
    d = torch.tensor([-2.0, 0.0, 0.7, 30.0], dtype=torch.float64, requires_grad=True)
    assert torch.allclose(focal_ranking(d, 0.0), torch.nn.functional.softplus(-d))
    found = focal_ranking(d, 2.0)
    values = found.detach()
    assert float(values[1]) == pytest.approx(math.log(2)) and float(values[0]) == pytest.approx(math.log1p(math.exp(2)))
    p = 1 / (1 + math.exp(-0.7))
    assert float(values[2]) == pytest.approx(-((1 - 2 * (p - 0.5)) ** 2) * math.log(p))
    found.sum().backward()
    assert d.grad is not None and bool(torch.isfinite(d.grad).all())


# -------------------------------------------------------------------------------------------------------------- salmon


def rows(tmp_path: Path) -> Dataset:
    file = tmp_path / "pairs.jsonl"
    scores = [{"a": 1.0, "b": -2.0}, {"a": 2.0, "b": None}, {"a": 3.0, "b": 2.0}] * 8
    lines = [
        {"prompt": f"say {i}", "chosen": f"yes {i}", "rejected": f"no {i}", "principle_scores": one}
        for i, one in enumerate(scores)
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return Dataset(str(file))


def test_the_decisive_principle_labels_the_pair(tmp_path: Path) -> None:
    """a has the variance of its scores, 2/3 of (1, 2, 3); b that of (-2, 2), 4: of the first row a gives 1 / 0.667
    = 1.5 and b -2 / 4 = -0.5, so a decides and the chosen reply stays; negated, a says the opposite."""
    made = Principled(rows(tmp_path), negate=0.0, noise=0.0, chance=1e-9, most=8)
    assert made.variances["a"] == pytest.approx(2 / 3, rel=0.3) and made.variances["b"] == pytest.approx(4, rel=0.3)
    texts, prefers = made.label({"a": 1.0, "b": -2.0}, rng(0))
    assert sorted(texts) == ["a", "b"] and prefers
    texts, prefers = Principled(rows(tmp_path), 1.0, 0.0, 1e-9, 8).label({"a": 1.0, "b": -2.0}, rng(0))
    assert sorted(texts) == sorted([negated("a"), negated("b")]) and not prefers, "text and sign"
    assert made.label({"a": None}, rng(0)) == (["a"], True)


def test_principles_stand_in_the_prompt_of_both_replies(tmp_path: Path) -> None:
    made = Principled(rows(tmp_path), negate=0.5, noise=0.0, chance=0.2, most=8)
    flips = 0
    for i in range(20):
        task = made.task("train", i)
        assert "A good reply follows these principles:" in str(task.prompt)
        flips += str(task.given["chosen"]).startswith("no")
        assert made.task("train", i) == task
    assert 0 < flips < 20
    plain = Principled(source("sort:1"), 0.0, 0.0, 0.2, 8).task("train", 0)
    assert plain.given["chosen"] == plain.given["demo"] and ONLY in str(plain.prompt), (
        "one fixed principle: plain pairs"
    )


def test_noise_flips_training_labels_alone(tmp_path: Path) -> None:
    sort = source("sort:1")
    noisy = Principled(sort, 0.0, 0.3, 0.2, 8)
    flipped = [noisy.task("train", i).given["chosen"] != sort.task("train", i).given["demo"] for i in range(200)]
    assert 35 < sum(flipped) < 85
    assert all(noisy.task("heldout", i).given["chosen"] == sort.task("heldout", i).given["demo"] for i in range(50))


def test_the_reward_adds_length_and_the_price_of_no_end(small_model: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForSequenceClassification

    path = make_model(tmp_path / "rm", seed=3)
    scoring = AutoModelForSequenceClassification.from_pretrained(path, num_labels=1, trust_remote_code=False)
    torch.nn.init.normal_(scoring.score.weight)
    scoring.save_pretrained(path)
    plain = Replies(small_model, scorer_of(f"salmon({path}, 'be kind', length_bonus=0, unfinished=0)"))
    priced = Replies(small_model, scorer_of(f"salmon({path}, 'be kind')"))
    (bare,), (paid,) = plain.scored("q", ["yes"]), priced.scored("q", ["yes"])
    tokens = len(paid.turns[1])
    assert paid.scores["reward/salmon"] - bare.scores["reward/salmon"] == pytest.approx(5 * tokens / 1024)
    other = Replies(small_model, scorer_of(f"salmon({path}, 'be rude', length_bonus=0, unfinished=0)"))
    assert other.scored("q", ["yes"])[0].scores["reward/salmon"] != bare.scores["reward/salmon"]
    chat = plain.step.models["salmon"].chat
    task = with_principles(Task("question", "q", {}, "q"), ["be kind"])
    assert "- be kind" in str(task.prompt) and len(chat.prompt(task))


def test_labels_by_principles_are_written_and_train_a_reward_model(small_model: Path, tmp_path: Path) -> None:
    """The judge prefers the longer text: both orders agree, so every pair has a score, and it loads again."""

    def judge(body: dict[str, Any]) -> dict[str, Any]:
        blocks = blocks_of(prompt_of(body))
        p = 0.9 if len(blocks["A"]) > len(blocks["B"]) else 0.1 if len(blocks["A"]) < len(blocks["B"]) else 0.5
        top = [{"token": "A", "logprob": math.log(p)}, {"token": "B", "logprob": math.log(1 - p)}]
        return {"choices": [{"message": {"content": "A"}, "logprobs": {"content": [{"top_logprobs": top}]}}]}

    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": f"say {i}"}) + "\n" for i in range(8)))
    out = tmp_path / "pairs.jsonl"
    words = ["pairs", "--model", str(small_model), "--task", str(prompts), "--out", str(out), "--n", "2"]
    words += ["--max-new-tokens", "12", "--keep-cut-off", "--style", "standard", "--device", "cpu", "--json"]
    with serving(judge) as server:
        reward = f"principle_labels(endpoint({server.url}, m, cache=off), 'be long\\nbe kind')"
        assert main([*words, "--reward", reward]) == 0
    data = [json.loads(line) for line in out.read_text().splitlines()]
    assert data and all(len(row["chosen"]) > len(row["rejected"]) for row in data)
    assert {one["name"] for one in data[0]["principle_scores"]} == {"be long", "be kind"}
    assert data[0]["principle_scores"][0]["rating"] == pytest.approx(math.log(9))
    loaded = Dataset(str(out))
    assert scores_of(loaded.task("train", 0)).keys() == {"be long", "be kind"}
    method = find("salmon").build(loaded)
    report = next(loop(method, build_cast(method, small_model), SMALL, steps=1))
    assert report.metrics["end/loss"] > 0
