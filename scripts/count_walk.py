"""Count what one command walks through: the files of burnish of which it executes functions.

    python scripts/count_walk.py train grpo --steps 1

By default two steps of `train grpo` in a temporary folder, without a held-out evaluation and without a dashboard. A
file counts if code of a function in it runs, but for what runs while a module is imported. The table shows files and
their lines by package, before the first step and after. Threads count, other processes do not.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections import defaultdict
from pathlib import Path
from types import CodeType, FrameType

import burnish

SRC = Path(burnish.__file__).parent
DEFAULT = ["train", "grpo", "--steps", "2", "--prompts", "2", "--n", "4", "--eval-tasks", "0"]
FIRST_OF_A_STEP = ("core/loop.py", "run_phase")


class Walk:
    """The code objects of burnish that were called, before the first step and from it on."""

    def __init__(self) -> None:
        self.before: set[CodeType] = set()
        self.steps: set[CodeType] = set()
        self._into = self.before

    def trace(self, frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if code.co_filename.startswith(str(SRC)) and code.co_name != "<module>":
            if place(code) == FIRST_OF_A_STEP:
                self._into = self.steps
            if code not in self._into and not importing(frame):
                self._into.add(code)

    def files(self, codes: set[CodeType]) -> set[str]:
        """Class bodies run while a module is imported, too: a file with no other code does not count."""
        return {place(code)[0] for code in codes if code.co_flags & 0x3}  # CO_OPTIMIZED and CO_NEWLOCALS: a function


def importing(frame: FrameType | None) -> bool:
    """Whether a module of burnish is being imported: decorators, tables and the like."""
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_code.co_filename.startswith(str(SRC)):
            return True
        frame = frame.f_back
    return False


def place(code: CodeType) -> tuple[str, str]:
    return Path(code.co_filename).relative_to(SRC).as_posix(), code.co_name


def walked(words: list[str]) -> Walk:
    """Run `burnish` with these words in this process and record what it calls."""
    from burnish.cli import main

    walk = Walk()
    threading.setprofile(walk.trace)
    sys.setprofile(walk.trace)
    try:
        if main(words):
            raise SystemExit(f"burnish {' '.join(words)} failed")
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return walk


def table(walk: Walk) -> str:
    before, steps = walk.files(walk.before), walk.files(walk.steps)
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for name in sorted(before | steps):
        row = counts[name.split("/")[0]]
        row[0] += 1
        row[1] += len((SRC / name).read_text().splitlines())
        row[2] += name in before
        row[3] += name in steps
    lines = [f"{'package':<14}{'files':>6}{'lines':>7}{'before':>8}{'steps':>7}"]
    lines += [f"{package:<14}{row[0]:>6}{row[1]:>7}{row[2]:>8}{row[3]:>7}" for package, row in sorted(counts.items())]
    total = [sum(row[i] for row in counts.values()) for i in range(4)]
    return "\n".join([*lines, f"{'all':<14}{total[0]:>6}{total[1]:>7}{total[2]:>8}{total[3]:>7}"])


if __name__ == "__main__":
    shown = "--files" in sys.argv
    words = [word for word in sys.argv[1:] if word != "--files"] or DEFAULT
    with tempfile.TemporaryDirectory() as folder:
        walk = walked([*words, *([] if "--out" in words else ["--out", f"{folder}/run"])])
    print(table(walk))
    if shown:
        print("\n".join(sorted(walk.files(walk.before | walk.steps))))
