"""The agent of openai_tools.py on pydantic-ai, trained as it is:

    pip install 'pydantic-ai-slim[openai]'
    burnish train grpo --model boxes/sft/model --task boxes/questions.jsonl --agent examples/pydantic_ai_boxes.py:run \\
        --agent-pays --steps 8 --prompts 8 --lr 2e-4 --max-new-tokens 48

The model and the questions are made by the first commands of openai_tools.py. burnish calls `run` for each episode; the
tool and the reward are the agent's own.
"""

from __future__ import annotations

from typing import Any

from pydantic_ai import Agent, UsageLimitExceeded, UsageLimits
from pydantic_ai.exceptions import UnexpectedModelBehavior
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider


async def run(task: dict[str, Any], base_url: str, api_key: str) -> float:
    """One episode: 1 for the right answer."""
    model = OpenAIChatModel("policy", provider=OpenAIProvider(base_url=base_url, api_key=api_key))
    agent = Agent(model)

    @agent.tool_plain(name="open")
    def open_box(box: int) -> str:
        """Open a box: the number in it."""
        return str(task["content"]) if box == task["box"] else "empty"

    try:
        found = await agent.run(task["prompt"][0]["content"], usage_limits=UsageLimits(request_limit=3))
    except (UsageLimitExceeded, UnexpectedModelBehavior):
        return 0.0
    return float(found.output.rpartition("answer: ")[2] == task["answer"])
