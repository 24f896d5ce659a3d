"""`shell`: jobs for a real shell in the sandbox, on files in memory."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from burnish.envs.box_shell import BoxShell
from burnish.envs.games.game import Game
from burnish.envs.protocol import Outcome
from burnish.envs.work.answered import command_of
from burnish.envs.work.family import WorkFamily

Files = dict[str, str | None]  # the text of each file; None: a folder
_WORDS = ("ann", "bob", "cat", "dog", "egg", "fox", "gum", "hen", "ice", "jam")


@dataclass(frozen=True)
class Job:
    """One thing to do: its words, the command of an expert, the tree after it."""

    asked: str
    command: str
    goal: Files


@dataclass(frozen=True)
class Jobs:
    """The files at the start, and the names of jobs with their words, in order."""

    files: tuple[tuple[str, str | None], ...]
    jobs: tuple[tuple[str, tuple[str, ...]], ...]

    def done(self) -> list[Job]:
        """The jobs, each on the tree that the one before it leaves."""
        files, found = dict(self.files), list[Job]()
        for name, words in self.jobs:
            found.append(_JOBS[name](files, *words))
            files = found[-1].goal
        return found


def _lines(files: Files, name: str) -> list[str]:
    return (files[name] or "").splitlines()


def _joined(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _count(files: Files, name: str, out: str) -> Job:
    goal = {**files, out: f"{len(_lines(files, name))}\n"}
    return Job(f"Write the number of lines of {name} to {out}.", f"wc -l < {name} > {out}", goal)


def _sort(files: Files, name: str, out: str) -> Job:
    return Job(
        f"Sort the lines of {name} into {out}.",
        f"sort {name} > {out}",
        {**files, out: _joined(sorted(_lines(files, name)))},
    )


def _grep(files: Files, name: str, word: str, out: str) -> Job:
    kept = [line for line in _lines(files, name) if word in line]
    return Job(
        f"Write the lines of {name} that have {word} to {out}.",
        f"grep {word} {name} > {out}",
        {**files, out: _joined(kept)},
    )


def _copy(files: Files, name: str, out: str) -> Job:
    return Job(f"Copy {name} to {out}.", f"cp {name} {out}", {**files, out: files[name]})


def _remove(files: Files, name: str) -> Job:
    return Job(f"Remove {name}.", f"rm {name}", {path: text for path, text in files.items() if path != name})


def _unique(files: Files, name: str, out: str) -> Job:
    kept = sorted(set(_lines(files, name)))
    return Job(
        f"Write the different lines of {name}, sorted, to {out}.",
        f"sort -u {name} > {out}",
        {**files, out: _joined(kept)},
    )


def _add(files: Files, name: str, out: str) -> Job:
    total = sum(int(line.split()[1]) for line in _lines(files, name))
    return Job(
        f"Write the sum of the numbers in {name} to {out}.",
        f"awk '{{s += $2}} END {{print s}}' {name} > {out}",
        {**files, out: f"{total}\n"},
    )


def _replace(files: Files, name: str, old: str, new: str) -> Job:
    return Job(
        f"Replace {old} by {new} in {name}.",
        f"sed -i s/{old}/{new}/ {name}",
        {**files, name: (files[name] or "").replace(old, new)},
    )


def _move(files: Files, folder: str, word: str) -> Job:
    """All files whose text has the word go to the folder."""
    goal = {
        f"{folder}/{path.rpartition('/')[2]}" if text is not None and word in text else path: text
        for path, text in files.items()
    }
    return Job(f"Move every file that has {word} to the folder {folder}.", f"mv $(grep -rl {word} .) {folder}", goal)


_JOBS: dict[str, Callable[..., Job]] = {
    "count": _count,
    "sort": _sort,
    "grep": _grep,
    "copy": _copy,
    "remove": _remove,
    "unique": _unique,
    "add": _add,
    "replace": _replace,
    "move": _move,
}


class Working(Game):
    """Each action is a command line of bash. Reward 1 when the tree is as it was asked for: nothing missing, nothing
    more. Trailing blanks of lines do not count.
    """

    foreign = True  # a command takes a process some milliseconds: episodes work side by side
    position: Jobs

    def __init__(self, position: Jobs) -> None:
        super().__init__(position)
        self.jobs = position.done()
        self.goal = told(self.jobs[-1].goal)
        self.most = 2 * len(self.jobs) + 3
        self.shell = BoxShell.of(dict(position.files))

    def opening(self) -> str:
        self.shell = BoxShell.of(dict(self.position.files))
        names = " ".join(sorted(path for path, text in self.position.files if text is not None))
        return f"Files: {names}. {' Then: '.join(job.asked for job in self.jobs)}"

    def act(self, action: str) -> Outcome:
        self.shell, did = self.shell.run(command_of(action))
        done = told(self.shell.texts()) == self.goal
        return Outcome(did.shown, float(done), terminated=done)

    def expert(self) -> str:
        """The first job whose tree is not reached; where the tree is none of those on the way, all of them anew."""
        trees = [told(dict(self.position.files)), *(told(job.goal) for job in self.jobs)]
        here = told(self.shell.texts())
        at = max((i for i, tree in enumerate(trees[:-1]) if tree == here), default=0)
        return self.jobs[at].command

    def key(self) -> str:
        return repr((told(self.shell.texts()), self.shell.folder))


def told(files: Files) -> dict[str, str | None]:
    """A tree without the blanks at the ends of lines, which some commands write and others do not."""
    return {
        path: None if text is None else "\n".join(line.strip() for line in text.strip().splitlines())
        for path, text in files.items()
    }


class ShellWork(WorkFamily):
    """One of five jobs at level 1, of four more at level 2; two jobs after each other, with folders, at level 3."""

    name = "shell"
    summary = "jobs for a real shell in the sandbox: count, sort, find, replace, move (several turns)"
    game = Working

    def draw(self, dice: random.Random) -> Jobs:
        names = dice.sample("abcdefgh", 3)
        files: Files = {name: _joined(_drawn_lines(dice)) for name in names}
        if self.level == 3:
            files |= {"box": None, f"old/{names[0]}2": _joined(_drawn_lines(dice)), "old": None}
        out = dice.choice(("out", "new", "res"))
        first = self._drawn(dice, files, names[0], out)
        if self.level < 3:
            return Jobs(tuple(files.items()), (first,))
        word = dice.choice((files[names[1]] or "").split())
        return Jobs(tuple(files.items()), (first, ("move", ("box", word))))

    def _drawn(self, dice: random.Random, files: Files, name: str, out: str) -> tuple[str, tuple[str, ...]]:
        kinds = ("count", "sort", "grep", "copy", "remove") if self.level == 1 else ("unique", "add", "replace", "grep")
        kind = dice.choice(kinds)
        word = dice.choice(_lines(files, name)).split()[0]
        if kind == "grep":
            return kind, (name, word, out)
        if kind == "replace":
            return kind, (name, word, dice.choice(("kit", "lab", "net")))
        return kind, (name,) if kind == "remove" else (name, out)


def _drawn_lines(dice: random.Random) -> list[str]:
    return [f"{dice.choice(_WORDS)} {dice.randrange(10, 60)}" for _ in range(dice.randrange(3, 7))]
