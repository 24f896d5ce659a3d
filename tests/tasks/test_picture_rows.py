"""Rows with pictures, as TRL's and OpenAI's users write them; what is wrong is one sentence with the row."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

import datasets
import pytest
from PIL import Image
from vlms import picture, picture_file

from burnish.core.messages import pictures_of, prompt_shown, text_of
from burnish.core.task import Task
from burnish.media.decode import decoded
from burnish.media.store import STORE
from burnish.tasks.data.dataset import Dataset


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for seed, name in ((1, "a.png"), (2, "b.png")):
        picture(seed).save(tmp_path / name)
    return tmp_path


def _task(folder: Path, row: dict[str, Any]) -> Task:
    file = folder / "rows.jsonl"
    file.write_text(json.dumps(row) + "\n")
    return Dataset(str(file), heldout=0).task("train", 0)


def _shape(task: Task) -> list[list[str]]:
    """Of each message, its parts: a picture by the name of its file."""
    assert not isinstance(task.prompt, str)
    return [
        [Path(p["image"]).name if p["type"] == "image" else p["text"] for p in m["content"]]
        if isinstance(m["content"], list)
        else [m["content"]]
        for m in task.prompt
    ]


def _inline(seed: int) -> str:
    file = io.BytesIO()
    picture(seed).save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


ROWS: dict[str, tuple[dict[str, Any], list[list[str]]]] = {
    "markers": (
        {"prompt": "Is <image> like <image>?", "images": ["a.png", "b.png"]},
        [["Is ", "a.png", " like ", "b.png", "?"]],
    ),
    "no marker": ({"prompt": "What is it?", "image": "a.png"}, [["a.png", "What is it?"]]),
    "typed parts": (
        {
            "prompt": [{"role": "user", "content": [{"type": "text", "text": "What?"}, {"type": "image"}]}],
            "images": ["a.png"],
        },
        [["What?", "a.png"]],
    ),
    "parts with files": (
        {"prompt": [{"role": "user", "content": [{"type": "image", "path": "b.png"}, {"type": "text", "text": "?"}]}]},
        [["b.png", "?"]],
    ),
    "in a later turn and a tool's result": (
        {
            "messages": [
                {"role": "user", "content": "Look <image>."},
                {"role": "assistant", "content": "Yes."},
                {"role": "tool", "content": [{"type": "image"}, {"type": "text", "text": "crop"}]},
                {"role": "assistant", "content": "Red."},
            ],
            "images": ["a.png", "b.png"],
        },
        [["Look ", "a.png", "."], ["Yes."], ["b.png", "crop"]],
    ),
    "instruction and input": (
        {"instruction": "Say what <image> shows.", "input": "Be short.", "images": ["a.png"], "output": "x"},
        [["Say what ", "a.png", " shows.\n\nBe short."]],
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_pictures_stand_where_the_row_says(folder: Path, name: str) -> None:
    row, wanted = ROWS[name]
    task = _task(folder, row)
    assert _shape(task) == wanted
    assert "<image>" not in "".join(map(text_of, task.prompt))  # type: ignore[arg-type]


def test_an_openai_message_with_an_inline_picture(folder: Path) -> None:
    part = {"type": "image_url", "image_url": {"url": _inline(1)}}
    task = _task(folder, {"prompt": [{"role": "user", "content": [part, {"type": "text", "text": "?"}]}]})
    (reference,) = pictures_of(task.prompt)  # type: ignore[arg-type]
    assert decoded(STORE.raw(reference)).tobytes() == picture(1).tobytes()
    assert prompt_shown(task.prompt) == f"[{reference}]?"


def test_a_datasets_image_column_and_pillow_objects() -> None:
    rows = {"prompt": ["What?", "And?"], "images": [[picture(1)], [picture(2)]], "answer": ["a", "b"]}
    features = datasets.Features(
        {"prompt": datasets.Value("string"), "images": [datasets.Image()], "answer": datasets.Value("string")}
    )
    table = datasets.Dataset.from_dict(rows, features=features)
    for source in (table, [{key: rows[key][i] for key in rows} for i in range(2)]):
        task = Dataset(source, heldout=0).task("train", 1)
        (reference,) = pictures_of(task.prompt)  # type: ignore[arg-type]
        assert decoded(STORE.raw(reference)).tobytes() == picture(2).tobytes()


def test_rows_that_differ_only_in_their_picture_are_different_tasks(folder: Path) -> None:
    keys = {_task(folder, {"prompt": "What?", "images": [name]}).key for name in ("a.png", "b.png")}
    assert len(keys) == 2 and _task(folder, {"prompt": "What?"}).key == "What?"


def test_text_that_looks_like_a_marker_stays_text_without_a_column(folder: Path) -> None:
    assert _task(folder, {"prompt": "Write <image> in HTML."}).prompt == "Write <image> in HTML."


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "missing": ({"prompt": "?", "images": ["gone.png"]}, "there is no picture gone.png"),
    "too many markers": ({"prompt": "<image><image>", "images": ["a.png"]}, "more markers"),
    "too few markers": ({"prompt": "<image>", "images": ["a.png", "b.png"]}, "has 2 pictures and 1 markers"),
    "a part without a picture": (
        {"prompt": [{"role": "user", "content": [{"type": "image"}]}]},
        "more markers .* than its 0 pictures",
    ),
    "svg": ({"prompt": "?", "images": ["a.svg"]}, "SVG drawing, which is not rendered"),
    "url": ({"prompt": "?", "images": ["https://example.org/a.png"]}, "nothing is fetched from the network"),
    "base64": ({"prompt": "?", "images": ["data:image/png;base64,@@@"]}, "is not valid base64"),
    "a number": ({"prompt": "?", "images": [3]}, "a picture is int"),
    "no bytes of a picture": (
        {"prompt": "?", "images": ["data:image/png;base64,AAAA"]},
        "the picture that came inside the row is no picture",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_picture_is_one_sentence_with_its_row(folder: Path, name: str) -> None:
    row, why = WRONG[name]
    with pytest.raises(ValueError, match=f"rows.jsonl, line 1: .*{why}") as refused:
        _task(folder, row)
    assert "\n" not in str(refused.value)


def test_a_wrong_suffix_is_no_mistake(folder: Path) -> None:
    Image.open(folder / "a.png").save(folder / "c.png", "JPEG")
    (reference,) = pictures_of(_task(folder, {"prompt": "?", "images": ["c.png"]}).prompt)  # type: ignore[arg-type]
    assert decoded(STORE.raw(reference)).size == picture_size(folder)


def picture_size(folder: Path) -> tuple[int, int]:
    return Image.open(picture_file(folder, 1)).size
