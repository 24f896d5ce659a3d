"""Runs on files as people bring them: long rows, conversations, epochs, mixtures, other column names."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from runs import go, rows, tensors

import burnish
from burnish.checkpoint.diff import log_rows
from burnish.cli import main
from burnish.store.reader import open_store


class Cli:
    """A command in this process, and what it prints, on one line."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def __call__(self, *words: object, fails: bool = False) -> str:
        code = main([str(word) for word in words])
        out, err = self.capsys.readouterr()
        assert (code != 0) == fails, out + err
        assert "Traceback" not in err
        return " ".join((err if fails else out).split())


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.setenv("COLUMNS", "400")
    return Cli(capsys)


def drawn(folder: Path) -> list[str]:
    """The key of the task of every group, in the order in which they were drawn."""
    with open_store(folder) as store:
        return [row["task"] for row in store.sql("SELECT task FROM groups ORDER BY id")]


SHORT = ("--steps", 2, "--prompts", 2, "--eval-tasks", 0, "--quiet", "--device", "cpu")


# ------------------------------------------------------------------------------------------------------ long rows


def sized(path: Path, *lengths: int) -> str:
    """Rows with demonstrations of so many bytes, which are tokens of the small model."""
    return rows(path, *({"prompt": f"q{i}", "completion": "x" * length} for i, length in enumerate(lengths)))


def test_long_rows_are_counted_before_the_first_step_and_left_out(cli: Cli, small_model: Path, tmp_path: Path) -> None:
    task = sized(tmp_path / "a.jsonl", *[10] * 12, *[400] * 5)
    said = cli("train", "sft", "--model", small_model, "--task", task, *SHORT, "--out", tmp_path / "run")
    found = re.search(
        r"long: (\d) of (\d+) rows are left out: they have more than 256 tokens; the longest has (\d+)", said
    )
    assert found, said
    assert int(found[1]) in range(3, 6)
    assert int(found[3]) in range(400, 420)
    assert f"of {int(found[2]) - int(found[1])} rows" in said
    with open_store(tmp_path / "run") as store:
        data = store.info()["data"]
    assert data["long"]["kept"] == int(found[2]) - int(found[1])
    assert data["long"]["limit"] == 256


@pytest.mark.parametrize("method", ["sft", "dpo", "grpo"])
def test_demonstrations_pairs_and_prompts_alike(method: str, small_model: Path, tmp_path: Path) -> None:
    long = "y" * 300
    kinds: dict[str, list[dict[str, Any]]] = {
        "sft": [{"prompt": f"q{i}", "completion": "x" if i % 2 else long} for i in range(20)],
        "dpo": [{"prompt": f"q{i}", "chosen": "x", "rejected": "z" if i % 2 else long} for i in range(20)],
        "grpo": [{"prompt": f"q{i}" + ("" if i % 2 else long), "answer": "1"} for i in range(20)],
    }
    task = rows(tmp_path / "a.jsonl", *kinds[method])
    kept = go(method, small_model, tmp_path / "drop", task=task, prompts=9, steps=1)
    assert len(drawn(kept.folder)) == 9
    assert all(int(key.strip("y")[1:]) % 2 for key in drawn(kept.folder))
    with pytest.raises(
        ValueError,
        match=r"rows of .* are longer than 256 tokens \(the longest, .*line \d+, has 3\d\d\); --on-long drop",
    ):
        go(method, small_model, tmp_path / "stop", task=task, on_long="stop")
    cut = go(method, small_model, tmp_path / "cut", task=task, on_long="truncate", prompts=18, steps=1)
    assert any(not int(key.strip("y")[1:]) % 2 for key in drawn(cut.folder))
    lengths = [sum(turn["tokens"] for turn in trace["turns"]) for trace in cut.traces()]
    assert 240 < max(lengths) <= 256


def test_a_lower_limit_and_limits_that_cannot_be(small_model: Path, tmp_path: Path) -> None:
    task = sized(tmp_path / "a.jsonl", *range(5, 65))
    result = go("sft", small_model, tmp_path / "run", task=task, max_length=30, steps=1, prompts=8)
    with open_store(result.folder) as store:
        assert store.info()["data"]["long"]["longest"] > 30
        assert store.info()["data"]["long"]["limit"] == 30
    beyond = go("sft", small_model, tmp_path / "b", task=task, max_length=9999, steps=1)
    with open_store(beyond.folder) as store:
        assert store.info()["data"]["long"]["limit"] == 256  # the model's context
    with pytest.raises(ValueError, match="all .* rows of .* are longer than 5 tokens"):
        go("sft", small_model, tmp_path / "c", task=task, max_length=5)
    with pytest.raises(ValueError, match="leave no room for a prompt in the 256 tokens of the model"):
        go("grpo", small_model, tmp_path / "d", task=task, max_new_tokens=256, reward="tests/e2e/coin.py:coin")
    with pytest.raises(ValueError, match="option 'on_long' is 'cut'; it must be drop, truncate or stop"):
        go("sft", small_model, tmp_path / "e", task=task, on_long="cut")


@pytest.mark.parametrize("on_long", ["drop", "truncate"])
def test_a_resumed_run_leaves_out_the_same_rows(on_long: str, small_model: Path, tmp_path: Path) -> None:
    task = sized(tmp_path / "a.jsonl", *([20, 30, 400] * 6))
    whole = go("sft", small_model, tmp_path / "whole", task=task, on_long=on_long, steps=4)
    half = go("sft", small_model, tmp_path / "half", task=task, on_long=on_long, steps=2)
    burnish.resume(half.folder, steps=4)
    assert tensors(tmp_path / "whole" / "model") == tensors(tmp_path / "half" / "model")
    assert drawn(whole.folder) == drawn(half.folder)


def test_a_resumed_run_says_that_its_rows_have_changed(cli: Cli, small_model: Path, tmp_path: Path) -> None:
    task = sized(tmp_path / "a.jsonl", *([20, 30] * 6))
    go("sft", small_model, tmp_path / "run", task=task, steps=1)
    again = " ".join(cli("train", "--resume", tmp_path / "run", "--steps", 2).split())
    assert "the rows are not those" not in again
    rows(tmp_path / "a.jsonl", *(json.loads(line) for line in Path(task).read_text().splitlines()[1:]))
    other = " ".join(cli("train", "--resume", tmp_path / "run", "--steps", 3).split())
    said = r"the rows are not those that the run had up to step 2 \(\S+: 12 rows@\w{10} -> 11 rows@\w{10}\)"
    assert re.search(said, other)
    assert "the rows are not those" not in cli("train", "--resume", tmp_path / "run", "--steps", 4)


@pytest.mark.parametrize(
    ("method", "empty"),
    [
        ("sft", {"prompt": "q?", "completion": " "}),
        ("sft", {"messages": [{"role": "user", "content": "q?"}, {"role": "assistant", "content": ""}] * 2}),
        ("dpo", {"prompt": "q?", "chosen": "x", "rejected": ""}),
    ],
)
def test_empty_replies_are_counted(
    method: str, empty: dict[str, Any], cli: Cli, small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BURNISH_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("burnish.tasks.data.cache.WORTH_SECONDS", 0.0)
    full = [{"prompt": f"q{n}", "completion": "x", "chosen": "x", "rejected": "y"} for n in range(7)]
    task = rows(tmp_path / "a.jsonl", *full, empty, empty) + ",heldout=0"
    words = ["--model", small_model, "--task", task, "--prompts", 2, "--steps", 1, "--eval-tasks", 0]
    for name in ("first", "from the cache"):
        said = " ".join(cli("train", method, *words, "--out", tmp_path / name).split())
        assert re.search(r"empty: 2 of 9 rows have an empty reply \(\S+a\.jsonl, line 8\), which teaches to say", said)
        rows(tmp_path / "b.jsonl", *full)
        whole = cli("train", method, *words, "--task", str(tmp_path / "b.jsonl"), "--out", tmp_path / f"{name} b")
        assert "empty:" not in whole


NO_SYSTEM = (
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
    "{{ '<|' + m.role + '|>' + m.content + '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


@pytest.mark.parametrize("method", ["sft", "dpo", "reward_model", "grpo"])
def test_rows_that_the_template_refuses_are_named_before_the_first_step(
    method: str, small_model: Path, tmp_path: Path
) -> None:
    """And not by the step that draws them."""
    (tmp_path / "t.jinja").write_text(NO_SYSTEM)
    both = {"completion": "x", "chosen": "x", "rejected": "y", "answer": "x"}
    listed = [{"prompt": f"q{n}", **both, **({"system": "S"} if n == 37 else {})} for n in range(60)]
    task = rows(tmp_path / "a.jsonl", *listed)
    said = r"a\.jsonl, line 38: the chat template cannot render a conversation of system, user \(no system role\)"
    with pytest.raises(ValueError, match=said):
        go(
            method,
            small_model,
            tmp_path / "run",
            task=task,
            prompts=2,
            steps=1,
            chat_template=str(tmp_path / "t.jinja"),
        )
    assert not (tmp_path / "run").exists()


# --------------------------------------------------------------------------------------------------- conversations

TALK = [
    {"role": "user", "content": "one?"},
    {"role": "assistant", "content": "two."},
    {"role": "user", "content": "three?"},
    {"role": "assistant", "content": "four."},
]


def trained(result: Any) -> set[str]:
    """The texts that the first step trained on."""
    found = set()
    with open_store(result.folder) as store:
        for trace in store.traces(step=1):
            pieces, end = store.tokens(trace["id"])["pieces"], 0
            for turn in trace["turns"]:
                end += turn["tokens"]
                if turn["author"] == "demo":
                    text = "".join(pieces[end - turn["tokens"] : end])
                    found.add(text.removesuffix("<|end|>"))
    return found


@pytest.mark.parametrize(
    ("train_on", "expected"), [("all", {"two.", "four."}), ("last", {"four."}), (None, {"two.", "four."})]
)
def test_replies_of_a_conversation_are_trained_on(
    train_on: str | None, expected: set[str], small_model: Path, tmp_path: Path
) -> None:
    task = rows(
        tmp_path / "a.jsonl", *({"messages": [{"role": "user", "content": f"{n}"}, *TALK[1:]]} for n in range(9))
    )
    more = {} if train_on is None else {"train_on": train_on}
    result = go("sft", small_model, tmp_path / "run", task=task, **more)
    assert trained(result) == expected
    authors = [[turn["author"] for turn in trace["turns"]] for trace in result.traces(step=1)]
    assert authors[0] == (["task", "demo"] if train_on == "last" else ["task", "demo", "env", "demo"])


def test_messages_say_what_is_trained_on(small_model: Path, tmp_path: Path) -> None:
    own = [TALK[0], {**TALK[1], "train": False}, TALK[2], TALK[3]]
    result = go(
        "sft", small_model, tmp_path / "a", task=rows(tmp_path / "a.jsonl", *[{"messages": own}] * 2), eval_tasks=0
    )
    assert trained(result) == {"four."}


def test_a_common_weight_changes_nothing_and_different_ones_do(small_model: Path, tmp_path: Path) -> None:
    def weighed(name: str, *weights: float) -> dict[str, bytes]:
        talk = [TALK[0], {**TALK[1], "weight": weights[0]}, TALK[2], {**TALK[3], "weight": weights[1]}]
        task = rows(tmp_path / f"{name}.jsonl", *[{"messages": talk}] * 3)
        return tensors(go("sft", small_model, tmp_path / name, task=task, steps=1).folder / "model")

    assert weighed("half", 0.5, 0.5) == weighed("quarter", 0.25, 0.25)
    assert weighed("left", 1.0, 0.0) != weighed("right", 0.0, 1.0)
    assert weighed("more", 1.0, 0.5) != weighed("most", 0.5, 1.0)
    with pytest.raises(ValueError, match="weights other than 0 and 1, which this method does not weigh; use sft"):
        go("dft", small_model, tmp_path / "dft", task=str(tmp_path / "half.jsonl"))


def test_plain_texts_are_trained_on_and_cannot_be_asked(small_model: Path, tmp_path: Path) -> None:
    task = rows(tmp_path / "a.jsonl", *({"text": f"Text number {n}."} for n in range(9)))
    result = go("sft", small_model, tmp_path / "run", task=task)
    assert all(text.startswith("ext number ") for text in trained(result))
    with pytest.raises(
        ValueError, match="are texts without a prompt, .* name the column of the prompts with --columns prompt=text"
    ):
        go("grpo", small_model, tmp_path / "b", task=task, reward="tests/e2e/coin.py:coin")
    assert go(
        "grpo", small_model, tmp_path / "c", task=task, columns="prompt=text", reward="tests/e2e/coin.py:coin"
    ).model


def test_tasks_shows_roles_and_marks_what_is_trained_on(cli: Cli, small_model: Path, tmp_path: Path) -> None:
    task = rows(tmp_path / "a.jsonl", *[{"messages": TALK}] * 2)
    assert "user one? assistant ⟦two.⟧ user three? assistant ⟦four.⟧" in cli("tasks", task)
    assert "assistant two. user three? assistant ⟦four.⟧" in cli("tasks", task, "--train-on", "last")
    shown = cli("tasks", task, "--model", small_model)
    assert "<|user|>one?<|end|><|assistant|>⟦two.<|end|>⟧<|user|>three?<|end|><|assistant|>⟦four.<|end|>⟧" in shown
    assert re.search(r"\d+ tokens, 11 trained on", shown)  # 4 + 1 and 5 + 1


# ---------------------------------------------------------------------------------------------------------- epochs


def test_an_epoch_draws_every_row_once(cli: Cli, small_model: Path, tmp_path: Path) -> None:
    task = rows(tmp_path / "a.jsonl", *({"prompt": f"q{n}", "completion": "x"} for n in range(23)))
    said = cli(
        "train",
        "sft",
        "--model",
        small_model,
        "--task",
        task + ",heldout=0",
        "--epochs",
        2,
        "--prompts",
        4,
        "--eval-tasks",
        0,
        "--quiet",
        "--device",
        "cpu",
        "--out",
        tmp_path / "run",
    )
    assert "data: 12 steps x 4 prompts = 48 rows, 23 different ones, 2.09 epochs" in said
    order = drawn(tmp_path / "run")
    first, second = order[:23], order[23:46]
    assert set(first) == set(second) == {f"q{n}" for n in range(23)}
    assert first != second
    assert first != sorted(first)
    half = go("sft", small_model, tmp_path / "half", task=task + ",heldout=0", prompts=4, steps=5, lr=None)
    burnish.resume(half.folder, epochs=2)
    assert drawn(half.folder) == order
    assert tensors(tmp_path / "run" / "model") == tensors(half.folder / "model")


def test_steps_or_epochs_and_the_words_for_a_batch(cli: Cli, small_model: Path, tmp_path: Path) -> None:
    task = rows(tmp_path / "a.jsonl", *({"prompt": f"q{n}", "answer": "1"} for n in range(40)))
    both = cli("train", "sft", "--task", task, "--steps", 2, "--epochs", 1, fails=True)
    assert "--steps and --epochs both say how long the run is; leave out one of them" in both
    endless = cli("train", "grpo", "--epochs", 1, fails=True)
    assert "task 'add' is endless, so it has no epochs; use --steps" in endless
    with pytest.raises(ValueError, match="option 'epochs' is 0.0; it must be above 0"):
        burnish.train("sft", task=task, epochs=0.0)
    said = cli(
        "train",
        "grpo",
        "--model",
        small_model,
        "--task",
        task,
        *SHORT,
        "--n",
        2,
        "--max-new-tokens",
        4,
        "--out",
        tmp_path / "run",
    )
    assert (
        "batch: batch size 4 (2 prompts x 2 samples), replies up to 4 tokens; gradients accumulate over micro-batches"
        in said
    )
    assert re.search(r"data: 2 steps x 2 prompts = 4 of 3\d rows, 0.1\d epochs", said)


def test_held_out_accuracy_is_sampled_with_the_greedy_one_beside_it(cli: Cli, tmp_path: Path) -> None:
    words = ("train", "grpo", "--task", "sort:1", "--n", 2, "--steps", 1, "--prompts", 2, "--eval-tasks", 40, "--quiet")
    said = cli(*words, "--out", tmp_path / "both", "--device", "cpu", "--eval-k", 4, "--product", "best")
    header = (
        "eval: 40 held-out tasks, 4 sampled at temperature 1, by which the best checkpoint is found, and one greedy"
    )
    assert header in " ".join(said.split())
    before = json.loads((tmp_path / "both" / "evaluation.json").read_text())["before"]
    assert main(["eval", "tiny", "--task", "sort:1", "--tasks", "40", "--k", "4", "--json"]) == 0
    alone = json.loads(cli.capsys.readouterr().out)
    assert before["greedy"] == alone["greedy"] and before["value"] == alone["pass"]["1"]
    parts = {"accuracy": alone["pass"]["1"], "passed": alone["pass"]["4"], "majority": alone["majority"]["4"]}
    assert before["sampled"] == {"temperature": 1.0, "k": 4, **parts}
    for what in ("accuracy", "pass@4", "majority@4"):
        assert re.search(rf"held-out {what}, sampled at temperature 1: [\d.]+% .*points", said)
    (row,) = log_rows(tmp_path / "both", "metrics")
    found = [name for name in row if name.startswith("heldout/")]  # the first is the score of the run
    assert found == ["heldout/sampled_accuracy", "heldout/accuracy", "heldout/cut_off"]
    alone_greedy = cli(*words, "--out", tmp_path / "greedy", "--device", "cpu", "--eval-temperature", 0)
    assert "(temperature 0)" in alone_greedy and "sampled at" not in alone_greedy
    greedy = json.loads((tmp_path / "greedy" / "evaluation.json").read_text())["before"]
    assert greedy["name"] == "accuracy" and greedy["value"] == before["greedy"] and greedy["sampled"] is None


def test_labels_of_single_replies_are_what_kto_learns_from(small_model: Path, tmp_path: Path) -> None:
    """Good replies become likelier than they were, bad ones less likely."""
    labelled = [
        {"prompt": f"q{n}", "completion": "good." if n % 2 else "bad!", "label": bool(n % 2)} for n in range(32)
    ]
    task = rows(tmp_path / "a.jsonl", *labelled)
    result = go("kto", small_model, tmp_path / "run", task=task + ",heldout=0", prompts=8, steps=12, lr=3e-3)
    last = result.metrics[-1]
    assert last["reply/chosen_logratio"] > 0.5 > -0.5 > last["reply/rejected_logratio"]
    with pytest.raises(ValueError, match="has the label 'maybe'; labels of replies are true or false"):
        unclear = rows(tmp_path / "b.jsonl", *({**row, "label": "maybe"} for row in labelled))
        go("kto", small_model, tmp_path / "b", task=unclear)


def test_labelled_replies_are_measured_by_their_label(cli: Cli, small_model: Path, tmp_path: Path) -> None:
    labelled = [{"prompt": f"q{n}", "completion": "yes" if n % 3 else "no", "label": n % 3 > 0} for n in range(40)]
    task = rows(tmp_path / "a.jsonl", *labelled)
    found = json.loads(cli("eval", small_model, "--task", task, "--json"))
    apart = sorted(found[f"nll_{kind}"]["mean"] for kind in ("good", "bad"))
    assert apart[0] < found["nll"]["mean"] < apart[1]
    said = cli("eval", small_model, "--task", task)
    assert "held-out labelled replies" in said and re.search(r"of \d+ labelled bad", said)


# -------------------------------------------------------------------------------------------------------- mixtures


@pytest.fixture
def two(tmp_path: Path) -> tuple[str, str]:
    a = rows(tmp_path / "a.jsonl", *({"prompt": f"a{n}", "completion": "x"} for n in range(60)))
    b = rows(tmp_path / "b.jsonl", *({"words": f"b{n}", "completion": "y"} for n in range(30)))
    return a, b


def test_a_mixture_has_the_shares_of_its_weights(
    cli: Cli, two: tuple[str, str], small_model: Path, tmp_path: Path
) -> None:
    a, b = two
    written = f"{a}*0.25,heldout=0,{b}*0.75,heldout=0,prompt=words"
    listed = [{"task": a, "weight": 0.25, "heldout": 0}, {"task": b, "weight": 0.75, "heldout": 0, "prompt": "words"}]
    said = cli(
        "train",
        "sft",
        "--model",
        small_model,
        "--task",
        written,
        "--epochs",
        1,
        "--prompts",
        8,
        "--quiet",
        "--eval-tasks",
        0,
        "--device",
        "cpu",
        "--out",
        tmp_path / "flag",
    )
    assert "30 steps x 8 prompts = 240 of 240 rows, 1.00 epochs: 25% " in said
    assert f"{a} (1.00 passes), 75% {b} (6.00 passes)" in said
    order = drawn(tmp_path / "flag")
    assert Counter(key[0] for key in order) == {"a": 60, "b": 180}
    assert set(Counter(order).values()) == {1, 6}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump({"method": "sft", "task": listed, "model": str(small_model)}))
    cli("train", tmp_path / "run.yaml", *SHORT, "--out", tmp_path / "yaml")
    python = burnish.train(
        "sft",
        model=str(small_model),
        task=listed,
        steps=2,
        prompts=2,
        eval_tasks=0,
        device="cpu",
        out=str(tmp_path / "python"),
    )
    assert drawn(tmp_path / "yaml") == drawn(python.folder)
    resumed = burnish.resume(python.folder, steps=3)
    assert len(drawn(resumed.folder)) == 6


def test_without_weights_each_row_comes_once_and_tasks_carry_their_dataset(
    two: tuple[str, str], small_model: Path, tmp_path: Path
) -> None:
    a, b = two
    (tmp_path / "reward.py").write_text(
        "def r(completions, dataset):\n    return [float(name.endswith('a.jsonl')) for name in dataset]\n"
    )
    result = go(
        "grpo",
        small_model,
        tmp_path / "run",
        task=f"{a},heldout=0,{b},heldout=0,prompt=words",
        prompts=90,
        steps=1,
        max_new_tokens=2,
        reward=f"{tmp_path / 'reward.py'}:r",
        record=999,
    )
    order = drawn(result.folder)
    assert len(set(order)) == 90
    with open_store(result.folder) as store:
        scores = store.sql("SELECT task, reward FROM traces JOIN groups ON groups.id = traces.group_id")
    assert {(row["task"][0], row["reward"]) for row in scores} == {("a", 1.0), ("b", 0.0)}


def test_a_mixture_of_built_in_tasks_and_a_file_is_verified_by_each(
    cli: Cli, small_model: Path, tmp_path: Path
) -> None:
    task = rows(tmp_path / "a.jsonl", *({"prompt": f"q{n}", "answer": "1"} for n in range(30)))
    result = go("grpo", small_model, tmp_path / "run", task=f"sort:1*0.5,{task}*0.5", eval_tasks=4)
    assert result.after is not None
    assert result.after.name == "sampled_accuracy"
    wrong = cli("train", "grpo", "--task", "sort,nothing", fails=True)
    assert "there is no task 'nothing'" in wrong


# --------------------------------------------------------------------------------------------------------- columns


def test_columns_work_as_the_error_says(cli: Cli, small_model: Path, tmp_path: Path) -> None:
    task = rows(tmp_path / "a.jsonl", *({"body": f"q{n}", "reply": "x"} for n in range(9)))
    error = cli("train", "sft", "--model", small_model, "--task", task, *SHORT, fails=True)
    assert "found columns body, reply; name one with --columns prompt=NAME" in error
    error = cli("train", "sft", "--model", small_model, "--task", task, *SHORT, "--columns", "prompt=body", fails=True)
    assert "gives no 'demo', which this method needs" in error
    assert "or name one with --columns demo=NAME" in error
    names = "prompt=body,demo=reply"
    flag = cli(
        "train", "sft", "--model", small_model, "--task", task, *SHORT, "--columns", names, "--out", tmp_path / "a"
    )
    assert "step 2/2" in flag
    cli("train", "sft", "--model", small_model, "--task", f"{task},{names}", *SHORT, "--out", tmp_path / "b")
    mapped = {"prompt": "body", "completion": "reply"}
    (tmp_path / "run.yaml").write_text(
        yaml.safe_dump({"method": "sft", "task": task, "columns": mapped, "model": str(small_model)})
    )
    cli("train", tmp_path / "run.yaml", *SHORT, "--out", tmp_path / "c")
    short: dict[str, Any] = {"steps": 2, "prompts": 2, "eval_tasks": 0, "device": "cpu", "model": str(small_model)}
    burnish.train("sft", task=task, columns=mapped, out=str(tmp_path / "d"), **short)
    listed = [json.loads(line) for line in Path(task).read_text().splitlines()]
    burnish.train("sft", task=listed, columns=mapped, out=str(tmp_path / "e"), **short)
    models = [tensors(tmp_path / name / "model") for name in "abcde"]
    assert all(model == models[0] for model in models)
    wrong = cli("train", "sft", "--task", task, "--columns", "body", fails=True)
    assert "--columns takes part=column, several with commas, not 'body'" in wrong
