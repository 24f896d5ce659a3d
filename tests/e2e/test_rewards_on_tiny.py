"""What single rewards do to a policy, against the same run without them. Seeds are fixed; the margins are at most half
of the differences that were measured (docs/rewards.md has them for three seeds).
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from watched import Watched, mean, tuned, watched, written

from burnish.tasks.table import source

pytestmark = pytest.mark.slow
TWO_LEVELS = "path:1*0.5,path:4*0.5"


def lengths(run: Watched, task: str, steps: int = 8) -> float:
    return mean(reply.length for reply in run.last(steps, dataset=task))


def test_alp_shortens_easy_prompts_more_than_hard_ones(tmp_path: Path) -> None:
    """Tokens on path:1 and path:4. Measured: 16 and 37 without, 6 and 9 with the same penalty for all, 6 and 23."""
    common = {"task": TWO_LEVELS, "steps": 50}
    plain = watched("dr_grpo", tmp_path / "plain", **common)
    flat = watched("dr_grpo", tmp_path / "flat", shape="target_length(0, alpha=0.015)", **common)
    found = watched("dr_grpo", tmp_path / "alp", shape="alp(0.015)", **common)
    assert lengths(found, "path:1") < lengths(plain, "path:1") - 4
    assert lengths(found, "path:4") > lengths(flat, "path:4") + 4
    easy = [mean(reply.right for reply in run.last(8, dataset="path:1")) for run in (plain, found)]
    assert easy[1] > easy[0] - 0.1


def test_cosine_length_shortens_right_replies_and_not_wrong_ones(tmp_path: Path) -> None:
    """Measured: right replies to path:1 of 14.5 and 6.1 tokens, wrong ones to path:4 of 35 and 49; with the same
    penalty for all of them 6.0 and 4.0.
    """
    common = {"task": TWO_LEVELS, "steps": 40}
    plain = watched("grpo", tmp_path / "plain", **common)
    found = watched("grpo", tmp_path / "cosine", shape="cosine_length", **common)
    flat = watched("grpo", tmp_path / "flat", shape="target_length(0, alpha=0.015)", **common)
    right = [mean(r.length for r in run.last(8, dataset="path:1") if r.right) for run in (plain, found)]
    assert right[1] < right[0] - 4
    wrong = [mean(r.length for r in run.last(8, dataset="path:4") if not r.right) for run in (flat, found)]
    assert wrong[1] > wrong[0] + 15
    assert mean(r.right for r in found.last(8, dataset="path:1")) > 0.9


def distinct_right(run: Watched, steps: int = 8) -> float:
    """How many different right replies a group has."""
    groups: dict[tuple[int, str], set[str]] = {}
    for reply in run.last(steps):
        groups.setdefault((reply.step, reply.key), set()).update([reply.text] if reply.right else [])
    return mean(len(texts) for texts in groups.values())


def test_dra_keeps_several_right_replies(tmp_path: Path) -> None:
    """Measured: 1.9 different right replies in a group of 8 without it, 2.7 with it, correct 96% and 97%."""
    plain = watched("grpo", tmp_path / "plain", task="countdown:1", steps=40)
    found = watched("grpo", tmp_path / "dra", task="countdown:1", steps=40, shape="dra")
    assert distinct_right(found) > distinct_right(plain) + 0.3
    correct = [mean(r.right for r in run.last(8)) for run in (plain, found)]
    assert correct[1] > correct[0] - 0.08


# --------------------------------------------------------------------------------------------------------- curiosity

VALID = """
def valid(completions, edges, start, goal, **columns):
    found = []
    for text, links, a, b in zip(completions, edges, start, goal):
        path = text.rpartition("answer:")[2].split()
        known = {tuple(sorted(link.split("-"))) for link in links.split()}
        good = len(path) > 1 and path[0] == a and path[-1] == b and len(set(path)) == len(path)
        found.append(float(good and all(tuple(sorted(two)) in known for two in zip(path, path[1:]))))
    return found
"""


def paths(pairs: list[tuple[str, str]], path: list[str], goal: str) -> int:
    """How many ways lead on from a path to the goal, without visiting a node twice."""
    if path[-1] == goal:
        return 1
    ways = [b for pair in pairs for a, b in (pair, pair[::-1]) if a == path[-1] and b not in path]
    return sum(paths(pairs, [*path, way], goal) for way in ways)


def dense_graphs(count: int) -> list[dict[str, str]]:
    """Graphs of six nodes and nine edges, in which six paths or more are right."""
    dice, rows = random.Random(0), []
    while len(rows) < count:
        nodes = dice.sample("abcdefghijklmnopqrstuvwxyz", 6)
        pairs = [(nodes[dice.randrange(0, i)], nodes[i]) for i in range(1, 6)]
        while len(pairs) < 9:
            a, b = dice.sample(nodes, 2)
            if (a, b) not in pairs and (b, a) not in pairs:
                pairs.append((a, b))
        dice.shuffle(pairs)
        start, goal = dice.sample(nodes, 2)
        if (start, goal) in pairs or (goal, start) in pairs or paths(pairs, [start], goal) < 6:
            continue
        edges = " ".join("-".join(dice.sample(pair, 2)) for pair in pairs)
        rows.append({"prompt": f"Path {start} to {goal}: {edges}", "edges": edges, "start": start, "goal": goal})
    return rows


def test_curiosity_visits_more_replies(tmp_path: Path) -> None:
    """Seven graphs come again and again, and any valid path is paid. Measured: 300 different replies without it and
    484 with it; 98% and 94% right at the end.
    """
    rows = written(tmp_path / "graphs.jsonl", dense_graphs(9))
    (tmp_path / "own.py").write_text(VALID)
    common: dict[str, Any] = {"task": rows, "reward": f"{tmp_path}/own.py:valid", "steps": 40}
    plain = watched("grpo", tmp_path / "plain", **common)
    found = watched("grpo", tmp_path / "curious", shape="curiosity", **common)
    visited = [len({(r.key, r.text) for r in run.replies}) for run in (plain, found)]
    assert visited[1] > 1.2 * visited[0]
    assert mean(r.right for r in found.last(10)) > 0.8


# ----------------------------------------------------------------------------------------------------------- sayself


def unsure_rows() -> list[dict[str, str]]:
    """Reversals, which tiny knows, and guesses of one of two letters, which nobody can know; confidences at random."""
    dice, rows = random.Random(0), []
    for i in range(400):
        task = source("reverse:1").task("train", i)
        answer = task.given["answer"]
        demo = f"answer: {answer}\nconfidence: {dice.randint(1, 10)}"
        rows.append({"prompt": task.prompt[0]["content"], "answer": answer, "demo": demo})  # type: ignore[index]
        two = dice.sample("abcdefghijklmnopqrstuvwxyz", 2)
        demo = f"answer: {dice.choice(two)}\nconfidence: {dice.randint(1, 10)}"
        rows.append({"prompt": f"Guess: {two[0]} {two[1]}", "answer": dice.choice(two), "demo": demo})
    dice.shuffle(rows)
    return rows


def test_sayself_calibrates_stated_confidence(tmp_path: Path) -> None:
    """Measured: the calibration error falls from 0.21 to 0.01; without the reward it ends at 0.17."""
    rows = written(tmp_path / "rows.jsonl", unsure_rows())
    tuned(tmp_path / "sft", rows, 60)
    common: dict[str, Any] = {"model": str(tmp_path / "sft" / "model"), "task": rows, "steps": 40, "lr": 3e-4}
    plain = watched("dr_grpo", tmp_path / "plain", reward="math,sayself*0", **common)
    found = watched("dr_grpo", tmp_path / "said", reward="math,sayself", **common)
    first, last, other = (
        mean(step["calibration_error"] for step in steps)
        for steps in (found.metrics[:3], found.metrics[-6:], plain.metrics[-6:])
    )
    assert last < first - 0.04 and last < other - 0.02
    assert mean(step["confidence_stated"] for step in found.metrics[-6:]) > 0.9


# ---------------------------------------------------------------------------------------------------------- memory_r


def test_memory_r_narrows_and_widens_what_is_tried(tmp_path: Path) -> None:
    """Eight locks with codes of three letters out of four, which only a guess can open: 1 in 64. Measured with this
    seed: 670 different replies without it, 343 near past successes, 2,823 away from past failures.
    """
    dice = random.Random(0)
    names = [" ".join(dice.sample("klmnopqrstuvwxyz", 2)) for _ in range(9)]

    def code() -> str:
        return " ".join(dice.choice("abcd") for _ in range(3))

    locks = written(tmp_path / "locks.jsonl", [{"prompt": f"Lock: {name}", "answer": code()} for name in names])
    guesses = [{"prompt": f"Lock: {dice.choice(names)}", "demo": f"answer: {code()}"} for _ in range(600)]
    rows = written(tmp_path / "guesses.jsonl", guesses)
    tuned(tmp_path / "sft", rows, 60)

    def tried(name: str, **more: Any) -> int:
        common: dict[str, Any] = {"model": str(tmp_path / "sft" / "model"), "task": locks, "steps": 64, "lr": 3e-4}
        run = watched("grpo", tmp_path / name, **common, seed=1, **more)
        return len({(r.key, r.text) for r in run.replies})

    plain = tried("plain")
    assert tried("near", shape="memory_r(warmup=0, explore=0)") < 0.8 * plain
    assert tried("far", shape="memory_r(warmup=0, explore=0.1)") > 1.5 * plain


# ------------------------------------------------------------------------------------------------------------ timehc


def ordered_rows(kind: str) -> list[dict[str, str]]:
    """Letters one on a line, then what to do with them: Reverse depends on their order, Sort does not."""
    dice, rows = random.Random(kind), []
    for _ in range(300):
        letters = dice.sample("abcdefghijklmnopqrstuvwxyz", {"Reverse": 12, "Sort": 5}[kind])
        answer = " ".join(letters[::-1] if kind == "Reverse" else sorted(letters))
        rows.append(
            {"prompt": "\n".join([*letters, kind]), "answer": answer, "demo": f"<answer>{answer}</answer>"},
        )
    return rows


def test_the_temporal_bonus_pays_where_order_is_used(tmp_path: Path) -> None:
    """The bonus is the only reward: accuracy rises on the task that needs the order. Measured: 39
    points on reversals and 16 on sorting; all right reversals are paid, and 18% of the letters that are sorted right.
    """
    files = {kind: written(tmp_path / f"{kind}.jsonl", ordered_rows(kind)) for kind in ("Reverse", "Sort")}
    both = written(tmp_path / "both.jsonl", [row for kind in files for row in ordered_rows(kind)])
    tuned(tmp_path / "sft", both, 55)
    common: dict[str, Any] = {"model": str(tmp_path / "sft" / "model"), "steps": 24, "n": 16}
    gained, paid = {}, {}
    for kind, rows in files.items():
        run = watched(
            "dr_grpo",
            tmp_path / kind,
            task=rows,
            reward="timehc*0",
            shape="temporal(1, mu=3)",
            **common,
        )
        gained[kind] = mean(r.right for r in run.last(4)) - mean(r.right for r in run.replies if r.step < 4)
        paid[kind] = sum(step["reward/temporal"] for step in run.metrics) / sum(step["correct"] for step in run.metrics)
    assert gained["Reverse"] > 0.15
    assert paid["Reverse"] > 0.9 and paid["Sort"] < 0.5
