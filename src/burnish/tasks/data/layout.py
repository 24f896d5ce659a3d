"""Which files of a folder belong to which split: by the card of a hub dataset (README.md), else by their names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from burnish.util.safe_yaml import parse_yaml

HELDOUT_NAMES = ("test", "validation", "valid", "val", "dev", "eval", "heldout")  # the first that exists is used
_CARD = re.compile(r"\A---\s*\n(.*?)\n---\s*$", re.DOTALL | re.MULTILINE)


def split_files(files: Sequence[str], card: str | None, config: str | None, name: str) -> dict[str, list[str]]:
    """Split -> its files, all in order.

    files   paths below the folder, of kinds that can be read
    card    the text of README.md, whose `configs` say which files belong together
    config  one of the dataset's configurations, by name
    """
    configs = _configs(card)
    if configs:
        return _of_config(_chosen(configs, config, name), files)
    if config is not None:
        below = [file for file in files if config in PurePosixPath(file).parts[:-1]]
        if not below:
            raise ValueError(f"dataset {name!r} has no configuration {config!r}; leave out :{config}")
        files = below
    parts: dict[str, list[str]] = {}
    for file in sorted(files):
        parts.setdefault(_split_of(file), []).append(file)
    return parts


def _split_of(file: str) -> str:
    """The split that a path names ("test-0.parquet", "data/validation/0.jsonl"), else train."""
    path = PurePosixPath(file)
    words = [re.split(r"[-_.]", path.name.lower())[0], *(part.lower() for part in reversed(path.parts[:-1]))]
    return next((word for word in words if word in HELDOUT_NAMES), "train")


def _configs(card: str | None) -> list[dict[str, object]]:
    """The configurations that a card lists with their files."""
    found = _CARD.search(card or "")
    if found is None:
        return []
    try:
        head = parse_yaml(found[1])
    except ValueError:
        return []
    listed = head.get("configs") if isinstance(head, dict) else None
    return [c for c in listed if isinstance(c, dict) and (c.get("data_files") or c.get("data_dir"))] if listed else []


def _chosen(configs: list[dict[str, object]], wanted: str | None, name: str) -> dict[str, object]:
    names = [str(config.get("config_name", "default")) for config in configs]
    if wanted is not None and wanted not in names:
        raise ValueError(f"dataset {name!r} has no configuration {wanted!r}; it has {', '.join(names)}")
    by_name = dict(zip(names, configs, strict=True))
    default = next((n for n, config in by_name.items() if config.get("default")), None)
    picked = wanted or default or ("default" if "default" in by_name else names[0] if len(names) == 1 else None)
    if picked is None:
        base = name.partition(":")[0]
        raise ValueError(f"dataset {name!r} has the configurations {', '.join(names)}; choose one: {base}:{names[0]}")
    return by_name[picked]


def _of_config(config: dict[str, object], files: Sequence[str]) -> dict[str, list[str]]:
    below = str(config.get("data_dir") or "").strip("/")
    given = config.get("data_files") or "*"
    patterns: list[tuple[str | None, list[str]]] = []
    if isinstance(given, dict):
        patterns = [(str(split), _listed(paths)) for split, paths in given.items()]
    elif isinstance(given, list) and all(isinstance(one, dict) for one in given):
        patterns = [(str(one.get("split", "train")), _listed(one.get("path"))) for one in given]
    else:
        patterns = [(None, _listed(given))]
    parts: dict[str, list[str]] = {}
    for split, globs in patterns:
        for file in sorted(files):
            inside = f"{below}/" if below else ""
            if any(fnmatchcase(file, inside + pattern.replace("**/", "*")) for pattern in globs):
                parts.setdefault(split or _split_of(file), []).append(file)
    return parts


def _listed(paths: object) -> list[str]:
    return [str(path) for path in paths] if isinstance(paths, list) else [str(paths)]
