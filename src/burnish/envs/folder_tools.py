"""`--tools folder:DIR`: search in the text files of a folder, and read them. The index is made once, in memory.

Passages are ranked by BM25 (Robertson and Zaragoza, Foundations and Trends in IR 3(4), 2009): for the terms t of a
query and a passage d among N,

    score(d) = sum_t idf(t) f(t, d) (k1 + 1) / (f(t, d) + k1 (1 - b + b |d| / mean |d|))
    idf(t) = ln(1 + (N - n(t) + 1/2) / (n(t) + 1/2))

where f counts the term in the passage, n the passages that have it, and k1 = 1.2, b = 0.75.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from burnish.envs.tools import Tool
from burnish.util.paths import expanded

K1, B = 1.2, 0.75
WORDS = 120  # of a passage
MOST_BYTES, MOST_FILES = 1 << 20, 20_000  # of a file that is read, and of a folder
KINDS = frozenset(
    (".txt", ".md", ".rst", ".csv", ".tsv", ".json", ".jsonl", ".html", ".xml", ".yaml", ".yml", ".toml", ".tex", ".py")
)
SHOWN = 3_000  # characters of a file in one answer
_TERM = re.compile(r"\w+")


@dataclass(frozen=True)
class Passage:
    """Words of a file, from the line `line` on."""

    file: str
    line: int
    text: str


class Index:
    """Passages that are ranked for a query."""

    def __init__(self, passages: Sequence[Passage]) -> None:
        self.passages = passages
        self.counts = [Counter(terms(one.text)) for one in passages]
        self.lengths = [sum(count.values()) for count in self.counts]
        self.mean = sum(self.lengths) / max(1, len(passages))
        self.having: Counter[str] = Counter(term for count in self.counts for term in count)
        self.places: dict[str, list[int]] = {}
        for i, count in enumerate(self.counts):
            for term in count:
                self.places.setdefault(term, []).append(i)

    def score(self, i: int, wanted: Sequence[str]) -> float:
        """The score of a passage for the terms of a query."""
        total, size = 0.0, K1 * (1 - B + B * self.lengths[i] / self.mean)
        for term in wanted:
            f, n = self.counts[i][term], self.having[term]
            total += math.log(1 + (len(self.passages) - n + 0.5) / (n + 0.5)) * f * (K1 + 1) / (f + size) if f else 0.0
        return total

    def search(self, query: str, most: int) -> list[Passage]:
        """The best passages, those that have none of the terms left out; ties go to the earlier one."""
        wanted = list(dict.fromkeys(terms(query)))
        found = {i for term in wanted for i in self.places.get(term, ())}
        return [self.passages[i] for i in sorted(found, key=lambda i: (-self.score(i, wanted), i))[:most]]


def terms(text: str) -> list[str]:
    """The terms of a text: its words in small letters."""
    return [word.lower() for word in _TERM.findall(text)]


class Documents:
    """Texts by name, which can be searched and read."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self.texts = texts
        self.index = Index([passage for name, text in texts.items() for passage in _passages(name, text)])

    @classmethod
    def of_folder(cls, place: str) -> Documents:
        """The text files of a folder."""
        root = expanded(place).resolve()
        files = _files(root) if root.is_dir() else {}
        if not files:
            raise ValueError(f"folder:{place} has no text files ({', '.join(sorted(KINDS))}); give a folder of them")
        return cls(files)

    def search(self, query: str, most: int = 3) -> str:
        """The best passages, as a model reads them."""
        found = self.index.search(query, min(max(1, most), 10))
        return "\n\n".join(f"[{one.file}:{one.line}] {one.text}" for one in found) or "nothing found"

    def read(self, file: str, line: int = 1) -> str:
        """A document from a line on, its beginning where it is long."""
        if file not in self.texts:
            return f"error: there is no file {file[:80]!r}; search names those that there are"
        text = "\n".join(self.texts[file].splitlines()[max(0, line - 1) :])
        return text if len(text) <= SHOWN else f"{text[:SHOWN]}\n[the file goes on]"


def folder_tools(place: str) -> list[Tool]:
    """The tools of a folder: search, and reading."""
    documents = Documents.of_folder(place)

    def search(query: str, most: int = 3) -> str:
        """Search the documents.

        Args:
            query: Words that the passage should have.
            most: How many passages to show, at most 10.
        """
        return documents.search(query, most)

    def read(file: str, line: int = 1) -> str:
        """Read a document.

        Args:
            file: Its name, as the search shows it.
            line: The line to begin with.
        """
        return documents.read(file, line)

    return [Tool.of(search), Tool.of(read)]


def _files(root: Path) -> dict[str, str]:
    """The texts of a folder by their names below it; links that lead out of it are left out."""
    texts: dict[str, str] = {}
    for path in sorted(root.rglob("*")):
        if path.suffix.lower() not in KINDS or not path.is_file() or not path.resolve().is_relative_to(root):
            continue
        if path.stat().st_size <= MOST_BYTES and len(texts) < MOST_FILES:
            texts[path.relative_to(root).as_posix()] = path.read_text(encoding="utf-8", errors="replace")
    return texts


def _passages(name: str, text: str) -> list[Passage]:
    """A text in passages of whole lines, of about WORDS words each."""
    passages: list[Passage] = []
    lines: list[str] = []
    words, first = 0, 1
    for number, line in enumerate(text.splitlines(), 1):
        lines.append(line)
        words += len(line.split())
        if words >= WORDS:
            passages.append(Passage(name, first, "\n".join(lines).strip()))
            lines, words, first = [], 0, number + 1
    if words:
        passages.append(Passage(name, first, "\n".join(lines).strip()))
    return passages
