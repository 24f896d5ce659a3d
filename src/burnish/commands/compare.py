"""`burnish compare METHOD METHOD ...`: methods under one budget, with statistics."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from burnish.commands.many import ManyRuns, plan_of, report, run, terminal, unfinished
from burnish.config.flags import read


@dataclass(frozen=True)
class CompareOptions(ManyRuns):
    """burnish compare METHOD METHOD ... --task TASK --budget UNIT=AMOUNT: which is better, and is it significant?

    burnish compare grpo dr_grpo gspo --task countdown --seeds 5 --budget tokens=2M
    burnish compare grpo "grpo(n=16)" "grpo(n=16, lr=3e-5)" --task add
    burnish compare grpo my_method.py:mine --task data.jsonl --model smollm2

    A candidate is a method, with flags in brackets (then quoted). Each runs with every seed until its budget is spent:
      tokens   sampled, plus trained on          samples  replies sampled, plus given replies trained on
      seconds  of training steps                 flops    of every forward and backward pass           steps
    Ctrl-C saves and stops; the same command resumes: finished runs and checkpoints are kept.
    It prints a leaderboard and writes report.html (one file), board.json and runs.csv. docs/compare.md defines every
    number."""


def main(words: list[str]) -> int:
    asked = read(CompareOptions, "compare", words, plain=200)
    if asked is None:
        return 0
    methods, options = asked
    if not methods:
        raise ValueError("say what to compare: burnish compare grpo dr_grpo --task add --budget tokens=100k")
    from burnish.compare.plan import candidate

    plan = plan_of(tuple(candidate(one) for one in methods), "compare", options)
    command, console = shlex.join(["burnish", "compare", *words]), terminal(options.quiet)
    ran = run(plan, console, f"{len(methods)} candidates on {options.task}", options)
    if any(row.done for row in ran.rows):
        from burnish.compare.board import board

        report(board(ran.rows, threshold=options.threshold), plan.out, console, command)
    return unfinished(ran, console, command)
