"""`burnish pairs`: preference data from a model, a task and a scorer, as a file."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from rich.console import Console

from burnish.commands.sampled_file import (
    SampledFileOptions,
    completed,
    open_file,
    read_options,
    show_long,
    write_all,
)
from burnish.core.option import Option
from burnish.util.terminal import stdout_console

if TYPE_CHECKING:
    from burnish.core.parts import Rollout
    from burnish.core.roles import Role
    from burnish.core.scorer import Named
    from burnish.datagen.preference_data import Made, Recipe
    from burnish.datagen.unfinished_file import UnfinishedFile
    from burnish.tasks.source import Source

COUNT = 256  # prompts of a task without an end
TRAINS = {"pairs": "dpo", "lists": "lipo", "labels": "kto"}  # a method that reads the format


@dataclass(frozen=True)
class PairsOptions(SampledFileOptions):
    """burnish pairs --model MODEL --task TASK --out FILE: build preference data.

    Samples replies to each training prompt, scores them and writes comparisons: pairs (prompt, chosen, rejected),
    ranked lists (responses, scores) or labels (completion, label), in the formats of TRL, with scores, margins, lengths
    and the model's name. FILE ends in .jsonl or .parquet; -o is --out. After an interruption the same command
    continues."""

    model: str = "tiny"
    """The model that replies: a name (burnish models), a directory or endpoint(URL, NAME); several with a plus sign
    between them, of which each prompt gets as many as --n, drawn at random."""
    task: str = "sort"
    """A built-in task (burnish tasks), gym:NAME, or a dataset: the prompts, and the verifier that scores."""
    out: str = ""
    """The file to write; it must not exist."""
    format: Literal["pairs", "lists", "labels"] = "pairs"
    """pairs (for dpo), lists (for lipo) or labels (for kto)."""
    rule: str = ""
    """Which replies are compared: best_vs_worst, every_pair, first_round, longest_vs_any, shortest_vs_longer,
    diverse_vs_usual, rejection_sampled or acecoder (by shares of tests); for lists unequal_lists or ranked; for labels
    each, or a rule on pairs. By default the first."""
    n: Annotated[int, Option(at_least=1)] = 8
    """Replies sampled for each prompt."""
    tasks: Annotated[int | None, Option(at_least=1)] = None
    """Number of rows; by default all rows of a dataset, or 256 of a task without an end."""
    temperature: Annotated[float, Option(above=0)] = 1.0
    """Sampling temperature."""
    top_p: Annotated[float, Option(above=0, at_most=1)] = 1.0
    """Sample from the likeliest tokens that have this probability together."""
    max_new_tokens: Annotated[int, Option(at_least=1)] = 64
    """The longest reply, in tokens."""
    principles: str | None = None
    """A file with a principle in each line: each reply is asked for under one of them, as its system message."""
    keep_cut_off: bool = False
    """Compare replies that reached max_new_tokens, too; by default they are left out."""
    min_margin: Annotated[float, Option(at_least=0)] = 0.0
    """Leave out pairs whose scores differ by less."""
    top_gaps: Annotated[float, Option(above=0, at_most=1)] = 1.0
    """Pairs with ratings: keep this share of them, those in which one rating differs most (RLCF keeps 0.4)."""
    threshold: float = 0.5
    """Labels: a reply that scores more is good."""
    style: Literal["conversational", "standard"] = "conversational"
    """Prompts and replies as chat messages (conversational) or as texts (standard)."""
    reward: str | None = None
    """What scores the replies instead of the task's verifier: path/to/file.py:function, or rewards by name (burnish
    rewards), such as ultrafeedback(JUDGE) or checklist(JUDGE); several are added."""
    reward_model: str | None = None
    """The directory of a reward model that scores the replies."""


def main(words: list[str]) -> int:
    options = read_options(PairsOptions, "pairs", words, "pairs.jsonl")
    if options is None:
        return 0
    recipe = _recipe(options)
    file = open_file(options, ("top_gaps",), rule=recipe.rule)
    with file:
        if not completed(file, lambda: _write(file, options, recipe)):
            return 130
        summary = summary_of(file.all())
        if not summary["rows"]:
            failed = f"{summary['failed']} of {summary['replies']} replies could not be scored, and "
            raise ValueError(
                f"none of the {file.done} prompts gave a row, because {failed if summary['failed'] else ''}the replies "
                "to each score the same or were cut off; raise --n, --temperature or --max-new-tokens, or choose "
                f"another task{' or judge' if summary['failed'] else ''}"
            )
        summary["rows"] = file.finish(options.top_gaps)
    _show(file, options, recipe, summary)
    return 0


def _recipe(options: PairsOptions) -> Recipe:
    from burnish.datagen.preference_data import Recipe

    return Recipe(
        n=options.n,
        rule=options.rule,
        kind=options.format,
        style=options.style,
        temperature=options.temperature,
        top_p=options.top_p,
        threshold=options.threshold,
        min_margin=options.min_margin,
        cut_off=options.keep_cut_off,
    )


def _write(file: UnfinishedFile, options: PairsOptions, recipe: Recipe) -> None:
    """Sample, score and compare what is not in the file yet."""
    from burnish.commands.loaded import load_policy, print_assumed_template
    from burnish.compose.rewards import scored_replies
    from burnish.core.step import Settings
    from burnish.datagen.preference_data import make
    from burnish.datagen.stored_rows import rows_asked
    from burnish.score.judge import require_verifier

    source, rewards = scored_source(options.task, options.reward, options.columns)
    if "env" in source.gives:
        raise ValueError(f"task {options.task!r} is a game of several turns, and a pair has one reply; choose another")
    if options.reward_model is None:
        require_verifier(source)
    elif rewards:
        raise ValueError("--reward-model and --reward both score the replies; use --reward 'rm(DIR),...' for a sum")
    settings = Settings(max_new_tokens=options.max_new_tokens)
    more = {name: role for one in rewards for name, role in one.scorer.models.items()}
    base, rollout, others = _writers(options, recipe)
    more |= others
    models = load_policy(
        base, settings, options.device, options.chat_style, reward_model=options.reward_model, more=more
    )
    console = Console(stderr=True, highlight=False)
    print_assumed_template(models["policy"].chat, console)
    show_long(console, source, models, settings)
    count = rows_asked(source.size("train"), options.tasks, COUNT)
    if file.done:
        console.print(f"{file.done} of {count} prompts are in {file.partial} already", soft_wrap=True)
    made = make(
        models,
        source,
        settings,
        recipe,
        model=options.model,
        start=file.done,
        count=count,
        seed=options.seed,
        reward_model=options.reward_model,
        scorer=scored_replies(source, rewards) if rewards else None,
        rollout=rollout,
    )
    write_all(file, made, count, console, quiet=options.json)


def _writers(options: PairsOptions, recipe: Recipe) -> tuple[str, Rollout | None, dict[str, Role]]:
    """The model that is loaded as the policy; what samples in its place, where several models write or principles are
    given; and the models that this needs.
    """
    from burnish.core.types import Sampling
    from burnish.datagen.writers import policy_of, read_principles, read_writers, roles_of, several

    writers, principles = read_writers(options.model), read_principles(options.principles)
    if len(writers) == 1 and writers[0].role == "policy" and not principles:
        return options.model, None, {}
    if recipe.rule == "diverse_vs_usual":
        raise ValueError(
            "--rule diverse_vs_usual compares how likely replies were to the model that wrote them, which is unknown "
            "of endpoints and of replies under a principle; use one --model without --principles, or another rule"
        )
    sampling = Sampling(options.temperature, top_p=options.top_p)
    return policy_of(writers), several(writers, recipe.n, principles, sampling), roles_of(writers)


def scored_source(task: str, reward: str | None, columns: str | None) -> tuple[Source, list[Named]]:
    """The prompts with what scores their replies: functions and verifiers in the source, and scorers by name."""
    from burnish.reward_functions.resolve import read_rewards
    from burnish.rewards.read import named_rewards, split_rewards
    from burnish.tasks.resolve import resolve_task
    from burnish.tasks.task_set import unscored

    functions, scorers = split_rewards(read_rewards(reward) if reward else [])
    source = resolve_task(task, functions, columns=columns)
    source = unscored(source) if scorers and not functions else source
    return source, named_rewards(scorers, source)


def summary_of(made: Iterable[Made]) -> dict[str, object]:
    """Counts, and means over rows: margin, lengths and the share of good labels."""
    prompts = replies = cut_off = repeated = rows = without = failed = 0
    values: dict[str, list[float]] = {}
    for one in made:
        prompts, replies, cut_off = prompts + 1, replies + one.replies, cut_off + one.cut_off
        repeated, rows, failed = repeated + one.repeated, rows + len(one.rows), failed + one.failed
        without += not one.rows and not one.repeated
        for row in one.rows:
            for name in ("margin", "length_chosen", "length_rejected", "length", "label"):
                if name in row:
                    values.setdefault(name, []).append(float(row[name]))
    counts = {"prompts": prompts, "rows": rows, "replies": replies, "cut_off": cut_off, "repeated": repeated}
    means = {name: statistics.fmean(found) for name, found in values.items()}
    return {**counts, "failed": failed, "prompts_without_a_row": without, "means": means}


def _show(file: UnfinishedFile, options: PairsOptions, recipe: Recipe, summary: dict[str, Any]) -> None:
    from burnish.datagen.writers import policy_of, read_writers

    if options.json:
        about = asdict(replace(options, rule=recipe.rule))
        print(json.dumps({**{k: about[k] for k in ("model", "task", "out", "format", "rule", "seed")}, **summary}))
        return
    console = stdout_console()
    console.print(
        f"[bold]{summary['rows']}[/] {options.format} by {recipe.rule} in [bold cyan]{file.out}[/]: "
        f"{summary['replies']} replies of {options.model} to {summary['prompts']} prompts of {options.task}"
    )
    left = {
        "prompts without a preference": summary["prompts_without_a_row"],
        "replies cut off": summary["cut_off"],
        "repeated prompts": summary["repeated"],
        "replies that could not be scored": summary["failed"],
    }
    said = [f"{count} {what}" for what, count in left.items() if count]
    means = [f"{name} {value:.3g}" for name, value in summary["means"].items()]
    console.print("; ".join([*([", ".join(said)] if said else []), "mean " + ", ".join(means)]), style="dim")
    policy = policy_of(read_writers(options.model))
    console.print(f"burnish train {TRAINS[options.format]} --model {policy} --task {file.out}", style="dim")
