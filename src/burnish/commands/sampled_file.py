"""What `burnish pairs`, `rate` and `steps` share: they sample replies to the prompts of a task and write a file."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from burnish.config.flags import read

if TYPE_CHECKING:
    from burnish.core.step import Settings
    from burnish.datagen.preference_data import Made
    from burnish.datagen.unfinished_file import UnfinishedFile
    from burnish.models.build import Models
    from burnish.models.template import Style
    from burnish.tasks.source import Source


@dataclass(frozen=True)
class SampledFileOptions:
    """Options of every command that writes a file of sampled replies."""

    columns: str | None = None
    """Columns of a dataset that have unusual names: prompt=text,answer=gold."""
    seed: int = 0
    """The same seed samples the same replies."""
    chat_template: str | None = None
    """The chat template: a file with a Jinja template, or chatml, plain, none or tools; by default the model's own."""
    system_prompt: str | None = None
    """The system message of conversations that have none; by default the one that the model was trained with."""
    template_option: str | None = None
    """Values for the chat template, key=value, several with commas: enable_thinking=false."""
    device: str = "auto"
    """cpu, cuda, or auto."""
    json: bool = False
    """Print the summary as JSON only."""

    @property
    def chat_style(self) -> Style:
        """The chat template and system message, as they were asked for."""
        from burnish.models.template import Style, read_template

        return Style(read_template(self.chat_template), self.system_prompt, self.template_option)


Kind = TypeVar("Kind", bound=SampledFileOptions)


def read_options(kind: type[Kind], command: str, words: list[str], example: str) -> Kind | None:
    """The options of a command that needs --out or -o; None after printing its --help."""
    asked = read(kind, command, ["--out" if word == "-o" else word for word in words])
    if asked is None:
        return None
    if not asked[1].out:  # type: ignore[attr-defined]
        raise ValueError(f"say where to write: burnish {command} --model tiny --task sort --out {example}")
    return asked[1]


def open_file(options: SampledFileOptions, leave_out: tuple[str, ...] = (), **more: object) -> UnfinishedFile:
    """The file that a command continues or begins. leave_out: options that may differ when it is continued."""
    from burnish.datagen.unfinished_file import UnfinishedFile, require_pyarrow

    given = asdict(options)
    out = Path(given["out"])
    same = {k: v for k, v in given.items() if k not in ("out", "tasks", "device", "json", *leave_out)}
    file = UnfinishedFile(out, {**same, **more})
    if file.out.suffix == ".parquet":
        require_pyarrow()  # now, not after an hour of sampling
    return file


def completed(file: UnfinishedFile, write: Callable[[], None]) -> bool:
    """Write all that is missing. After Ctrl-C what has been written stays, and the user is told how to go on."""
    try:
        write()
    except KeyboardInterrupt:
        print(f"stopped after {file.done} prompts, in {file.partial}; the same command continues.", file=sys.stderr)
        return False
    return True


def show_long(console: Console, source: Source, models: Models, settings: Settings) -> None:
    """Say which prompts leave a reply too little of the context."""
    from burnish.run.lengths import Needs, fit

    long = fit(source, Needs((), conversations=False, samples=True), models, "policy", settings, splits=("train",))
    if long is not None and (said := long.sentence()):
        console.print(said, soft_wrap=True)


def write_all(file: UnfinishedFile, made: Iterable[list[Made]], count: int, console: Console, *, quiet: bool) -> None:
    """Add what is made for each prompt to the file, with a progress bar on a terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}"))
    hidden = quiet or not console.is_terminal
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True, disable=hidden) as progress:
        bar = progress.add_task("prompts", total=count, completed=file.done)
        for some in made:
            file.add(some)
            progress.update(bar, completed=file.done)
