"""`burnish sweep METHOD`: try values of its flags."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from functools import partial

from burnish.commands.flags import read
from burnish.commands.many import ManyRuns, plan_of, report, run, terminal, unfinished


@dataclass(frozen=True)
class SweepOptions(ManyRuns):
    """burnish sweep METHOD --grid FLAG=VALUE,VALUE --random FLAG=LOW:HIGH: what do its flags do?

    burnish sweep grpo --task add --grid lr=1e-5,1e-4 --grid n=4,8 --seeds 2
    burnish sweep grpo --task sort --random lr=1e-5:1e-3:log --random eps=0.1:0.4 --trials 12 --seeds 2

    --grid and --random may be given several times; any flag of the method or of every run will do. A grid is tried whole (or --trials
    of it); ranges are drawn, evenly or evenly in the logarithm. The method as it is runs beside them.
    You get a leaderboard of the settings, and the effect of each value whatever the others are, with 95% intervals.
    Ctrl-C stops politely, and the same command goes on. docs/compare.md defines every number."""

    grid: str | None = None
    """A flag and the values to try: lr=1e-5,1e-4. May be given several times."""
    random: str | None = None
    """A flag and the range to draw from: eps=0.1:0.4, or lr=1e-6:1e-3:log. May be given several times."""
    trials: int | None = None
    """Settings that are tried; by default the whole grid, or 12 where ranges are drawn."""


def main(words: list[str]) -> int:
    grids, ranges, rest = _several(words)
    asked = read(SweepOptions, "sweep", rest, plain=1)
    if asked is None:
        return 0
    methods, options = asked
    if not methods:
        raise ValueError("say which method: burnish sweep grpo --grid lr=1e-5,1e-4")
    if options.trials is not None and options.trials < 1:
        raise ValueError(f"--trials is {options.trials}; it must be at least 1")
    from burnish.compare import sweep
    from burnish.compare.plan import candidate

    tried = [sweep.grid(one) for one in grids], [sweep.ranged(one) for one in ranges]
    base = candidate(methods[0])
    settings = [
        type(one)(one.label, base.method, {**base.flags, **one.flags})
        for one in sweep.trials(base.method, *tried, options.trials)
    ]
    plan = plan_of((base, *settings), "sweep", options)
    command, console = shlex.join(["burnish", "sweep", *words]), terminal(options.quiet)
    ran = run(plan, console, f"{len(settings)} settings of {base.label} on {options.task}", options)
    if any(row.done for row in ran.rows):
        from burnish.compare.board import board
        from burnish.compare.effects import effects_html, show_effects

        found = board(ran.rows, threshold=options.threshold, against=base.label)
        effects = sweep.effects(found, settings, *tried)
        title = f"{base.label} on {options.task}: {len(settings)} settings"
        page, say = effects_html(effects, found), partial(show_effects, effects, found, console)
        report(found, plan.out, console, command, extra=page, title=title, more=say)
    return unfinished(ran, console, command)


def _several(words: list[str]) -> tuple[list[str], list[str], list[str]]:
    """The values of --grid and --random, which may stand several times, and the other words."""
    found: dict[str, list[str]] = {"--grid": [], "--random": []}
    rest: list[str] = []
    i = 0
    while i < len(words):
        name, equals, value = words[i].partition("=")
        if name not in found:
            rest.append(words[i])
        elif equals:
            found[name].append(value)
        elif i + 1 < len(words) and not words[i + 1].startswith("--"):
            i += 1
            found[name].append(words[i])
        else:
            raise ValueError(f"{name} needs a value: {name} {'lr=1e-5,1e-4' if name == '--grid' else 'eps=0.1:0.4'}")
        i += 1
    return found["--grid"], found["--random"], rest
