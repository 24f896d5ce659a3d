"""A program of its own that pulls episodes from a run, works on them, and pays for them:

    export BURNISH_API_KEY=some-long-secret-of-yours
    burnish serve tiny --train grpo --task add:1 --steps 12 &
    python examples/pull_episodes.py http://127.0.0.1:8765

It needs the package openai. Several of these may run at the same time, also in other languages: all is HTTP.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from typing import Any

import openai

KEY = os.environ["BURNISH_API_KEY"]


def post(url: str, content: dict[str, Any]) -> dict[str, Any]:
    """What the server answers."""
    request = urllib.request.Request(url, json.dumps(content).encode(), {"Authorization": f"Bearer {KEY}"})
    with urllib.request.urlopen(request, timeout=600) as answer:
        return dict(json.load(answer))


def main(url: str) -> None:
    """Work until the run is done."""
    while not (episode := post(f"{url}/episodes", {})).get("done"):
        if episode["id"] is None:
            continue  # nothing to do at the moment: the run is learning
        client = openai.OpenAI(base_url=episode["base_url"], api_key=KEY)
        task = episode["task"]
        reply = client.chat.completions.create(model="policy", messages=task["prompt"]).choices[0].message.content
        reward = float(str(task["answer"]) in (reply or ""))
        post(episode["base_url"] + "/reward", {"value": reward})


if __name__ == "__main__":
    main(sys.argv[1].rstrip("/"))
