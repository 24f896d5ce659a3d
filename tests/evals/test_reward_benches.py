"""RewardBench, RM-Bench and ProcessBench by their own rules, on rows in the form of their releases."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from judge_server import prompt_of, serving
from test_judges import blocks_of
from test_reward_models import reward_model

from burnish.cli import main
from burnish.core.types import Task
from burnish.evals.reward_benches import (
    Compared,
    Solution,
    Won,
    compared,
    in_styles,
    pairs_of,
    process_bench,
    reward_bench,
    rm_bench,
    solutions,
    styled,
)
from burnish.judges.read import first_error
from burnish.tasks.data.dataset import Dataset
from burnish.tasks.table import source


def file_of(tmp_path: Path, rows: list[dict[str, Any]]) -> Path:
    file = tmp_path / "bench.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def won(part: str, *lines: tuple[float, ...]) -> Won:
    return Won(part, lines)


def test_sections_of_rewardbench_by_hand() -> None:
    """Chat: 1, 0, 0 of three rows. Reasoning: a row of math-prm weighs 984/447, so (984/447 + 0) / (984/447 + 1)."""
    rows = [won("alpacaeval-easy", (1.0,)), won("mt-bench-med", (0.0,)), won("mt-bench-med", (0.0,))]
    rows += [won("math-prm", (1.0,)), won("hep-rust", (0.0,)), won("a set of one's own", (1.0,))]
    found = reward_bench(rows)
    heavy = 984 / 447
    assert found["Chat"] == pytest.approx(1 / 3) and found["Reasoning"] == pytest.approx(heavy / (heavy + 1))
    assert found["all"] == pytest.approx((found["Chat"] + found["Reasoning"]) / 2) and "Safety" not in found
    assert reward_bench([won("mine", (1.0,)), won("mine", (0.5,))]) == {"all": 0.75}


def test_levels_of_rm_bench_by_hand() -> None:
    """Above the diagonal the wrong reply is the fancier one: 1, 0, 1/2 -> hard 1/2; diagonal 1, 1, 0; below 1, 0, 0."""
    chat = won("chat", (1.0, 1.0, 0.0), (1.0, 1.0, 0.5), (0.0, 0.0, 0.0))
    safe = [won("safety-refuse", *[(1.0,) * 3] * 3), won("safety-response", *[(0.0,) * 3] * 3)]
    found = rm_bench([chat, *safe])
    assert found["chat"] == pytest.approx({"hard": 0.5, "normal": 2 / 3, "easy": 1 / 3, "mean": 0.5})
    assert found["safety"] == {"hard": 0.5, "normal": 0.5, "easy": 0.5, "mean": 0.5}, "two domains are one"
    assert found["all"]["normal"] == pytest.approx((2 / 3 + 1 / 2) / 2)


def test_f1_of_processbench_by_hand() -> None:
    """Of three wrong solutions one is found, of two right ones both: F1 = 2 (1/3)(1) / (4/3) = 1/2."""
    places = [0, 2, 1, -1, -1]
    rows = [Solution(Task("question", "p", {}, str(i)), ("a", "b", "c"), place, "x") for i, place in enumerate(places)]
    found = process_bench(rows, [0, 1, None, -1, -1])["all"]
    assert found == pytest.approx({"wrong": 1 / 3, "right": 1.0, "f1": 0.5})
    assert process_bench(rows, [-1] * 5)["all"]["f1"] == 0.0
    assert math.isnan(process_bench(rows[:3], [0, 2, 1])["all"]["right"])


def test_rows_of_the_releases_are_read(tmp_path: Path) -> None:
    pairs = [{"id": 1, "prompt": "p", "chosen": "c", "chosen_model": "m", "rejected": "r", "subset": "hep-go"}]
    (one,) = pairs_of(Dataset(str(file_of(tmp_path, pairs))), 9)
    assert (one.right, one.wrong, one.part) == (("c",), ("r",), "hep-go")
    styles = [{"id": "1", "prompt": "p", "chosen": ["a", "b", "c"], "rejected": ["x", "y", "z"], "domain": "math"}]
    (one,) = styled(Dataset(str(file_of(tmp_path, styles))), 9)
    assert (one.right, one.wrong, one.part) == (("a", "b", "c"), ("x", "y", "z"), "math")
    steps = [
        {
            "id": f"gsm8k-{label + 1}",
            "generator": "m",
            "problem": "p",
            "steps": ["a", "b", "c"],
            "final_answer_correct": label < 0,
            "label": label,
        }
        for label in (-1, 1)
    ]
    found = solutions(Dataset(str(file_of(tmp_path, steps))), 9)
    assert [(one.first_error, one.steps, one.part) for one in found] == [
        (-1, ("a", "b", "c"), "gsm8k"),
        (1, ("a", "b", "c"), "gsm8k"),
    ]
    with pytest.raises(ValueError, match="is not of RM-Bench"):
        styled(Dataset(str(file_of(tmp_path, pairs))), 9)


def test_a_built_in_task_has_the_same_forms() -> None:
    assert in_styles("one\nanswer: 2") == ("answer: 2", "one\nanswer: 2", "- one\n- answer: 2")
    right, wrong = solutions(source("path"), 2)[:2]
    assert right.first_error == -1 and wrong.steps[: wrong.first_error] == right.steps[: wrong.first_error]
    assert wrong.steps[wrong.first_error] != (*right.steps, "")[wrong.first_error]
    assert all(len(one.right) == len(one.wrong) == 3 for one in styled(source("sort"), 3))


class Longer:
    """A scorer of texts: the longer reply. It sees two replies at a time."""

    texts = True
    seen: list[int] = []

    def trace(self, task: Task, text: str, index: int = 0) -> str:
        return text

    def scores(self, groups: list[Any]) -> list[list[float]]:
        self.seen = [len(group.traces) for group in groups]
        return [[float(len(text)) if text else math.nan for text in group.traces] for group in groups]


def test_all_right_replies_meet_all_wrong_ones() -> None:
    rows = [Compared(Task("question", "p", {}, "k"), ("aa", "bbb"), ("c", "dd", ""), "x")]
    scorer: Any = Longer()
    assert compared(scorer, rows)[0].won == ((1.0, 0.5, 0.5), (1.0, 1.0, 0.5)) and scorer.seen == [2] * 6
    scorer.texts = False
    assert compared(scorer, rows)[0].won == ((1.0, 0.5, 0.5), (1.0, 1.0, 0.5)) and scorer.seen == [5]


@pytest.mark.parametrize(
    ("said", "place"),
    [("First error: 2", 2), ("**First error:** -1", -1), ("so \\boxed{1}", 1), ("First error: 9", None)],
)
def test_a_critics_answer_is_read(said: str, place: int | None) -> None:
    assert first_error(said, 3) == place


def test_a_judge_behind_an_endpoint_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It calls a step wrong that says so: found in two of three wrong solutions, and none in the right one."""
    rows = [
        {"problem": "p", "steps": steps, "final_answer_correct": label < 0, "label": label}
        for steps, label in [(["a", "bad"], 1), (["bad", "b"], 0), (["a", "b", "hm"], 2), (["a", "b"], -1)]
    ]

    def critic(body: dict[str, Any]) -> str:
        blocks = blocks_of(prompt_of(body))
        wrong = [int(name.split()[1]) for name, text in blocks.items() if text == "bad"]
        return f"I checked.\nFirst error: {wrong[0] if wrong else -1}"

    with serving(critic) as server:
        judge = f"endpoint({server.url}, m, cache=off)"
        file = str(file_of(tmp_path, rows))
        assert main(["eval-reward", judge, "--task", file, "--bench", "processbench", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["parts"]["all"]
    assert found == pytest.approx({"wrong": 2 / 3, "right": 1.0, "f1": 0.8})


def test_right_verdicts_alone_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A judge that likes the word good orders the first pair rightly and the second wrongly."""
    words = ("good", "bad")
    rows = [{"prompt": f"p{i}", "chosen": words[i % 2], "rejected": words[1 - i % 2]} for i in range(10)]
    out = tmp_path / "said.jsonl"
    with serving(lambda body: f"Score: {9 if 'good' in blocks_of(prompt_of(body))['reply'] else 2}") as server:
        asked = ["eval-reward", f"rubric(endpoint({server.url}, m, cache=off))", "--verdicts", str(out), "--json"]
        assert main([*asked, "--task", f"{file_of(tmp_path, rows)},heldout=0.8"]) == 0
    kept = [json.loads(line) for line in out.read_text().splitlines()]
    found = json.loads(capsys.readouterr().out)
    assert found["verdicts"] == len(kept) == 2 * found["pairs"] * found["accuracy"]["mean"]
    assert 2 <= len(kept) < 2 * found["pairs"] and all(
        re.search(r"\bp[02468]\b", row["prompt"][0]["content"]) for row in kept
    )


def test_reward_models_are_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = reward_model(tmp_path / "rm", 1)
    for bench in ("rewardbench", "rm-bench", "processbench"):
        words = ["eval-reward", str(model), "--task", "sort", "--bench", bench, "--tasks", "4", "--device", "cpu"]
        assert main([*words, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["rows"] in (4, 8)
    assert main(["eval-reward", str(model), "--task", "sort", "--bench", "rm-bench", "--policy", "tiny"]) == 2
    assert "by the rules of a benchmark alone" in " ".join(capsys.readouterr().err.split())
