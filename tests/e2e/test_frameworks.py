"""Agents of other frameworks through the endpoint, as their users write them. Skipped where one is not installed."""

from __future__ import annotations

import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import SMALL, build_cast
from guards import guards

from burnish.core.step import Step
from burnish.core.types import Clock, Turn
from burnish.methods.table import find
from burnish.models.known_models import TINY
from burnish.models.load import load_chat
from burnish.models.template import Style
from burnish.reward_functions.load import load_function
from burnish.rollout.hosted import hosted
from burnish.serve import ChatServer
from burnish.serve.conversation import Conversations
from burnish.serve.protocol import Answered, assistant_message, read_message
from burnish.tasks.table import source

pytestmark = guards("serve")

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
WITH_TOOLS = (
    "{% if tools %}<|user|>{{ tools | length }} tools<|end|>{% endif %}{% for m in messages %}{% if m.role == 'tool' %}"
    "<|user|><tool_response>{{ m.content }}</tool_response><|end|>{% else %}<|{{ m.role }}|>{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c | tojson }}</tool_call>{% endfor %}<|end|>{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


@pytest.mark.extras
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


@pytest.mark.parametrize(
    ("package", "function"),
    [("openai", "openai_tools.py:play"), pytest.param("langgraph", "langgraph_boxes.py:run", marks=pytest.mark.extras)],
)
def test_agents_with_a_tool_call_it_and_pay_for_the_answer(package: str, function: str) -> None:
    """The replies are given here, in a model's place. The wrong box is empty; the right one answers the question."""
    pytest.importorskip("openai")
    pytest.importorskip(package)
    agent = load_function(str(EXAMPLES / function), "agent")
    boxes = sys.modules[load_function(f"{EXAMPLES / 'openai_tools.py'}:question", "function").__module__]
    row, chat = boxes.question(384, 5, 30), load_chat(TINY, Style(boxes.TEMPLATE))
    call = '{"name": "open", "arguments": {"box": %d}}'
    for texts, paid in (
        ([call % 384, "30+5=35\nanswer: 35"], 1.0),
        ([call % 383, call % 384, "answer: 34"], 0.0),
        (["answer: 3"], 0.0),
    ):
        talk, server = Conversations(chat), ChatServer()
        thread = threading.Thread(target=answer_with, args=(texts, talk, server))
        thread.start()
        url, key = server.base_url(server.open()), server.token
        if package == "openai":
            with boxes.openai.OpenAI(base_url=url, api_key=key, max_retries=0) as client:
                found = agent(client, row)
        else:
            found = agent(row, url, key)
        thread.join(60)
        server.end()
        [one] = talk.all
        answers = [chat.tokenizer.decode(turn.tokens) for turn in one.turns if turn.author == "env"]
        opened = ["30" if "384" in text else "empty" for text in texts[:-1]]
        assert found == paid and talk.restarts == 0
        assert answers == [f"<|user|>{box}<|end|><|assistant|>" for box in opened]


def answer_with(texts: list[str], talk: Conversations, server: ChatServer) -> None:
    """Answer the questions of a session with these texts, as a model would."""
    for text in texts:
        question = server.questions.get(timeout=60)
        conversation = talk.at(question.asked)
        tokens = talk.chat.reply(text)
        answered = Answered(text, "stop", tokens.tolist(), [0.0] * len(tokens), [], [])
        message = read_message(assistant_message(answered, question.asked)[0])
        conversation.replied(Turn(tokens, "policy", parent=conversation.turns[-1]), message)
        question.answer.put(answered)


def test_a_tool_call_of_langgraph_goes_on_from_its_own_tokens() -> None:
    """The replies are given here, in a model's place: a call, then the answer. The client is LangGraph's."""
    pytest.importorskip("langgraph")
    pytest.importorskip("langchain_openai")
    agent = load_function(f"{EXAMPLES / 'langgraph_agent.py'}:run", "agent")
    chat = load_chat(TINY, Style(WITH_TOOLS))
    talk, server = Conversations(chat), ChatServer()
    session = server.open()
    texts = ['<tool_call>{"name": "add", "arguments": {"a": 2, "b": 3}}</tool_call>', "It is 5."]
    thread = threading.Thread(target=answer_with, args=(texts, talk, server))
    thread.start()
    agent({"prompt": [{"role": "user", "content": "2 + 3?"}]}, server.base_url(session), server.token)
    thread.join(60)
    server.end()
    [conversation] = talk.all
    assert talk.restarts == 0 and [turn.author for turn in conversation.turns] == ["task", "policy", "env", "policy"]
    assert "<tool_response>5</tool_response>" in chat.tokenizer.decode(conversation.turns[2].tokens)
