"""Model directories, run folders and shared folders with a file that is damaged."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import sqlite3
from pathlib import Path
from typing import Any

from bad_kinds.case import SMALL, Case, damaged
from bad_kinds.options import changed


def model_folder(rng: random.Random, folder: Path) -> Case:
    """A copy of the embedded model with one file damaged, or one value of its JSON files changed."""
    import burnish.models

    model = folder / "model"
    shutil.copytree(Path(burnish.models.__file__).parent / "tiny", model)
    file = model / rng.choice(
        ["config.json"] * 4
        + [
            "tokenizer.json",
            "tokenizer_config.json",
            "generation_config.json",
            "chat_template.jinja",
            "model.safetensors",
        ]
    )
    what = file.name
    if file.name == "chat_template.jinja" and rng.random() < 0.8:
        template = rng.choice(
            [
                "{% for",
                "{{ 1/0 }}",
                "{{ messages[99].x.y }}",
                "",
                "{{ raise_exception('no') }}",
                "{{ messages }}",
                "{{ x.__class__ }}",
                "\0",
                "{{ '<|end|>' * 5 }}",
                "{% set a = 1 %}",
            ]
        )
        file.write_text(template)
        what += f" is {template!r}"
    elif file.suffix == ".json" and rng.random() < 0.8:
        found = json.loads(file.read_text())
        key = rng.choice(sorted(found))
        value = rng.choice(
            [None, -1, 0, 1, 3, 1.5, "x", [], {}, True, 10**9, 10**20, float("nan"), 1e308, [[[]]], "\0"]
        )
        found[key] = value
        file.write_text(rng.choice(["[" * 5000, "[]", "null"]) if rng.random() < 0.1 else json.dumps(found))
        what += f": {key} is {value!r}"
    else:
        file.write_bytes(damaged(rng, file.read_bytes()))
    if rng.random() < 0.1:
        (model / rng.choice(["config.json", "model.safetensors", "tokenizer.json"])).unlink()
        what += ", and a file is missing"
    return Case("models", ["train", "grpo", *SMALL, "--model", str(model), "--out", str(folder / "out")], what)


# --------------------------------------------------------------------------------------------------------- run folders

SHARED = "shared"  # a folder beside those of the cases, for what all of them read
ODD_STORES = [
    "UPDATE metrics SET value = 'x'",
    "UPDATE metrics SET value = 9e999",
    "UPDATE metrics SET name = x'00ff'",
    "UPDATE info SET value = 'null'",
    "UPDATE info SET value = '[]' WHERE name = 'config'",
    "UPDATE traces SET text = x'ff00'",
    "UPDATE traces SET turns = '5'",
    "UPDATE tokens SET ids = 'abc'",
    "DROP TABLE metrics",
    "DROP TABLE info",
    "DELETE FROM info",
    "PRAGMA user_version = 999",
]
JSON_VALUES: list[Any] = [None, -1, 0, 1.5, "x", "", [], {}, True, 10**30, float("nan"), [[[]]], "\0", {"a": 1}]


def finished(folder: Path) -> Path:
    """A run of two steps with two checkpoints, made once."""
    place = folder.parent / SHARED / "run"
    if not place.exists():
        import burnish

        burnish.train(
            "grpo", out=str(place), steps=2, save_every=1, keep=9, n=2, prompts=1, max_new_tokens=2, eval_tasks=2,
            device="cpu", progress=False,
        )  # fmt: skip
    return place


def checkpoint(rng: random.Random, folder: Path) -> Case:
    """A run folder with one file damaged, replaced or gone, for every command that reads one."""
    run = folder / "run"
    shutil.copytree(finished(folder), run)
    files = sorted(path for path in run.rglob("*") if path.is_file() and path.name not in ("run.lock",))
    file = rng.choice([path for path in files if rng.random() < 0.7 or path.suffix in (".json", ".yaml", ".sqlite")])
    what = f"{file.relative_to(run)}: {_spoilt(rng, file)}"
    commands = [["train", "--resume", str(run), "--steps", "3"]] * 4 + [
        ["doctor", str(run)],
        ["runs", "show", str(run)],
    ]
    commands += [
        ["report", str(run), "--out", str(folder / "page")],
        ["runs", str(folder)],
        ["doctor", str(run), "--heal"],
    ]
    commands += [["eval", str(run / "model"), "--task", "sort", "--tasks", "1", "--max-new-tokens", "2"]]
    commands += [["runs", "export", str(run), "--to", str(folder / "out.csv")], ["train", "--resume", str(run)]]
    commands += [["doctor", str(run), "--same-as", str(finished(folder))]]
    return Case("checkpoints", rng.choice(commands), what)


def _spoilt(rng: random.Random, file: Path) -> str:
    """Damage a file; what was done."""
    how = rng.random()
    if file.suffix == ".sqlite" and how < 0.6:
        order = rng.choice(ODD_STORES)
        with contextlib.closing(sqlite3.connect(file)) as db:
            db.execute(order)
            db.commit()
        return order
    if file.suffix == ".json" and how < 0.6:
        try:
            made, done = changed(rng, {"whole": json.loads(file.read_text())}, JSON_VALUES)
        except ValueError:
            return "as it was"
        file.write_text(json.dumps(made.get("whole")))
        return done
    if how < 0.85:
        file.write_bytes(damaged(rng, file.read_bytes()))
        return "bytes"
    file.unlink()
    put = rng.choice(["nothing", "a folder", "a FIFO", "a link to itself", "a broken link"])
    if put == "a folder":
        file.mkdir()
    elif put == "a FIFO":
        os.mkfifo(file)
    elif put != "nothing":
        file.symlink_to(file if "itself" in put else file.parent / "gone")
    return put


# -------------------------------------------------------------------------------------------------------- swarm folders

GROUP: dict[str, Any] = {
    "key": "k",
    "prompt": [{"role": "user", "content": "1 + 1 ="}],
    "given": {"answer": "2"},
    "replies": [{"text": "2", "finished": True}, {"text": "3", "finished": True}],
}


def swarm(rng: random.Random, folder: Path) -> Case:
    """A folder of a swarm with files of other nodes that are damaged, too large or hostile."""
    place = folder / "swarm"
    place.mkdir()
    odd = [*JSON_VALUES, "x" * 100_000, "\ud800", "<|end|>", 10**400, [{"role": "user", "content": None}], "[" * 900]
    lines, what = [], ""
    for _ in range(rng.randrange(1, 6)):
        group, what = changed(rng, GROUP, odd)
        text = json.dumps(group)
        lines.append(
            rng.choice([text] * 6 + [text[:-3], "[" * 90_000, "", "null", text.replace('"2"', "1e999"), text * 2])
        )
    content = "\n".join(lines).encode("utf-8", "surrogatepass")
    content = damaged(rng, content) if rng.random() < 0.2 else content
    name = rng.choice(
        ["other.00000000.jsonl"] * 6 + ["other.99999999.jsonl", "x.jsonl", "..00000000.jsonl", "é.00000000.jsonl"]
    )
    file = place / name
    file.write_bytes(content)
    if rng.random() < 0.1:
        what = _spoilt(rng, file)
    words = ["train", "sapo_swarm", *SMALL, "--n", "2", "--swarm", str(place), "--external", "2"]
    node = ["--node", rng.choice(["a", "", "../a", "x" * 300, "a b"])] if rng.random() < 0.3 else []
    return Case("swarm", [*words, *node, "--out", str(folder / "out")], f"{name}: {what}")
