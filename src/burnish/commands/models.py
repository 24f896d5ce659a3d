"""`burnish models`: list the named models; `burnish models get NAME`: fetch one."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from rich.table import Table

from burnish.config.flags import read
from burnish.util.terminal import stdout_console


@dataclass(frozen=True)
class ModelsOptions:
    """burnish models: list the named models, and whether they are installed.

    burnish models get NAME fetches one, or owner/name[@revision] of the Hugging Face hub into its cache.
    Any directory with a Hugging Face causal language model in safetensors works too, and any name of the hub:
    --model path/to/it, --model owner/name."""


def main(words: list[str]) -> int:
    asked = read(ModelsOptions, "models", words, plain=2)
    if asked is None:
        return 0
    if asked[0]:
        return _get(asked[0])
    from burnish.models.known_models import MODELS

    console = stdout_console()
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column()
    for name, model in MODELS.items():
        here = (model.place() / "config.json").is_file()
        fix = f"not here: burnish models get {name}" if model.get else "missing: install burnish again"
        fix = "comes with burnish, unpacked when it is first used" if model.unpack else fix
        table.add_row(name, model.summary)
        table.add_row("", f"[green]{model.place()}[/]" if here else f"[yellow]{fix}[/]")
    console.print(table)
    console.print(
        "[dim]Any directory with a Hugging Face causal language model in safetensors works (--model path/to/it), and "
        "any name of the Hugging Face hub (--model owner/name)[/]"
    )
    return 0


def _get(words: list[str]) -> int:
    from burnish.models.hub import hub_name
    from burnish.models.known_models import MODELS, resolve

    if words[0] != "get" or len(words) < 2:
        raise ValueError(
            f"`burnish models` takes nothing, or get NAME; the names are {', '.join(MODELS)}, and owner/name of the "
            "Hugging Face hub"
        )
    name = words[1]
    if hub_name(name) is not None:
        print(f"{name} is in {resolve(name)}")
        return 0
    if name not in MODELS:
        near = difflib.get_close_matches(name, MODELS, 1, 0.4)
        hint = f"did you mean {near[0]}?" if near else f"the names are {', '.join(MODELS)}"
        raise ValueError(f"there is no model {name!r} to get; {hint}")
    model = MODELS[name]
    path = model.get(None) if model.get else model.place()
    if not (path / "config.json").is_file():
        raise ValueError(f"model {name!r} should come with burnish but is not in {path}; install burnish again")
    print(f"{name} is in {path}")
    return 0
