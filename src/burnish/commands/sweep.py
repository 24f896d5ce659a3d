"""`burnish sweep METHOD`: hyperparameter search over its flags."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from functools import partial

from burnish.commands.many import ManyRuns, plan_of, report, run, shared_flags, terminal, unfinished
from burnish.config.flags import read


@dataclass(frozen=True)
class SweepOptions(ManyRuns):
    """burnish sweep METHOD --grid FLAG=VALUE,VALUE --random FLAG=LOW:HIGH: hyperparameter search over its flags.

    burnish sweep grpo --task add --grid lr=1e-5,1e-4 --grid n=4,8 --seeds 2
    burnish sweep grpo --task sort --random lr=1e-5:1e-3:log --random eps=0.1:0.4 --trials 12 --seeds 2

    --grid and --random may be given several times, for any flag of the method or of every run. All combinations of a
    grid are run (or --trials of them); ranges are sampled uniformly or log-uniformly. The defaults are the baseline,
    and are run once where a setting has the same values.
    It prints a leaderboard of the settings and the marginal effect of each value, with 95% intervals.
    Ctrl-C saves and stops; the same command resumes. docs/compare.md defines every number."""

    grid: str | None = None
    """A flag and the values to try: lr=1e-5,1e-4. May be given several times."""
    random: str | None = None
    """A flag and the range to sample from: eps=0.1:0.4, or lr=1e-6:1e-3:log. May be given several times."""
    trials: int | None = None
    """Number of settings; by default the whole grid, or 12 if ranges are sampled."""


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

    searched = [sweep.grid(text) for text in grids], [sweep.ranged(text) for text in ranges]
    base = candidate(methods[0])
    settings = [
        type(trial)(trial.label, base.method, {**base.flags, **trial.flags})
        for trial in sweep.trials(base.method, *searched, options.trials)
    ]
    candidates, against = sweep.run_once(base, settings, shared_flags(options), options.task)
    plan = plan_of(candidates, "sweep", options, base.label)
    command, console = shlex.join(["burnish", "sweep", *words]), terminal(options.quiet)
    ran = run(plan, console, f"{len(settings)} settings of {base.label} on {options.task}", options)
    if any(row.done for row in ran.rows):
        from burnish.compare.board import board
        from burnish.compare.effects import effects_html, show_effects

        results = board(ran.rows, threshold=options.threshold, against=against)
        effects = sweep.effects(results, settings, *searched)
        title = f"{base.label} on {options.task}: {len(settings)} settings"
        page, show = effects_html(effects, results), partial(show_effects, effects, results, console)
        report(results, plan.out, console, command, extra=page, title=title, more=show)
    return unfinished(ran, console, command)


def _several(words: list[str]) -> tuple[list[str], list[str], list[str]]:
    """Separate the values of --grid and --random, which may be repeated, from the other arguments."""
    values: dict[str, list[str]] = {"--grid": [], "--random": []}
    rest: list[str] = []
    i = 0
    while i < len(words):
        name, equals, value = words[i].partition("=")
        if name not in values:
            rest.append(words[i])
        elif equals:
            values[name].append(value)
        elif i + 1 < len(words) and not words[i + 1].startswith("--"):
            i += 1
            values[name].append(words[i])
        else:
            raise ValueError(f"{name} needs a value: {name} {'lr=1e-5,1e-4' if name == '--grid' else 'eps=0.1:0.4'}")
        i += 1
    return values["--grid"], values["--random"], rest
