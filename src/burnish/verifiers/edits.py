"""Edits of files: search/replace blocks of a reply, unified diffs, and the similarity of two changes."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping

Files = Mapping[str, str]
MOST_CHARACTERS = 2_000_000  # of a file after its edits
_HEADING = re.compile(r"#{2,4}\s+(\S.*?)\s*")
_SEARCH, _MIDDLE, _REPLACE = (re.compile(p) for p in (r"<{5,9} SEARCH\s*", r"={5,9}\s*", r">{5,9} REPLACE\s*"))
_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


class WrongEdit(ValueError):
    """Edits that cannot be read or applied."""


def apply_blocks(text: str, files: Files) -> dict[str, str]:
    """The files that search/replace blocks change, with their new contents; raises WrongEdit.

        ### path/to/file.py
        <<<<<<< SEARCH
        old lines
        =======
        new lines
        >>>>>>> REPLACE

    The search text must be found in the file where a line begins; every such place is replaced. Search and replacement
    must differ. A file that does not exist is empty, so that an empty search text writes it.
    """
    blocks = read_blocks(text)
    if not blocks:
        raise WrongEdit("there is no search/replace block")
    changed: dict[str, str] = {}
    for path, search, replacement in blocks:
        if search == replacement:
            raise WrongEdit("search and replacement are the same")
        before = "\n" + changed.get(path, files.get(path, ""))
        sought, put = ("\n" + _ended(text) if text else "" for text in (search, replacement))
        if not sought.strip() and before.strip():
            raise WrongEdit("the search text is empty")
        occurrences = before.count(sought or "\n")
        if not occurrences and path not in files:
            raise WrongEdit(f"there is no file {path[:80]!r}")
        if not occurrences:
            raise WrongEdit(f"the search text is not found in {path[:80]}")
        if len(before) + occurrences * len(put) > MOST_CHARACTERS:
            raise WrongEdit(f"{path[:80]} would have more than {MOST_CHARACTERS:,} characters")
        changed[path] = before.replace(sought or "\n", put)[1:]
    return {path: text for path, text in changed.items() if text != files.get(path, "")}


def _ended(lines: str) -> str:
    """Lines without the end of the last one."""
    return lines.removesuffix("\n").removesuffix("\r")


def read_blocks(text: str) -> list[tuple[str, str, str]]:
    """(path, search, replacement) of each search/replace block, in one pass over the lines; raises WrongEdit."""
    blocks: list[tuple[str, str, str]] = []
    path = ""
    parts: list[list[str]] = [[], []]  # lines of the search text and of the replacement
    current: int | None = None  # which of them is being read
    for line in text.splitlines(keepends=True):
        if current is None:
            if heading := _HEADING.fullmatch(line):
                path = heading[1].strip("`")
            elif _SEARCH.fullmatch(line):
                if not path:
                    raise WrongEdit("a search/replace block has no `### path` before it")
                current, parts = 0, [[], []]
        elif current == 0 and _MIDDLE.fullmatch(line):
            current = 1
        elif current == 1 and _REPLACE.fullmatch(line):
            blocks.append((path, "".join(parts[0]), "".join(parts[1])))
            current = None
        elif _SEARCH.fullmatch(line):
            raise WrongEdit("a search/replace block is not complete")
        else:
            parts[current].append(line)
    if current is not None:
        raise WrongEdit("a search/replace block is not complete")
    return blocks


def apply_patch(patch: str, files: Files) -> dict[str, str]:
    """The files that a unified diff changes, with their new contents; raises WrongEdit where it does not fit."""
    changed: dict[str, str] = {}
    path, old, new, place = "", [""], [""], 0

    def finish() -> None:
        if path:
            changed[path] = "".join([*new, *old[place:]])

    lines = patch.splitlines(keepends=True)
    i = 0
    while i < len(lines):
        if lines[i].startswith("--- ") and i + 1 < len(lines) and lines[i + 1].startswith("+++ "):
            finish()
            path = _path(lines[i + 1]) if "/dev/null" not in lines[i + 1] else _path(lines[i])
            old, new, place, i = files.get(path, "").splitlines(keepends=True), [], 0, i + 2
        elif path and (hunk := _HUNK.match(lines[i])):
            start = int(hunk[1]) - (int(hunk[2] or 1) > 0)
            if start < place or start > len(old):
                raise WrongEdit(f"a hunk of {path} begins at line {hunk[1]}, which does not fit")
            new += old[place:start]
            place, i = _hunk(lines, i + 1, int(hunk[2] or 1), int(hunk[4] or 1), old, start, new, path)
        else:
            i += 1
    finish()
    if not changed:
        raise WrongEdit("the patch changes no file")
    return changed


def _hunk(
    lines: list[str], i: int, removed: int, added: int, old: list[str], place: int, new: list[str], path: str
) -> tuple[int, int]:
    """Apply one hunk; returns the place in the old file and the next line of the patch."""
    while (removed or added) and i < len(lines):
        kind, text = lines[i][:1], lines[i][1:]
        if kind == "\\":
            i += 1
            continue
        if kind in "-\n " or not kind:
            text = text if kind in "- " else lines[i]
            if place >= len(old) or old[place].rstrip("\r\n") != text.rstrip("\r\n"):
                raise WrongEdit(f"line {place + 1} of {path} is not the one in the patch")
            if kind != "-":
                new.append(old[place])
            place, removed = place + 1, removed - 1
        elif kind == "+":
            new.append(text)
        else:
            raise WrongEdit(f"a line of the patch of {path} begins with {kind!r}")
        added -= kind != "-"
        i += 1
    return place, i


def _path(line: str) -> str:
    name = line[4:].split("\t")[0].strip()
    return name[2:] if name[:2] in ("a/", "b/") else name


def diff(before: str, after: str) -> str:
    """The unified diff of two texts, with three lines of context and without the names of files."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=3)
    return "\n".join([*lines][2:])


def change_similarity(changed_files: Files, right: Files, files: Files) -> float:
    """The mean over the files that either side changes of 2 M / T of the characters of their diffs.

    M / T is that of difflib.SequenceMatcher(changed, right) without its junk heuristic, which is not symmetric. A file
    changed on one side alone counts 0; 1 where neither side changes a file.
    """
    changed = sorted(changed_files.keys() | right.keys())
    if not changed:
        return 1.0
    return sum(_ratio(path, changed_files, right, files) for path in changed) / len(changed)


def _ratio(path: str, changed_files: Files, right: Files, files: Files) -> float:
    if path not in changed_files or path not in right:
        return 0.0
    before = files.get(path, "")
    a, b = diff(before, changed_files[path]), diff(before, right[path])
    return 1.0 if a == b else difflib.SequenceMatcher(None, a, b, autojunk=False).ratio()
