"""Bad inputs for `fuzz_inputs.py`: odd words, files of options, datasets and model directories, all from a seed."""

from __future__ import annotations

import dataclasses
import gzip
import json
import random
import shutil
import string
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

KINDS = ("words", "yaml", "data", "models")
SMALL = [
    "--steps",
    "1",
    "--prompts",
    "1",
    "--max-new-tokens",
    "2",
    "--eval-tasks",
    "0",
    "--device",
    "cpu",
    "--quiet",
    "--record",
    "0",
]
HUGE = "9" * 400
ODD = [
    "",
    " ",
    "-1",
    "0",
    "nan",
    "inf",
    "-inf",
    "1e999",
    HUGE,
    "0x10",
    "1_0",
    "none",
    "null",
    "true",
    "[]",
    "{}",
    "a=b",
    "--",
    "-",
    "é",
    "\ud800",
    "../..",
    "/",
    "/dev/null",
    "/proc/self/mem",
    ".",
    "~",
    "x" * 300,
    "x" * 5000,
    "a\0b",
    "a\nb",
    "*",
    "%s",
    "{0}",
    "$(id)",
    "';--",
    "<b>",
    "[bold]",
    "[/]",
    ":",
    "::",
    ":x",
    "x:",
    "1:2:3",
    "gym:",
    "gym:nosuch",
    "sort:-1",
    "sort:x",
    "sort:" + HUGE,
]


@dataclass
class Case:
    """One bad input: what kind, the words of the command line, and what is in the file that they name."""

    kind: str
    words: list[str]
    what: str = ""


def cases(n: int, seed: int, folder: Path, kinds: tuple[str, ...] = KINDS) -> Iterator[Case]:
    """So many bad inputs, the kinds in turn; files that they need are written below `folder`."""
    for i in range(n):
        kind = kinds[i % len(kinds)]
        rng = random.Random(
            f"{seed}/{kind}/{i}"
        )  # by kind and number, so that leaving kinds out changes no other input
        place = folder / f"{i}"
        place.mkdir()
        yield MAKERS[kind](rng, place)
        shutil.rmtree(place, ignore_errors=True)


# ---------------------------------------------------------------------------------------------------------------- words


def words(rng: random.Random, folder: Path) -> Case:
    """A command with odd words, flags or values. What would serve, ask or train for long is never complete."""
    from burnish.config.options import Options

    flags = [f"--{field.name.replace('_', '-')}" for field in dataclasses.fields(Options)]
    odd, missing = rng.choice(ODD), str(folder / rng.choice(["gone", "gone.yaml", "gone.py:f", "gone.jsonl"]))
    word = rng.choice([odd, missing, _noise(rng)])
    shapes: list[list[str]] = [
        [word],
        ["train", word, *SMALL],
        ["train", "grpo", *SMALL, rng.choice(flags), odd],
        ["train", "grpo", *SMALL, f"{rng.choice(flags)}={odd}"],
        ["train", rng.choice(["dpo", "sft", "ppo", "gkd"]), *SMALL, "--task", word],
        [
            "train",
            "grpo",
            *SMALL,
            "--swap",
            rng.choice([odd, "pg=", "=pg", "pg=pg_clip(", "pg=pg_clip(1e999)", "(" * 500, "a=b;" * 50]),
        ],
        ["train", "grpo", *SMALL, "--reward", rng.choice([word, f"{missing}:f"])],
        ["train", "grpo", *SMALL, "--model", word],
        ["train", "--resume", word],
        ["train", "grpo", f"--{odd}"],
        ["ui", missing],
        ["ui", str(folder), "--port", rng.choice(["-1", "70000", HUGE, "x", ""])],
        ["ui", str(folder), f"--host={rng.choice(['0', '0x0', '::', 'a b', 'x' * 300, ''])}"],
        *([name, word] for name in ("show", "tasks", "models", "runs", "report", "chat", "doctor", "eval", "methods")),
        ["runs", rng.choice(["show", "export", "pause", "stop", "diff"]), word],
        ["runs", str(folder), f"--{rng.choice(['json', 'to', 'out'])}={odd}"],
        ["eval", missing, "--task", word],
        ["eval", "tiny", "--task", "sort", "--tasks", rng.choice(["-1", "0", "x", HUGE])],
        ["compare", word, "--budget", odd],
        [
            "compare",
            "grpo",
            "--out",
            missing,
            "--budget",
            rng.choice(["steps", "steps=", "steps=-1", "steps=x", f"steps={HUGE}", "=", odd]),
        ],
        ["sweep", "grpo", "--out", missing, "--grid", rng.choice([word, "lr=", "=1", "lr=1,,x", "n=x"])],
        ["ablate", word],
        ["doctor", str(folder), "--same-as", word],
    ]
    return Case("words", rng.choice(shapes))


def _noise(rng: random.Random) -> str:
    return "".join(rng.choice(string.printable) for _ in range(rng.randrange(1, 30)))


# ----------------------------------------------------------------------------------------------------------------- yaml


def yaml_file(rng: random.Random, folder: Path) -> Case:
    """A file of options that is damaged, too deep, of other types, or full of YAML's own tricks."""
    value = rng.choice(
        [
            "[1, 2]",
            "{a: 1}",
            "!!python/object/apply:os.system ['true']",
            "!!binary aGk=",
            "2001-01-01",
            "&a [*a]",
            HUGE,
            "-.inf",
            ".nan",
            "'a\\0b'",
            '"\\0"',
            "!!set {a}",
            "~",
            "1e999",
            "0o7",
            "on",
            "|\n  text",
            "[" * 3000,
            "{a: " * 500,
            "*gone",
            "!x y",
            "\t",
        ]
    )
    key = rng.choice(
        [
            "steps",
            "lr",
            "model",
            "task",
            "method",
            "n",
            "packed",
            "out",
            "seed",
            "swap",
            "reward",
            "nosuch",
            "1",
            "[a]",
            "? x",
        ]
    )
    whole = rng.choice(
        [
            "",
            "[]",
            "text",
            "- a\n- b",
            "a: b: c",
            "\0",
            "\x85\x1b",
            "%YAML 9.9\n---\n",
            "---\n---\n",
            "a: 1\na: 2",
            ": :",
            "{",
            "&x *x",
            HUGE,
            "lol: &a [x]\n" + "".join(f"l{i}: &{chr(98 + i)} [*{chr(97 + i)}, *{chr(97 + i)}]\n" for i in range(20)),
        ]
    )
    text = rng.choice([f"method: grpo\n{key}: {value}\n", f"{key}: {value}\n", whole])
    file = folder / "run.yaml"
    file.write_bytes(_damaged(rng, text.encode("utf-8", "surrogatepass")) if rng.random() < 0.2 else text.encode())
    return Case("yaml", ["train", str(file), *SMALL, "--steps", "0" if rng.random() < 0.5 else "1"], text[:200])


# ----------------------------------------------------------------------------------------------------------------- data

ROW = {"prompt": "2 + 2 =", "answer": "4", "completion": "4", "chosen": "4", "rejected": "5"}


def data_file(rng: random.Random, folder: Path) -> Case:
    """A dataset with a row, a value or a byte that is wrong."""
    wrong: Any = rng.choice(
        [
            None,
            1,
            1.5,
            [],
            {},
            True,
            "",
            "x" * 20_000,
            [{"role": 1}],
            [{"role": "user"}],
            {"a": {"b": 1}},
            "\ud800",
            "\0",
            -1e308,
            10**400,
        ]
    )
    column = rng.choice([*ROW, "messages", "label", "tests", "nosuch"])
    lines = [json.dumps(ROW) for _ in range(rng.randrange(0, 12))]
    lines.insert(rng.randrange(len(lines) + 1), json.dumps({**ROW, column: wrong}))
    if rng.random() < 0.5:
        junk = [
            "{",
            "[]",
            "1",
            "null",
            '"a"',
            "[" * 100_000,
            '{"a":' * 5000,
            '{"prompt": 1e999, "answer": NaN}',
            f'{{"prompt": {HUGE}{HUGE}}}',
            "\0",
            "\ufeff{}",
            "{'a': 1}",
        ]
        lines.insert(rng.randrange(len(lines) + 1), rng.choice(junk))
    content = "\n".join(lines).encode("utf-8", "surrogatepass")
    ending = rng.choice(["jsonl", "json", "csv", "parquet", "jsonl.gz", "txt", "JSONL", "tsv", "arrow"])
    if ending.endswith("gz"):
        content = gzip.compress(content, mtime=0)
    if rng.random() < 0.4:
        content = _damaged(rng, content)
    file = folder / f"data.{ending}"
    file.write_bytes(content)
    target = file if rng.random() < 0.9 else folder
    method = rng.choice(["sft", "grpo", "dpo", "kto"])
    return Case(
        "data", ["train", method, *SMALL, "--task", str(target), "--out", str(folder / "out")], str(content[:200])
    )


# --------------------------------------------------------------------------------------------------------------- models


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
        file.write_bytes(_damaged(rng, file.read_bytes()))
    if rng.random() < 0.1:
        (model / rng.choice(["config.json", "model.safetensors", "tokenizer.json"])).unlink()
        what += ", and a file is missing"
    return Case("models", ["train", "grpo", *SMALL, "--model", str(model), "--out", str(folder / "out")], what)


def _damaged(rng: random.Random, content: bytes) -> bytes:
    """The bytes cut short, with one changed, with some put in, or none."""
    how, at = rng.randrange(4), rng.randrange(len(content) + 1)
    if how == 0:
        return content[:at]
    if how == 1 and content:
        at = min(at, len(content) - 1)
        return content[:at] + bytes([content[at] ^ (1 << rng.randrange(8))]) + content[at + 1 :]
    return content[:at] + rng.randbytes(rng.randrange(1, 20)) + content[at:] if how == 2 else b""


MAKERS: dict[str, Callable[[random.Random, Path], Case]] = {
    "words": words,
    "yaml": yaml_file,
    "data": data_file,
    "models": model_folder,
}
