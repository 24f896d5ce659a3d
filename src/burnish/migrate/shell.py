"""The options in a shell script that starts a training: its variables and arithmetic are followed, nothing is run.

    python3 -m verl.trainer.main_ppo data.train_batch_size=1024 +actor_rollout_ref.rollout.n=$N \\
    accelerate launch --num_processes 8 trl/scripts/grpo.py --model_name_or_path ...
    trl sft --model_name_or_path ...;   llamafactory-cli train file.yaml learning_rate=1e-5
"""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

from burnish.config.words import normalised
from burnish.migrate.draft import Given, Unread, flattened
from burnish.migrate.evaluated import Scope, value_of
from burnish.util.plainfile import read_yaml
from burnish.util.safe_yaml import parse_yaml

_ASSIGNED = re.compile(r"(?:export\s+|declare\s+(?:-\w+\s+)?|local\s+|readonly\s+)?([A-Za-z_]\w*)=(.*)", re.DOTALL)
_ARRAY = re.compile(r"([A-Za-z_]\w*)(\+?)=\((.*?)\)\s*(?:\n|$)", re.DOTALL | re.MULTILINE)
_VARIABLE = re.compile(r"\$\(\(([^()]*(?:\([^()]*\)[^()]*)*)\)\)|\$\{([^{}]*)\}|\$([A-Za-z_]\w*|\d)")
_TRAINERS = {"sft", "dpo", "grpo", "kto", "reward", "rloo", "orpo", "cpo", "ppo", "online_dpo", "gkd", "bco", "xpo"}
_LAUNCHERS = ("--num_processes", "--nproc_per_node", "--nproc-per-node", "--num_gpus", "--nproc")
_ROUNDS = 8  # variables inside the values of variables
_HYDRA = re.compile(r"[+~]{0,2}[A-Za-z_][\w.@/-]*=.*", re.DOTALL)


def read_shell(text: str, path: Path) -> Given:
    """The options of the first command that starts a training, or ValueError."""
    variables: dict[str, str] = {}
    for command in _commands(text, variables):
        assigned = _ASSIGNED.fullmatch(command)
        if assigned and not _has_more(assigned[2]):
            variables[assigned[1]] = _expanded(_bare(assigned[2]), variables)
            continue
        words = _words(_expanded(command, variables), path)
        while words and _ASSIGNED.fullmatch(words[0]):  # CUDA_VISIBLE_DEVICES=0,1 python ...
            name, _, value = words.pop(0).partition("=")
            variables[name] = value
        options = _training(words, path, variables)
        if options is not None:
            return options
    raise ValueError(
        f"{path} starts no training that burnish import knows: python -m verl.trainer.main_ppo, trl sft, "
        "accelerate launch dpo.py, llamafactory-cli train"
    )


def _commands(text: str, variables: dict[str, str]) -> list[str]:
    """Commands, one each, with continued lines joined and comments left out; arrays go into `variables`."""
    text = re.sub(r"^\s*#.*\n?", "", text, flags=re.MULTILINE)  # a comment between continued lines, too
    text = re.sub(r"\\\s*\n", " ", text)
    for name, more, items in _ARRAY.findall(text):
        joined = " ".join(re.sub(r"(?:^|\s)#[^\n]*", "", items).split())
        variables[name] = f"{variables[name]} {joined}" if more and name in variables else joined
    text = _ARRAY.sub("\n", text)
    commands: list[str] = []
    waiting = ""
    for line in text.splitlines():
        waiting = f"{waiting}\n{line}" if waiting else line
        try:
            shlex.split(waiting, comments=True)
        except ValueError:
            continue  # a quote goes on in the next line
        commands += [waiting.strip()] if waiting.strip() else []
        waiting = ""
    return commands


def _has_more(value: str) -> bool:
    """Whether a command follows an assignment."""
    try:
        return len(shlex.split(value, comments=True)) > 1
    except ValueError:
        return False


def _bare(value: str) -> str:
    try:
        words = shlex.split(value, comments=True)
    except ValueError:
        return value
    return words[0] if words else ""


def _expanded(text: str, variables: dict[str, str]) -> str:
    """Variables and arithmetic put in; what the script does not set stays as it is."""

    def put(match: re.Match[str]) -> str:
        arithmetic, braced, plain = match.groups()
        if arithmetic is not None:
            names = re.sub(r"\$\{?(\w+)\}?", r"\1", arithmetic)
            numbers = {key: int(value) for key, value in variables.items() if re.fullmatch(r"-?\d{1,18}", value)}
            try:
                tree = ast.parse(names.replace("/", "//").strip(), mode="eval").body
            except (SyntaxError, ValueError, RecursionError):
                return match[0]
            value = value_of(tree, Scope(dict(numbers)), lambda call, scope: Unread(""))
            return match[0] if isinstance(value, Unread) else str(value)
        if plain is not None:
            return variables.get(plain, match[0])
        name, _, rest = re.sub(r"\[@\]|\[\*\]", "", braced).partition(":")
        default = rest[1:] if rest[:1] in ("-", "=") else None
        name, dash, fallback = name.partition("-") if default is None else (name, "", "")
        default = fallback if dash else default
        return variables.get(name, match[0] if default is None else default)

    text = re.sub(r'"(\$\{\w+\[[@*]\]\})"', r"\1", text)  # the items of an array are words of their own
    for _ in range(_ROUNDS):
        after = _VARIABLE.sub(put, text)
        if after == text or len(after) > 1 << 20:
            break
        text = after
    return text


def _words(command: str, path: Path) -> list[str]:
    try:
        return [word for word in shlex.split(command, comments=True) if word not in ("$@", "$*")]
    except ValueError:
        raise ValueError(f"{path} has a command that cannot be read (a quote is not closed): {command[:80]}") from None


def _training(words: list[str], path: Path, variables: dict[str, str]) -> Given | None:
    """The options of a command that starts a training; None for any other."""
    names = [Path(word).name for word in words]
    module = next((words[i + 1] for i, word in enumerate(words[:-1]) if word == "-m"), "")
    verl = next((i for i, word in enumerate(words) if word.startswith("verl.trainer.")), None)
    script = next((i for i, name in enumerate(names) if name.endswith(".py")), None)
    cli = next((i for i, name in enumerate(names[:-1]) if name in ("trl", "llamafactory-cli", "axolotl")), None)
    devices = _devices(words, variables)
    if verl is not None or (script is not None and names[script].startswith("main_") and "verl" in words[script]):
        start = verl if verl is not None else script
        assert start is not None
        given = _given(words[start + 1 :], path, "verl")
        given.method = "sft" if "sft" in (module or words[start]) else None
        given.devices = devices
        return given
    if cli is not None and names[cli] == "axolotl":
        raise ValueError(f"{path} runs axolotl with {words[-1]}; import that file: burnish import {words[-1]}")
    if cli is not None and names[cli] == "llamafactory-cli":
        if names[cli + 1] != "train":
            return None
        given = _given(words[cli + 2 :], path, "LLaMA-Factory")
    elif cli is not None or script is not None:
        place = cli + 1 if cli is not None else script
        assert place is not None
        word = names[place].removesuffix(".py").removeprefix("train_").replace("reward_modeling", "reward")
        given = _given(words[place + 1 :], path, "TRL")
        given.method = word if word in _TRAINERS else None
        if given.method is None and not {"model_name_or_path", "learning_rate"} & given.flat.keys():
            return None
        if "stage" in given.flat:
            given.library, given.method = "LLaMA-Factory", None
    else:
        return None
    given.devices = devices
    return given


def _devices(words: list[str], variables: dict[str, str]) -> int | None:
    for i, word in enumerate(words):
        flag, equals, value = word.partition("=")
        if flag in _LAUNCHERS:
            number = value if equals else words[i + 1] if i + 1 < len(words) else ""
            if number.isdigit():
                return int(number)
    visible = variables.get("CUDA_VISIBLE_DEVICES", "")
    return len(visible.split(",")) if visible and visible != "-1" else None


def _given(words: list[str], path: Path, library: str) -> Given:
    """Flags (--name value, --name=value, --switch), overrides (name=value) and configuration files among words."""
    flat: dict[str, object] = {}
    i = 0
    while i < len(words):
        word = words[i]
        i += 1
        if word.startswith("--") and len(word) > 2:
            name, equals, value = word[2:].partition("=")
            values = [value] if equals else []
            while not equals and i < len(words) and not words[i].startswith("--"):
                values.append(words[i])
                i += 1
            value_read = _read([one for one in values if not _is_redirect(one)])
            if name in ("config", "config_file") and values:
                flat = _file(path.parent / values[0]) | flat
            else:
                flat[normalised(name)] = value_read
        elif _HYDRA.fullmatch(word):
            name, _, value = word.partition("=")
            flat[normalised(name.lstrip("+~"))] = _read([value])
        elif word.endswith((".yaml", ".yml", ".json")):
            flat = _file(path.parent / word) | flat
        elif word in ("|", ">", ">>", "&", "2>&1", "&&", ";"):
            break
    return Given(flat, library)


def _is_redirect(word: str) -> bool:
    return word in ("|", ">", ">>", "&", "2>&1") or word.startswith((">", "2>"))


def _file(path: Path) -> dict[str, object]:
    content = read_yaml(path)
    if not isinstance(content, dict):
        raise ValueError(f"{path} holds no options `name: value`; give a YAML or JSON file")
    return flattened(content)


def _read(values: list[str]) -> object:
    """The value of a flag: nothing is a switch that is on, several are a list."""
    if not values:
        return True
    read = [_one(value) for value in values]
    return read[0] if len(read) == 1 else read


def _one(text: str) -> object:
    if _VARIABLE.search(text) and not re.search(r"[$]\{?(HOME|USER|PWD)\b|/", text):
        return Unread(text)
    if re.search(r"[:#]\s|^[%@&*!|>]", text):
        return text
    try:
        value = parse_yaml(text)
    except ValueError:
        return text
    if isinstance(value, str) and re.fullmatch(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+", value):
        return float(value)
    return text if value is None and text not in ("null", "None", "none", "~") else None if text == "None" else value
