"""`files`: a shell over a tree of files that exists in memory only. No command of the operating system is run."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from burnish.envs.games.game import Game, GameFamily
from burnish.envs.protocol import Outcome

_SHAPE = {1: (3, 2, 0, 1), 2: (5, 3, 3, 1), 3: (7, 3, 4, 2)}  # files, folders, files inside folders, files to move
HELP = "commands: ls cat cd pwd grep mv cp rm mkdir"
Tree = dict[str, str | None]  # path -> text of a file; None: a folder


@dataclass(frozen=True)
class Job:
    """The paths at the start with their texts (None: a folder), the word to look for, and the folder to move to."""

    tree: tuple[tuple[str, str | None], ...]
    word: str
    folder: str

    def goal(self) -> Tree:
        """The tree in which all files with the word are in the folder."""
        found: Tree = {}
        for path, text in self.tree:
            moved = text == self.word
            found[f"{self.folder}/{path.rpartition('/')[2]}" if moved else path] = text
        return found


class Shell(Game):
    """Each action is one command line. Reward 1 when the tree is exactly the goal: nothing missing, nothing more."""

    def __init__(self, position: Job) -> None:
        super().__init__(position)
        self.tree: Tree = dict(position.tree)
        self.here = ""  # the working folder, without slashes at its ends
        self.most = 2 * sum(text == position.word for _, text in position.tree) + 4

    def opening(self) -> str:
        self.tree, self.here = dict(self.position.tree), ""
        which = "files" if self.most > 6 else "file"
        return f"Move the {which} with {self.position.word} to {self.position.folder}."

    def act(self, action: str) -> Outcome:
        lines = action.splitlines()
        words = lines[0].split() if lines else []
        commands: dict[str, tuple[Callable[..., str], tuple[int, int]]] = {
            "ls": (self._ls, (0, 1)),
            "cat": (self._cat, (1, 1)),
            "cd": (self._cd, (0, 1)),
            "pwd": (lambda: f"/{self.here}", (0, 0)),
            "grep": (self._grep, (1, 1)),
            "mv": (partial(self._copy, keep=False), (2, 2)),
            "cp": (partial(self._copy, keep=True), (2, 2)),
            "rm": (self._rm, (1, 1)),
            "mkdir": (self._mkdir, (1, 1)),
        }
        if not words or words[0] not in commands:
            return Outcome(HELP, 0.0)
        run, (least, most) = commands[words[0]]
        if not least <= len(words) - 1 <= most:
            return Outcome(f"{words[0]}: wrong number of arguments", 0.0)
        said = run(*words[1:])
        done = self.tree == self.position.goal()
        return Outcome(said or "ok", float(done), terminated=done)

    def expert(self) -> str:
        """grep, then mv of each file that it found."""
        if self.made == 0:
            return f"grep {self.position.word}"
        left = [path for path in self._with_word() if path.rpartition("/")[0] != self.position.folder]
        return f"mv {'/' if self.here else ''}{left[0]} {'/' if self.here else ''}{self.position.folder}"

    def key(self) -> str:
        tree = " ".join(f"{path}={text}" for path, text in sorted(self.tree.items()))
        return f"{tree} in /{self.here}"

    def _path(self, said: str) -> str:
        """The absolute path (without a leading slash) that a path means from the working folder."""
        parts: list[str] = [] if said.startswith("/") else [part for part in self.here.split("/") if part]
        for part in said.split("/"):
            if part == "..":
                parts = parts[:-1]
            elif part not in ("", "."):
                parts.append(part)
        return "/".join(parts)

    def _is_folder(self, path: str) -> bool:
        return path == "" or (path in self.tree and self.tree[path] is None)

    def _inside(self, folder: str) -> list[str]:
        return sorted(path for path in self.tree if path.rpartition("/")[0] == folder)

    def _with_word(self) -> list[str]:
        return sorted(path for path, text in self.tree.items() if text == self.position.word)

    def _ls(self, said: str = ".") -> str:
        path = self._path(said)
        if not self._is_folder(path):
            return said if path in self.tree else f"ls: no {said}"
        return " ".join(p.rpartition("/")[2] + "/" * (self.tree[p] is None) for p in self._inside(path)) or "empty"

    def _cat(self, said: str) -> str:
        text = self.tree.get(self._path(said))
        return f"cat: no file {said}" if text is None else text

    def _cd(self, said: str = "/") -> str:
        path = self._path(said)
        if not self._is_folder(path):
            return f"cd: no folder {said}"
        self.here = path
        return ""

    def _grep(self, word: str) -> str:
        below = f"{self.here}/" if self.here else ""
        found = [path for path, text in self.tree.items() if text and word in text and path.startswith(below)]
        return " ".join(path.removeprefix(below) for path in sorted(found)) or "nothing"

    def _copy(self, said: str, target: str, keep: bool) -> str:
        path, to = self._path(said), self._path(target)
        text = self.tree.get(path)
        if text is None:
            return f"no file {said}"
        if self._is_folder(to):
            to = f"{to}/{path.rpartition('/')[2]}".lstrip("/")
        if not self._is_folder(to.rpartition("/")[0]) or self._is_folder(to):
            return f"no folder for {target}"
        if not keep:
            del self.tree[path]
        self.tree[to] = text
        return ""

    def _rm(self, said: str) -> str:
        path = self._path(said)
        if self.tree.get(path) is None:
            return f"rm: no file {said}"
        del self.tree[path]
        return ""

    def _mkdir(self, said: str) -> str:
        path = self._path(said)
        if path in self.tree or path == "" or not self._is_folder(path.rpartition("/")[0]):
            return f"mkdir: cannot make {said}"
        self.tree[path] = None
        return ""


class Files(GameFamily):
    """3, 5 or 7 files and 2 or 3 folders by level; at level 3 two files are to be moved."""

    name = "files"
    summary = "a shell over files in memory: find files by their text and move them (several turns)"
    game = Shell

    def draw(self, dice: random.Random) -> Job:
        many, folders, inside, wanted = _SHAPE[self.level]
        names = dice.sample("abcdefghijklmnopqrs", many)
        places = dice.sample("tuvwxyz", folders)
        word, *others = dice.sample(range(10, 100), many - wanted + 1)
        texts = [str(word)] * wanted + [str(other) for other in others]
        dice.shuffle(texts)
        target = places[0]
        paths = [name if i >= inside else f"{dice.choice(places[1:])}/{name}" for i, name in enumerate(names)]
        tree = [*((place, None) for place in sorted(places)), *zip(paths, texts, strict=True)]
        return Job(tuple(tree), str(word), target)
