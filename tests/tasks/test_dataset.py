"""Datasets: every file kind, every column convention, the splits, the verifier, and every error's sentence."""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from burnish.core.types import Task
from burnish.tasks.data import Dataset
from burnish.tasks.data.formats import to_task
from burnish.tasks.resolve import resolve_task


def write(path: Path, rows: Sequence[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def one(row: dict[str, Any], **columns: str) -> Task:
    return to_task(row, columns, "here, row 1")


ROWS = [{"prompt": f"What is {n}+1?", "answer": n + 1} for n in range(40)]


def of(dataset: Dataset, split: str) -> list[Task]:
    return [dataset.task(split, i) for i in range(dataset.size(split))]


def all_tasks(dataset: Dataset) -> list[Task]:
    return of(dataset, "train") + of(dataset, "heldout")


def jsonl_gz(path: Path) -> Path:
    with gzip.open(path, "wt") as out:
        out.writelines(json.dumps(row) + "\n" for row in ROWS)
    return path


def parquet(path: Path) -> Path:
    pa = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet").write_table(pa.Table.from_pylist(ROWS), path)
    return path


def csv_file(path: Path) -> Path:
    path.write_text("prompt,answer\n" + "".join(f"{row['prompt']},{row['answer']}\n" for row in ROWS))
    return path


def json_file(path: Path) -> Path:
    path.write_text(json.dumps(ROWS))
    return path


def json_wrapped(path: Path) -> Path:
    path.write_text(json.dumps({"version": 1, "data": ROWS}))
    return path


def on_disk(path: Path) -> Path:
    pytest.importorskip("datasets").Dataset.from_list(ROWS).save_to_disk(str(path))
    return path


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda path: write(path, ROWS), "a.jsonl"),
        (jsonl_gz, "a.jsonl.gz"),
        (json_file, "a.json"),
        (json_wrapped, "b.json"),
        (parquet, "a.parquet"),
        (csv_file, "a.csv"),
        (on_disk, "saved"),
    ],
)
def test_every_kind_of_file_gives_the_same_tasks(make: Any, name: str, tmp_path: Path) -> None:
    dataset = Dataset(make(tmp_path / name))
    assert {(task.prompt, str(task.given["answer"])) for task in all_tasks(dataset)} == {
        (row["prompt"], str(row["answer"])) for row in ROWS
    }
    assert dataset.gives == {"answer", "demo"}  # an answer is also a reply that SFT can learn
    for task in all_tasks(dataset):
        assert dataset.verify(task, f"so it is {task.given['answer']}.").correct


@pytest.mark.parametrize("column", ["prompt", "question", "instruction", "query", "problem"])
def test_prompt_columns(column: str) -> None:
    task = one({column: "Hi", "extra": 3})
    assert (task.prompt, task.given, task.key) == ("Hi", {"extra": 3}, "Hi")


@pytest.mark.parametrize("column", ["completion", "response", "output"])
def test_demo_columns(column: str) -> None:
    assert one({"prompt": "Hi", column: "Ho"}).given == {"demo": "Ho"}
    assert one({"prompt": "Hi", column: [{"role": "assistant", "content": "Ho"}]}).given == {"demo": "Ho"}


@pytest.mark.parametrize(
    ("column", "reply"), [("answer", {"demo": "7"}), ("ground_truth", {}), ("target", {"demo": "7"})]
)
def test_answer_columns(column: str, reply: dict[str, str]) -> None:
    assert one({"prompt": "Hi", column: "7"}).given == {"answer": "7", **reply}


def test_instruction_takes_its_input_along() -> None:
    task = one({"instruction": "Translate.", "input": "chat", "output": "cat"})
    assert task.prompt == "Translate.\n\nchat"
    assert task.given == {"demo": "cat"}
    assert one({"instruction": "Sing.", "input": "", "output": "la"}).prompt == "Sing."


OPENAI = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Hello"},
]
SHAREGPT = [
    {"from": "system", "value": "Be kind."},
    {"from": "human", "value": "Hi"},
    {"from": "gpt", "value": "Hello"},
]


@pytest.mark.parametrize("row", [{"messages": OPENAI}, {"conversations": SHAREGPT}])
def test_conversations_end_in_the_demo(row: dict[str, Any]) -> None:
    task = one(row)
    assert task.prompt == tuple(OPENAI[:2])
    assert task.given == {"demo": "Hello"}


def test_messages_that_end_with_the_user_are_all_prompt() -> None:
    task = one({"messages": OPENAI[:2]})
    assert task.prompt == tuple(OPENAI[:2])
    assert task.given == {}


def test_a_lone_user_message_is_the_same_problem_as_its_text() -> None:
    assert one({"prompt": [{"role": "user", "content": "Hi"}]}).key == one({"prompt": "Hi "}).key == "Hi"


@pytest.mark.parametrize(
    "row",
    [
        {
            "chosen": "\n\nHuman: Hi\n\nAssistant: Yes?\n\nHuman: Go\n\nAssistant: No",
            "rejected": "\n\nHuman: Hi\n\nAssistant: Yes?\n\nHuman: Go\n\nAssistant: Ok\n\nHuman: More",
        },
        {
            role: [
                {"role": "user", "content": "Hi"},
                {"role": "assistant", "content": "Yes?"},
                {"role": "user", "content": "Go"},
                {"role": "assistant", "content": reply},
            ]
            for role, reply in (("chosen", "No"), ("rejected", "Ok"))
        },
    ],
)
def test_preferences_without_a_prompt_share_their_beginning(row: dict[str, Any]) -> None:
    task = one(row)
    assert isinstance(task.prompt, tuple)
    assert [m["content"] for m in task.prompt] == ["Hi", "Yes?", "Go"]
    assert [m["role"] for m in task.prompt] == ["user", "assistant", "user"]
    assert task.given == {"chosen": "No", "rejected": "Ok"}
    assert task.kind == "pair"


def test_preferences_with_a_prompt() -> None:
    expected = {"chosen": "No", "rejected": "Ok"}
    assert one({"prompt": "Go", "chosen": "No", "rejected": "Ok"}).given == expected
    lists = {"prompt": "Go", "chosen": [{"role": "assistant", "content": "No"}]}
    full = [{"role": "user", "content": "Go"}, {"role": "assistant", "content": "Ok"}]
    assert one({**lists, "rejected": full}).given == expected


@pytest.mark.parametrize(
    ("label", "meant"), [(True, True), (0, False), (1.0, True), ("false", False), ("spam", "spam")]
)
def test_label(label: object, meant: object) -> None:
    assert one({"prompt": "Hi", "completion": "Ho", "label": label}).given == {"demo": "Ho", "label": meant}


def test_worked_answers_give_the_answer_and_the_demo() -> None:
    worked = "48/2 = 24\n48+24 = 72\n#### 72"
    assert one({"question": "Clips?", "answer": worked}).given == {"answer": "72", "demo": worked}
    assert one({"question": "Clips?", "answer": worked, "response": "72!"}).given == {"answer": "72", "demo": "72!"}
    assert one({"problem": "Half?", "answer": r"So \boxed{\frac{1}{2}}."}).given["answer"] == r"\frac{1}{2}"


def test_columns_override_and_rename() -> None:
    row = {"text": "Hi", "prompt": "unused", "gold": "4", "unit_tests": "assert True"}
    task = one(row, prompt="text", answer="gold", tests="unit_tests")
    assert task.prompt == "Hi"
    assert task.given == {"answer": "4", "demo": "4", "tests": "assert True", "prompt": "unused"}


def test_gives_is_what_every_row_has(tmp_path: Path) -> None:
    rows = [{"prompt": "a", "answer": 1, "level": 2}, {"prompt": "b", "answer": 2}, {"prompt": "c", "answer": None}]
    assert Dataset(write(tmp_path / "a.jsonl", rows[:2])).gives == {"answer", "demo"}
    assert Dataset(write(tmp_path / "b.jsonl", rows)).gives == frozenset()


def test_duplicates_land_in_one_split_and_indices_wrap(tmp_path: Path) -> None:
    dataset = Dataset(write(tmp_path / "a.jsonl", ROWS * 3), heldout=0.3)
    train, heldout = dataset.size("train"), dataset.size("heldout")
    assert train + heldout == 120
    assert 0 < heldout < 80
    assert not {t.key for t in of(dataset, "train")} & {t.key for t in of(dataset, "heldout")}
    assert dataset.task("train", train + 2) == dataset.task("train", 2)


def test_two_rows_are_enough_for_both_splits_and_one_trains(tmp_path: Path) -> None:
    for count in range(2, 12):
        dataset = Dataset(write(tmp_path / f"{count}.jsonl", ROWS[:count]))
        assert dataset.size("heldout") >= 1 <= dataset.size("train")
    alone = Dataset(write(tmp_path / "1.jsonl", ROWS[:1]))
    assert alone.size("train") == 1
    with pytest.raises(ValueError, match=r"has no heldout rows; add rows, or change heldout=0\.1"):
        alone.task("heldout", 0)
    assert Dataset(write(tmp_path / "0.jsonl", ROWS), heldout=0).size("heldout") == 0


def test_own_splits_are_kept_and_train_loses_what_is_held_out(tmp_path: Path) -> None:
    write(tmp_path / "train-00000.jsonl", ROWS[:6])
    write(tmp_path / "test.jsonl", ROWS[4:8])
    write(tmp_path / "validation.jsonl", ROWS[20:30])
    dataset = Dataset(tmp_path)
    assert [t.prompt for t in of(dataset, "train")] == [row["prompt"] for row in ROWS[:4]]
    assert [t.prompt for t in of(dataset, "heldout")] == [row["prompt"] for row in ROWS[4:8]]
    write(tmp_path / "test.jsonl", ROWS)
    with pytest.raises(ValueError, match="every training prompt is also in 'test'; remove one of the two"):
        Dataset(tmp_path).size("train")


def test_a_dataset_dict_on_disk(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    parts = {"train": datasets.Dataset.from_list(ROWS[:5]), "validation": datasets.Dataset.from_list(ROWS[5:7])}
    datasets.DatasetDict(parts).save_to_disk(str(tmp_path / "saved"))
    dataset = Dataset(tmp_path / "saved")
    assert (dataset.size("train"), dataset.size("heldout")) == (5, 2)


def test_rows_are_read_once(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", ROWS)
    dataset = Dataset(path)
    before = dataset.task("train", 0)
    path.unlink()
    assert dataset.task("train", 0) == before


CHAT_NOT_TEXT = {"messages": [{"role": "user", "content": None}]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", r"dataset '.*a.jsonl' is empty; it needs at least one row"),
        ('{"prompt": "a"}\n{"prompt": \n', r"a.jsonl, line 2: not valid JSON \(.*\); fix that line"),
        (
            '{"body": "a", "id": 3}\n',
            r"line 1: needs column 'prompt' \(or .*\); found columns body, id; name one with --",
        ),
        ('{"text": "  "}\n', r"line 1: the text is empty; fill it in or remove the row"),
        ('{"prompt": "a"}\n{"prompt": " "}\n', r"line 2: the prompt is empty; fill it in or remove the row"),
        ('{"prompt": []}\n', r"line 1: the prompt is empty"),
        ('{"prompt": 3}\n', r"line 1: the prompt is not text but int; make it text or chat messages"),
        ('{"prompt": "a", "output": 3}\n', r"line 1: a reply is not text but int; make it text or chat messages"),
        (json.dumps(CHAT_NOT_TEXT), r"line 1: a message is not \{'role': text, 'content': text\} but \{'role'"),
        ("[1, 2]\n", r"line 1: is a list, not an object with named columns"),
        ('{"chosen": "a", "rejected": "b"}\n', r"line 1: needs column 'prompt'"),
        (
            json.dumps({"chosen": "\n\nHuman: a\n\nAssistant: b", "rejected": "\n\nHuman: c\n\nAssistant: d"}),
            r"line 1: 'chosen' and 'rejected' do not share a prompt; add a column 'prompt'",
        ),
    ],
)
def test_errors_in_rows(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(content)
    with pytest.raises(ValueError, match=message):
        Dataset(tmp_path / "a.jsonl").size("train")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", b"{", r"a.json, line 1: not valid JSON \(.*\); one object a line is .jsonl"),
        ("a.json", b"3", r"a.json: holds a JSON int, not a list of rows"),
        ("a.pdf", b"hi", r"a.pdf: unknown kind of file; the kinds that can be read are .jsonl, .ndjson, .json"),
        ("a.txt", b"\xff\xfe", r"a.txt, line 1: cannot be read as UTF-8 text"),
        ("a.csv", b"prompt\na,b\n", r"a.csv, row 1: has more cells than the header; quote cells that hold commas"),
        ("a.jsonl", b'{"prompt": "\xff"}', r"a.jsonl, line 1: cannot be read as UTF-8 text"),
        ("a.jsonl.gz", b"no", r"a.jsonl.gz: is damaged, or not a .gz file"),
        ("a.parquet", b"no", r"a.parquet: not a readable Parquet file"),
    ],
)
def test_errors_in_files(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        Dataset(tmp_path / name).size("train")


def test_half_a_surrogate_pair_is_named_by_its_line(tmp_path: Path) -> None:
    rows = ['{"prompt": "\\ud83d\\ude00", "answer": "1"}', '{"prompt": "a \\ud83d b", "answer": "1"}']
    (tmp_path / "a.jsonl").write_text("\n".join(rows))
    with pytest.raises(ValueError, match=r"a\.jsonl, line 2: holds '.ud83d', half of a pair"):
        Dataset(tmp_path / "a.jsonl").size("train")


def test_errors_of_place_and_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"no file or folder '.*none.jsonl'; check the path"):
        Dataset(tmp_path / "none.jsonl").size("train")
    with pytest.raises(ValueError, match="holds no dataset; it should hold .jsonl"):
        Dataset(tmp_path).size("train")
    path = write(tmp_path / "a.jsonl", ROWS)
    for wrong in (f"{path}:0.7", f"{path}+{path}"):
        with pytest.raises(ValueError, match=r"several datasets are written a\.jsonl\*0\.7,b\.jsonl\*0\.3"):
            resolve_task(wrong).size("train")
    monkeypatch.setattr("burnish.util.files.MOST_ENTRIES", 3)
    assert Dataset(tmp_path).size("train") + Dataset(tmp_path).size("heldout") == len(ROWS)
    (tmp_path / "c" / "d").mkdir(parents=True)
    write(tmp_path / "c" / "d" / "b.jsonl", ROWS)  # two folders and two files
    with pytest.raises(ValueError, match="holds more than 3 files; name the folder of the data itself"):
        Dataset(tmp_path).size("train")
    with pytest.raises(ValueError, match=r"needs column 'txt' \(mapped to 'prompt'\); found columns prompt, answer"):
        Dataset(path, columns={"prompt": "txt"}).size("train")
    with pytest.raises(ValueError, match=r"heldout=1\.5 is not a share"):
        Dataset(path, heldout=1.5)
    with pytest.raises(ValueError, match="split 'test' is unknown; the splits are train, heldout"):
        Dataset(path).task("test", 0)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    (tmp_path / "a.parquet").touch()
    with pytest.raises(ValueError, match="needs pyarrow; install it with: pip install"):
        Dataset(tmp_path / "a.parquet").size("train")


def test_verify_says_what_was_expected_or_what_to_pass(tmp_path: Path) -> None:
    dataset = Dataset(write(tmp_path / "a.jsonl", [{"prompt": "2+2", "answer": "4"}]))
    task = dataset.task("train", 0)
    assert dataset.verify(task, "2+2 = 4").correct
    verdict = dataset.verify(task, "answer: 5")
    assert (verdict.score, verdict.correct, verdict.reason) == (0.0, False, "the answer is '4', not '5'")
    assert not dataset.verify(task, "").correct
    plain = Dataset(write(tmp_path / "b.jsonl", [{"prompt": "2+2"}]))
    with pytest.raises(
        ValueError, match=r"pass a reward function \(`--reward file.py:function`\) or a dataset with an "
    ):
        plain.verify(plain.task("train", 0), "4")
