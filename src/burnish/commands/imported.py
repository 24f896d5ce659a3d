"""`burnish import FILE`: turn a configuration of TRL, LLaMA-Factory, Axolotl, Unsloth or verl into one of burnish."""

from __future__ import annotations

import ast
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from burnish.config.flags import read

if TYPE_CHECKING:
    from burnish.migrate.translate import Translation

_CALLS = ("from_pretrained", "get_peft_model")  # besides SomethingConfig(...): calls of a script that hold options


@dataclass(frozen=True)
class ImportOptions:
    """burnish import FILE [--out ours.yaml]: the configuration of another library as one of burnish.

    burnish import grpo_config.yaml --out ours.yaml      TRL, LLaMA-Factory, Axolotl or verl; .yaml or .json
    burnish import train_grpo.py                         the literal arguments of GRPOConfig(...) and the like
    burnish train ours.yaml

    What has no counterpart is listed with the reason, here and as comments in the file. docs/migrate.md explains."""

    out: str | None = None
    """The file to write (-o for short); by default the YAML is printed."""
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
    from burnish.migrate.translate import translate

    path = Path(files[0])
    given, method = _read(path)
    found = translate(given, options.method or method, path.parent)
    text = _yaml(found, path)
    if options.out is None:
        print(text, end="")
    else:
        if os.path.lexists(options.out) and not options.force:
            raise ValueError(f"the file {options.out} exists already; choose another --out, or add --force")
        try:
            Path(options.out).write_text(text)
        except OSError as error:
            raise ValueError(f"cannot write {options.out} ({error.strerror}); choose another --out") from None
    _report(found, path, options.out)
    return 0


def _read(path: Path) -> tuple[dict[str, Any], str | None]:
    """The options in a file, and the method if a script's class names it."""
    from burnish.util.plainfile import read_yaml

    if not path.is_file():
        raise ValueError(f"there is no file {str(path)!r} to import")
    if path.suffix == ".py":
        return _from_script(path)
    options = read_yaml(path)
    if not isinstance(options, dict) or not options:
        raise ValueError(f"{path} holds no options `name: value`; give a YAML or JSON file of another library")
    return options, None


def _from_script(path: Path) -> tuple[dict[str, Any], str | None]:
    """The literal keyword arguments of calls such as GRPOConfig(...) in a script, which is not executed."""
    from burnish.migrate.translate import METHOD_NAMES

    try:
        tree = ast.parse(path.read_text())
    except (SyntaxError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a Python script ({error}); give the script that trains") from None
    options: dict[str, Any] = {}
    method = None
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func).rpartition(".")[2]
        if name == "load_dataset" and node.args:
            options |= dict(zip(("dataset_name",), _literals(node.args[0]), strict=False))
        if name.endswith("Config") or name in _CALLS:
            prefix = "lora_" if name in ("LoraConfig", "get_peft_model") else ""
            found = {word.arg: value for word in node.keywords if word.arg for value in _literals(word.value)}
            options |= {f"{prefix}{key}" if key in ("r", "alpha", "dropout") else key: v for key, v in found.items()}
        if name.endswith("Config") and name not in ("LoraConfig", "BitsAndBytesConfig", "ModelConfig"):
            kind = name.removesuffix("Config").lower()
            method = METHOD_NAMES.get(kind, kind)
    if not options:
        raise ValueError(f"{path} has no call such as GRPOConfig(...) with values in it; give a file with options")
    return options, method


def _literals(node: ast.expr) -> list[Any]:
    """The value of an expression, if it is a literal."""
    try:
        return [ast.literal_eval(node)]
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return []


def _yaml(found: Translation, path: Path) -> str:
    import yaml

    first = ("model", "task", "steps", "epochs", "prompts", "n", "max_new_tokens", "lr", "lr_schedule", "lr_warmup")
    options = {key: found.options[key] for key in (*first, *found.options) if key in found.options}
    lines = [f"# from {path.name} ({found.library}), by burnish import", f"method: {found.method}"]
    lines += [yaml.safe_dump(options, sort_keys=False, allow_unicode=True).rstrip()] if options else []
    lines += [f"# {note}" for note in found.notes]
    lines += ["# left out:"] if found.left_out else []
    lines += [f"#   {key}: {_short(value)}   ({why})" for key, value, why in found.left_out]
    return "\n".join(" ".join(line.splitlines()) if line.startswith("#") else line for line in lines) + "\n"


def _report(found: Translation, path: Path, out: str | None) -> None:
    """Print to standard error what was translated, so that standard output holds only the YAML."""
    lines = [f"{path}: {found.library}, method {found.method}, {len(found.options)} options", *found.notes]
    if found.left_out:
        lines.append(f"{len(found.left_out)} without counterpart:")
        lines += [f"  {key}: {_short(value)}   {why}" for key, value, why in found.left_out]
    lines += [f"run it: burnish train {out}"] if out else []
    print("\n".join(lines), file=sys.stderr)


def _short(value: Any) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."
