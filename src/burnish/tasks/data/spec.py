"""The text of --task: one source or several with weights, each with options.

sort:3                                    a built-in task
data.jsonl,prompt=text                    a dataset, and a column of it
a.jsonl*0.7,split=train_sft,b.jsonl*0.3   two datasets by weight; options belong to the one before them
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from burnish.util.safe_yaml import parse_yaml

_OPTION = re.compile(r"\s*([A-Za-z_][\w-]*)\s*=(.*)", re.DOTALL)
_WEIGHT = re.compile(r"(.+)\*\s*([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*", re.DOTALL)


@dataclass(frozen=True)
class Spec:
    """One source of a mixture: its name, its weight if it has one, its options."""

    name: str
    weight: float | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


def read_spec(text: str) -> list[Spec]:
    """The sources of a --task, in order."""
    if "," not in text and "*" not in text or Path(text).exists():
        return [Spec(text)]
    found: list[Spec] = []
    for piece in text.split(","):
        option = _OPTION.fullmatch(piece) if found and not Path(piece).exists() else None
        if option:
            options = {**found[-1].options, option[1]: _value(option[2])}
            found[-1] = Spec(found[-1].name, found[-1].weight, options)
        elif piece.strip():
            found.append(_source(piece.strip(), text))
    return found


def _source(piece: str, text: str) -> Spec:
    weighed = None if Path(piece).exists() else _WEIGHT.fullmatch(piece)
    if weighed is None:
        name, star, weight_text = piece.rpartition("*")
        if star and weight_text.strip() and Path(name.strip()).exists():
            raise ValueError(
                f"task {text!r}: the weight of {name!r} is {weight_text!r}; give it a positive number: {name}*0.5"
            )
        return Spec(piece)
    weight = float(weighed[2])
    if not 0 < weight < float("inf"):
        raise ValueError(
            f"task {text!r}: the weight of {weighed[1]!r} is {weight:g}; give it a positive number, or leave it out"
        )
    return Spec(weighed[1].strip(), weight)


def _value(text: str) -> object:
    try:
        return parse_yaml(text)
    except ValueError:
        return text.strip()


def spell_task(given: Sequence[object] | Mapping[str, object]) -> str:
    """A mixture of YAML or Python as the text of --task.

    ["a.jsonl*0.7", "b.jsonl*0.3"], {"a.jsonl": 0.7, "b.jsonl": 0.3}, or
    [{"task": "a.jsonl", "weight": 0.7, "prompt": "text"}, "b.jsonl*0.3"]
    """
    if isinstance(given, Mapping):
        given = [{"task": name, "weight": weight} for name, weight in given.items()]
    return ",".join(_spelled(one) for one in given)


def _spelled(one: object) -> str:
    if isinstance(one, str | Path):
        return str(one)
    if not isinstance(one, Mapping) or not isinstance(one.get("task"), str | Path):
        raise ValueError(
            f"a source of a mixture is {one!r}; write 'data.jsonl*0.7', or a mapping with task and weight: "
            "{task: data.jsonl, weight: 0.7}"
        )
    options = dict(one)
    name, weight, columns = options.pop("task"), options.pop("weight", None), options.pop("columns", {})
    if weight is not None and not (isinstance(weight, int | float) and 0 < weight < float("inf")):
        raise ValueError(f"the weight of {name!r} is {weight!r}; it must be a positive number")
    pieces = [f"{name}*{weight:g}" if weight is not None else str(name)]
    return ",".join([*pieces, *(f"{key}={value}" for key, value in {**options, **columns}.items())])


def spell_columns(given: Mapping[str, str]) -> str:
    """{"prompt": "text"} as the text of --columns."""
    return ",".join(f"{part}={column}" for part, column in given.items())
