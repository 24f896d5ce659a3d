"""The commands that a run prints at its end do what they say, for a method of each family and every kind of data."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from conftest import make_model
from guards import guards
from runs import rows

import burnish
from burnish.cli import main

pytestmark = guards("report/final_message.py", "report/summary.py", "run")

COIN = """
import hashlib

def coin(completions):
    return [float(hashlib.md5(text.encode()).digest()[0] % 2) for text in completions]
"""
QUICK = ("--steps", "2", "--prompts", "2", "--eval-tasks", "2", "--max-new-tokens", "8", "--device", "cpu", "--quiet")


def data(kind: str, path: Path) -> str:
    made: dict[str, Any] = {
        "demonstrations": lambda n: {"prompt": f"q{n}", "completion": f"r{n}"},
        "conversations": lambda n: {
            "messages": [{"role": r, "content": f"{c}{n}"} for r, c in (("user", "a"), ("assistant", "b")) * 2]
        },
        "texts": lambda n: {"text": f"This is the text number {n}."},
        "pairs": lambda n: {"prompt": f"q{n}", "chosen": "good", "rejected": f"bad {n}"},
        "prompts": lambda n: {"prompt": f"q{n}"},
        "answers": lambda n: {"question": f"{n}+1?", "answer": str(n + 1)},
        "labels": lambda n: {"prompt": f"q{n}", "completion": "r", "label": n % 2 == 0},
        "steps": lambda n: {"prompt": f"q{n}", "completions": ["a\n", "b\n"], "labels": [True, n % 2 == 0]},
        "other": lambda n: {"body": f"q{n}", "reply": "r"},
    }
    return rows(path / f"{kind}.jsonl", *(made[kind](n) for n in range(24)))


@pytest.mark.parametrize(
    ("method", "kind", "more"),
    [
        ("sft", "demonstrations", ()),
        ("sft", "conversations", ("--train-on", "last")),
        ("sft", "texts", ()),
        ("sft", "labels", ()),
        ("sft", "other", ("--columns", "prompt=body,demo=reply")),
        ("dpo", "pairs", ()),
        ("grpo", "answers", ("--n", "2")),
        ("grpo", "prompts", ("--n", "2", "--reward", "COIN")),
        ("kto", "labels", ()),
        ("kto", "pairs", ()),
        ("reward_model", "pairs", ()),
        ("reward_model", "pairs", ("--chat-template", "own.jinja", "--system-prompt", "Be brief.", "--model", "small")),
        ("reward_model", "pairs", ("--lora", "2", "--lora-alpha", "4", "--tools", "tool.py:look")),
        ("process_reward_model", "steps", ()),
        ("genarm_rm", "pairs", ()),
        ("grpo", "prompts", ("--n", "2", "--reward", "rm(judge/model)")),
        ("ppo", "prompts", ("--n", "2", "--reward", "COIN")),
        ("luffy", "demonstrations", ("--n", "2", "--reward", "COIN")),
        ("gkd", "demonstrations", ("--teacher", "tiny")),
    ],
)
def test_next_commands_work(
    method: str, kind: str, more: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "coin.py").write_text(COIN)
    (tmp_path / "tool.py").write_text(TOOL)
    if "small" in more:  # another model than the default, without a template of its own
        (make_model(tmp_path / "small") / "chat_template.jinja").rename("own.jinja")
    if "rm(judge/model)" in more:
        pairs = ["--task", data("pairs", tmp_path), "--steps", "1", "--eval-tasks", "0", "--quiet"]
        assert main(["train", "reward_model", *pairs, "--device", "cpu", "--out", "judge"]) == 0
        capsys.readouterr()
    words = [word.replace("COIN", "coin.py:coin") for word in more]
    task = data(kind, tmp_path)
    assert main(["train", method, "--task", task, *words, *QUICK, "--out", "run"]) == 0
    printed = capsys.readouterr().out
    commands = [shlex.split(line.removeprefix("next:")) for line in printed.splitlines() if line.startswith("next:")]
    measured = [command for command in commands if command[1] == "eval"]
    assert measured or method == "process_reward_model", printed
    if "rm(judge/model)" in more:
        assert measured[0][measured[0].index("--reward-model") + 1] == "judge/model"
    if "small" in more:
        (trained,) = [command for command in commands if "--reward-model" in command]
        assert trained[trained.index("--model") + 1] == "small" and "--chat-template" in trained
    if "--lora" in more:
        (trained,) = [command for command in commands if "--reward-model" in command]
        assert all(
            f" {flag} " in " ".join(trained) for flag in ("--lora 2", "--lora-alpha 4.0", "--tools tool.py:look")
        )
    for command in commands:
        assert command[0] == "burnish"
        if command[1] == "chat":
            continue  # it waits for words: tests/e2e/test_cli.py
        short = ["--device", "cpu"]
        if command[1] == "eval":
            short += ["--tasks", "2"]
            if "--k" not in command:
                short += ["--k", "2"]
        elif "--resume" not in command:
            short += [word for word in QUICK if word not in ("--device", "cpu")] + ["--n", "2", "--out", "next"]
        else:
            short = ["--quiet"]
        assert main([*command[1:], *short]) == 0, (command, capsys.readouterr())
        assert "Traceback" not in capsys.readouterr().err


TOOL = """
import json
import urllib.request

def look(place: str) -> str:
    \"\"\"Look at a place.

    place: where
    \"\"\"
    return "nothing"

def run(task, base_url, api_key):
    asked = json.dumps({"model": "policy", "messages": [{"role": "user", "content": task["prompt"]}]}).encode()
    head = {"Authorization": f"Bearer {api_key}", "Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(f"{base_url}/chat/completions", asked, head)) as reply:
        return float(len(reply.read()) % 2)
"""


def test_products_that_order_no_pairs_are_read_by_what_reads_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A classifier of refusals by `burnish refusals`, with its own categories; value models by dvpo and by vas."""
    monkeypatch.chdir(tmp_path)
    labelled = [{"prompt": f"q{n}", "completion": f"r{n}", "why": ["late"] if n % 2 else []} for n in range(24)]
    rows(tmp_path / "why.jsonl", *labelled)
    words = ["--column", "why", "--cannot", "late", "--should-not", "rude"]
    assert main(["train", "refusal_classifier", "--task", "why.jsonl", *words, *QUICK, "--out", "why"]) == 0
    (tmp_path / "coin.py").write_text(COIN)
    sampled = ("--reward", "coin.py:coin", "--temperature", "0.7")
    assert main(["train", "global_value_model", "--task", "sort", "--lora", "2", *QUICK, "--out", "value"]) == 0
    assert main(["train", "vas_value", "--task", "sort", *sampled, "--lora", "2", *QUICK, "--out", "values"]) == 0
    printed = capsys.readouterr().out.splitlines()
    commands = [shlex.split(line.removeprefix("next:")) for line in printed if line.startswith("next:")]
    assert [command[1:3] for command in commands] == [
        *(["refusals", "why/model"], ["train", "--resume"], ["train", "dvpo"], ["train", "--resume"]),
        *(["train", "vas"], ["train", "--resume"]),
    ]
    assert "--lora 2" in " ".join(commands[2]) and "--lora" not in commands[4], "vas trains no model"
    assert {"--reward", "coin.py:coin", "--temperature", "0.7"} <= set(commands[4])
    assert main([*commands[0][1:], "--device", "cpu"]) == 0
    assert main([*commands[2][1:], *QUICK, "--out", "next"]) == 0
    assert main([*commands[4][1:], *QUICK, "--out", "guided"]) == 0


@pytest.mark.parametrize(
    ("task", "more", "flags"),
    [
        ("answers", ("--tools", "tool.py:look", "--turns", "2"), ["--tools", "tool.py:look", "--turns", "2"]),
        ("maze:1", ("--turns", "3"), ["--turns", "3"]),
        ("nim:1", ("--opponent", "snapshot(2)"), ["--opponent", "tiny"]),
        ("nim:1", ("--opponent", "tiny"), ["--opponent", "tiny"]),
        ("answers", ("--agent", "tool.py:run", "--agent-pays"), None),
    ],
)
def test_episodes_are_measured_as_in_the_run(
    task: str, more: tuple[str, ...], flags: list[str] | None, tmp_path: Path, capsys: Any, monkeypatch: Any
) -> None:
    """The printed evaluation has the run's tools, turns and opponent; an agent's episodes have none."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tool.py").write_text(TOOL)
    named = task if ":" in task else data(task, tmp_path)
    assert main(["train", "grpo", "--task", named, "--n", "2", *more, *QUICK, "--out", "run"]) == 0
    printed = capsys.readouterr().out.splitlines()
    commands = [shlex.split(line.removeprefix("next:")) for line in printed if line.startswith("next:   burnish eval")]
    assert [command[command.index("--task") + 2 :] for command in commands] == (
        []
        if flags is None
        else [[*flags[:2], "--max-new-tokens", "8"]]
        if flags[0] == "--opponent"
        else [["--max-new-tokens", "8", *flags]]
    )
    for command in commands:
        assert main([*command[1:], "--tasks", "2", "--k", "1", "--device", "cpu", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["measure"] == "accuracy"


def test_what_eval_measures_is_what_the_run_measured(
    small_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Held-out NLL after SFT, and held-out order and margin after DPO, by the run and by `burnish eval`."""
    common: dict[str, Any] = {"steps": 2, "prompts": 4, "lr": 1e-2, "device": "cpu", "model": str(small_model)}
    listed = data("demonstrations", tmp_path)
    sft = burnish.train("sft", task=listed, eval_tasks=burnish_heldout(listed), out=str(tmp_path / "sft"), **common)
    found = evaluated(capsys, sft.model, listed)
    assert found["measure"] == "likelihood"
    assert sft.after is not None
    assert found["nll"]["mean"] == pytest.approx(sft.after.value.mean, rel=1e-4)
    pairs = data("pairs", tmp_path)
    dpo = burnish.train("dpo", task=pairs, eval_tasks=burnish_heldout(pairs), out=str(tmp_path / "dpo"), **common)
    found = evaluated(capsys, dpo.model, pairs, "--reference", str(small_model))
    assert found["measure"] == "preference"
    assert dpo.after is not None
    assert found["accuracy"]["mean"] == pytest.approx(dpo.after.value.mean)
    untrained = evaluated(capsys, small_model, pairs, "--reference", str(small_model))
    assert (untrained["ties"], untrained["accuracy"]["mean"], untrained["margin"]["mean"]) == (1.0, 0.5, 0.0)


def test_the_win_rate_against_a_reference_by_the_verifier(
    small_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The reference has random weights and is never right: a win for each right reply, a tie for each wrong one."""
    asked = ("--reference", str(small_model), "--tasks", "20", "--k", "2")
    found = evaluated(capsys, "tiny", "sort", *asked)
    right = found["pass"]["1"]["mean"]
    assert 0.1 < right < 0.9
    assert found["win_rate"]["mean"] == pytest.approx((1 + right) / 2)
    assert found["win_rate"]["low"] < found["win_rate"]["mean"] < found["win_rate"]["high"]


def burnish_heldout(path: str) -> int:
    from burnish.tasks.data import Dataset

    return Dataset(path).size("heldout")


def evaluated(capsys: pytest.CaptureFixture[str], model: Any, task: str, *more: str) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["eval", str(model), "--task", task, "--json", "--device", "cpu", *more]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_eval_of_a_reward_model_and_by_a_reward_model(
    small_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = data("pairs", tmp_path)
    common: dict[str, Any] = {"steps": 6, "prompts": 8, "lr": 1e-2, "device": "cpu", "eval_tasks": 0}
    model = burnish.train("reward_model", model=str(small_model), task=pairs, out=str(tmp_path / "rm"), **common).model
    found = evaluated(capsys, model, pairs)
    assert (found["measure"], found["of"]) == ("preference", "score")
    assert found["accuracy"]["mean"] == 1.0
    scored = evaluated(capsys, small_model, data("prompts", tmp_path), "--reward-model", str(model), "--k", "2")
    assert scored["measure"] == "reward"
    assert scored["best"]["2"]["mean"] >= scored["reward"]["mean"]
    assert main(["eval", str(model), "--task", data("prompts", tmp_path)]) == 2
    assert "a reward model is measured on preference pairs" in capsys.readouterr().err


def test_eval_says_what_is_missing(small_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prompts = data("prompts", tmp_path)
    assert main(["eval", str(small_model), "--task", prompts]) == 2
    assert (
        "give a --reward function or a --reward-model, or data with answers, pairs or demonstrations"
        in capsys.readouterr().err
    )
    assert main(["eval", str(small_model), "--task", prompts, "--measure", "preference"]) == 2
    assert "does not allow --measure preference" in capsys.readouterr().err
