"""Calls of the `datasets` library in a script: what is loaded, joined and done to rows."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import replace

from burnish.migrate.draft import Unread
from burnish.migrate.evaluated import Data, Scope

_KINDS = ("json", "csv", "parquet", "text")
_HARMLESS = {
    "shuffle": "every epoch has an order of its own",
    "cast_column": "columns are read as they are",
    "to_iterable_dataset": "rows are read when they are drawn",
    "with_format": "columns are read as they are",
    "remove_columns": "columns that a task does not use are passed to the reward function",
    "select_columns": "columns that a task does not use are passed to the reward function",
    "flatten_indices": "rows are read when they are drawn",
}


def loaded(name: str, arguments: list[object], keywords: dict[str, object]) -> Data:
    """load_dataset("owner/name", "config", split="train[:100]"), or of files."""
    words = dict(zip(("path", "name"), arguments, strict=False)) | keywords
    path = words.get("path", "")
    files = words.get("data_files")
    if isinstance(files, dict):
        files = files.get("train", next(iter(files.values()), None))
    names = [path]
    if files is not None and (path in _KINDS or not path):
        names = list(files) if isinstance(files, list) else [files]
    options: dict[str, object] = {}
    if isinstance(words.get("name"), str):
        options["config"] = words["name"]
    if isinstance(words.get("revision"), str):
        options["revision"] = words["revision"]
    data = Data(tuple((str(one), dict(options)) for one in names))
    split = words.get("split")
    return of_split(data, split) if isinstance(split, str) else data


def of_split(data: Data, split: str) -> Data:
    """split="train[:1000]" is the split train; the slice is listed."""
    base, bracket, _ = split.partition("[")
    data = data.optioned(split=base)
    if bracket:
        data = data.after(f"split={split}", f"-all rows of {base} are used; cut the file to use some of them")
    return data


def joined(name: str, several: object, keywords: dict[str, object]) -> Data:
    """concatenate_datasets([a, b]) and interleave_datasets([a, b], probabilities=[...])."""
    parts = [one for one in several if isinstance(one, Data)] if isinstance(several, list) else []
    if not parts:
        raise ValueError(f"{name} joins datasets that cannot be read without running the script; list them in it")
    shares = keywords.get("probabilities")
    weights: tuple[float, ...] = ()
    if name == "interleave_datasets":
        given = shares if isinstance(shares, list) and len(shares) == len(parts) else [1.0 / len(parts)] * len(parts)
        weights = tuple(float(one) for one in given)
    sources = tuple(source for one in parts for source in one.sources)
    done = tuple(dict.fromkeys(entry for one in parts for entry in one.done))
    system = next((one.system for one in parts if one.system is not None), None)
    return Data(sources, done, weights if len(sources) == len(weights) else (), system)


def transformed(data: Data, name: str, node: ast.Call, value: Callable[[ast.expr], object], scope: Scope) -> object:
    """What a method of a dataset gives."""
    keywords = {word.arg: value(word.value) for word in node.keywords if word.arg}
    arguments = [value(one) for one in node.args]
    text = " ".join(ast.unparse(node)[len(ast.unparse(node.func)) - len(name) :].split())[:80]
    if name in _HARMLESS:
        return data.after(name, _HARMLESS[name])
    if name == "train_test_split":
        share = keywords.get("test_size", arguments[0] if arguments else None)
        if isinstance(share, float) and 0 < share < 1:
            return data.optioned(heldout=share).after(f"train_test_split({share:g})", f"task: heldout={share:g}")
        return data.after("train_test_split", "-a tenth of the prompts is held out; heldout=0.05 after the task")
    if name == "rename_column" and len(arguments) == 2:
        before, after = (str(one) for one in arguments)
        return data.optioned(**{after: before}).after(f"rename_column({before}, {after})", f"task: {after}={before}")
    if name == "map":
        return _mapped(data, node, text, value, scope)
    if name in ("filter", "select", "take", "skip", "shard", "add_column", "sort"):
        return data.after(text, "-rows are used as they are in the data; write the rows that you want into a file")
    return Unread("")


def _mapped(data: Data, node: ast.Call, text: str, value: Callable[[ast.expr], object], scope: Scope) -> Data:
    """map(f): what f does to a row is not carried, but a system message that it writes is."""
    function: ast.AST | None = node.args[0] if node.args else None
    if isinstance(function, ast.Name) and function.id in scope.functions:
        function = scope.functions[function.id]
    system = _system(function, value) if function is not None else None
    why = "rows are read by their columns and rendered by the chat template (docs/data.md)"
    if system is not None:
        mapped = data.after(text, f"~system_prompt, from the message that it writes; else {why}")
        return replace(mapped, system=system)
    return data.after(text, f"-{why}; what the function changes beyond that must be written into the data")


def _system(function: ast.AST, value: Callable[[ast.expr], object]) -> str | None:
    """The text of {"role": "system", "content": text} in a function."""
    for node in ast.walk(function):
        if isinstance(node, ast.Dict):
            pairs = {
                ast.unparse(k).strip("'\""): v for k, v in zip(node.keys, node.values, strict=True) if k is not None
            }
            role, content = pairs.get("role"), pairs.get("content")
            if isinstance(role, ast.Constant) and role.value == "system" and content is not None:
                text = value(content)
                if isinstance(text, str) and not re.fullmatch(r"\s*", text):
                    return text
    return None
