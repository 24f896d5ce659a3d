"""Levers to pull, and what a writer says about episodes: data for a model that plays and writes.

    python examples/levers.py levers.jsonl
    burnish train sft --task levers.jsonl --steps 40 --prompts 32 --lr 1e-3 --max-new-tokens 12
    burnish train armap --task examples/levers.py:Levers --model runs/DIR/model --max-new-tokens 12

The rows are episodes of a player who often pulls a wrong lever, the instructions that its episodes carry out, and other
steps with which they would not. A large model writes the latter two without training; the embedded one is taught.
"""

import copy
import json
import sys
from pathlib import Path

from burnish.core.seeds import rng
from burnish.zoo.armap import INTENT, MISS

LEVERS = "1234"


class Levers:
    """Pull the lever that is asked for, then say done: reward 1 if it was the last that was pulled."""

    def reset(self, seed: int) -> str:
        self.wanted, self.pulled, self.made = rng("levers", seed).choice(LEVERS), "", 0
        return f"Pull {self.wanted}."

    def step(self, action: str) -> tuple[str, float, bool]:
        self.made += 1
        said = action.strip()
        if said == "done" or self.made == 4:
            return "", float(said == "done" and self.pulled == self.wanted), True
        self.pulled = said if said in tuple(LEVERS) else self.pulled
        return f"pulled {self.pulled or 'none'}", 0.0, False

    def fork(self) -> "Levers":
        return copy.deepcopy(self)


def rows(index: int) -> list[dict[str, object]]:
    """An episode that pulls the right lever in half of the cases; its instruction; another step in a state of it."""
    game, dice = Levers(), rng("rows", index)
    opening = game.reset(index)
    pull = game.wanted if dice.random() < 1 / 3 else dice.choice(LEVERS)
    seen = game.step(pull)[0]
    story = [f"Task: {opening}", f"Agent: {pull}", f"Environment: {seen}", "Agent: done"]
    goal, cut = f"Pull {pull}.", dice.choice((1, 3))
    other = dice.choice([lever for lever in LEVERS if lever != pull])
    return [
        conversation(opening, pull, seen, "done"),
        conversation("\n".join([*story, INTENT]), goal),
        conversation("\n".join([*story[:cut], MISS + goal]), other),
    ]


def conversation(*said: str) -> dict[str, object]:
    return {"messages": [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(said)]}


def main(file: str, number: str = "1000") -> None:
    found = [row for index in range(int(number)) for row in rows(index)]
    Path(file).write_text("\n".join(json.dumps(row) for row in found) + "\n")
    print(f"{len(found)} rows in {file}")


if __name__ == "__main__":
    main(*sys.argv[1:3])
