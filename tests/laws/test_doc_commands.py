"""The commands and the Python of the hand-written documentation: commands, flags, values, rewards and names exist.

Nothing is run: a command is read as `burnish` reads it, up to where it would start. Where a page shows what a command
answers (`$ burnish ...`), the answer is compared.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_docs import _INLINE, PAGES, ROOT, lines_of

import burnish
from burnish.cli import COMMANDS, main
from burnish.commands import launch, plan, sampled_file, train
from burnish.compare.plan import candidate
from burnish.config import flags
from burnish.config.options import Config, Options, configure
from burnish.config.resumable import RESUMABLE
from burnish.core.call_syntax import Call, bound, read_call, split_outside
from burnish.methods.table import find
from burnish.reward_functions.resolve import read_rewards
from burnish.rewards.table import load_scorers
from burnish.verifiers.table import load_verifiers

_BURNISH = re.compile(r"(?:[A-Z_]+=\S+ )*burnish (?=[a-z])(.*)")
_END = re.compile(r"  |\s(?:#|\||>|&)")  # of a command: an explanation, a comment, a pipe or a file follows
_OWN = re.compile(r"[\w/]+\.(?:ya?ml|py:\w+)")
_SCRIPT = re.compile(r"((?:scripts|benchmarks|examples)/\w+\.py)((?: [^\s`|]+)*)")  # and its words
_PLACEHOLDER = re.compile(r"[A-Z]+")


class _Read(Exception):
    """Raised where a command would start."""


def shell(text: str) -> Iterator[tuple[int, str]]:
    """The burnish commands of code blocks with their line numbers, without `$`; lines are joined at backslashes."""
    start, said = 0, ""
    for number, line, code in lines_of(text):
        start, said = (start, said + line.strip()) if said else (number, line.strip())
        if code and said.endswith("\\"):
            said = said.rstrip("\\")
            continue
        if code and (match := _BURNISH.fullmatch(said)):
            yield start, match[1]
        said = ""


def inline(text: str) -> Iterator[tuple[int, str]]:
    """The burnish commands of inline code with their line numbers."""
    for number, line, code in lines_of(text):
        for match in [] if code else map(_BURNISH.fullmatch, _INLINE.findall(line)):
            if match:
                yield number, match[1]


def words_of(command: str) -> list[str]:
    """The words of a command, without the explanation beside it."""
    quote, end = "", len(command)
    for i, letter in enumerate(command):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        elif _END.match(command, i):
            end = i
            break
    return shlex.split(command[:end])


def refused(words: list[str]) -> str:
    """The sentence with which a command is refused; empty where it would start."""
    try:
        _read(words)
    except _Read:
        return ""
    except ValueError as error:
        return str(error)
    raise AssertionError(f"burnish {shlex.join(words)} was run")


def _read(words: list[str]) -> None:
    name, rest = words[0], words[1:]
    if name not in COMMANDS:
        raise ValueError(f"there is no command {name!r}")
    if name == "serve" and "--train" in rest:  # burnish serve MODEL --train METHOD ...
        rest = [word for i, word in enumerate(rest) if "--port" not in rest[max(0, i - 1) : i + 1]]
        name, rest = "train", [rest[2], "--model", rest[0], *rest[3:]]
    if name == "launch":
        launch._split(rest)
        raise _Read
    if name in ("train", "plan"):
        _read_run(plan._cluster(rest)[0] if name == "plan" else rest)
    module = importlib.import_module(f"burnish.commands.{COMMANDS[name][0]}")

    def read(kind: type, command: str, given: list[str], *, plain: int = 0) -> None:
        asked = flags.read(kind, command, given, plain=plain)
        for one in asked[0] if asked and name in ("compare", "sweep", "ablate") else []:
            tried = candidate(one)
            if not _missing(tried.method):
                configure(find(tried.method), tried.method, tried.flags)
        raise _Read

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module if hasattr(module, "read") else sampled_file, "read", read)
        module.main(rest)


def _missing(word: str) -> bool:
    """Whether a word is a file of the reader's, or stands for a name."""
    return bool(_OWN.fullmatch(word) and not Path(word.partition(":")[0]).is_file() or _PLACEHOLDER.fullmatch(word))


def _read_run(words: list[str]) -> None:
    """Read the words of `burnish train`; the reader's own methods and files count as GRPO with defaults."""
    words = words[1:] if words and _missing(words[0]) else words
    name, stored, given = train._read(words)
    for flag in ("quiet", "help", "help_all"):
        given.pop(flag, None)
    if "resume" in given:
        if wrong := given.keys() - {"resume", *RESUMABLE}:
            raise ValueError(f"{', '.join(wrong)} cannot change when a run is resumed")
        raise _Read
    _check_rewards(train._configured(find(name or "grpo"), name or "grpo", stored, given))
    raise _Read


def _check_rewards(config: Config) -> None:
    """Raise ValueError if a reward or a shape by name does not exist, or has no such option."""
    options = config.options
    calls = [part.call for part in (read_rewards(options.reward) if options.reward else ()) if part.call]
    for call in calls + [read_call(piece) or Call(piece) for piece in split_outside(options.shape or "")]:
        known: dict[str, Any] = {**load_verifiers(), **load_scorers()}
        if call.name not in known:
            raise ValueError(f"there is no reward or shape {call.name!r}")
        scorer = call.name in load_scorers()
        bound(call, known[call.name].build, skip=1 if scorer else 0)


def unknown_names(code: str) -> list[str]:
    """What a Python block of a page imports from burnish, or asks of it, that does not exist."""
    found = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "burnish":
            module = importlib.import_module(str(node.module))
            found += [f"{node.module}.{name.name}" for name in node.names if not hasattr(module, name.name)]
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "burnish":
            found += [] if hasattr(burnish, node.attr) else [f"burnish.{node.attr}"]
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "burnish.train":
            method = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else None
            own = {*inspect.signature(burnish.train).parameters, *train._known(find(str(method or "grpo")))}
            given = {word.arg for word in node.keywords if word.arg}
            found += [f"burnish.train({name}=...)" for name in given - own if method]
    return sorted(found)


def unknown_flags(text: str) -> list[str]:
    """Flags of the repository's scripts that occur neither in the script nor in the common ones of benchmarks."""
    common = (ROOT / "benchmarks" / "command.py").read_text()
    named = [(name, flag) for name, words in _SCRIPT.findall(text) for flag in re.findall(r" (--[a-z-]+)", words)]
    return [f"{name} has no {flag}" for name, flag in named if f'"{flag}"' not in (ROOT / name).read_text() + common]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_are_read_and_names_exist(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    text = page.read_text()
    problems = [f"line {n}: {said}" for n, command in shell(text) if (said := refused(words_of(command)))]
    for number, command in inline(text):  # which may leave out what a command needs
        said = refused(words_of(command))
        if "has no" in said or "there is no" in said:
            problems.append(f"line {number}: {said}")
    for code in re.findall(r"```python\n(.*?)```", text, re.S):
        problems += [f"there is no {name}" for name in unknown_names(code)]
    problems += unknown_flags(text) if page.name != "CHANGELOG.md" else []
    assert not problems, "\n".join(problems)


ANSWERED = [
    (page, command, answer)
    for page in PAGES
    for command, answer in re.findall(r"^ +\$ burnish (.*)\n +(.*)$", page.read_text(), re.M)
]


@pytest.mark.parametrize(("page", "command", "answer"), ANSWERED, ids=[command for _, command, _ in ANSWERED])
def test_a_command_answers_as_its_page_says(
    page: Path, command: str, answer: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Commands that are refused; an answer that ends with ... is shortened."""
    monkeypatch.chdir(ROOT)
    assert main(shlex.split(command)) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert said.startswith(answer[:-4]) if answer.endswith("...)") else said == answer


def test_every_option_of_a_run_is_on_a_page() -> None:
    """A page for people names it with its dashes; the pages of methods and those for developers do not count."""
    pages = [page for page in (ROOT / "docs").rglob("*.md") if not {"methods", "dev"} & {*page.parts}]
    text = "\n".join(page.read_text() for page in pages)
    named = {word.replace("-", "_") for word in re.findall(r"--(?:no-)?([a-z][a-z0-9-]*)", text)}
    missing = [field.name for field in dataclasses.fields(Options) if field.name not in named]
    assert not missing, f"no page mentions {missing}"


def test_wrong_commands_and_names_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    text = """
    burnish train grpo --steps 3 --task "a b"  explained in words | not a pipe
    A=1 burnish train grpo \\
        --tusk add
    burnish train mine.py:f --steps 2
    burnish train grpo --reward "mathe"
    burnish train grpo --shape "alp(gamma=1)"
    burnish train --resume runs/DIR --seed 3
    burnish eval tiny --tsk sort
    burnish compare grpo "grpo(m=16)" --task add
    burnish serve tiny --train grpo --task add --port 0
    $ burnish train grpo --nothing

`burnish train gropo`, `burnish runs --tag`
"""
    assert [number for number, command in shell(text) if not refused(words_of(command))] == [2, 5, 11]
    assert [number for number, command in shell(text) if refused(words_of(command))] == [3, 6, 7, 8, 9, 10]
    assert "no method 'gropo'" in refused(words_of(next(inline(text))[1]))
    assert unknown_flags("python scripts/mutants.py --fly\n`python benchmarks/cpu.py --only a`  --x") == [
        "scripts/mutants.py has no --fly"
    ]
    code = 'import burnish\nfrom burnish.store import open_stor\nburnish.trian\nburnish.train("dpo", steps=1, n_=2)'
    assert unknown_names(code) == ["burnish.store.open_stor", "burnish.train(n_=...)", "burnish.trian"]
