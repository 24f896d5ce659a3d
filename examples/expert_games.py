"""Games of an expert, as conversations: python examples/expert_games.py games.jsonl

The expert finds a hidden number by binary search. For `burnish train stepagent --task games.jsonl`, or sft.
"""

import json
import sys
from pathlib import Path

from burnish.core.seeds import rng
from burnish.envs.guess import Guess


def main(file: str, number: int = 300) -> None:
    games = Guess(level=1)
    rows = [games.transcript(games.problem("train", i), rng("expert", i), care=1.0) for i in range(number)]
    Path(file).write_text("\n".join(json.dumps({"messages": messages}) for messages in rows) + "\n")
    print(f"{number} games in {file}")


if __name__ == "__main__":
    main(*sys.argv[1:2])
