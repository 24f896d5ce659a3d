"""`burnish imagine`: dialogues with rewards from the description of a task, as a file."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Console

from burnish.config.flags import read
from burnish.core.option import Option
from burnish.util.paths import expanded
from burnish.util.terminal import stdout_console

if TYPE_CHECKING:
    from burnish.core.step import Step
    from burnish.datagen.preference_data import Made
    from burnish.score.judges.judge import Judge


@dataclass(frozen=True)
class ImagineOptions:
    """burnish imagine --task TEXT --writer MODEL --out FILE: imagine dialogues and label their outcomes.

    The writer invents persons with whom an agent does the task, and writes dialogues of poor, average and expert agents
    with each. The judge says how well the agent did. Rows have messages, reward (0 to 1), persona and skill:
    `burnish train ilql --task FILE`. FILE ends in .jsonl or .parquet; -o is --out. After an interruption the same
    command continues."""

    task: str = ""
    """What the agent is to do, in words; or @FILE, a text file that says it."""
    writer: str = ""
    """Who imagines: a model's name or directory, or endpoint(https://HOST/v1, NAME); sampled at temperature 1."""
    judge: str = ""
    """Who labels the outcomes, in the same way; by default the writer, greedily."""
    out: str = ""
    """The file to write; it must not exist."""
    personas: Annotated[int, Option(at_least=1)] = 50
    """Number of persons."""
    dialogues: Annotated[int, Option(at_least=1, at_most=999)] = 3
    """Dialogues with each person."""
    turns: Annotated[int, Option(at_least=1)] = 6
    """The most lines of each side in a dialogue, as the writer is told."""
    max_new_tokens: Annotated[int, Option(at_least=1)] = 1024
    """The longest answer of the writer, in tokens."""
    device: str = "auto"
    """cpu, cuda, or auto."""
    json: bool = False
    """Print the summary as JSON only."""


def main(words: list[str]) -> int:
    asked = read(ImagineOptions, "imagine", ["--out" if word == "-o" else word for word in words])
    if asked is None:
        return 0
    options = asked[1]
    for name in ("task", "writer", "out"):
        if not getattr(options, name):
            raise ValueError(
                f"--{name} is missing; for example: burnish imagine --task 'Find out where the user wants to travel.' "
                "--writer Qwen/Qwen2.5-7B-Instruct --out dialogues.jsonl"
            )
    from burnish.datagen.imagined import Imagination, imagine
    from burnish.datagen.unfinished_file import UnfinishedFile, require_pyarrow

    same = {k: v for k, v in asdict(options).items() if k not in ("out", "personas", "device", "json")}
    file = UnfinishedFile(Path(options.out), same)
    if file.out.suffix == ".parquet":
        require_pyarrow()  # now, not after an hour of sampling
    with file:
        writer, judge, step = _asked(options)
        imagination = Imagination(_described(options.task), options.dialogues, options.turns)
        try:
            for made in imagine(imagination, writer, judge, step, start=file.done, count=options.personas):
                file.add(made)
        except KeyboardInterrupt:
            print(f"stopped after {file.done} persons, in {file.partial}; the same command continues.", file=sys.stderr)
            return 130
        summary = summary_of(file.all())
        if not summary["rows"]:
            raise ValueError(
                f"none of {summary['dialogues']} dialogues could be read and judged: the writer must write lines that "
                "begin with 'User:' and 'Agent:', the judge a line 'Score: N'; use larger models"
            )
        file.finish()
    _show(options, summary)
    return 0


def _described(task: str) -> str:
    if not task.startswith("@"):
        return task
    path = expanded(task[1:])
    if not path.is_file():
        raise ValueError(f"--task {task}: there is no file {path}; write the task in words, or name a text file")
    return path.read_text(encoding="utf-8").strip()


def _asked(options: ImagineOptions) -> tuple[Judge, Judge, Step]:
    """The writer, the judge, and a step with the models that they are."""
    from burnish.core.call_syntax import read_call
    from burnish.core.step import Settings, Step
    from burnish.core.types import Clock
    from burnish.models.build import Models, build
    from burnish.score.judges.spec import KINDS, read_judge

    def judge_of(text: str, **settings: object) -> Judge:
        call = read_call(text) if "(" in text else None
        if text == "policy" or (call is not None and call.name == "policy"):
            raise ValueError("there is no policy here; name a model, or endpoint(https://HOST/v1, NAME)")
        if call is None:
            return KINDS["model"](text, **settings)
        inside = ", ".join(f"{name}={value}" for name, value in settings.items() if f"{name}=" not in text)
        return read_judge(f"{text.rstrip()[:-1]}, {inside})")

    writer = judge_of(options.writer, temperature=1.0, max_tokens=options.max_new_tokens)
    judge = judge_of(options.judge or options.writer, temperature=0.0)
    settings, roles = Settings(max_new_tokens=options.max_new_tokens), {**writer.models, **judge.models}
    models = build(roles, Path(), settings, device=options.device) if roles else Models({})
    return writer, judge, Step(Clock(0, 1), models, settings)


def summary_of(made: Iterable[Made]) -> dict[str, object]:
    """Counts, the mean reward, and that of each skill."""
    personas = dialogues = unusable = 0
    rewards: dict[str, list[float]] = {}
    for one in made:
        personas, dialogues, unusable = personas + 1, dialogues + one.replies, unusable + one.failed
        for row in one.rows:
            rewards.setdefault(str(row["skill"]), []).append(float(row["reward"]))
    every = [reward for own in rewards.values() for reward in own]
    return {
        "personas": personas,
        "dialogues": dialogues,
        "rows": len(every),
        "unusable": unusable,
        "reward": statistics.fmean(every) if every else None,
        "reward_by_skill": {skill: statistics.fmean(own) for skill, own in rewards.items()},
    }


def _show(options: ImagineOptions, summary: dict[str, Any]) -> None:
    if options.json:
        print(json.dumps({"out": options.out, **summary}))
        return
    console: Console = stdout_console()
    console.print(
        f"[bold]{summary['rows']}[/] dialogues with {summary['personas']} persons in [bold cyan]{options.out}[/]; "
        f"{summary['unusable']} could not be read or judged"
    )
    by_skill = ", ".join(f"{skill} {mean:.2f}" for skill, mean in summary["reward_by_skill"].items())
    console.print(f"mean reward {summary['reward']:.2f} ({by_skill})", style="dim")
    console.print(f"burnish train ilql --task {options.out}", style="dim")
