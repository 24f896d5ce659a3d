"""Games that an expert of middling skill played, some of them lost: python examples/recorded_games.py games.jsonl

Each row has the number of its task, so that the game can be played again from any state of it:
burnish train eef --task guess:1 --expert games.jsonl --max-new-tokens 8
"""

import json
import sys
from pathlib import Path

from burnish.envs.guess import Guess


def main(file: str, number: int = 300) -> None:
    games = Guess(level=1)
    rows = [{"task": i, "messages": games.task("train", i).given["episode"]} for i in range(number)]
    won = sum(row["messages"][-1]["reward"] for row in rows)
    Path(file).write_text("\n".join(json.dumps(row) for row in rows) + "\n")
    print(f"{number} games in {file}, {won:.0f} of them won")


if __name__ == "__main__":
    main(*sys.argv[1:2])
