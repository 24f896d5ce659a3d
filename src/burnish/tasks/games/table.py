"""The built-in environments by name."""

from __future__ import annotations

from burnish.tasks.games.deal import Deal
from burnish.tasks.games.files import Files
from burnish.tasks.games.form import Form
from burnish.tasks.games.game import GameFamily
from burnish.tasks.games.maze import Maze
from burnish.tasks.games.nim import Nim
from burnish.tasks.games.questions import TwentyQuestions
from burnish.tasks.games.text_nav import TextNav
from burnish.tasks.games.wordle import Wordle

GAMES: dict[str, type[GameFamily]] = {
    family.name: family for family in (Maze, Wordle, TwentyQuestions, TextNav, Deal, Files, Form, Nim)
}
