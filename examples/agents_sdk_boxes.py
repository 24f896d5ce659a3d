"""The agent of openai_tools.py on the Agents SDK of OpenAI (which speaks the Responses API), trained as it is:

    pip install openai-agents
    burnish train grpo --model boxes/sft/model --task boxes/questions.jsonl --agent examples/agents_sdk_boxes.py:run \\
        --agent-pays --steps 8 --prompts 8 --lr 2e-4 --max-new-tokens 48

The model and the questions are made by the first commands of openai_tools.py. burnish calls `run` for each episode; the
tool and the reward are the agent's own.
"""

from __future__ import annotations

from typing import Any

from agents import Agent, MaxTurnsExceeded, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled
from openai import AsyncOpenAI

set_tracing_disabled(True)


async def run(task: dict[str, Any], base_url: str, api_key: str) -> float:
    """One episode: 1 for the right answer."""

    @function_tool(name_override="open")
    def open_box(box: int) -> str:
        """Open a box: the number in it."""
        return str(task["content"]) if box == task["box"] else "empty"

    async with AsyncOpenAI(base_url=base_url, api_key=api_key, max_retries=0) as client:
        agent = Agent(name="boxes", model=OpenAIResponsesModel("policy", openai_client=client), tools=[open_box])
        try:
            found = await Runner.run(agent, task["prompt"][0]["content"], max_turns=3)
        except MaxTurnsExceeded:
            return 0.0
    return float(str(found.final_output).rpartition("answer: ")[2] == task["answer"])
