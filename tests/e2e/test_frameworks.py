"""Agents of other frameworks through the endpoint, as their users write them. Skipped where one is not installed."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import SMALL, build_cast

from burnish.methods.table import find
from burnish.models.known_models import TINY
from burnish.models.load import load_chat
from burnish.models.template import Style
from burnish.rewards.load import load_function
from burnish.rollout.hosted import hosted
from burnish.serve import ChatServer
from burnish.serve.conversation import Conversations
from burnish.serve.protocol import Answered, assistant_message, read_message
from burnish.step import Step
from burnish.tasks.table import source
from burnish.types import Clock, Turn

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
WITH_TOOLS = (
    "{% if tools %}<|user|>{{ tools | length }} tools<|end|>{% endif %}{% for m in messages %}{% if m.role == 'tool' %}"
    "<|user|><tool_response>{{ m.content }}</tool_response><|end|>{% else %}<|{{ m.role }}|>{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c | tojson }}</tool_call>{% endfor %}<|end|>{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def test_an_agent_of_langgraph_is_recorded_token_by_token() -> None:
    pytest.importorskip("langgraph")
    pytest.importorskip("langchain_openai")
    agent = load_function(f"{EXAMPLES / 'langgraph_agent.py'}:run", "agent")
    models = build_cast(find("grpo").build(source("add"), n=2), TINY)
    step = Step(Clock(0, 1), models, replace(SMALL, max_new_tokens=24, turns=4, env_timeout=60.0))
    [group] = hosted(agent, 4, paid=False).call([source("add").task("train", 0)], step)
    assert "env_failures" not in step.notes.values() and step.notes.values()["restarts"] == 0
    assert len(group.traces) == 4
    for trace in group.traces:
        assert trace.turns[-1].author == "policy" and trace.turns[-1].logp is not None


def test_a_tool_call_of_langgraph_goes_on_from_its_own_tokens() -> None:
    """The replies are given here, in a model's place: a call, then the answer. The client is LangGraph's."""
    pytest.importorskip("langgraph")
    pytest.importorskip("langchain_openai")
    agent = load_function(f"{EXAMPLES / 'langgraph_agent.py'}:run", "agent")
    chat = load_chat(TINY, Style(WITH_TOOLS))
    talk, server = Conversations(chat), ChatServer()
    session = server.open()
    texts = ['<tool_call>{"name": "add", "arguments": {"a": 2, "b": 3}}</tool_call>', "It is 5."]

    def answer() -> None:
        for text in texts:
            question = server.questions.get(timeout=60)
            conversation = talk.at(question.asked)
            tokens = chat.reply(text)
            answered = Answered(text, "stop", tokens.tolist(), [0.0] * len(tokens), [], [])
            message = read_message(assistant_message(answered, question.asked)[0])
            conversation.replied(Turn(tokens, "policy", parent=conversation.turns[-1]), message)
            question.answer.put(answered)

    thread = threading.Thread(target=answer)
    thread.start()
    agent({"prompt": [{"role": "user", "content": "2 + 3?"}]}, server.base_url(session), server.token)
    thread.join(60)
    server.end()
    [conversation] = talk.all
    assert talk.restarts == 0 and [turn.author for turn in conversation.turns] == ["task", "policy", "env", "policy"]
    assert "<tool_response>5</tool_response>" in chat.tokenizer.decode(conversation.turns[2].tokens)
