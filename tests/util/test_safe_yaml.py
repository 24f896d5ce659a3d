"""YAML of others: what it expands to is limited before any value is made of it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from burnish.commands.imported import main as import_main
from burnish.models.template import read_options
from burnish.recipes.recipe import read_recipe
from burnish.tasks.data.layout import split_files
from burnish.tasks.data.spec import read_spec
from burnish.util.plainfile import read_yaml
from burnish.util.safe_yaml import DEEPEST, parse_yaml


def laughs(levels: int, wide: int = 9, before: str = "", lists: bool = True) -> str:
    """Each line has `wide` aliases of the one before it."""
    rows = [f"{before}a0: &a0 {{k0: x}}"]
    for n in range(1, levels):
        many = ", ".join([f"*a{n - 1}"] * wide)
        rows.append(f"a{n}: &a{n} [{many}]" if lists else f"a{n}: &a{n} {{<<: [{many}], k{n}: y}}")
    return "\n".join(rows)


BAD = {
    "lists": (laughs(10), "more than 100,000 values"),
    "merges": (laughs(10, lists=False), "more than 100,000 values"),
    "an alias of itself": ("a: &a [1, *a]", "alias of what the alias is in"),
    "a mapping in itself": ("a: &a {b: {c: *a}}", "alias of what the alias is in"),
    "brackets": ("[" * (DEEPEST + 1) + "]" * (DEEPEST + 1), "nested too deeply"),
    "many brackets": ("[" * 10_000, "nested too deeply"),
    "a chain of aliases": (laughs(2000, 1), "nested too deeply"),
    "a long text": ("a" * (1 << 23), "8,388,608 characters"),
    "base 60": ("1" + ":1" * 200_000, "a number of 400,001 characters"),
    "a long integer": ("a: " + "1" * 5000, "a number of 5,000 characters"),
    "no date": ("2020-13-45", "month must be in"),
    "no timestamp": ("!!timestamp today", "does not have the type that it names"),
    "no truth": ("!!bool maybe", "does not have the type that it names"),
    "an object": ("!!python/object/apply:os.getpid []", "not YAML"),
    "a list as a key": ("? [1]\n: 2", "not YAML"),
    "two documents": ("a: 1\n---\nb: 2", "not YAML"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_expands_too_far_is_one_value_error_at_once(name: str) -> None:
    text, why = BAD[name]
    start = time.perf_counter()
    with pytest.raises(ValueError, match=why) as raised:
        parse_yaml(text)
    assert "\n" not in str(raised.value) and time.perf_counter() - start < 5


def test_what_is_usual_is_read() -> None:
    text = "base: &b {lr: 1e-5, steps: 0x10, when: 2020-01-02}\nnext: {<<: *b, lr: 2.5}\nmany: [*b, *b, ~, yes, 1:30]"
    found = parse_yaml(text)
    assert found["next"] == {**found["base"], "lr": 2.5} and found["base"]["steps"] == 16
    assert found["many"][2:] == [None, True, 90] and parse_yaml("") is None
    assert len(parse_yaml(laughs(4))["a3"]) == 9  # 820 values in a3
    assert parse_yaml("[" * DEEPEST + "]" * DEEPEST)


def test_every_reader_of_yaml_refuses_it(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(laughs(12, before="stages:\n  sft: {method: sft}\n"))
    for read in (read_yaml, read_recipe, lambda path: import_main([str(path)])):
        with pytest.raises(ValueError, match=r"a\.yaml cannot be read: it has more than 100,000 values"):
            read(file)
    card = f"---\n{laughs(12)}\nconfigs: [{{config_name: other, data_files: b.jsonl}}]\n---\n"
    assert split_files(["train.jsonl"], card, None, "data") == {"train": ["train.jsonl"]}
    assert read_options("a=[[1]],b=2") == {"a": "[[1]]", "b": 2}
    assert read_spec("a.jsonl,heldout=2020-13-45")
