"""Agents of other packages, as their users write them, trained through the endpoint: nothing in them is changed.

Each is given a base URL and a key and asks the embedded model, which was never told of their formats: what counts is
that every request is answered, and that each reply is recorded with its tokens and log-probs when it is sampled.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pydantic
import pytest
from conftest import SMALL, build_cast

from burnish.core.step import Step
from burnish.core.types import Clock, Group
from burnish.methods.table import find
from burnish.models.known_models import TINY
from burnish.rollout.hosted import hosted
from burnish.tasks.table import source

pytestmark = pytest.mark.extras
Agent = Callable[[dict[str, Any], str, str], Any]


class Verdict(pydantic.BaseModel):
    """A structured answer."""

    answer: Literal["yes", "no"]


@pytest.fixture(scope="session")
def long_tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The embedded model with room for the prompts of agents. It understands nothing beyond the 512 tokens that it was
    trained on; what is tested here needs no understanding."""
    folder = tmp_path_factory.mktemp("long") / "tiny"
    shutil.copytree(TINY, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 16384}))
    return folder


def question(task: dict[str, Any]) -> str:
    return str(task["prompt"] if isinstance(task["prompt"], str) else task["prompt"][-1]["content"])


def played(agent: Agent, *, model: Path = TINY, **more: Any) -> Group:
    """Two episodes of an agent, all of whose replies were recorded."""
    models = build_cast(find("grpo").build(source("add"), n=2), model)
    settings = replace(SMALL, **{"max_new_tokens": 64, "turns": 8, "env_timeout": 240.0, **more})
    step = Step(Clock(0, 1), models, settings)
    [group] = hosted(agent, 2).call([source("add").task("train", 0)], step)
    assert "env_failures" not in step.notes.values(), [trace.note for trace in group.traces]
    assert len({trace.index for trace in group.traces}) == len(group.traces) >= 2
    for trace in group.traces:
        said = [turn for turn in trace.turns if turn.author == "policy"]
        assert said and all(turn.logp is not None and len(turn.logp) == len(turn) for turn in said)
    return group


def test_smolagents_code_agent(long_tiny: Path) -> None:
    smolagents = pytest.importorskip("smolagents")

    def run(task: dict[str, Any], base_url: str, api_key: str) -> float:
        model = smolagents.OpenAIServerModel("policy", api_base=base_url, api_key=api_key)
        agent = smolagents.CodeAgent(tools=[], model=model, max_steps=2, verbosity_level=0)
        return float(bool(agent.run(question(task))))

    played(run, model=long_tiny)


def test_smolagents_tool_calling_agent_always_calls_a_tool(long_tiny: Path) -> None:
    """It asks for tool_choice "required", to which decoding is held: a model that knows no tools calls them."""
    smolagents = pytest.importorskip("smolagents")
    called: list[int] = []

    @smolagents.tool
    def look(at: int) -> int:
        """Look at a place.

        Args:
            at: The place.
        """
        called.append(at)
        return at

    def run(task: dict[str, Any], base_url: str, api_key: str) -> float:
        model = smolagents.OpenAIServerModel("policy", api_base=base_url, api_key=api_key)
        agent = smolagents.ToolCallingAgent(tools=[look], model=model, max_steps=2, verbosity_level=0)
        agent.run(question(task))
        steps = [step for step in agent.memory.steps if getattr(step, "tool_calls", None)]
        return float(len(steps))

    group = played(run, model=long_tiny)
    assert sum(trace.scores["reward"] for trace in group.traces) > 0


def test_openai_agents_by_their_default_the_responses_api() -> None:
    agents = pytest.importorskip("agents")
    openai = pytest.importorskip("openai")

    def run(task: dict[str, Any], base_url: str, api_key: str) -> float:
        client = openai.AsyncOpenAI(base_url=base_url, api_key=api_key, max_retries=0)
        model = agents.OpenAIResponsesModel(model="policy", openai_client=client)

        @agents.function_tool
        def add(a: int, b: int) -> int:
            """Add."""
            return a + b

        agents.set_tracing_disabled(True)
        agent = agents.Agent(name="a", instructions="Answer.", model=model, tools=[add])

        async def talk() -> str:
            first = await agents.Runner.run(agent, question(task), max_turns=3)
            more = await agents.Runner.run(agent, [*first.to_input_list(), {"role": "user", "content": "Sure?"}])
            return str(more.final_output)

        return float(bool(asyncio.run(talk())))

    group = played(run)
    assert all(len([turn for turn in trace.turns if turn.author == "policy"]) == 2 for trace in group.traces)


def test_pydantic_ai_with_a_tool_and_a_structured_answer() -> None:
    pydantic_ai = pytest.importorskip("pydantic_ai")
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.output import NativeOutput
    from pydantic_ai.providers.openai import OpenAIProvider

    def run(task: dict[str, Any], base_url: str, api_key: str) -> float:
        model = OpenAIChatModel("policy", provider=OpenAIProvider(base_url=base_url, api_key=api_key))
        agent = pydantic_ai.Agent(model, output_type=NativeOutput(Verdict), system_prompt="Answer.")
        return float(agent.run_sync(question(task)).output.answer in ("yes", "no"))

    assert all(trace.scores["reward"] == 1.0 for trace in played(run).traces)


def test_structured_output_of_langchain() -> None:
    langchain = pytest.importorskip("langchain_openai")

    def run(task: dict[str, Any], base_url: str, api_key: str) -> float:
        model = langchain.ChatOpenAI(model="policy", base_url=base_url, api_key=api_key, max_retries=0)
        by_schema = model.with_structured_output(Verdict)
        by_call = model.with_structured_output(Verdict, method="function_calling")
        found = [one.invoke(question(task)) for one in (by_schema, by_call)]
        return float(sum(isinstance(one, Verdict) for one in found))

    assert all(trace.scores["reward"] == 2.0 for trace in played(run).traces)


def test_langgraph_streams_by_anthropics_protocol() -> None:
    pytest.importorskip("langgraph")
    anthropic = pytest.importorskip("langchain_anthropic")

    def run(task: dict[str, Any], base_url: str, api_key: str) -> float:
        model = anthropic.ChatAnthropic(
            model="policy", base_url=base_url, api_key=api_key, max_tokens=16, max_retries=0
        )
        pieces = [str(piece.content) for piece in model.stream(question(task))]
        return float(len(pieces))

    assert all(trace.scores["reward"] > 1 for trace in played(run).traces)
