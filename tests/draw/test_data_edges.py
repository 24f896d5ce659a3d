"""Rows as people write them: blank lines, spreadsheets, ties, scores without an order, mixtures with nothing left."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import burnish
from burnish.core.parts import everything
from burnish.draw import WEIGHTS, demos
from burnish.methods.table import find
from burnish.tasks.data import Dataset
from burnish.tasks.data.formats import to_task
from burnish.tasks.data.preferences import NoPreference
from burnish.tasks.resolve import resolve_task

ROW = {"prompt": "a?", "completion": "b"}


def _written(path: Path, content: str | bytes) -> str:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def _lines(*rows: dict[str, Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.mark.parametrize("blank", ["", " ", "\t" * 30, " " * 500 + "\r", "\r"])
@pytest.mark.parametrize("chunk", [1, 7, 1 << 24])
def test_lines_of_spaces_are_blank_however_long(
    blank: str, chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("burnish.tasks.data.lines.CHUNK", chunk)
    rows = [{"prompt": f"  {i}?", "completion": "b"} for i in range(3)]
    text = "\n".join(
        [blank, "   " + json.dumps(rows[0]), blank, blank, json.dumps(rows[1]), json.dumps(rows[2]), blank]
    )
    found = Dataset(_written(tmp_path / "a.jsonl", text)).tables["train"]
    assert list(found) == rows and [found[i] for i in range(3)] == rows
    assert [found.where(i).rpartition(", ")[2] for i in range(3)] == ["line 2", "line 5", "line 6"]
    words = Dataset(_written(tmp_path / "a.txt", f"one\n{blank}\n  two\n")).tables["train"]
    assert [row["text"] for row in words] == ["one", "  two"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("prompt,completion\na,b\n\n,d\n", r"a\.csv, row 2: the prompt is empty; fill it in or remove the row"),
        (
            'prompt,completion\na,b\n"c,d\ne,f\n',
            r"a\.csv, row 2 \(line 3\): its quotation mark is never closed; correct",
        ),
        ("prompt,prompt,completion\na,b,c\n", r"a\.csv: the header has the column 'prompt' twice; rename one of them"),
        ("body,completion\na,b\n", r"a\.csv, row 1: needs column 'prompt'"),
        (
            "prompt;completion\na;b\n",
            r"a\.csv: the header is one cell, 'prompt;completion'; separate cells by ',' instead",
        ),
        ("prompt\tcompletion\na\tb\n", r"separate cells by ',' instead of '.t', or call the file \.tsv"),
        ('prompt,completion\n"a"b,c\n', r"a\.csv, row 1 \(line 2\): ',' expected after '\"'; correct the row"),
    ],
)
def test_errors_in_spreadsheets(content: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        Dataset(_written(tmp_path / "a.csv", content)).size("train")


def test_an_empty_cell_is_null_and_messages_are_json_text(tmp_path: Path) -> None:
    cells = Dataset(_written(tmp_path / "a.csv", 'prompt,answer,,\n"a,\n1",4,,\nb,,,\n'), heldout=0.0)
    assert [cells.task("train", i).given for i in range(2)] == [{"answer": "4", "demo": "4"}, {}]
    assert cells.how_many("answer") == (1, 2)
    said = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]
    quoted = json.dumps(said).replace('"', '""')
    chats = Dataset(_written(tmp_path / "m.csv", f'messages\n"{quoted}"\n'), heldout=0.0)
    assert chats.task("train", 0).given == {"demo": "y"}
    with pytest.raises(ValueError, match="row 1: the messages are a text that is not valid JSON; write them with json"):
        Dataset([{"messages": str(said)[:-3]}]).size("train")


def test_the_row_that_lacks_a_reply_is_named(tmp_path: Path) -> None:
    source = Dataset(_written(tmp_path / "a.jsonl", _lines(ROW, {"prompt": "c?", "completion": None}, ROW)))
    with pytest.raises(ValueError, match=r"2 of its 3 rows have one, but not .*a\.jsonl, line 2: remove the others"):
        demos(source)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"prompt": None, "completion": "b"}, "line 1: the prompt is empty; fill it in or remove the row"),
        ({"messages": None}, "line 1: the prompt is empty"),
        (
            {"prompt": "a", "responses": ["b", "c"], "scores": [float("nan"), 1.0]},
            "line 1: 'scores' holds a number that is not finite, and has no order",
        ),
        ({"prompt": "a", "responses": ["b", "c"], "ranks": [1, float("inf")]}, "'ranks' holds a number that is not"),
    ],
)
def test_nulls_and_scores_without_an_order(row: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        Dataset(_written(tmp_path / "a.jsonl", _lines(row))).size("train")


def test_own_scores_that_are_no_numbers_rank_nothing() -> None:
    replies = [{"response": "b", "score": float("nan")}, {"response": "c", "score": 1.0}]
    assert "chosen" not in to_task({"prompt": "a", "completions": replies}, {}, "row 1").given


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "a", "chosen": "b", "rejected": "b"},
        {"chosen": "a b", "rejected": "a b"},
        {
            side: [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
            for side in ("chosen", "rejected")
        },
    ],
)
def test_equal_replies_are_no_preference(row: dict[str, Any]) -> None:
    with pytest.raises(NoPreference):
        to_task(row, {}, "row 1")
    pair = {"prompt": "c", "chosen": "b", "rejected": "d"}
    source = Dataset([pair, row], heldout=0.0)
    assert source.size("train") == 1 and source.left_out() == 1


def test_a_text_may_be_the_beginning_of_the_other() -> None:
    task = to_task({"chosen": "Say hi: hi there", "rejected": "Say hi: hi"}, {}, "row 1")
    assert (task.prompt, task.given["chosen"], task.given["rejected"]) == ("Say hi:", " hi there", " hi")


def test_a_list_in_a_file_of_lines_says_what_to_call_it(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="line 1: not valid JSON .*; a file that is one list is .json, not .jsonl"):
        Dataset(_written(tmp_path / "a.jsonl", json.dumps([ROW], indent=1))).size("train")
    with pytest.raises(ValueError, match="line 1: is a list, not an object with named columns; .* call the file .json"):
        Dataset(_written(tmp_path / "b.jsonl", json.dumps([ROW]))).size("train")


def test_names_in_capitals_and_frames(tmp_path: Path) -> None:
    packed = _written(tmp_path / "A.JSONL.GZ", gzip.compress(_lines(ROW, {**ROW, "prompt": "c?"}).encode()))
    assert Dataset(packed).size("train") == 1

    class DataFrame(list[str]):  # what pandas' is to whoever iterates it
        columns = ("prompt",)

        def to_dict(self) -> None: ...

    with pytest.raises(ValueError, match=r"rows are in a DataFrame; pass datasets.Dataset.from_pandas\(frame\)"):
        Dataset(DataFrame(["prompt"]))
    with pytest.raises(ValueError, match="rows, row 1: is not an object with named columns but int"):
        Dataset(iter([1])).size("train")


def test_a_mixture_of_which_nothing_is_left_to_train_on_is_refused(tmp_path: Path) -> None:
    (tmp_path / "all").mkdir()
    _written(tmp_path / "all" / "train.jsonl", _lines(*({"prompt": f"{i}?", "completion": "b"} for i in range(5))))
    test = _lines(*({"prompt": f"{i}!", "completion": "b"} for i in range(3)))
    _written(tmp_path / "all" / "test.jsonl", test)
    other = _written(tmp_path / "b.jsonl", test)
    mixture = resolve_task(f"{tmp_path}/all*0.5,{other}*0.5")
    with pytest.raises(ValueError, match=r"no row of '.*b\.jsonl' in the mixture .* is left to train on: all are too"):
        mixture.size("train")
    assert resolve_task(f"{tmp_path}/all,{other}").size("train") == 5


def test_weights_that_are_no_numbers_and_small_shares(tmp_path: Path) -> None:
    a, b = (
        _written(tmp_path / name, _lines(*({"prompt": f"{name}{i}"} for i in range(9))))
        for name in ("a.jsonl", "b.jsonl")
    )
    with pytest.raises(ValueError, match="the weight of .* is inf; give it a positive number, or leave it out"):
        resolve_task(f"{a}*1e400,{b}*1")
    assert resolve_task(f"{a}*0.999,{b}*0.001").summary == f"99.9% {a}, 0.1% {b}"
    for name in (",", "", " "):
        with pytest.raises(ValueError, match=f"the task is '{name}', which names nothing"):
            resolve_task(name)


@pytest.mark.parametrize("task", [[], (), {}, {"train": []}])
def test_no_rows_are_not_the_files_of_the_working_directory(
    task: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _written(tmp_path / "a.jsonl", _lines(ROW))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="dataset 'rows' is empty; it needs at least one row"):
        burnish.train("sft", task=task, steps=1, out=tmp_path / "run")


WEIGHED = {
    "messages": [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b", "weight": 0.5},
    ]
}


@pytest.mark.parametrize("other", [ROW, WEIGHED])
def test_messages_that_count_in_part_are_weighed_in_a_mixture_and_in_one_split(
    other: dict[str, Any], tmp_path: Path
) -> None:
    first = _written(tmp_path / "a.jsonl", _lines(WEIGHED, WEIGHED))
    second = _written(tmp_path / "b.jsonl", _lines(other, {**other, "id": 1}))
    (tmp_path / "c").mkdir()
    _written(tmp_path / "c" / "train.jsonl", _lines(WEIGHED))
    _written(tmp_path / "c" / "test.jsonl", _lines({"prompt": "t?", "completion": "b"}))
    for source in (resolve_task(f"{first},{second}"), resolve_task(f"{tmp_path}/c")):
        assert WEIGHTS in source.gives
        assert find("sft").build(source).phases[0].credit.name != everything.name
        with pytest.raises(ValueError, match="has messages with weights other than 0 and 1"):
            find("dft").build(source)


@pytest.mark.parametrize("method", ["kto", "bco", "discriminator"])
def test_labels_are_checked_before_a_run_and_by_row(method: str, tmp_path: Path) -> None:
    good = [{"prompt": f"{i}?", "completion": "b", "label": i % 2 == 0} for i in range(9)]
    unclear = _written(tmp_path / "a.jsonl", _lines(*good, {**good[0], "label": "maybe"}))
    with pytest.raises(
        ValueError, match=r"a\.jsonl, line 10: has the label 'maybe'; labels of replies are true or fal"
    ):
        find(method).build(resolve_task(unclear))
    some = _written(tmp_path / "b.jsonl", _lines(*good, {**good[0], "label": None}))
    with pytest.raises(ValueError, match=r"gives no 'label'.*; 9 of its 10 rows have one, but not .*b\.jsonl, line 10"):
        find(method).build(resolve_task(some))
    whole = _written(tmp_path / "c.jsonl", _lines(*good))
    with pytest.raises(ValueError, match=r"a\.jsonl, line 10: has the label 'maybe'"):
        find(method).build(resolve_task(f"{whole},{unclear}"))
    assert find(method).build(resolve_task(whole)).phases[0].draw.name == "prompts"


def _said(*texts: str) -> list[dict[str, str]]:
    roles = {"u": "user", "a": "assistant", "s": "system"}
    return [{"role": roles[text[0]], "content": text} for text in texts]


@pytest.mark.parametrize("repeats", [False, True])
@pytest.mark.parametrize("prompt", ["u1", _said("s", "u1"), _said("u1")])
def test_pairs_of_several_turns_after_a_prompt_are_compared_by_their_last_replies(prompt: Any, repeats: bool) -> None:
    asked = _said("u1") if isinstance(prompt, str) else prompt
    chosen, rejected = (([*asked] if repeats else []) + _said("a1", "u2", last) for last in ("a2", "a3"))
    task = to_task({"prompt": prompt, "chosen": chosen, "rejected": rejected}, {}, "row 1")
    assert list(task.prompt) == [*asked, *_said("a1", "u2")]
    assert (task.given["chosen"], task.given["rejected"]) == ("a2", "a3")
    with pytest.raises(
        ValueError, match="row 1: 'chosen' and 'rejected' go on for several turns after the prompt, and"
    ):
        to_task({"prompt": prompt, "chosen": chosen, "rejected": _said("a9", "u2", "a3")}, {}, "row 1")
    one = {"chosen": [*asked, *_said("a1")], "rejected": _said("a2")}
    assert to_task({"prompt": prompt, **one}, {}, "row 1").given == {"chosen": "a1", "rejected": "a2"}


@pytest.mark.parametrize("kind", ["torch", "numpy"])
@pytest.mark.parametrize("streamed", [False, True])
def test_values_of_datasets_in_other_formats_are_plain(kind: str, streamed: bool) -> None:
    datasets = pytest.importorskip("datasets")
    table = datasets.Dataset.from_list([{"prompt": f"{i}?", "answer": i, "values": [i, 2]} for i in range(4)])
    given = (table.to_iterable_dataset() if streamed else table).with_format(kind)
    found = [Dataset(given, heldout=0.0).task("train", i).given for i in range(4)]
    assert found == [{"answer": i, "demo": str(i), "values": [i, 2]} for i in range(4)]
    assert [type(one["answer"]) for one in found] == [int] * 4


def test_numbers_of_numpy_in_a_stream_stay_numbers() -> None:
    stream = ({"prompt": f"{i}?", "answer": np.int64(i), "values": np.arange(2)} for i in range(3))
    assert [row["answer"] for row in Dataset(stream).tables["train"]] == [0, 1, 2]
