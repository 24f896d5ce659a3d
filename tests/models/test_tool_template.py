"""Tools in chat templates that write none: `--chat-template tools`."""

from __future__ import annotations

import json

import pytest

from burnish.core.types import Task
from burnish.envs.tools import parse_calls
from burnish.models.conversation import conversation_pieces, message_weights
from burnish.models.known_models import resolve
from burnish.models.load import load_chat
from burnish.models.template import Style, Template, read_template
from burnish.models.tool_template import with_tools
from burnish.run.warnings import unseen_tools
from burnish.tasks.data import Dataset

CALL = {"type": "function", "function": {"name": "add", "arguments": {"a": 1, "b": ["x", 2]}}}
TOOLS = [{"type": "function", "function": {"name": "add", "description": "Add.", "parameters": {"type": "object"}}}]
TALK = [
    {"role": "user", "content": "1+2?"},
    {"role": "assistant", "content": None, "tool_calls": [CALL, CALL]},
    {"role": "tool", "name": "add", "content": "3"},
    {"role": "tool", "name": "add", "content": "4"},
    {"role": "assistant", "content": "3"},
]
NO_SYSTEM = (
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
    "<{{ m.role }}>{{ m.content }}</s>{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)


@pytest.mark.parametrize("named", ["tools", "chatml+tools", "plain+tools"])
def test_calls_are_trained_on_as_the_environment_reads_them(named: str) -> None:
    chat = load_chat(resolve("tiny"), Style(read_template(named)))
    (pieces,) = conversation_pieces(chat, TALK, message_weights(TALK, "all"), TOOLS)
    said = [(chat.tokenizer.decode(p.tokens.tolist(), skip_special_tokens=False), p.weight) for p in pieces]
    trained = [text for text, weight in said if weight]
    calls = parse_calls(trained[0])
    assert [(call.name, call.arguments, call.problem) for call in calls] == [("add", {"a": 1, "b": ["x", 2]}, "")] * 2
    assert len(trained) == 2 and trained[1].startswith("3")
    assert json.dumps(TOOLS[0]) in said[0][0]
    results = said[2][0]
    assert results.count("<tool_response>\n3\n</tool_response>\n<tool_response>\n4\n</tool_response>") == 1


def test_without_tools_every_prompt_stays_as_it_was() -> None:
    own, tools = (load_chat(resolve("tiny"), Style(name)) for name in (None, "tools"))
    for prompt in ("Hi", ({"role": "system", "content": "S"}, *TALK[:1], TALK[-1], *TALK[:1])):
        task = Task("question", prompt, {}, "k")
        assert tools.prompt(task).tolist() == own.prompt(task).tolist()
    assert tools.reply("Ho").tolist() == own.reply("Ho").tolist()


def test_schemas_stand_in_the_system_message_or_before_the_first_question_where_there_is_none() -> None:
    kept = Template(with_tools(NO_SYSTEM, {}), {}).render(TALK[:1], True, TOOLS)
    assert kept.startswith("<user>You may call functions.") and kept.endswith("\n\n1+2?</s><assistant>")
    chat = load_chat(resolve("tiny"), Style("tools"))
    asked = Task("question", ({"role": "system", "content": "Be brief."}, *TALK[:1]), {"tools": TOOLS}, "k")
    text = chat.tokenizer.decode(chat.prompt(asked).tolist(), skip_special_tokens=False)
    assert text.startswith("<|system|>Be brief.\n\nYou may call functions.") and text.count("<|system|>") == 1


def test_a_template_that_writes_tools_stays_as_it_is() -> None:
    own = "{% for m in messages %}{{ m.content }}{{ m.tool_calls }}{% endfor %}"
    assert with_tools(own, {}) == own


def test_a_run_is_told_of_it_where_the_template_has_no_place_for_tools() -> None:
    data = Dataset([{"prompt": f"{i}", "tools": TOOLS, "answer": "1"} for i in range(3)])
    assert "--chat-template tools" in unseen_tools(data, load_chat(resolve("tiny")))
    assert unseen_tools(data, load_chat(resolve("tiny"), Style("tools"))) == ""
