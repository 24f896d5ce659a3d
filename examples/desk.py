"""Keys to set, in an environment that takes a thought as an action without effect; and rows that teach it.

    python examples/desk.py desk.jsonl
    burnish train sft --task desk.jsonl --max-new-tokens 48
    burnish train agent_r --task examples/desk.py:Desk --model runs/DIR/model --max-new-tokens 48

The rows are episodes of a careless player, judgements of steps (for agent_r), and the instructions and near misses that
a writer reads off episodes (for armap). A large model judges and writes without training; the embedded one is taught.
"""

import copy
import json
import random
import re
import sys
from pathlib import Path

from burnish.envs.protocol import Outcome
from burnish.rollout.intents import INTENT, MISS
from burnish.score.steps_judged import QUESTION
from burnish.seeds import rng

KEYS, DIGITS = "abcd", "123456789"
_SET = re.compile(r"([a-d])\s*=\s*(\d)")


class Desk:
    """Set every key to its value, then say done: reward 1 if all are right. A key can be set again."""

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
        told = ", ".join(f"{key} {value}" for key, value in self.held.items()) if found else "ok."
        return Outcome(told, float(won), terminated=over, info={"metrics": numbers} if over else {})

    def fork(self) -> "Desk":
        return copy.deepcopy(self)


def rows(index: int) -> list[dict[str, object]]:
    """An episode of the careless player; whether one of its steps is good; the instruction that the episode carries
    out; and another step with which it would not.
    """
    game, dice = Desk(), rng("rows", index)
    story, said = [f"Task: {game.reset(index)}"], [("user", game.reset(index))]
    grades, steps = [], []
    for _ in range(4):
        steps.append(careless(game, dice))
        seen = game.step(steps[-1]).observation
        story += [f"Agent: {steps[-1]}", f"Environment: {seen}"]
        said += [("assistant", steps[-1]), ("user", seen)]
        grades.append("good" if all(v in ("-", game.wanted[key]) for key, v in game.held.items()) else "bad")
    judged, cut = dice.randrange(4), dice.randrange(4)
    goal = "Set " + ", ".join(f"{key} {value}" for key, value in game.held.items()) + "."
    key = steps[cut][0] if cut < 3 else dice.choice(list(game.held))
    other = f"{key}={dice.choice([digit for digit in DIGITS if digit != game.held[key]])}"
    return [
        conversation(said[:-1]),
        asked(story[: 2 * judged + 2], QUESTION, grades[judged]),
        asked(story[:-1], INTENT, goal),
        asked(story[: 2 * cut + 1], MISS + goal, other),
    ]


def careless(game: Desk, dice: random.Random) -> str:
    """Sets one key after the other, every fourth to a random value, and never looks back."""
    for key, value in game.held.items():
        if value == "-":
            return f"{key}={dice.choice(DIGITS) if dice.random() < 1 / 4 else game.wanted[key]}"
    return "done"


def asked(story: list[str], question: str, answer: str) -> dict[str, object]:
    return conversation([("user", "\n".join([*story, question])), ("assistant", answer)])


def conversation(said: list[tuple[str, str]]) -> dict[str, object]:
    return {"messages": [{"role": role, "content": text} for role, text in said]}


def main(file: str, number: str = "2000") -> None:
    found = [row for index in range(int(number)) for row in rows(index)]
    Path(file).write_text("\n".join(json.dumps(row) for row in found) + "\n")
    print(f"{len(found)} rows in {file}")


if __name__ == "__main__":
    main(*sys.argv[1:3])
