"""Odd commands and flags, and files of options."""

from __future__ import annotations

import copy
import dataclasses
import functools
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from bad_kinds.case import DEEP, HUGE, ODD, SMALL, Case, damaged, noise

FIXTURES = Path(__file__).parents[2] / "tests" / "migrate" / "fixtures"
VALUES: list[Any] = [
    None,
    "",
    "x",
    0,
    -1,
    1.5,
    1e999,
    float("nan"),
    10**400,
    True,
    [],
    {},
    [[]],
    {"a": {}},
    "\0",
    "{x}",
]
VALUES += ["../..", "/", "é" * 300, "~", "sft", "gone", ["a", 1], {"method": 1}, "2001-01-01", "0x10", "-", "--lr"]
RECIPE: dict[str, Any] = {
    "model": "tiny",
    "task": "add",
    "options": {"prompts": 2, "eval_tasks": 0, "device": "cpu"},
    "stages": {
        "first": {"method": "sft", "steps": 1},
        "prefs": {"command": "pairs", "model": "first", "n": 2, "count": 2, "max_new_tokens": 2},
        "dpo": {"method": "dpo", "model": "first", "task": "prefs", "steps": 1},
        "measured": {"command": "eval", "model": "dpo", "tasks": 2, "k": 1, "max_new_tokens": 2},
    },
}


def words(rng: random.Random, folder: Path) -> Case:
    """A command with odd words, flags or values. What would serve, ask or train for long is never complete."""
    from burnish.config.options import Options

    flags = [f"--{field.name.replace('_', '-')}" for field in dataclasses.fields(Options)]
    odd, missing = rng.choice(ODD), str(folder / rng.choice(["gone", "gone.yaml", "gone.py:f", "gone.jsonl"]))
    word = rng.choice([odd, missing, noise(rng)])
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
    file.write_bytes(damaged(rng, text.encode("utf-8", "surrogatepass")) if rng.random() < 0.2 else text.encode())
    return Case("yaml", ["train", str(file), *SMALL, "--steps", "0" if rng.random() < 0.5 else "1"], text[:200])


# ------------------------------------------------------------------------------------------------------------- recipes


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values in nested lists and mappings."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


def changed(rng: random.Random, whole: Any, values: list[Any]) -> tuple[Any, str]:
    """A copy in which one value is another one, is gone, or has a neighbour; and what was done."""
    made = copy.deepcopy(whole)
    path = rng.choice([path for path in places(made) if path])
    at, last, value = made, path[-1], rng.choice(values)
    for key in path[:-1]:
        at = at[key]
    how = rng.random()
    if how < 0.15:
        del at[last]
        return made, f"no {path}"
    if how < 0.3 and isinstance(at, dict):
        at[rng.choice(["x", "steps", "model", "", 1, None, "method", "a.b"])] = value
        return made, f"beside {path} {str(value)[:60]}"
    at[last] = value
    return made, f"{path} is {str(value)[:60]}"


def recipe(rng: random.Random, folder: Path) -> Case:
    """A recipe with a value that is wrong; its folder with a state that is damaged; stages and options by flags."""
    told, what = changed(rng, RECIPE, VALUES)
    content = yaml.safe_dump(told, sort_keys=False).encode()
    if rng.random() < 0.15:
        content, what = damaged(rng, content), "bytes"
    file, out = folder / "mine.yaml", folder / "out"
    file.write_bytes(content)
    if rng.random() < 0.25:
        file.write_text(yaml.safe_dump(RECIPE, sort_keys=False))
        pair = f"{rng.choice(['dpo', 'x', '', 'first', 'prefs'])}.{rng.choice(['lr', 'x', '', 'steps', 'n'])}"
        given = f"{rng.choice([pair, 'seed', 'model', ''])}={rng.choice(ODD)}"
        return Case("recipes", ["recipe", str(file), "--check", "--out", str(out), "--set", given], given[:200])
    if rng.random() < 0.3:
        out.mkdir()
        (out / "recipe.yaml").write_bytes(content)
        entry = {"name": "first", "what": "sft", "same": {}, "done": True, "product": "x"}
        state, how = changed(rng, {"first": entry, "prefs": dict(entry)}, VALUES)
        text = rng.choice([json.dumps(state), json.dumps(state)[:-5], DEEP, "", "null", "[]"])
        (out / "state.json").write_text(text)
        return Case("recipes", ["recipe", "--resume", str(out), *rng.choice([[], ["--check"]])], f"{how}, {what}")
    return Case("recipes", ["recipe", str(file), "--check", "--out", str(out)], what)


# ------------------------------------------------------------------------------------------------------------- imports


@functools.cache
def configurations() -> list[tuple[str, str]]:
    """Names and texts of whole configurations of other libraries."""
    found = []
    for file in sorted(FIXTURES.glob("*.txt")):
        for part in file.read_text().split("\n=== "):
            head, _, rest = part.removeprefix("=== ").partition("\n")
            found.append((head.partition(" | ")[0].strip(), rest.partition("\n---\n")[0] + "\n"))
    return found


def imported(rng: random.Random, folder: Path) -> Case:
    """A configuration of another library with a value, a line or a byte that is wrong."""
    name, text = rng.choice(configurations())
    file, what, lines = folder / name, "", text.splitlines()
    how = rng.random()
    if name.endswith((".yaml", ".yml")) and how < 0.6:
        told, what = changed(rng, yaml.safe_load(text), VALUES)
        file.write_text(json.dumps(told) if rng.random() < 0.2 else yaml.safe_dump(told, sort_keys=False))
    elif how < 0.8:
        at, odd = rng.randrange(len(lines)), rng.choice([*ODD, DEEP, "*a", "!!python/name:os.system", "(", "'", "`id`"])
        key, sign, _ = lines[at].partition("=" if name.endswith(("py", "sh")) else ":")
        lines[at] = f"{key}{sign}{odd}" if sign and rng.random() < 0.6 else odd
        what = lines[at][:150]
        file.write_bytes("\n".join(lines).encode("utf-8", "surrogatepass"))
    else:
        file.write_bytes(damaged(rng, text.encode()))
    words = ["import", str(file), "--out", str(folder / "ours.yaml")]
    words += ["--method", rng.choice(["grpo", "x", ""])] if rng.random() < 0.1 else []
    return Case("imports", words, f"{name}: {what}")
