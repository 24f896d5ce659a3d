"""`path`: find a path between two nodes of a small graph. Any path along edges that visits no node twice counts."""

from __future__ import annotations

import random
import string
from collections import deque
from itertools import pairwise

from burnish.tasks.family import Family
from burnish.verifiers.answer_line import format_reply

Maze = tuple[tuple[tuple[str, str], ...], str, str]  # edges, start, goal
_SHAPE = {1: (4, 4, 2), 2: (6, 7, 3), 3: (8, 9, 4), 4: (10, 12, 5)}  # nodes, edges, steps of the shortest path


def _neighbours(edges: tuple[tuple[str, str], ...]) -> dict[str, list[str]]:
    """Each node's neighbours, in the order of the edges."""
    near: dict[str, list[str]] = {}
    for a, b in edges:
        near.setdefault(a, []).append(b)
        near.setdefault(b, []).append(a)
    return near


def _search(edges: tuple[tuple[str, str], ...], start: str) -> dict[str, list[str]]:
    """A shortest path from the start to every reachable node, by breadth-first search."""
    near, paths, queue = _neighbours(edges), {start: [start]}, deque([start])
    while queue:
        here = queue.popleft()
        for node in near.get(here, []):
            if node not in paths:
                paths[node] = [*paths[here], node]
                queue.append(node)
    return paths


def _shortest(edges: tuple[tuple[str, str], ...], start: str, goal: str) -> list[str]:
    return list(_search(edges, start)[goal])


class Path(Family):
    """A connected graph whose start and goal are 2, 3, 4 or 5 steps apart by level."""

    name = "path"
    summary = "find a path in a small graph"

    def draw(self, dice: random.Random) -> Maze:
        many, links, steps = _SHAPE[self.level]
        while True:
            nodes = dice.sample(string.ascii_lowercase, many)
            pairs = [(nodes[dice.randrange(max(0, i - 3), i)], nodes[i]) for i in range(1, many)]
            while len(pairs) < links:
                a, b = dice.sample(nodes, 2)
                if (a, b) not in pairs and (b, a) not in pairs:
                    pairs.append((a, b))
            turned: list[tuple[str, str]] = [(a, b) for a, b in (dice.sample(pair, 2) for pair in pairs)]
            edges = tuple(dice.sample(turned, links))
            start = dice.choice(nodes)
            goals = [goal for goal, path in _search(edges, start).items() if len(path) == steps + 1]
            if goals:
                return edges, start, dice.choice(goals)

    def identity(self, problem: Maze) -> str:
        edges, start, goal = problem
        return f"{start} to {goal}: {' '.join(sorted('-'.join(sorted(edge)) for edge in edges))}"

    def ask(self, problem: Maze) -> str:
        edges, start, goal = problem
        return f"Path {start} to {goal}: {' '.join('-'.join(edge) for edge in edges)}"

    def answer(self, problem: Maze) -> str:
        return " ".join(_shortest(*problem))

    def _say(self, problem: Maze, path: list[str], dice: random.Random) -> str:
        """The path alone, or after listing the neighbours of each of its nodes."""
        near = _neighbours(problem[0])
        looks = [f"{node}: {' '.join(near[node])}" for node in path[:-1]] if dice.random() < 0.5 else []
        return format_reply(" ".join(path), *looks)

    def solve(self, problem: Maze, dice: random.Random) -> str:
        return self._say(problem, _shortest(*problem), dice)

    def _wander(self, problem: Maze, dice: random.Random) -> list[str]:
        """A random self-avoiding walk, until it is stuck or reaches the goal."""
        edges, start, goal = problem
        near, path = _neighbours(edges), [start]
        while path[-1] != goal and (ways := [node for node in near[path[-1]] if node not in path]):
            path.append(dice.choice(ways))
        return path

    def blunder(self, problem: Maze, dice: random.Random) -> str:
        """A random walk into a dead end, a missing edge, a path that stops too early, or a wrong node."""
        edges, _, _ = problem
        path = _shortest(*problem)
        kind = dice.choice(("wander", "wander", "skip", "stop", "node"))
        if kind == "wander":
            path = self._wander(problem, dice)
        elif kind == "skip":
            del path[dice.randrange(1, len(path) - 1)]
        elif kind == "stop":
            path = path[: dice.randrange(2, len(path))]
        else:
            path[dice.randrange(1, len(path))] = dice.choice(sorted(_neighbours(edges)))
        return self._say(problem, path, dice)

    def judge(self, problem: Maze, said: str) -> str:
        edges, start, goal = problem
        path, near = said.split(), _neighbours(edges)
        if not path or path[0] != start or path[-1] != goal:
            return f"the path must start at {start} and end at {goal}"
        for here, there in pairwise(path):
            if there not in near.get(here, []):
                return f"there is no edge {here[:10]}-{there[:10]}"
        return "" if len(set(path)) == len(path) else "the path visits a node twice"
