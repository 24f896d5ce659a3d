"""The table of built-in sources, and the lookup of names such as "sort" or "sort:3"."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from burnish.envs.bandit import BanditTask
from burnish.envs.games.table import GAMES
from burnish.envs.guess import Guess
from burnish.envs.search import Search
from burnish.envs.work.table import WORK
from burnish.tasks.add import Add
from burnish.tasks.calls import Calls
from burnish.tasks.code import Code
from burnish.tasks.codes.frames import Frames
from burnish.tasks.codes.melody import Melody
from burnish.tasks.codes.paint import Paint
from burnish.tasks.codes.pixels import Draw
from burnish.tasks.codes.speak import Speak
from burnish.tasks.countdown import Countdown
from burnish.tasks.edit import Edit
from burnish.tasks.logic import Logic
from burnish.tasks.matrix import Matrix
from burnish.tasks.multiply import Multiply
from burnish.tasks.passages import Passages
from burnish.tasks.path import Path
from burnish.tasks.pictures.arrow import Arrow
from burnish.tasks.pictures.boxes import Boxes, Detect
from burnish.tasks.pictures.glyphs import Glyphs
from burnish.tasks.pictures.page import PageTask
from burnish.tasks.pictures.shapes import Shapes
from burnish.tasks.pictures.sprites import Sprites
from burnish.tasks.pictures.tones import Tones
from burnish.tasks.points import Points
from burnish.tasks.reverse import Reverse
from burnish.tasks.sort import Sort
from burnish.tasks.source import Source
from burnish.tasks.tutor import Tutor
from burnish.tasks.user import User

BUILTIN: dict[str, type] = {
    kind.name: kind for kind in (Add, Multiply, Countdown, Sort, Reverse, Edit, Path, Logic, Guess)
}  # the tasks that the model `tiny` was pre-trained on
SEEN: dict[str, type] = {
    kind.name: kind for kind in (Shapes, Glyphs, Boxes, Detect, Sprites, Arrow, Tones, PageTask)
}  # tasks of one turn whose prompts have pictures
CODED: dict[str, type] = {kind.name: kind for kind in (Frames, Draw, Melody, Speak)}  # tasks whose replies are codes
GENERATED: dict[str, type] = {
    **BUILTIN,
    **SEEN,
    **CODED,
    Paint.name: Paint,
    **{kind.name: kind for kind in (Code, Calls, Passages, Points, Tutor, Matrix, Search, User, BanditTask)},
    **GAMES,
    **WORK,
}  # all tasks that can be named


def closest(name: str, known: Iterable[str]) -> list[str]:
    """Up to three names like a misspelt one; those that are only a little like it where none is very much."""
    known = list(known)
    very = difflib.get_close_matches(name, known, n=3, cutoff=0.6)
    return very or difflib.get_close_matches(name, known, n=3, cutoff=0.4)


def nearest(name: str, known: dict[str, type]) -> str:
    """The known names closest to a misspelt one, best first, as a phrase."""
    close = closest(name, known)
    return f"did you mean {' or '.join(close)}?" if close else f"there are {', '.join(known)}"


def source(name: str, **options: object) -> Source:
    """The built-in source of this name; "sort:3" is `sort` at level 3. Options go to its constructor."""
    base, _, level = name.partition(":")
    if base not in GENERATED:
        raise ValueError(f"no built-in task is called {base!r}; {nearest(base, GENERATED)}")
    if level:
        if not level.isdigit():
            raise ValueError(f"task {name!r}: {level!r} is not a level; write for instance {base}:2")
        if "level" in options:
            raise ValueError(f"task {name!r} already names a level; leave out level={options['level']!r}")
        options["level"] = int(level)
    made: Source = GENERATED[base](**options)
    return made
