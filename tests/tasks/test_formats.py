"""Every convention of dataset rows: what the task is, and what a wrong row is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from runs import rows

from burnish.core.task import Task
from burnish.tasks.data import Dataset
from burnish.tasks.data.formats import to_task
from burnish.tasks.data.preferences import NoPreference

USER, REPLY = {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}


def one(row: dict[str, Any], **columns: str) -> Task:
    return to_task(row, columns, "here, row 1")


def test_plain_texts_have_no_prompt() -> None:
    task = one({"text": "A text.", "id": 3})
    assert (task.prompt, task.given["demo"], task.given["text"], task.given["id"]) == ("", "A text.", "A text.", 3)
    long = one({"text": "x" * 500})
    assert len(long.key) < 200
    assert long.key != one({"text": "x" * 501}).key
    assert one({"text": "aside", "prompt": "Hi"}).given == {"text": "aside"}


def test_all_of_a_conversation_is_kept_where_several_replies_are_in_it() -> None:
    talk = [USER, REPLY, {"role": "user", "content": "More"}, {"role": "assistant", "content": "No", "train": False}]
    task = one({"messages": talk})
    assert task.given == {"demo": "No", "messages": talk}
    assert task.prompt == tuple(talk[:3])


def test_system_columns_and_tools() -> None:
    task = one({"system_prompt": "Be kind.", "question": "Hi", "response": "Ho"})
    assert task.prompt == ({"role": "system", "content": "Be kind."}, USER)
    assert task.given == {"demo": "Ho"}
    assert one({"system": "", "question": "Hi", "response": "Ho"}).prompt == "Hi"
    talk = one(
        {"system": "Be kind.", "conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Ho"}]}
    )
    assert talk.prompt == ({"role": "system", "content": "Be kind."}, USER)
    schema = [{"type": "function", "function": {"name": "add", "description": None}}]
    expected = [{"type": "function", "function": {"name": "add"}}]
    assert one({"prompt": "Hi", "tools": schema}).given == {"tools": expected}
    assert one({"prompt": "Hi", "tools": json.dumps(schema)}).given == {"tools": expected}


def test_tool_calls_of_openai_and_sharegpt_become_the_same() -> None:
    call = {"type": "function", "function": {"name": "add", "arguments": {"a": 1}}}
    openai = [
        USER,
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}],
        },
        {"role": "tool", "content": "1", "tool_call_id": "c1"},
        REPLY,
    ]
    found = one({"messages": openai}).given["messages"]
    assert found[1] == {"role": "assistant", "content": "", "tool_calls": [{**call, "id": "c1"}]}
    assert found[2] == {"role": "tool", "content": "1", "tool_call_id": "c1"}
    sharegpt = [
        {"from": "human", "value": "Hi"},
        {"from": "function_call", "value": '{"name": "add", "arguments": {"a": 1}}'},
        {"from": "observation", "value": "1"},
        {"from": "gpt", "value": "Ho"},
    ]
    other = one({"conversations": sharegpt}).given["messages"]
    assert other[1] == {"role": "assistant", "content": "", "tool_calls": [call]}
    assert [message["role"] for message in other] == ["user", "assistant", "tool", "assistant"]
    with pytest.raises(ValueError, match="a tool call has no function with a name but is {'a': 1}"):
        one({"messages": [USER, {"role": "assistant", "content": "", "tool_calls": [{"a": 1}]}]})


def test_parts_of_text_are_one_text() -> None:
    parts = [{"type": "text", "text": "H"}, {"type": "text", "text": "i"}]
    assert one({"prompt": [{"role": "user", "content": parts}]}).prompt == (USER,)


@pytest.mark.parametrize("name", ["standard", "conversational"])
def test_trl_formats(name: str) -> None:
    """The dataset formats of TRL: language modelling, prompt-only, prompt-completion, preference with an explicit and
    an implicit prompt, unpaired preference."""
    chat = name == "conversational"
    prompt: Any = [USER] if chat else "The sky is"
    good, bad = ([{"role": "assistant", "content": c}] for c in ("blue.", "green.")) if chat else (" blue.", " green.")
    asked: Any = (USER,) if chat else "The sky is"
    texts = ("blue.", "green.") if chat else (" blue.", " green.")
    assert one({"prompt": prompt}).prompt == asked
    assert one({"prompt": prompt, "completion": good}).given == {"demo": texts[0]}
    pair = {"chosen": texts[0], "rejected": texts[1]}
    assert one({"prompt": prompt, "chosen": good, "rejected": bad}).given == pair
    implicit = one({"chosen": prompt + good, "rejected": prompt + bad})  # type: ignore[operator]
    assert (implicit.prompt, implicit.given) == (asked, pair)
    assert one({"prompt": prompt, "completion": good, "label": True}).given == {"demo": texts[0], "label": True}


def test_the_answer_of_a_row_of_verl_is_in_its_reward_model() -> None:
    row = {
        "data_source": "openai/gsm8k",
        "prompt": [{"role": "user", "content": "2 + 2?"}],
        "reward_model": {"style": "rule", "ground_truth": "4"},
        "extra_info": {"index": 0},
    }
    task = to_task(row, {}, "here")
    assert task.given["answer"] == "4" and task.kind == "question" and task.given["data_source"] == "openai/gsm8k"
    assert to_task({**row, "answer": "5"}, {}, "here").given["answer"] == "5"
    assert "answer" not in to_task({"prompt": "a", "reward_model": "none", "completion": "b"}, {}, "here").given


def test_stepwise_supervision() -> None:
    task = one({"prompt": "9.8 or 9.11?", "completions": ["11 > 8.", "So 9.11."], "labels": [True, False]})
    assert task.given == {"steps": ["11 > 8.", "So 9.11."], "labels": [True, False]}


@pytest.mark.parametrize(
    "order",
    [
        {"scores": [1, 3, 2]},
        {"ranks": [3, 1, 2]},
        {"ranking": [1, 2, 0]},
        {"ranking": [2, 3, 1]},
    ],
)
def test_ranked_replies_come_best_first(order: dict[str, list[int]]) -> None:
    given = one({"prompt": "Hi", "responses": ["bad", "good", "fair"], **order}).given
    assert given["responses"] == ["good", "fair", "bad"]
    assert given["ranks"] == [1, 2, 3]
    assert (given["chosen"], given["rejected"]) == ("good", "bad")
    assert given.get("scores") == ([3, 2, 1] if "scores" in order else None)


def test_ultrafeedback() -> None:
    replies = [
        {"model": "a", "response": "bad", "overall_score": 2.0},
        {"model": "b", "response": "good", "overall_score": 8.5},
    ]
    given = one({"instruction": "Hi", "completions": replies, "source": "x"}).given
    assert (given["chosen"], given["rejected"], given["scores"], given["source"]) == ("good", "bad", [8.5, 2.0], "x")
    binarized = {
        "prompt": "Hi",
        "messages": [USER, REPLY],
        "chosen": [USER, REPLY],
        "rejected": [USER, {**REPLY, "content": "No"}],
    }
    given = one({**binarized, "score_chosen": 8.0}).given
    assert (given["chosen"], given["rejected"], given["demo"]) == ("Ho", "No", "Ho")


def test_wrong_rankings_are_told() -> None:
    replies = {"prompt": "Hi", "responses": ["a", "b"]}
    with pytest.raises(ValueError, match="'scores' needs one number for each of the 2 replies, but is \\[1\\]"):
        one({**replies, "scores": [1]})
    with pytest.raises(ValueError, match="'ranking' is not the numbers of the replies, best first, but \\[5, 7\\]"):
        one({**replies, "ranking": [5, 7]})
    with pytest.raises(NoPreference):
        one({**replies, "scores": [1, 1]})
    assert one(replies).given == {"responses": ["a", "b"]}


def test_rows_that_prefer_nothing_are_left_out(tmp_path: Path) -> None:
    ranked = [{"prompt": str(n), "responses": ["a", "b"], "scores": [n % 2, 1]} for n in range(20)]
    dataset = Dataset(rows(tmp_path / "a.jsonl", *ranked))
    assert (dataset.size("train") + dataset.size("heldout"), dataset.left_out()) == (10, 10)
    assert "chosen" in dataset.gives


def test_a_solution_is_the_demonstration_and_holds_the_answer() -> None:
    assert one({"problem": "Half?", "solution": r"So \boxed{0.5}."}).given == {
        "demo": r"So \boxed{0.5}.",
        "answer": "0.5",
    }
    assert one({"prompt": "Half?", "solution": "1/2"}).given == {"demo": "1/2", "answer": "1/2"}
    long = "First this.\nThen that."
    assert one({"prompt": "Half?", "solution": long}).given == {"demo": long}
    assert one({"prompt": "Half?", "solution": long, "answer": "7"}).given == {"demo": long, "answer": "7"}


def test_a_completion_of_several_messages_is_a_conversation_in_which_the_prompt_is_not_trained() -> None:
    before = [USER, {**REPLY, "content": "Yes?"}, {"role": "user", "content": "Go"}]
    task = one({"prompt": before, "completion": [{**REPLY, "content": ""}, {"role": "tool", "content": "3"}, REPLY]})
    assert [message.get("train") for message in task.given["messages"]] == [None, False, None, None, None, None]


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ({**REPLY, "weight": -1}, "'weight' of a message is -1; it is a number of at least 0"),
        ({**REPLY, "weight": "much"}, "'weight' of a message is 'much'; it is a number of at least 0"),
        ({**REPLY, "train": "no"}, "'train' of a message is 'no'; it is true or false"),
    ],
)
def test_wrong_weights_are_told(message: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        one({"messages": [USER, message]})


def test_rows_given_in_python() -> None:
    listed = [{"prompt": str(n), "answer": str(n)} for n in range(30)]
    for given in (listed, iter(listed), {"prompt": [row["prompt"] for row in listed], "answer": ["1"] * 30}):
        assert Dataset(given).size("train") + Dataset(listed).size("heldout") == 30
    split = Dataset({"train": listed[:20], "test": listed[20:]})
    assert (split.size("train"), split.size("heldout")) == (20, 10)
    library = pytest.importorskip("datasets")
    assert Dataset(library.Dataset.from_list(listed)).size("heldout") == Dataset(listed).size("heldout")
    parts = library.DatasetDict(
        {"train": library.Dataset.from_list(listed[:20]), "test": library.Dataset.from_list(listed[20:])}
    )
    assert Dataset(parts).size("heldout") == 10


def test_splits_of_other_names_are_chosen(tmp_path: Path) -> None:
    card = "---\nconfigs:\n- config_name: default\n  data_files:\n" + "".join(
        f"  - split: {name}\n    path: {name}.jsonl\n"
        for name in ("train_sft", "test_sft", "train_prefs", "test_prefs")
    )
    (tmp_path / "README.md").write_text(card + "---\n")
    for name, count in {"train_sft": 5, "test_sft": 2, "train_prefs": 6, "test_prefs": 3}.items():
        rows(tmp_path / f"{name}.jsonl", *({"prompt": f"{name} {n}"} for n in range(count)))
    prefs = Dataset(tmp_path, split="train_prefs")
    assert (prefs.size("train"), prefs.size("heldout")) == (6, 3)
    other = Dataset(tmp_path, split="train_prefs", heldout="test_sft")
    assert (other.size("train"), other.size("heldout")) == (6, 2)
    with pytest.raises(ValueError, match="has the splits train_sft, .*; choose one with split=train_sft after a comma"):
        Dataset(tmp_path).size("train")
    with pytest.raises(ValueError, match="has no split 'x'; it has train_sft"):
        Dataset(tmp_path, split="x").size("train")
