"""Games of two agents, as conversations: python examples/seat_games.py games.jsonl

Before each guess a scout says a number, then a guesser says the one that is played. Their numbers are drawn from the
middle half of the range that is left, so that there is something left to learn. First
burnish train sft --task games.jsonl --steps 12 --lr 1e-3 --out runs/seats, then
burnish train marft --task guess:1 --model runs/seats/model --seats "scout: | guesser: say a number" --turns 6
"""

import json
import random
import sys
from pathlib import Path

from burnish.envs.guess import Game, Guess


def played(game: Game, dice: random.Random) -> list[dict[str, str]]:
    """One game, as the conversation that marft's seats would have."""
    seen, over, found = game.reset(), False, []
    while not over:
        quarter = (game.high - game.low + 1) // 4
        scouted, said = (str(dice.randint(game.low + quarter, game.high - quarter)) for _ in range(2))
        found += [{"role": "user", "content": seen}, {"role": "assistant", "content": scouted}]
        found += [{"role": "user", "content": "say a number"}, {"role": "assistant", "content": said}]
        seen, _, over = game.step(said)
    return found


def main(file: str, number: int = 300) -> None:
    games, dice = Guess(level=1), random.Random(0)
    rows = [{"messages": played(Game(games.problem("train", i)), dice)} for i in range(number)]
    Path(file).write_text("\n".join(json.dumps(row) for row in rows) + "\n")
    print(f"{number} games in {file}")


if __name__ == "__main__":
    main(*sys.argv[1:2])
