"""`burnish eval-reward REWARD --bench NAME`: RewardBench, RM-Bench and ProcessBench."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from burnish.core.step import Settings
    from burnish.evals.reward_benches import Solution
    from burnish.evals.reward_eval import RewardScorer
    from burnish.score.judges import Judge
    from burnish.tasks.source import Source

THRESHOLD = 0.5  # a step below it is wrong
BATCH = 64  # solutions read together
Numbers = dict[str, Any]


def of_pairs(bench: str, scorer: RewardScorer, source: Source, tasks: int) -> tuple[Numbers, list[Table | Text]]:
    """RewardBench or RM-Bench: the numbers, and how they are shown."""
    from burnish.evals import reward_benches as benches

    found = benches.compared(scorer, (benches.styled if bench == "rm-bench" else benches.pairs_of)(source, tasks))
    numbers: Numbers = {"rows": len(found), "comparisons": asdict(benches.spread(found))}
    if bench == "rm-bench":
        numbers["domains"] = benches.rm_bench(found)
        table = _table("RM-Bench", *benches.LEVELS)
        for domain, row in numbers["domains"].items():
            table.add_row(domain, *(f"[bold]{row[name]:.1%}[/]" for name in benches.LEVELS))
    else:
        numbers["sections"] = benches.reward_bench(found)
        table = _table("RewardBench", "accuracy")
        for section, right in numbers["sections"].items():
            table.add_row(section, f"[bold]{right:.1%}[/]")
    spread = numbers["comparisons"]
    said = f"all comparisons, each row once: {spread['mean']:.1%} ({spread['low']:.1%} to {spread['high']:.1%})"
    return numbers, [table, Text(said, style="dim")]


def of_steps(
    name: str, source: Source, tasks: int, settings: Settings, device: str
) -> tuple[Numbers, list[Table | Text]]:
    """ProcessBench: of a process reward model in a directory, or of a judge."""
    from burnish.evals import reward_benches as benches

    rows = benches.solutions(source, tasks)
    judge = _judge(name)
    found = _by_judge(judge, rows, settings, device) if judge else _by_model(name, rows, settings, device)
    numbers: Numbers = {"rows": len(rows), "parts": benches.process_bench(rows, found)}
    numbers["unread"] = sum(place is None for place in found)
    table = _table("ProcessBench", "wrong ones", "right ones", "F1")
    for part, row in numbers["parts"].items():
        cells = ("-" if math.isnan(row[key]) else f"[bold]{row[key]:.1%}[/]" for key in ("wrong", "right", "f1"))
        table.add_row(part, *cells)
    table.caption, table.caption_justify = f"{len(rows)} solutions, {numbers['unread']} without a verdict", "left"
    return numbers, [table]


def _judge(name: str) -> Judge | None:
    """The judge that a name means; None for the directory of a process reward model."""
    from burnish.commands.loaded import is_reward_model
    from burnish.core.call_syntax import read_call
    from burnish.score.judges import read_judge

    call = read_call(name)
    if call is not None and call.name in ("endpoint", "model"):
        return read_judge(name)
    if call is not None and call.positional and call.name in ("prm", "prm_steps"):
        return None
    return None if is_reward_model(name) else read_judge(name)


def _by_model(name: str, rows: Sequence[Solution], settings: Settings, device: str) -> list[int | None]:
    """The first step whose chance to be right is below one half, read where its training reads it."""
    import torch

    from burnish.core.call_syntax import read_call
    from burnish.core.roles import frozen
    from burnish.core.step import Step
    from burnish.core.types import Clock
    from burnish.models.build import build
    from burnish.models.known_models import resolve
    from burnish.rollout.given_steps import given_steps

    call = read_call(name)
    where = str(call.positional[0]) if call is not None and call.positional else name
    models = build({"prm": frozen(where, outputs=1)}, resolve(where), settings, device=device)
    step = Step(Clock(0, 1), models, settings)
    found: list[int | None] = []
    for start in range(0, len(rows), BATCH):
        groups = given_steps(reader="prm").call([row.task for row in rows[start : start + BATCH]], step)
        traces = [group.traces[0] for group in groups]
        masks = [torch.zeros(len(trace), dtype=torch.bool) for trace in traces]
        for trace, mask in zip(traces, masks, strict=True):
            mask[trace.note["ends"]] = True
        streams = models["prm"].streams(traces, masks, {"score"}, settings.token_budget)
        for trace, stream in zip(traces, streams, strict=True):
            chances = stream["score"][trace.note["ends"]].sigmoid()
            wrong = (chances < THRESHOLD).nonzero()
            found.append(int(wrong[0]) if len(wrong) else -1)
    return found


def _by_judge(judge: Judge, rows: Sequence[Solution], settings: Settings, device: str) -> list[int | None]:
    from burnish.core.messages import prompt_shown
    from burnish.core.step import Step
    from burnish.core.types import Clock
    from burnish.judges import read
    from burnish.judges.question import question
    from burnish.judges.templates import FIRST_ERROR
    from burnish.models.build import Models, build
    from burnish.models.known_models import resolve

    roles = dict(judge.models)
    base = resolve(next(iter(roles.values())).source) if roles else None
    step = Step(Clock(0, 1), build(roles, base, settings, device=device) if base else Models({}), settings)
    asked = [
        question(
            FIRST_ERROR,
            [("problem", prompt_shown(row.task.prompt)), *((f"step {k}", text) for k, text in enumerate(row.steps))],
            count=str(len(row.steps)),
        )
        for row in rows
    ]
    answers = judge.ask(asked, step)
    return [
        None if answer.failed else read.first_error(answer.text, len(row.steps))
        for row, (answer,) in zip(rows, answers, strict=True)
    ]


def _table(*columns: str) -> Table:
    table = Table(box=None, padding=(0, 3, 0, 0), pad_edge=False, header_style="dim")
    for i, column in enumerate(columns):
        table.add_column(column, justify="right" if i else "left")
    return table
