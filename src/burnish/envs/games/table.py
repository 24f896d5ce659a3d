"""The built-in environments by name."""

from __future__ import annotations

from burnish.envs.games.deal import Deal
from burnish.envs.games.files import Files
from burnish.envs.games.form import Form
from burnish.envs.games.game import GameFamily
from burnish.envs.games.maze import Maze
from burnish.envs.games.nim import Nim
from burnish.envs.games.questions import TwentyQuestions
from burnish.envs.games.reach import Reach
from burnish.envs.games.text_nav import TextNav
from burnish.envs.games.wordle import Wordle
from burnish.envs.games.zoom import Zoom

GAMES: dict[str, type[GameFamily]] = {
    family.name: family for family in (Maze, Wordle, TwentyQuestions, TextNav, Deal, Files, Form, Nim, Reach, Zoom)
}
