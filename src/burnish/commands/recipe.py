"""`burnish recipe`: several stages (SFT, pairs, DPO, RL, ...) from one file, in one folder."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from burnish.config.flags import read
from burnish.util.terminal import stdout_console

if TYPE_CHECKING:
    from burnish.recipes.maker import Maker
    from burnish.recipes.recipe import Recipe
    from burnish.recipes.runner import RecipeResult


@dataclass(frozen=True)
class RecipeOptions:
    """burnish recipe                         list the recipes in the box
    burnish recipe show NAME               print one
    burnish recipe NAME | FILE.yaml        run one: stage after stage, in one folder
    burnish recipe --resume DIR            continue one, in the middle of a stage

    A recipe is a list of named stages. Each is what a file of `burnish train` is, or a command that makes data (pairs,
    steps, decontaminate, ...) or measures (eval). `model: STAGE` is the final model of an earlier stage, `task: STAGE`
    the file that it wrote. All stages are checked before the first one starts."""

    model: str | None = None
    """The model of stages that name none."""
    task: str | None = None
    """The task of stages that name none."""
    set: str | None = None
    """Another value of an option: --set rl.steps=50 of one stage, --set seed=1 of all; may be given several times."""
    out: str | None = None
    """The folder of the recipe; by default runs/NAME-DATE."""
    resume: str | None = None
    """Continue the recipe in this folder. With a FILE, its stages are compared with what is done."""
    again: str | None = None
    """Run this stage again, and all that depend on it; several with commas. What it made is kept as STAGE.1."""
    check: bool = False
    """Check all stages and run none."""
    size: str | None = None
    """Other settings of the recipe: real are those of the paper, for a real model and your data; by default small ones
    for the embedded model."""
    dry_run: bool = False
    """Print the recipe with all changes and the GPU memory that each stage takes, and run nothing."""
    quiet: bool = False
    """Plain lines only."""
    json: bool = False
    """Print the final table as JSON, and nothing else on standard output."""


def main(words: list[str]) -> int:
    sets, words = _sets(words)
    asked = read(RecipeOptions, "recipe", words, plain=2)
    if asked is None:
        return 0
    plain, options = asked
    if plain[:1] == ["show"]:
        return _show(plain[1:])
    if len(plain) > 1:
        raise ValueError(f"there is one recipe to a run, but {plain[1]!r} follows {plain[0]!r}")
    if not plain and options.resume is None:
        return _list()
    from burnish.recipes.table import table

    changes = {**_changes(sets), **_given(model=options.model, task=options.task)}
    console = Console(stderr=True, highlight=False) if options.json else stdout_console()
    if options.dry_run:
        return _dry_run(plain[0] if plain else None, changes, options)
    result = _run(
        plain[0] if plain else None,
        changes,
        options,
        say=lambda text: console.print(text, style="bold", markup=False, soft_wrap=True),
        display=lambda: _display(options.quiet or options.json, console),
    )
    if result is None:
        console.print("all stages are as they should be")
        return 0
    if options.json:
        print(json.dumps({"folder": str(result.folder), "stages": [asdict(one) for one in result.stages]}, indent=1))
    else:
        console.print()
        console.print(table(result.stages))
        if not result.stopped:
            console.print(f"the recipe is in {result.folder}", style="dim", soft_wrap=True)
    return 130 if result.stopped else 0


def recipe(
    what: str | Path | Mapping[str, Any],
    *,
    model: str | Path | None = None,
    task: str | Path | None = None,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    again: str | Iterable[str] = (),
    size: str | None = None,
    progress: bool | None = None,
    **changes: Any,
) -> RecipeResult:
    """Run a recipe: recipe("tulu3", model="tiny", out="runs/t", sft__steps=50).

    what      a name of the box, a YAML file, or a mapping like the contents of one
    model     of the stages that name none; task likewise
    resume    the folder of an earlier start, which is continued
    again     stages to run again, with those that depend on them
    size      other settings of the recipe: "real" are those of the paper
    progress  print lines about the stages; by default in notebooks only
    changes   other values: STAGE__OPTION of one stage, OPTION of all that have it
    """
    from burnish.api.train import display, in_notebook
    from burnish.recipes.recipe import changed, parse, sized
    from burnish.recipes.runner import run_recipe

    told = {key.replace("__", ".", 1): value for key, value in changes.items()}
    told |= _given(model=model, task=task)
    if isinstance(what, Mapping):
        plain = parse(dict(what), "the recipe", "recipe")
        found = changed(sized(plain, size) if size else plain, told)
    else:
        found = _found(str(what), told, size)
    place = resume or out
    return run_recipe(
        found,
        Path(place) if place else None,
        makers(),
        display=lambda: display(progress),
        say=print if (in_notebook() if progress is None else progress) else lambda text: None,
        again=again.split(",") if isinstance(again, str) and again else tuple(again),
        resumed=resume is not None,
    )


def makers() -> dict[str, Maker]:
    """The commands that can be stages, beside `train`."""
    from burnish.commands import decontaminate, eval_reward, evaluate, pairs, rate, refusals, revise, steps, toggle
    from burnish.recipes import formats
    from burnish.recipes.maker import Maker

    scorer: Any = {"positional": "model", "replies": False}  # the model may be a reward model or a classifier
    found = [
        Maker("pairs", pairs.PairsOptions, pairs.main, like=formats.preferences),
        Maker("revise", revise.ReviseOptions, revise.main, like=formats.revised),
        Maker("steps", steps.StepsOptions, steps.main, like=formats.labelled_steps),
        Maker("rate", rate.RateOptions, rate.main, like=formats.rated),
        Maker("toggle", toggle.ToggleOptions, toggle.main, like=formats.toggled),
        Maker("decontaminate", decontaminate.DecontaminateOptions, decontaminate.main, like=formats.same_rows),
        Maker("refusals", refusals.RefusalsOptions, refusals.main, like=formats.same_rows, **scorer),
        Maker("eval", evaluate.EvalOptions, evaluate.main, writes=False, **scorer),
        Maker("eval-reward", eval_reward.EvalRewardOptions, eval_reward.main, writes=False, **scorer),
    ]
    return {one.name: one for one in found}


def _run(name: str | None, changes: dict[str, str], options: RecipeOptions, *, say: Any, display: Any) -> Any:
    """Run a recipe; None after --check."""
    from burnish.recipes.plan import plan_recipe
    from burnish.recipes.runner import read_folder, run_recipe

    if options.resume and options.out:
        raise ValueError("--resume names the folder of the recipe, and so does --out; leave out one of them")
    place = options.resume or options.out
    found = _found(name, changes, options.size) if name else read_folder(Path(str(options.resume)), changes)
    if options.check:
        plan_recipe(found, makers())
        return None
    return run_recipe(
        found,
        Path(place) if place else None,
        makers(),
        display=display,
        say=say,
        again=[one.strip() for one in (options.again or "").split(",") if one.strip()],
        resumed=options.resume is not None,
    )


def _found(name: str, changes: Mapping[str, object], size: str | None = None) -> Recipe:
    from burnish.recipes.box import file_of
    from burnish.recipes.recipe import read_recipe

    return read_recipe(file_of(name), changes, size=size)


def _dry_run(name: str | None, changes: Mapping[str, object], options: RecipeOptions) -> int:
    """Print the recipe as it would run, and what each training stage takes of a GPU."""
    from burnish.recipes.dry_run import memory_of, written

    if name is None:
        raise ValueError("--dry-run prints a recipe: burnish recipe tulu3 --size real --dry-run")
    found = _found(name, changes, options.size)
    print(written(found))
    for line in memory_of(found, makers()):
        print(line)
    return 0


def _sets(words: list[str]) -> tuple[list[str], list[str]]:
    """The values of --set, which may be given several times, and the other words."""
    sets: list[str] = []
    others: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "--set" and rest:
            sets.append(rest.pop(0))
        elif word.startswith("--set="):
            sets.append(word.removeprefix("--set="))
        else:
            others.append(word)
    return sets, others


def _changes(sets: list[str]) -> dict[str, str]:
    for one in sets:
        if "=" not in one:
            raise ValueError(f"--set {one}: write STAGE.OPTION=VALUE, or OPTION=VALUE for all stages")
    return {key: value for key, _, value in (one.partition("=") for one in sets)}


def _given(**values: str | Path | None) -> dict[str, str]:
    return {key: str(value) for key, value in values.items() if value is not None}


def _display(quiet: bool, console: Console) -> AbstractContextManager[object]:
    from burnish.report.progress import ProgressLines, ProgressScreen

    return ProgressLines(console) if quiet or not console.is_terminal else ProgressScreen(console)


def _list() -> int:
    from burnish.recipes.box import boxed

    console = stdout_console()
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column()
    table.add_column(style="dim", no_wrap=True)
    for name, one in boxed().items():
        stages = " -> ".join(stage.name for stage in one.recipe.stages)
        table.add_row(name, f"{one.recipe.about} ({stages})", ", ".join(paper.arxiv for paper in one.papers))
    console.print(table)
    console.print(f"{len(boxed())} recipes. burnish recipe show NAME prints one, burnish recipe NAME runs it.")
    return 0


def _show(names: list[str]) -> int:
    from burnish.recipes.box import file_of
    from burnish.util.plainfile import read_text

    if not names:
        raise ValueError("say which recipe to show: burnish recipe show tulu3 (burnish recipe lists them)")
    print(read_text(file_of(names[0])), end="")
    return 0
