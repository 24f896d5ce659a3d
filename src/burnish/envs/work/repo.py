"""`repo`: a repository with a mistake and a report of it. The policy works in a shell; its patch is the answer.

`submit` ends the episode: what has changed outside of tests/ is the patch, as `git diff` writes it. Hidden tests are
expressions over the package's public names, with drawn numbers. They are evaluated in the sandbox, once with the patch
and once in the repository without the mistake, and the values are compared out here: the program under test never
holds an expected value.
"""

from __future__ import annotations

import difflib
import json
import random
import shlex
from dataclasses import dataclass
from functools import cache

from burnish.envs.box_shell import BoxShell
from burnish.envs.games.game import Game
from burnish.envs.protocol import Outcome
from burnish.envs.work.answered import command_of
from burnish.envs.work.family import WorkFamily
from burnish.envs.work.packages import PACKAGES, Package, Slip

TESTS = "python3 -m unittest -q"
_RUNNER = """
import importlib, json, os, sys
out = os.dup(1)
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
sys.path.insert(0, os.getcwd())
name, calls = sys.argv[1], json.loads(sys.argv[2])
found = []
for call in calls:
    try:
        found.append(repr(eval(call, dict(vars(importlib.import_module(name))))))
    except BaseException as error:
        found.append("raises " + type(error).__name__)
os.write(out, json.dumps(found).encode())
os._exit(0)
"""


@dataclass(frozen=True)
class Report:
    """A repository without mistakes, those that are planted, and the calls of its hidden tests."""

    package: str
    files: tuple[tuple[str, str], ...]
    slips: tuple[Slip, ...]
    calls: tuple[str, ...]

    def broken(self) -> dict[str, str]:
        """The repository as the policy gets it."""
        files = dict(self.files)
        for slip in self.slips:
            number, line = line_of(files[slip.file], slip.good)
            lines = files[slip.file].splitlines(keepends=True)
            lines[number - 1] = line.replace(slip.good, slip.bad) + "\n"
            files[slip.file] = "".join(lines)
        return files


def line_of(text: str, wanted: str) -> tuple[int, str]:
    """The number of a line, without its indent, and the line; 0 where the text has none."""
    return next(((i, line) for i, line in enumerate(text.splitlines(), 1) if line.strip() == wanted), (0, ""))


class Repairing(Game):
    """Each action is a command line in the repository, or `submit`. Reward 1 when all hidden tests pass.

    An episode that is cut off is judged as it is. The metrics patch_lines and tests_passed are of its patch.
    """

    foreign = True  # commands take processes some milliseconds
    position: Report

    def __init__(self, position: Report) -> None:
        super().__init__(position)
        self.most = 4 * len(position.slips) + 8
        self.start = position.broken()
        self.shell = BoxShell.of(dict(self.start))

    def opening(self) -> str:
        self.shell = BoxShell.of(dict(self.start))
        issues = ". ".join(slip.issue for slip in self.position.slips)
        names = " ".join(path for path in self.start if path.endswith(".py"))
        return f"Files: {names}\nTests: {TESTS}\nFix it and say submit: {issues}."

    def act(self, action: str) -> Outcome:
        said = command_of(action)
        if said.lower() == "submit":
            return self._judged("")
        self.shell, did = self.shell.run(said)
        return self._judged(did.shown, truncated=True) if self.made >= self.most else Outcome(did.shown, 0.0)

    def patch(self) -> str:
        """What was changed outside of tests/, as a unified diff."""
        now = self.shell.texts()
        pieces = []
        for path in sorted({*self.start, *(path for path, text in now.items() if text is not None)}):
            before, after = self.start.get(path), now.get(path)
            if before != after and not path.startswith(("tests/", ".", "__pycache__")) and "/__pycache__/" not in path:
                old, new = ((text or "").splitlines(keepends=True) for text in (before, after))
                names = ("/dev/null" if before is None else f"a/{path}", "/dev/null" if after is None else f"b/{path}")
                lines = difflib.unified_diff(old, new, *names)
                pieces += [line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines]
        return "".join(pieces)

    def _judged(self, seen: str, truncated: bool = False) -> Outcome:
        mine = _values(self._patched(), self.position.package, self.position.calls)
        right = _expected(self.position.files, self.position.package, self.position.calls)
        passed = sum(one == other for one, other in zip(mine, right, strict=False)) / len(right)
        patch = self.patch()
        info = {
            "metrics": {"tests_passed": passed, "patch_lines": patch.count("\n")},
            "outcome": "resolved" if passed == 1.0 else "unresolved",
            "answer": patch,
        }
        seen = "\n".join(filter(None, [seen, f"{round(passed * len(right))} of {len(right)} hidden tests pass"]))
        return Outcome(seen, float(passed == 1.0), terminated=not truncated, truncated=truncated, info=info)

    def _patched(self) -> BoxShell:
        """The repository with the patch, and with tests/ as it was."""
        kept = {path: text for path, text in self.shell.texts().items() if not path.startswith("tests/")}
        tests = {path: text for path, text in self.start.items() if path.startswith("tests/")}
        return BoxShell.of({**kept, **tests})

    def expert(self) -> str:
        """Look at the file, put the line right, submit."""
        for slip in self.position.slips:
            text = self.shell.text(slip.file) or ""
            number, line = line_of(text, slip.bad)
            if number:
                return slip.fix or _repair(slip, number, line)
        return "submit"

    def key(self) -> str:
        return repr((sorted(self.shell.texts().items()), self.shell.folder))


def _repair(slip: Slip, number: int, line: str) -> str:
    """The command that replaces the line: sed's c, which keeps the indent after c\\."""
    whole = line.replace(slip.bad, slip.good).replace("\\", "\\\\")
    script = shlex.quote(f"{number}c\\{whole}")
    return f"sed -i {script} {slip.file}"


def _values(shell: BoxShell, package: str, calls: tuple[str, ...]) -> list[str]:
    """The values of the calls in a repository, as text; none where they could not be run."""
    command = f"python3 -c {shlex.quote(_RUNNER)} {package} {shlex.quote(json.dumps(calls))}"
    _, did = shell.run(command)
    try:
        found = json.loads(did.printed)
    except ValueError:
        return []
    return [str(one) for one in found] if isinstance(found, list) else []


@cache
def _expected(files: tuple[tuple[str, str], ...], package: str, calls: tuple[str, ...]) -> list[str]:
    found = _values(BoxShell.of(dict(files)), package, calls)
    assert len(found) == len(calls), f"the hidden tests of {package} do not run"
    return found


class Repo(WorkFamily):
    """Level 1: one file of two functions, and the line is named. Levels 2, 3: a package with one or two mistakes."""

    name = "repo"
    summary = "repair a small Python repository in a shell; hidden tests judge the patch (several turns)"
    game = Repairing

    def draw(self, dice: random.Random) -> Report:
        if self.level == 1:
            return _one_file(dice)
        package: Package = dice.choice(PACKAGES)
        slips = dice.sample(package.slips, self.level - 1)
        calls = tuple(call.format(dice.randrange(6, 90), dice.randrange(2, 60)) for call in package.calls * 2)
        return Report(package.name, package.files, tuple(slips), calls)


_SIGNS = ("+", "-", "*")
_NAMES = ("add", "mix", "sum", "cut", "get", "put", "fit", "map", "run", "top")


def _one_file(dice: random.Random) -> Report:
    """calc.py with two functions of two numbers, one of which uses the wrong sign."""
    (one, other), (sign, wrong), beside = dice.sample(_NAMES, 2), dice.sample(_SIGNS, 2), dice.choice(_SIGNS)
    k = dice.randrange(2, 10)
    text = f"def {one}(a, b):\n    return a {sign} b\n\n\ndef {other}(a, b):\n    return a {beside} b {beside} {k}\n"
    issue = f"{one} is a {wrong} b in line 2, it must be a {sign} b"
    fix = f"sed -i '2s/a . b/a {sign} b/' calc.py"
    slip = Slip("calc.py", f"return a {sign} b", f"return a {wrong} b", issue, fix)
    pairs = [(dice.randrange(3, 40), dice.randrange(3, 40)) for _ in range(4)]
    calls = tuple(f"{name}({a}, {b})" for name in (one, other) for a, b in pairs)
    return Report("calc", (("calc.py", text),), (slip,), calls)
