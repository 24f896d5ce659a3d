"""Read the file that is imported: YAML or JSON, a Python script, a notebook, or a shell script. Nothing is executed."""

from __future__ import annotations

import re
from pathlib import Path

from burnish.migrate.draft import Given, Unread, flattened
from burnish.migrate.script import read_script
from burnish.migrate.shell import read_shell
from burnish.util.plainfile import read_json, read_text, read_yaml

_REFERENCE = re.compile(r"\$\{([\w.]+)\}")


def read_given(path: Path) -> Given:
    """What a file says, or ValueError."""
    if not path.is_file():
        raise ValueError(f"there is no file {str(path)!r} to import")
    if path.suffix == ".py":
        return read_script(read_text(path), path)
    if path.suffix == ".ipynb":
        return read_script(_cells(path), path)
    if path.suffix in (".sh", ".bash"):
        return read_shell(read_text(path), path)
    options = read_yaml(path)
    if not isinstance(options, dict) or not options:
        raise ValueError(f"{path} holds no options `name: value`; give a YAML or JSON file of another library")
    return Given(_resolved(flattened(options)))


def _cells(path: Path) -> str:
    """The code of a notebook, without its shell commands and magics."""
    book = read_json(path)
    cells = book.get("cells") if isinstance(book, dict) else None
    if not isinstance(cells, list):
        raise ValueError(f"{path} is not a notebook: it has no list of cells; give the .ipynb file or the script")
    texts: list[str] = []
    for cell in cells:
        if isinstance(cell, dict) and cell.get("cell_type") == "code":
            source: object = cell.get("source", "")
            text = "".join(map(str, source)) if isinstance(source, list) else str(source)
            if not text.lstrip().startswith("%%"):
                texts.append(re.sub(r"^(\s*)[!%].*$", r"\1pass", text, flags=re.MULTILINE))
    return "\n".join(texts)


def _resolved(flat: dict[str, object]) -> dict[str, object]:
    """Hydra's references ${a.b.c} put in; those that name no field of the file are not known."""

    def one(value: object) -> object:
        reference = _REFERENCE.fullmatch(value.strip()) if isinstance(value, str) else None
        if reference:
            inner = flat.get(reference[1])
            return Unread(str(value)) if inner is None or (isinstance(inner, str) and "${" in inner) else inner
        return Unread(value) if isinstance(value, str) and value.startswith("${oc.") else value

    return {key: one(value) for key, value in flat.items()}
