"""What judges say, kept: as rows of a file that `sft` trains on, or for a caller who listens."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from burnish.judges.question import Question
from burnish.score.judges.judge import Answer
from burnish.util.paths import expanded


@dataclass(frozen=True)
class Said:
    """An answer of a judge, with its question."""

    judge: str
    question: Question
    answer: str

    def row(self) -> dict[str, object]:
        """A conversation for SFT, with who said it, in answer to which template."""
        return {
            "prompt": [{"role": "user", "content": self.question.text}],
            "completion": [{"role": "assistant", "content": self.answer}],
            "judge": self.judge,
            "question": self.question.template,
        }


_LISTENERS: ContextVar[tuple[list[Said], ...]] = ContextVar("listeners", default=())


@contextmanager
def listening() -> Iterator[list[Said]]:
    """The answers that judges give inside the block, in order."""
    said: list[Said] = []
    before = _LISTENERS.set((*_LISTENERS.get(), said))
    try:
        yield said
    finally:
        _LISTENERS.reset(before)


def heard(judge: str, keep: str, questions: Sequence[Question], answers: list[list[Answer]]) -> list[list[Answer]]:
    """The answers themselves, after those that came were kept in the file `keep` and told to all who listen."""
    listeners = _LISTENERS.get()
    if keep or listeners:
        pairs = zip(questions, answers, strict=True)
        said = [Said(judge, one, answer.text) for one, own in pairs for answer in own if not answer.failed]
        for listener in listeners:
            listener.extend(said)
        if keep:
            kept_file(keep).add(said)
    return answers


def check_keep(keep: str) -> str:
    """The path of the file to keep answers in; ValueError where it could not be written."""
    if not keep:
        return ""
    path = expanded(keep)
    if path.suffix != ".jsonl":
        raise ValueError(f"keep={keep} has the suffix {path.suffix!r}; answers are kept in a .jsonl file")
    if not path.parent.is_dir():
        raise ValueError(f"keep={keep}: there is no folder {path.parent}; create it first")
    return str(path)


class KeptFile:
    """A JSONL file of answers, each once: a run that is repeated or resumed adds only new ones."""

    def __init__(self, path: Path) -> None:
        self.path, self._lock = path, threading.Lock()
        self._known = {_hash(line) for line in path.read_bytes().splitlines()} if path.is_file() else set()

    def add(self, said: Sequence[Said]) -> None:
        lines = [json.dumps(one.row(), ensure_ascii=False).encode() for one in said]
        with self._lock:
            new = list(dict.fromkeys(line for line in lines if _hash(line) not in self._known))
            self._known |= {_hash(line) for line in new}
            if new:
                with self.path.open("ab") as file:
                    file.write(b"".join(line + b"\n" for line in new))


def _hash(line: bytes) -> bytes:
    return hashlib.sha256(line).digest()[:16]


@lru_cache(maxsize=64)
def kept_file(path: str) -> KeptFile:
    """The one file of a path in this process."""
    return KeptFile(Path(path))
