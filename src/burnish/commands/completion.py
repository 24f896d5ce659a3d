"""`burnish completion SHELL`: a completion script for bash, zsh or fish.

The script holds the commands, flags, methods, tasks and models of the installed version, so that a key press starts no
Python. Runs are found in runs/ when a key is pressed.
"""

from __future__ import annotations

import dataclasses
import importlib
from dataclasses import dataclass
from typing import Any

from burnish.config.flags import booleans_of, dashed, flags_of, flags_of_method, read

SHELLS = ("bash", "zsh", "fish")
METHOD_COMMANDS = ("train", "show", "compare", "sweep", "ablate")
RUN_COMMANDS = ("runs", "report", "doctor")
MODEL_COMMANDS = ("eval", "chat")
RUN_VERBS = ("show", "export", "pause", "resume", "checkpoint", "stop")
CHOICES = {  # flag -> values; of any command
    "device": "cpu cuda auto",
    "lr-schedule": "constant linear cosine",
    "on-nan": "skip stop",
    "on-reward-failure": "zero drop",
    "on-mismatch": "stop warn",
    "engine": "local process vllm",
    "on": "here ray",
    "order": "fixed free",
    "product": "last best",
    "log": "tensorboard wandb trackio mlflow",
    "chat-template": "chatml plain none tools",
    "to": "parquet jsonl csv",
    "format": "pairs lists labels",
    "style": "conversational standard",
}


@dataclass(frozen=True)
class CompletionOptions:
    """burnish completion bash|zsh|fish: a completion script for the shell.

    burnish completion bash > ~/.local/share/bash-completion/completions/burnish
    burnish completion zsh > ~/.burnish-completion.zsh     then source it in ~/.zshrc
    burnish completion fish > ~/.config/fish/completions/burnish.fish

    It completes commands, methods, flags, tasks, models and run names. Write it again after an upgrade."""


@dataclass(frozen=True)
class Words:
    """What can be completed: command -> flags, method -> its own flags, and the names of tasks and models."""

    commands: dict[str, str]
    flags: dict[str, list[str]]
    switches: set[str]
    methods: dict[str, list[str]]
    tasks: list[str]
    models: list[str]


def main(words: list[str]) -> int:
    asked = read(CompletionOptions, "completion", words, plain=1)
    if asked is None:
        return 0
    if not asked[0] or asked[0][0] not in SHELLS:
        got = f"{asked[0][0]!r} is not one of them" if asked[0] else "say which shell"
        raise ValueError(f"{got}: burnish completion {'|'.join(SHELLS)}")
    print({"bash": bash, "zsh": zsh, "fish": fish}[asked[0][0]](known_words()), end="")
    return 0


def known_words() -> Words:
    """The commands, flags, methods, tasks and models of this version."""
    import typing

    from burnish.commands.table import COMMANDS
    from burnish.config.options import Options
    from burnish.methods.table import METHODS, load_all
    from burnish.models.known_models import MODELS
    from burnish.tasks.table import GENERATED

    load_all()
    flags: dict[str, list[str]] = {}
    switches = {"help", "help-all", "quiet", "debug"}
    for command, (module, _) in COMMANDS.items():
        kind = Options if command == "train" else _options_of(importlib.import_module(f"burnish.commands.{module}"))
        flags[command] = [dashed(flag.name) for flag in flags_of(kind)] if kind else []
        hints = typing.get_type_hints(kind, include_extras=True) if kind else {}
        switches |= {dashed(name) for name in booleans_of(hints)}
    flags["train"] += ["resume", "quiet", "help-all"]
    methods = {name: [dashed(flag.name) for flag in flags_of_method(entry)] for name, entry in METHODS.items()}
    commands = {name: what for name, (_, what) in COMMANDS.items()}
    return Words(commands, flags, switches, methods, list(GENERATED), list(MODELS))


def _options_of(module: Any) -> Any:
    """The dataclass of a command's options."""
    for name, kind in vars(module).items():
        if name.endswith("Options") and dataclasses.is_dataclass(kind) and kind.__module__ == module.__name__:
            return kind
    return None


def bash(words: Words) -> str:
    """The script for bash; it needs no other package."""
    flags = "\n".join(
        f"        {command}) flags={_quoted('--' + flag for flag in ['help', *own])} ;;"
        for command, own in words.flags.items()
    )
    methods = "\n".join(
        f'        {name}) flags+=" {" ".join("--" + flag for flag in own)}" ;;'
        for name, own in words.methods.items()
        if own
    )
    choices = "\n".join(f"        --{flag}) _burnish_words {values!r}; return ;;" for flag, values in CHOICES.items())
    return f"""\
# Completion of burnish for bash; written by: burnish completion bash
_burnish_methods={_quoted(words.methods)}
_burnish_tasks={_quoted(words.tasks)}
_burnish_models={_quoted(words.models)}

_burnish_words() {{ COMPREPLY=($(compgen -W "$1" -- "$current")); }}
_burnish_files() {{ COMPREPLY+=($(compgen -f -- "$current")); }}
_burnish_runs() {{
    local run names="last"
    for run in runs/*/; do [ -d "$run" ] && run="${{run%/}}" && names+=" $run ${{run#runs/}}"; done
    _burnish_words "$names"
}}

_burnish() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD-1]}}" command="${{COMP_WORDS[1]}}"
    local method="${{COMP_WORDS[2]}}" flags="" run
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        _burnish_words {_quoted([*words.commands, "--help", "--version"])}
        return
    fi
    case "$previous" in
        --task) _burnish_words "$_burnish_tasks"; _burnish_files; return ;;
        --model|--teacher|--reward-model) _burnish_words "$_burnish_models"; _burnish_files; return ;;
        --resume) _burnish_runs; return ;;
        --method|--parent) _burnish_words "$_burnish_methods"; return ;;
{choices}
    esac
    case "$command" in
{flags}
    esac
    case "$current" in
        -*)
            case "$command:$method" in
                train:-*|train:) method=grpo ;;
            esac
            [ "$command" = train ] && case "$method" in
{methods}
            esac
            _burnish_words "$flags"
            return ;;
    esac
    case "$command" in
        {"|".join(METHOD_COMMANDS)}) _burnish_words "$_burnish_methods"; _burnish_files ;;
        runs)
            if [ "$COMP_CWORD" -eq 2 ]; then _burnish_words {_quoted(RUN_VERBS)}; else _burnish_runs; fi ;;
        report|doctor) _burnish_runs; _burnish_files ;;
        {"|".join(MODEL_COMMANDS)})
            _burnish_words "$_burnish_models"
            for run in runs/*/model; do [ -d "$run" ] && COMPREPLY+=($(compgen -W "$run" -- "$current")); done
            _burnish_files ;;
        tasks) _burnish_words "$_burnish_tasks"; _burnish_files ;;
        models) _burnish_words "get $_burnish_models" ;;
        completion) _burnish_words {_quoted(SHELLS)} ;;
        *) _burnish_files ;;
    esac
}}
complete -F _burnish burnish
"""


def zsh(words: Words) -> str:
    """zsh runs the script for bash by its own bashcompinit."""
    script = bash(words).replace("for bash; written by: burnish completion bash", "for zsh; by burnish completion zsh")
    return f"autoload -U +X compinit && compinit -u\nautoload -U +X bashcompinit && bashcompinit\n{script}"


def fish(words: Words) -> str:
    """The script for fish."""
    lines = ["# Completion of burnish for fish; written by: burnish completion fish", "complete -c burnish -f"]
    for command, what in words.commands.items():
        lines.append(f"complete -c burnish -n __fish_use_subcommand -a {command} -d {_single(what)}")
    for command, flags in words.flags.items():
        seen = f"'__fish_seen_subcommand_from {command}'"
        lines += [_fish_flag(seen, flag, words) for flag in flags]
    for name, flags in words.methods.items():
        lines += [_fish_flag(f"'__fish_seen_subcommand_from {name}'", flag, words) for flag in flags]
    method = f"'__fish_seen_subcommand_from {' '.join(METHOD_COMMANDS)}'"
    lines.append(f"complete -c burnish -n {method} -a {_single(' '.join(words.methods))}")
    runs = "(for run in runs/*/; string trim -r -c / $run; end)"
    lines.append(
        f"complete -c burnish -n '__fish_seen_subcommand_from {' '.join(RUN_COMMANDS)}' -a {_single('last ' + runs)}"
    )
    lines.append(f"complete -c burnish -n '__fish_seen_subcommand_from runs' -a {_single(' '.join(RUN_VERBS))}")
    models = " ".join(words.models)
    lines.append(
        f"complete -c burnish -n '__fish_seen_subcommand_from {' '.join(MODEL_COMMANDS)}' -F -a {_single(models)}"
    )
    lines.append(f"complete -c burnish -n '__fish_seen_subcommand_from tasks' -F -a {_single(' '.join(words.tasks))}")
    lines.append(f"complete -c burnish -n '__fish_seen_subcommand_from completion' -a {_single(' '.join(SHELLS))}")
    return "\n".join(lines) + "\n"


def _fish_flag(seen: str, flag: str, words: Words) -> str:
    if flag in words.switches:
        return f"complete -c burnish -n {seen} -l {flag}"
    values = {"task": words.tasks, "model": words.models, "resume": ["(for run in runs/*/; echo $run; end)"]}
    known = " ".join(values.get(flag, CHOICES.get(flag, "").split()))
    return f"complete -c burnish -n {seen} -l {flag} -r" + (f" -F -a {_single(known)}" if known else " -F")


def _quoted(words: Any) -> str:
    return '"' + " ".join(words) + '"'


def _single(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
