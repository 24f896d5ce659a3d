"""`burnish rate`: how hard each prompt is for a model, as columns of a data file."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from rich.console import Console

from burnish.commands.sampled_file import (
    SampledFileOptions,
    completed,
    open_file,
    read_options,
    write_all,
)
from burnish.core.option import Option
from burnish.util.terminal import stdout_console

if TYPE_CHECKING:
    from burnish.datagen.rated_data import Rating
    from burnish.datagen.unfinished_file import UnfinishedFile

COUNT = 256  # prompts of a task without an end
ORDERS: dict[str, Callable[[dict[str, Any]], float] | None] = {
    "none": None,
    "variance": lambda row: -row["score_variance"],
    "easy": lambda row: -row["pass_rate"],
    "hard": lambda row: row["pass_rate"],
}


@dataclass(frozen=True)
class RateOptions(SampledFileOptions):
    """burnish rate --model MODEL --task TASK --out FILE: write how the replies to each prompt fare.

    Replies are sampled to each training prompt and scored. Rows get the columns pass_rate (the share of right replies),
    mean_score and score_variance; --min-rate and --max-rate keep those in between, --order sorts them, --reply replaces
    their completions by replies of the model. Curricula read the columns: --draw by_rate, --draw in_order. FILE ends in
    .jsonl or .parquet; -o is --out. After an interruption the same command continues."""

    model: str = "tiny"
    """The model that replies: a name (burnish models) or a directory."""
    task: str = "sort"
    """A built-in task (burnish tasks), gym:NAME, or a dataset: the prompts, and the verifier that scores."""
    out: str = ""
    """The file to write; it must not exist."""
    n: Annotated[int, Option(at_least=1)] = 8
    """Replies sampled for each prompt."""
    min_rate: Annotated[float, Option(at_least=0, at_most=1)] = 0.0
    """Leave out prompts with a smaller share of right replies."""
    max_rate: Annotated[float, Option(at_least=0, at_most=1)] = 1.0
    """Leave out prompts with a larger share of right replies."""
    order: Annotated[str, Option(choices=tuple(ORDERS))] = "none"
    """Sort rows by decreasing variance of their scores (variance), easy ones first (easy) or hard ones first (hard)."""
    reply: Literal["keep", "best", "shortest", "attempts"] = "keep"
    """The completion of a row: that of the data (keep); or of the model's right replies the best, the shortest, or all
    attempts up to the first right one. Then prompts without a right reply are left out."""
    threshold: float = 0.5
    """A reply that scores more is right."""
    tasks: Annotated[int | None, Option(at_least=1)] = None
    """Number of rows; by default all rows of a dataset, or 256 of a task without an end."""
    temperature: Annotated[float, Option(above=0)] = 1.0
    """Sampling temperature."""
    max_new_tokens: Annotated[int, Option(at_least=1)] = 64
    """The longest reply, in tokens."""
    reward: str | None = None
    """What scores the replies instead of the task's verifier: path/to/file.py:function, or rewards by name."""
    reward_model: str | None = None
    """The directory of a reward model that scores the replies."""


def main(words: list[str]) -> int:
    options = read_options(RateOptions, "rate", words, "rated.jsonl")
    if options is None:
        return 0
    if options.min_rate > options.max_rate:
        raise ValueError(f"--min-rate {options.min_rate} is above --max-rate {options.max_rate}; exchange them")
    from burnish.datagen.rated_data import Rating

    file = open_file(options, ("order",))
    rule = ("n", "temperature", "threshold", "min_rate", "max_rate", "reply")
    rating = Rating(**{name: getattr(options, name) for name in rule})
    with file:
        if not completed(file, lambda: _write(file, options, rating)):
            return 130
        rows = [row for one in file.all() for row in one.rows]
        if not rows:
            raise ValueError(
                f"none of {file.done} prompts has a pass rate from {options.min_rate:g} to {options.max_rate:g}, and a "
                "right reply where --reply asks for one; widen the range"
            )
        file.finish(order=ORDERS[options.order])
    _show(file, options, rows)
    return 0


def _write(file: UnfinishedFile, options: RateOptions, rating: Rating) -> None:
    """Sample and score what is not in the file yet."""
    from burnish.commands.loaded import load_policy, print_assumed_template
    from burnish.commands.pairs import scored_source
    from burnish.compose.rewards import scored_replies
    from burnish.core.step import Settings
    from burnish.datagen.rated_data import rate
    from burnish.datagen.stored_rows import rows_asked
    from burnish.score.judge import require_verifier
    from burnish.score.model import scoring

    source, rewards = scored_source(options.task, options.reward, options.columns)
    if options.reward_model is None:
        require_verifier(source)
    settings = Settings(max_new_tokens=options.max_new_tokens)
    more = {name: role for one in rewards for name, role in one.scorer.models.items()}
    models = load_policy(
        options.model, settings, options.device, options.chat_style, reward_model=options.reward_model, more=more
    )
    console = Console(stderr=True, highlight=False)
    print_assumed_template(models["policy"].chat, console)
    count = rows_asked(source.size("train"), options.tasks, COUNT)
    scorer = scored_replies(source, rewards) if rewards else scoring(source, options.reward_model)
    made = rate(models, source, settings, rating, scorer, start=file.done, count=count, seed=options.seed)
    write_all(file, made, count, console, quiet=options.json)


def _show(file: UnfinishedFile, options: RateOptions, rows: list[dict[str, Any]]) -> None:
    means = {
        name: statistics.fmean(row[name] for row in rows) for name in ("pass_rate", "mean_score", "score_variance")
    }
    if options.json:
        told = {key: asdict(options)[key] for key in ("model", "task", "out", "order", "reply", "seed")}
        print(json.dumps({**told, "prompts": file.done, "rows": len(rows), "means": means}))
        return
    console = stdout_console()
    console.print(
        f"[bold]{len(rows)}[/] of {file.done} prompts of {options.task} in [bold cyan]{file.out}[/]", soft_wrap=True
    )
    console.print("mean " + ", ".join(f"{name} {value:.3g}" for name, value in means.items()), style="dim")
