"""`burnish import FILE`: turn a configuration of TRL, LLaMA-Factory, Axolotl, Unsloth or verl into one of burnish."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from burnish.config.flags import read

if TYPE_CHECKING:
    from burnish.migrate.draft import Kind
    from burnish.migrate.translate import Translation


@dataclass(frozen=True)
class ImportOptions:
    """burnish import FILE [--out ours.yaml]: the configuration of another library as one of burnish.

    burnish import grpo_config.yaml --out ours.yaml      TRL, LLaMA-Factory, Axolotl or verl; .yaml or .json
    burnish import train_grpo.py --out ours.yaml         a script or notebook (.ipynb) of TRL or Unsloth
    burnish import run_grpo.sh --out ours.yaml           a shell script of verl, TRL or LLaMA-Factory
    burnish train ours.yaml

    Nothing is executed. Every field of the file is listed, as carried, carried differently or not carried, here and as
    comments in the file. docs/migrate.md explains."""

    out: str | None = None
    """The file to write (-o for short); by default the YAML is printed. Reward functions of a script are written beside
    it."""
    method: str | None = None
    """Our method, where the file does not say which: sft, dpo, grpo, ..."""
    force: bool = False
    """Replace --out if it exists."""


def main(words: list[str]) -> int:
    asked = read(ImportOptions, "import", ["--out" if word == "-o" else word for word in words], plain=1)
    if asked is None:
        return 0
    files, options = asked
    if not files:
        raise ValueError("say which file: burnish import config.yaml --out ours.yaml")
    from burnish.migrate.files import read_given
    from burnish.migrate.reward_source import file_text
    from burnish.migrate.translate import translate

    path = Path(files[0])
    given = read_given(path)
    beside = Path(options.out).with_name(f"{Path(options.out).stem}_rewards.py") if options.out else None
    found = translate(given, options.method, path.parent, str(beside) if beside else None)
    text = _yaml(found, path)
    if options.out is None:
        print(text, end="")
    else:
        _write(Path(options.out), text, options.force)
        if beside is not None and given.rewards and str(beside) in str(found.options.get("reward", "")):
            _write(beside, file_text(given.rewards, path.name), options.force)
            found.notes.append(f"the reward functions of {path.name} are in {beside}")
    _report(found, path, options.out)
    return 0


def _write(file: Path, text: str, force: bool) -> None:
    if os.path.lexists(file) and not force:
        raise ValueError(f"the file {file} exists already; choose another --out, or add --force")
    try:
        file.write_text(text)
    except OSError as error:
        raise ValueError(f"cannot write {file} ({error.strerror}); choose another --out") from None


def _yaml(found: Translation, path: Path) -> str:
    import yaml

    first = ("model", "task", "steps", "epochs", "prompts", "n", "max_new_tokens", "lr", "lr_schedule", "lr_warmup")
    options = {key: found.options[key] for key in (*first, *found.options) if key in found.options}
    lines = [f"# from {path.name} ({found.library}), by burnish import", f"method: {found.method}"]
    lines += [yaml.safe_dump(options, sort_keys=False, allow_unicode=True).rstrip()] if options else []
    lines += [f"# {note}" for note in found.notes]
    for kind in _KINDS:
        lines += [f"# {kind}:"] if found.of(kind) else []
        lines += [f"#   {line.name}: {_short(line.name, line.value)}   ({line.text})" for line in found.of(kind)]
    return "\n".join(" ".join(line.splitlines()) if line.startswith("#") else line for line in lines) + "\n"


_KINDS: tuple[Kind, ...] = ("carried", "carried differently", "not carried")


def _report(found: Translation, path: Path, out: str | None) -> None:
    """Print to standard error what was translated, so that standard output holds only the YAML."""
    counts = ", ".join(f"{len(found.of(kind))} {kind}" for kind in _KINDS)
    lines = [f"{path}: {found.library}, method {found.method}; fields: {counts}", *found.notes]
    for kind in _KINDS:
        lines += [f"{kind}:"] if found.of(kind) else []
        lines += [f"  {line.name}: {_short(line.name, line.value)}   {line.text}" for line in found.of(kind)]
    lines += [f"run it: burnish train {out}"] if out else []
    print("\n".join(lines), file=sys.stderr)


_SECRET = re.compile(r"(?:^|\.)(?:hf_|hub_|hf_hub_|use_auth_|auth_|access_|wandb_)?token$|(?:api_key|password|secret)$")


def _short(name: str, value: object) -> str:
    """A value on one line; secrets are not repeated."""
    if value and _SECRET.search(name):
        return "(hidden)"
    text = " ".join(str(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."
