"""Chats as people have them: every spelling of a conversation, conversations without a last reply, slips in roles."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from e2e.runs import rows

from burnish import draw
from burnish.core.task import Task
from burnish.tasks.data import Dataset
from burnish.tasks.data.formats import to_last_reply, to_task
from burnish.tasks.replies import left_out
from burnish.tasks.resolve import resolve_task

USER, REPLY, MORE = ({"role": r, "content": c} for r, c in (("user", "Hi"), ("assistant", "Ho"), ("user", "Thanks")))
SHARED = [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Ho"}]


def one(row: Any, **columns: str) -> Task:
    return to_task(row, columns, "here, row 1")


@pytest.mark.parametrize(
    "row",
    [
        {"messages": [USER, REPLY]},
        [USER, REPLY],
        {"messages": json.dumps([USER, REPLY], indent=1)},
        {"messages": str([USER, REPLY])},  # what pandas writes into a CSV
        {"conversations": SHARED},
        {"conversations": json.dumps(SHARED)},
        {"dialogue": [{"from": "User", "value": "Hi"}, {"from": "Bot", "value": "Ho"}]},
        {"prompt": json.dumps([USER]), "completion": json.dumps([REPLY])},
        {"prompt": [USER], "completion": REPLY},
        {"question": "Hi", "answer": "Ho"},
        {"Question": "Hi", "Answer": "Ho"},
        {"INSTRUCTION": "Hi", "RESPONSE": "Ho"},
        {"input": "Hi", "output": "Ho"},
        {"instruction": "Hi", "input": "", "output": "Ho"},
        {"instruction": "Hi", "input": None, "output": "Ho", "history": []},
    ],
)
def test_every_spelling_of_one_exchange_is_a_prompt_and_its_reply(row: Any) -> None:
    task = one(row)
    assert (task.key, task.given["demo"]) == ("Hi", "Ho")


@pytest.mark.parametrize(
    "row",
    [
        {"chosen": json.dumps([USER, REPLY]), "rejected": json.dumps([USER, {"role": "assistant", "content": "Ha"}])},
        {"conversations": SHARED[:1], "chosen": SHARED[1], "rejected": {"from": "gpt", "value": "Ha"}},
        {"chosen": [USER, REPLY, MORE], "rejected": [USER, {"role": "assistant", "content": "Ha"}, MORE]},
        {"prompt": "Hi", "chosen": [REPLY, MORE], "rejected": [{"role": "assistant", "content": "Ha"}, MORE]},
        {"instruction": "Hi", "chosen_response": "Ho", "rejected_response": "Ha"},
    ],
)
def test_every_spelling_of_one_preference(row: dict[str, Any]) -> None:
    task = one(row)
    assert (task.key, task.given["chosen"], task.given["rejected"]) == ("Hi", "Ho", "Ha")


def test_turns_before_the_last_of_llama_factory_are_a_conversation() -> None:
    task = one({"system": "S", "instruction": "Hi", "input": "", "output": "Ho", "history": [["1?", "2"]]})
    said = [(m["role"], m["content"]) for m in task.given["messages"]]
    assert said == [("system", "S"), ("user", "1?"), ("assistant", "2"), ("user", "Hi"), ("assistant", "Ho")]
    assert "history" not in task.given and len(task.prompt) == 4
    assert one({"prompt": "Hi", "completion": "Ho", "history": "long"}).given["history"] == "long"


def test_an_answer_is_a_reply_and_a_ground_truth_is_not() -> None:
    assert one({"prompt": "1+1", "answer": 2}).given == {"answer": 2, "demo": "2"}
    assert one({"prompt": "1+1", "gold": "2"}, answer="gold").given["demo"] == "2"
    assert "demo" not in one({"prompt": "1+1", "ground_truth": "2"}).given
    assert "demo" not in one({"prompt": "1+1", "answer": " "}).given
    assert one({"prompt": "1+1", "answer": "2", "completion": "It is 2"}).given["demo"] == "It is 2"


def test_a_text_that_only_looks_like_a_list_stays_text() -> None:
    for text in ("[{} means nothing", '[{"a": 1}]', "[1, 2]"):
        assert one({"prompt": text, "completion": text}).given["demo"] == text
    with pytest.raises(ValueError, match="the messages are a text that is not valid JSON"):
        one({"messages": '[{"role": "user" "content"}]'})


@pytest.mark.parametrize(
    ("role", "meant"),
    [("asistant", "assistant"), ("usr", "user"), ("systm", "system"), ("humn", "human"), ("Asssistant", "assistant")],
)
def test_a_slip_in_a_role_is_named(role: str, meant: str) -> None:
    with pytest.raises(ValueError, match=f"here, row 1: a message has the role '{role}'; did you mean '{meant}'"):
        one({"messages": [USER, {"role": role, "content": "Ho"}]})


def test_roles_of_other_words_are_kept_or_translated() -> None:
    kept = [{"role": role, "content": "x"} for role in ("doctor", "user_2", "developer", "narrator")]
    assert [m["role"] for m in one({"messages": kept}).prompt] == ["doctor", "user_2", "developer", "narrator"]
    words = ("Human", "observation", "function", "ipython", "MODEL", "chatgpt")
    found = [m["role"] for m in one({"messages": [{"role": role, "content": "x"} for role in words] + [MORE]}).prompt]
    assert found == ["user", "tool", "tool", "tool", "assistant", "assistant", "user"]


def test_a_conversation_is_cut_after_its_last_reply() -> None:
    task = to_last_reply(one({"messages": [USER, REPLY, MORE]}))
    assert task is not None and (task.prompt, dict(task.given)) == ((USER,), {"demo": "Ho"})
    long = to_last_reply(one({"messages": [USER, REPLY, MORE, REPLY, MORE], "id": 3}))
    assert long is not None
    assert long.given == {"demo": "Ho", "messages": [USER, REPLY, MORE, REPLY], "id": 3}
    assert to_last_reply(one({"messages": [USER]})) is None
    whole = one({"messages": [USER, REPLY]})
    assert to_last_reply(whole) is whole


def _talks(tmp_path: Path) -> str:
    """Eight conversations that end with a reply, four that go on, two without a reply."""

    def said(i: int) -> dict[str, str]:
        return {"role": "user", "content": f"Hi {i}"}

    whole = [{"messages": [said(i), REPLY]} for i in range(8)]
    on = [{"messages": [said(i), REPLY, MORE]} for i in range(8, 12)]
    alone = [{"messages": [said(i)]} for i in range(12, 14)]
    return rows(tmp_path / "d.jsonl", *whole, *on, *alone)


@pytest.mark.parametrize("kind", ["{0}", "{0}*2,{0}", "{0},heldout=0.3"])
def test_methods_that_learn_from_replies_cut_and_count_and_others_ask_all(tmp_path: Path, kind: str) -> None:
    file = _talks(tmp_path)
    source = resolve_task(kind.format(file))
    draw.prompts(source)
    prompts = [source.task(split, i).prompt for split in ("train", "heldout") for i in range(source.size(split) or 0)]
    assert "demo" not in source.gives
    assert any(prompt[-1]["content"] == "Thanks" for prompt in prompts if not isinstance(prompt, str))
    draw.demos(source)
    assert "demo" in source.gives
    tasks = [source.task(split, i) for split in ("train", "heldout") for i in range(source.size(split) or 0)]
    assert len({task.key for task in tasks}) == 12 and all(task.given["demo"] == "Ho" for task in tasks)
    if "*" not in kind:
        assert left_out(source) == (
            "of the conversations that do not end with a reply, 4 are cut after their last reply, 2 have none and are "
            f"left out (the first: {file}, line 9)"
        )


def test_a_second_scan_from_the_cache_knows_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BURNISH_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("burnish.tasks.data.cache.WORTH_SECONDS", -1)
    file = _talks(tmp_path)
    found = []
    for _ in range(2):
        data = Dataset(file)
        draw.demos(data)
        found.append((data.size("train"), data.replies_cut(), data.roles()))
        monkeypatch.setattr("burnish.tasks.data.scan._scanned", None)
    assert found[0] == found[1]


def test_conversations_without_any_reply_name_their_roles(tmp_path: Path) -> None:
    told = [{"role": "doctor", "content": "x"}, {"role": "patient", "content": "y"}]
    with pytest.raises(ValueError, match="its conversations have the roles doctor, patient, and a reply has the role"):
        draw.demos(Dataset(rows(tmp_path / "d.jsonl", *[{"messages": told}] * 3)))


def test_cells_of_a_table_hold_conversations(tmp_path: Path) -> None:
    for name, mark in (("d.csv", ","), ("d.tsv", "\t")):
        with (tmp_path / name).open("w", newline="") as file:
            table = csv.writer(file, delimiter=mark)
            table.writerow(["prompt", "responses", "scores"])
            table.writerows([json.dumps([USER]), json.dumps(["a", "b"]), "[1, 2]"] for _ in range(2))
        task = Dataset(str(tmp_path / name)).task("train", 0)
        assert (task.prompt, task.given["responses"], task.given["chosen"]) == ((USER,), ["b", "a"], "b")
    with pytest.raises(ValueError, match="name one with --columns messages=talk"):
        one({"talk": [USER, REPLY]})
