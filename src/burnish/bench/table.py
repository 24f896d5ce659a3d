"""The table of benchmarks."""

from __future__ import annotations

import difflib

from burnish.bench.choices import ARC, MMLU, TRUTHFULQA, TRUTHFULQA_MC1
from burnish.bench.kinds import Bench
from burnish.bench.replies import BBH, GSM8K, HUMANEVAL, IFEVAL, MATH500, MBPP

BENCHES: dict[str, Bench] = {
    bench.name: bench for bench in (GSM8K, MATH500, MMLU, IFEVAL, HUMANEVAL, MBPP, BBH, TRUTHFULQA, TRUTHFULQA_MC1, ARC)
}
HARNESS = "lm-eval:"  # before the name of a task of the LM Evaluation Harness


def named(names: str) -> list[str]:
    """The benchmarks of --bench, in order; ValueError for one that there is not."""
    listed = [name.strip() for name in names.split(",") if name.strip()]
    for name in listed:
        if name not in BENCHES and not name.startswith(HARNESS):
            near = difflib.get_close_matches(name, BENCHES, 1, 0.5)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(BENCHES)}"
            raise ValueError(f"there is no benchmark {name!r}; {hint} (tasks of lm-eval are written {HARNESS}TASK)")
    if not listed:
        raise ValueError(f"--bench names no benchmark; there are {', '.join(BENCHES)}")
    return listed
