"""Keys to set, in an environment that takes a thought as an action without effect; and rows that teach it carelessly.

    python examples/keys.py keys.jsonl
    burnish train sft --task keys.jsonl --steps 60 --prompts 32 --lr 1e-3 --max-new-tokens 24
    burnish train agent_r --task examples/keys.py:Keys --model runs/DIR/model --revision "?" --max-new-tokens 12

The rows are episodes of a player who errs and never corrects a key, and judgements of steps. A large model judges
without training; the embedded one has to be taught. It is too small for whole sentences, so that it revises by "?".
"""

import copy
import json
import random
import re
import sys
from pathlib import Path

from burnish.core.seeds import rng
from burnish.envs.protocol import Outcome
from burnish.zoo.agent_r import QUESTION

KEYS, DIGITS = "abcd", "123456789"
_SET = re.compile(r"([a-d])\s*=\s*(\d)")


class Keys:
    """Set three keys, then say done: reward 1 if all are right. A key can be set again; a wrong one is marked."""

    def reset(self, seed: int) -> str:
        dice = rng("desk", seed)
        self.wanted = {key: dice.choice(DIGITS) for key in dice.sample(KEYS, 3)}
        self.held = dict.fromkeys(self.wanted, "-")
        self.made, self.wrong = 0, False
        return "Set " + ", ".join(f"{key} {value}" for key, value in self.wanted.items()) + "."

    def step(self, action: str) -> Outcome:
        self.made += 1
        said, found = action.strip(), _SET.fullmatch(action.strip())
        if found and found[1] in self.held:
            self.held[found[1]] = found[2]
            self.wrong |= found[2] != self.wanted[found[1]]
        won, over = said == "done" and self.held == self.wanted, said == "done" or self.made >= 8
        numbers = {"mistaken": float(self.wrong)} | ({"mended": float(won)} if self.wrong else {})
        return Outcome(self.view() if found else "ok.", float(won), over, info={"metrics": numbers} if over else {})

    def view(self) -> str:
        marks = {key: "" if value in ("-", self.wanted[key]) else " wrong" for key, value in self.held.items()}
        return ", ".join(f"{key} {value}{marks[key]}" for key, value in self.held.items())

    def fork(self) -> "Keys":
        return copy.deepcopy(self)


def rows(index: int) -> list[dict[str, object]]:
    """An episode of the careless player, and whether a step of it was good: no key is marked after it."""
    game, dice = Keys(), rng("rows", index)
    said, grades = [("user", game.reset(index))], []
    while not said[-1][1].startswith("done"):
        action = careless(game, dice)
        said += [("assistant", action), ("user", game.step(action).observation)]
        grades.append("bad" if "wrong" in game.view() else "good")
        if action == "done":
            said.pop()
    judged = dice.randrange(len(grades) - 1)
    names = {"assistant": "Agent", "user": "Environment"}
    story = [f"Task: {said[0][1]}", *(f"{names[role]}: {text}" for role, text in said[1 : 2 * judged + 3])]
    return [
        conversation(said),
        conversation([("user", "\n".join([*story, QUESTION])), ("assistant", grades[judged])]),
    ]


def careless(game: Keys, dice: random.Random) -> str:
    """Sets one key after the other, every fourth to a random value, and never looks back."""
    for key, value in game.held.items():
        if value == "-":
            return f"{key}={dice.choice(DIGITS) if dice.random() < 1 / 4 else game.wanted[key]}"
    return "done"


def conversation(said: list[tuple[str, str]]) -> dict[str, object]:
    return {"messages": [{"role": role, "content": text} for role, text in said]}


def main(file: str, number: str = "2000") -> None:
    found = [row for index in range(int(number)) for row in rows(index)]
    Path(file).write_text("\n".join(json.dumps(row) for row in found) + "\n")
    print(f"{len(found)} rows in {file}")


if __name__ == "__main__":
    main(*sys.argv[1:3])
