"""Every field of an answer, whole and streamed, from known tokens; and which conversation a request goes on from."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from burnish.core.types import Turn
from burnish.models.known_models import resolve
from burnish.models.load import load_chat
from burnish.serve.conversation import Conversation, Conversations
from burnish.serve.protocol import Answered, Asked, chunks, completion

HELLO = Answered("Hello you", "stop", [11, 12, 13], [-0.5, -0.25, -1.0], [1, 2, 3, 4, 5], ["Hello", " you", "<end>"])
CALL = '<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>'
CALLS = Answered(f"I add. {CALL}", "stop", [7, 8], [-1.0, -2.0], [9], ["x", "y"])
TOOLS = ({"type": "function", "function": {"name": "add", "parameters": {}}},)
QUESTION = ({"role": "user", "content": "?"},)


def asked(**more: Any) -> Asked:
    return Asked(QUESTION, **more)


def head_of(found: dict[str, Any], kind: str, model: str) -> None:
    assert found["object"] == kind and found["model"] == model
    assert re.fullmatch(r"chatcmpl-[0-9a-f]{32}", found["id"]) and found["created"] > 1.7e9


def test_every_field_of_a_whole_answer() -> None:
    """5 tokens are read, 3 written: no two of the three counts are equal."""
    found = completion([HELLO], asked(logprobs=True, model="m"))
    head_of(found, "chat.completion", "m")
    assert found.keys() == {"id", "object", "created", "model", "choices", "usage", "prompt_token_ids"}
    assert found["usage"] == {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}
    assert found["prompt_token_ids"] == [1, 2, 3, 4, 5]
    assert found["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Hello you"},
            "finish_reason": "stop",
            "token_ids": [11, 12, 13],
            "logprobs": {
                "content": [
                    {"token": "Hello", "logprob": -0.5, "bytes": [*b"Hello"], "top_logprobs": []},
                    {"token": " you", "logprob": -0.25, "bytes": [*b" you"], "top_logprobs": []},
                    {"token": "<end>", "logprob": -1.0, "bytes": [*b"<end>"], "top_logprobs": []},
                ]
            },
        }
    ]
    plain = completion([HELLO], asked())
    assert "logprobs" not in plain["choices"][0] and plain["model"] == "burnish"


def test_every_field_of_a_streamed_answer() -> None:
    found = list(chunks([HELLO], asked(stream=True, model="m")))
    assert len({chunk["id"] for chunk in found}) == 1
    for chunk in found:
        head_of(chunk, "chat.completion.chunk", "m")
        assert [choice["index"] for choice in chunk["choices"]] == [0]
    assert [chunk["choices"][0]["delta"] for chunk in found] == [
        {"role": "assistant", "content": ""},
        {"content": "Hello you"},
        {},
    ]
    assert [chunk["choices"][0]["finish_reason"] for chunk in found] == [None, None, "stop"]
    assert [chunk.get("usage") for chunk in found[:-1]] == [None, None]
    assert found[-1]["usage"] == {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}
    assert found[-1]["token_ids"] == [11, 12, 13]


@pytest.mark.parametrize(
    ("answered", "tools", "reason"),
    [
        (HELLO, (), "stop"),
        (Answered("Hel", "length", [11], [-0.5], [1, 2], ["Hel"]), (), "length"),
        (CALLS, TOOLS, "tool_calls"),
        (CALLS, (), "stop"),
        (Answered(CALLS.text, "length", [7], [-1.0], [9], ["x"]), (), "length"),
    ],
)
def test_a_streamed_answer_is_the_whole_one_in_pieces(
    answered: Answered, tools: tuple[dict[str, Any], ...], reason: str
) -> None:
    request = asked(tools=tools)
    whole, pieces = completion([answered], request), list(chunks([answered], request))
    choice = whole["choices"][0]
    assert choice["finish_reason"] == reason == pieces[-1]["choices"][0]["finish_reason"]
    assert all(piece["choices"][0]["finish_reason"] is None for piece in pieces[:-1])
    assert pieces[-1]["usage"] == whole["usage"] and pieces[-1]["token_ids"] == choice["token_ids"]
    joined: dict[str, Any] = {"role": "", "content": "", "tool_calls": []}
    for piece in pieces:
        delta = piece["choices"][0]["delta"]
        joined = {key: value + delta.get(key, type(value)()) for key, value in joined.items()}
    message = choice["message"]
    assert (joined["role"], joined["content"]) == (message["role"], message["content"] or "")
    calls = [{key: value for key, value in call.items() if key != "index"} for call in joined["tool_calls"]]
    assert calls == message.get("tool_calls", [])
    assert [call["index"] for call in joined["tool_calls"]] == list(range(len(calls)))


def test_the_fields_of_a_tool_call() -> None:
    message = completion([CALLS], asked(tools=TOOLS))["choices"][0]["message"]
    call = message["tool_calls"][0]
    assert message["content"] == "I add." and call.keys() == {"id", "type", "function"} and call["id"]
    assert call["type"] == "function" and call["function"] == {"name": "add", "arguments": json.dumps({"a": 1})}


# --------------------------------------------------------------------------------------------------- conversations


def chat(*texts: str) -> tuple[dict[str, str], ...]:
    """Messages of user and assistant in turn."""
    return tuple({"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(texts))


def replied(conversations: Conversations, messages: Sequence[dict[str, str]], word: str, token: int) -> Conversation:
    found = conversations.at(Asked(tuple(messages)))
    said = Turn(torch.tensor([token]), "policy", parent=found.turns[-1])
    found.replied(said, {"role": "assistant", "content": word})
    return found


def test_conversations_of_equally_many_messages_are_not_mixed() -> None:
    """Three clients in one session, each with a question, the same reply and a next question, in another order: each
    goes on from its own tokens, and a fourth with another history begins anew."""
    talk = Conversations(load_chat(resolve("tiny")))
    first = {name: replied(talk, chat(f"{name}?"), "same", token) for token, name in enumerate("abc", 20)}
    assert len(talk.all) == 3 and talk.restarts == 2
    for name in "bca":
        found = talk.at(Asked(chat(f"{name}?", "same", f"{name} again?")))
        assert found is first[name] and [turn.author for turn in found.turns] == ["task", "policy", "env"]
        assert found.turns[1].tokens.tolist() == [20 + "abc".index(name)]
        assert f"{name} again?" in talk.chat.text(found.turns[2].tokens)
        found.replied(Turn(torch.tensor([30]), "policy", parent=found.turns[-1]), {"role": "assistant", "content": "x"})
    other = talk.at(Asked(chat("d?", "same", "d again?")))
    assert other not in first.values() and len(other.turns) == 1 and talk.restarts == 3
    changed = talk.at(Asked(chat("a?", "another", "a again?", "x", "more?")))
    assert changed not in first.values() and len(changed.turns) == 1


def test_a_conversation_that_waits_for_its_reply_is_not_gone_on_from() -> None:
    """Two requests with one history at once: the second begins a conversation of its own; so does one with more."""
    talk = Conversations(load_chat(resolve("tiny")))
    replied(talk, chat("a?"), "x", 20)
    one, two = (talk.at(Asked(chat("a?", "x", more))) for more in ("b?", "c?"))
    assert one is not two and (len(one.turns), len(two.turns)) == (3, 1)
    more = talk.at(Asked((*chat("a?", "x", "b?"), {"role": "user", "content": "well?"})))
    assert more not in (one, two) and len(more.turns) == 1 and len(one.turns) == 3
