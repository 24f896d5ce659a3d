"""An agent with the plain openai client, unchanged but for its base URL: it is trained where it stands.

    pip install openai
    burnish train grpo --task guess:1 --agent examples/openai_agent.py:play --agent-pays --steps 12 --max-new-tokens 8

burnish calls `play` for each episode, with a base URL and an API key of its own. The agent asks the model for guesses
and looks at what its tool, the game, makes of them.
"""

from __future__ import annotations

from typing import Any

from openai import OpenAI


def play(task: dict[str, Any], base_url: str, api_key: str) -> float:
    """One game: 1 if the number was found, else 0."""
    client = OpenAI(base_url=base_url, api_key=api_key)
    game = task["env"]()
    messages: list[Any] = [{"role": "user", "content": game.reset()}]
    while True:
        reply = client.chat.completions.create(model="policy", messages=messages)
        guess = reply.choices[0].message.content or ""
        messages.append({"role": "assistant", "content": guess})
        said, reward, over = game.step(guess)
        if over:
            return float(reward)
        messages.append({"role": "user", "content": said})
