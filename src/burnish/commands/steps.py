"""`burnish steps`: replies with labelled steps from a model, a task and its verifier, as a file."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable
from dataclasses import asdict, dataclass
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
    from burnish.datagen.preference_data import Made
    from burnish.datagen.step_data import StepRecipe
    from burnish.datagen.unfinished_file import UnfinishedFile

RULES = ("soft", "hard", "entropy", "first_error", "forced", "outcome", "resampled", "rewritten")
COUNT = 128  # prompts of a task without an end
TRAINS = {"outcome": "process_regression"}  # what a rule's labels are for, if not a process reward model


@dataclass(frozen=True)
class StepsOptions(SampledFileOptions):
    """burnish steps --model MODEL --task TASK --out FILE: build data with labelled steps.

    Samples replies to each training prompt, cuts them into steps, completes each prefix several times and labels the
    step by what the verifier says of the completions. Rows are those of TRL's stepwise supervision: prompt,
    completions (the steps), labels. FILE ends in .jsonl or .parquet; -o is --out. After an interruption the same
    command continues."""

    model: str = "tiny"
    """The model that replies and completes: a name (burnish models) or a directory."""
    task: str = "sort"
    """A built-in task (burnish tasks), gym:NAME, or a dataset: the prompts, and the verifier that judges."""
    out: str = ""
    """The file to write; it must not exist."""
    rule: Annotated[str, Option(choices=RULES)] = "soft"
    """How a step is labelled: the share of right completions (soft), whether any is right (hard), their soft value
    (entropy), right before the first step that no completion can save, by binary search (first_error), the share of
    right answers that are forced at once (forced), or the score of the whole reply (outcome). The other two replace
    single lines of reference solutions and label them by the verifier: as the model goes on (resampled), or as it
    rewrites them when asked (rewritten)."""
    steps: str = "lines"
    """What a step is: lines, sentences, sub_sentences, paragraphs, whole, after:TEXT, or a number of tokens."""
    n: Annotated[int, Option(at_least=1)] = 4
    """Replies sampled for each prompt."""
    completions: Annotated[int, Option(at_least=1)] = 8
    """Completions of each prefix; resampled and rewritten: replacements of each line."""
    eta: float = 1.0
    """entropy: eta of (1/eta) log mean exp(eta R); near 0 it is soft, large it is hard."""
    closing: str = "\\nanswer:"
    """forced: the words after which the answer is asked for, with \\n for a new line; thinking models: </think>\\n."""
    neutral: bool = False
    """Label comments and blank lines 0.5, neither right nor wrong."""
    tasks: Annotated[int | None, Option(at_least=1)] = None
    """Number of rows; by default all rows of a dataset, or 128 of a task without an end."""
    temperature: Annotated[float, Option(above=0)] = 1.0
    """Sampling temperature."""
    max_new_tokens: Annotated[int, Option(at_least=1)] = 64
    """The longest reply, in tokens."""
    style: Literal["conversational", "standard"] = "conversational"
    """Prompts as chat messages (conversational) or as texts (standard)."""
    reward: str | None = None
    """A reward function path/to/file.py:function, or a verifier by name, instead of the task's own verifier."""


def main(words: list[str]) -> int:
    options = read_options(StepsOptions, "steps", words, "steps.jsonl")
    if options is None:
        return 0
    recipe = _recipe(options)
    file = open_file(options)
    with file:
        if not completed(file, lambda: _write(file, options, recipe)):
            return 130
        summary = summary_of(file.all())
        if not summary["rows"]:
            raise ValueError(
                f"none of the {file.done} prompts gave a row, as all replies were cut off, or no reference passes; "
                "raise --max-new-tokens, or check the data"
            )
        file.finish()
    _show(file, options, summary)
    return 0


def _recipe(options: StepsOptions) -> StepRecipe:
    from burnish.datagen.step_data import StepRecipe

    return StepRecipe(
        rule=options.rule,
        n=options.n,
        completions=options.completions,
        steps=options.steps,
        eta=options.eta,
        closing=options.closing.replace("\\n", "\n"),
        neutral=options.neutral,
        temperature=options.temperature,
        style=options.style,
    )


def _write(file: UnfinishedFile, options: StepsOptions, recipe: StepRecipe) -> None:
    """Sample and label what is not in the file yet."""
    from burnish.commands.loaded import load_policy, print_assumed_template
    from burnish.core.step import Settings
    from burnish.datagen.line_data import LINE_RULES, make_lines
    from burnish.datagen.step_data import make_steps
    from burnish.datagen.stored_rows import rows_asked
    from burnish.score.judge import require_verifier
    from burnish.tasks.resolve import resolve_task

    source = resolve_task(options.task, options.reward, columns=options.columns)
    if "env" in source.gives:
        raise ValueError(f"task {options.task!r} is a game of several turns, not one reply; choose another")
    require_verifier(source)
    settings = Settings(max_new_tokens=options.max_new_tokens)
    models = load_policy(options.model, settings, options.device, options.chat_style)
    console = Console(stderr=True, highlight=False)
    print_assumed_template(models["policy"].chat, console)
    show_long(console, source, models, settings)
    count = rows_asked(source.size("train"), options.tasks, COUNT)
    make = make_lines if options.rule in LINE_RULES else make_steps
    first, seed = file.done, options.seed
    made = make(models, source, settings, recipe, model=options.model, start=first, count=count, seed=seed)
    write_all(file, made, count, console, quiet=options.json)


def summary_of(made: Iterable[Made]) -> dict[str, Any]:
    """Counts, the mean number of steps, the mean label, and the share of right replies."""
    prompts = replies = cut_off = repeated = rows = steps = 0
    labels: list[float] = []
    right: list[float] = []
    for one in made:
        prompts, replies, cut_off = prompts + 1, replies + one.replies, cut_off + one.cut_off
        repeated, rows = repeated + one.repeated, rows + len(one.rows)
        steps += sum(len(row["labels"]) for row in one.rows)
        labels += [float(label) for row in one.rows for label in row["labels"] if label is not None]
        right += [float(row["correct"]) for row in one.rows]
    counts = {"prompts": prompts, "rows": rows, "replies": replies, "cut_off": cut_off, "repeated": repeated}
    if not rows:
        return counts
    means = {"steps": steps / rows, "label": statistics.fmean(labels), "correct": statistics.fmean(right)}
    return {**counts, "means": means}


def _show(file: UnfinishedFile, options: StepsOptions, summary: dict[str, Any]) -> None:
    if options.json:
        about = asdict(options)
        print(json.dumps({**{k: about[k] for k in ("model", "task", "out", "rule", "steps", "seed")}, **summary}))
        return
    console, means = stdout_console(), summary["means"]
    console.print(
        f"[bold]{summary['rows']}[/] replies with labelled steps ({options.rule}) in [bold cyan]{file.out}[/]: of "
        f"{options.model} to {summary['prompts']} prompts of {options.task}"
    )
    left = {"replies cut off": summary["cut_off"], "repeated prompts": summary["repeated"]}
    said = [f"{count} {what}" for what, count in left.items() if count]
    said.append(
        f"mean: {means['steps']:.3g} steps, label {means['label']:.3g}, {means['correct']:.0%} of the replies correct"
    )
    console.print("; ".join(said), style="dim")
    trains = TRAINS.get(options.rule, "process_reward_model")
    console.print(f"burnish train {trains} --model {options.model} --task {file.out}", style="dim")
