"""The endpoint with the real clients of OpenAI and Anthropic, and the embedded model that answers."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

import pydantic
import pytest
import torch
from conftest import SMALL

from burnish.core.step import Step
from burnish.core.types import Clock, Task, Trace
from burnish.methods.table import find
from burnish.models.build import build
from burnish.models.known_models import TINY
from burnish.models.template import Style, read_template
from burnish.rollout.asking import Asker, answer, waiting
from burnish.serve import ChatServer, Session
from burnish.tasks.table import source

openai = pytest.importorskip("openai")
GREEDY = {"temperature": 0}  # a field that the newest client of Anthropic does not name
ASK = [{"role": "user", "content": "12 + 3?"}]
TOOL = {"type": "function", "function": {"name": "look", "description": "Look.", "parameters": {
    "type": "object", "properties": {"at": {"enum": ["door", "wall"]}}, "required": ["at"]}}}  # fmt: skip


class Served:
    """A server whose questions the embedded model answers in a thread, as `burnish serve` does."""

    def __init__(self) -> None:
        roles = find("grpo").build(source("add"), n=2).models
        models = build(roles, TINY, SMALL, device="cpu", style=Style(read_template("tools")))
        self.step = Step(Clock(0, 1), models, replace(SMALL, max_new_tokens=96, turns=1000))
        self.server = ChatServer("tiny", strict=True)
        self.over = False
        self.thread = threading.Thread(target=self._answer, daemon=True)
        self.thread.start()
        self.default: Any = None

    def _answer(self) -> None:
        while not self.over:
            answer(self.server, waiting(self.server, 0.05), self.step)

    def session(self) -> Session:
        session = self.server.open()
        session.state = Asker(self.step, Task("question", "", {}, session.id), 0)
        return session

    def openai(self, session: Session) -> Any:
        url, key = self.server.base_url(session), self.server.token
        return openai.OpenAI(base_url=url, api_key=key, max_retries=0, timeout=60)


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    one = Served()
    yield one
    one.over = True
    one.thread.join(30)
    one.server.end()


@pytest.fixture
def session(served: Served) -> Session:
    return served.session()


@pytest.fixture
def client(served: Served, session: Session) -> Any:
    return served.openai(session)


def ask(client: Any, **more: Any) -> Any:
    return client.chat.completions.create(model="tiny", messages=ASK, **more)


def test_several_replies_seeds_stops_and_penalties(client: Any, session: Session) -> None:
    several = ask(client, n=3, seed=5, max_tokens=8)
    texts = [choice.message.content for choice in several.choices]
    assert [choice.index for choice in several.choices] == [0, 1, 2]
    assert several.usage.completion_tokens == sum(len(choice.token_ids) for choice in several.choices)
    assert len(session.state.talk.all) == 3 and session.state.talk.restarts == 0
    again = ask(client, n=3, seed=5, max_tokens=8)
    assert [choice.message.content for choice in again.choices] == texts
    assert len(set(texts)) > 1  # of one request, every reply has noise of its own
    greedy = ask(client, temperature=0).choices[0].message.content
    stop = greedy[2:5]
    cut = ask(client, temperature=0, stop=[stop, "never"]).choices[0]
    assert cut.message.content == greedy[: greedy.index(stop)] and cut.finish_reason == "stop"
    tokens = ask(client, temperature=0, frequency_penalty=2.0, presence_penalty=2.0).choices[0].token_ids
    plain = ask(client, temperature=0).choices[0].token_ids
    assert tokens != plain and len(set(tokens)) / len(tokens) >= len(set(plain)) / len(plain)


def test_likeliest_tokens_are_those_of_the_model(client: Any, served: Served, session: Session) -> None:
    choice = ask(client, temperature=0, logprobs=True, top_logprobs=3, max_tokens=5).choices[0]
    for one in choice.logprobs.content:
        tops = [top.logprob for top in one.top_logprobs]
        assert len(tops) == 3 and tops == sorted(tops, reverse=True)
        assert tops[0] == pytest.approx(one.logprob, abs=1e-4)  # a greedy token is the likeliest


def test_a_streamed_reply_arrives_token_by_token(client: Any, served: Served) -> None:
    whole = ask(client, temperature=0).choices[0].message.content
    begun = threading.Event()
    pieces, times = [], []
    for event in ask(client, temperature=0, stream=True, stream_options={"include_usage": True}):
        begun.set()
        if event.choices and event.choices[0].delta.content:
            pieces.append(event.choices[0].delta.content)
            times.append(time.monotonic())
    assert "".join(pieces) == whole and len(pieces) > 3
    assert event.choices == [] and event.usage.completion_tokens > 3


class Verdict(pydantic.BaseModel):
    """A structured answer."""

    answer: Literal["yes", "no"]
    sure: bool


def test_a_schema_holds_the_reply_and_the_trainer_has_the_same_support(
    client: Any, served: Served, session: Session
) -> None:
    found = client.chat.completions.parse(model="tiny", messages=ASK, response_format=Verdict).choices[0].message.parsed
    assert isinstance(found, Verdict)
    [conversation] = session.state.talk.all
    turn = conversation.turns[-1]
    assert turn.allowed is not None and turn.settings.as_drawn
    mask = torch.zeros(sum(map(len, conversation.turns)), dtype=torch.bool)
    mask[-len(turn) :] = True
    policy = served.step.models["policy"]
    [streams] = policy.streams([Trace(tuple(conversation.turns))], [mask], {"logp"}, 1000)
    assert torch.allclose(streams["logp"][mask], turn.logp, atol=1e-4)
    assert turn.logp[turn.allowed.sizes == 1].abs().max() < 1e-6  # where one token is allowed, it is certain
    anything = ask(client, response_format={"type": "json_object"}, stop="}", max_tokens=24).choices[0]
    assert anything.message.content.startswith("{")
    with pytest.raises(openai.BadRequestError, match="'pattern', which decoding cannot hold to"):
        ask(client, response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": {
            "type": "string", "pattern": "a"}}})  # fmt: skip


def test_a_tool_can_be_required_and_forbidden(client: Any) -> None:
    for choice in ("required", {"type": "function", "function": {"name": "look"}}):
        found = ask(client, tools=[TOOL], tool_choice=choice).choices[0]
        [call] = found.message.tool_calls
        assert found.finish_reason == "tool_calls" and call.function.name == "look"
        assert json.loads(call.function.arguments)["at"] in ("door", "wall")
    streamed = list(ask(client, tools=[TOOL], tool_choice="required", stream=True))
    calls = [
        event.choices[0].delta.tool_calls for event in streamed if event.choices and event.choices[0].delta.tool_calls
    ]
    assert len(calls) == 1 and not any(event.choices[0].delta.content for event in streamed if event.choices)
    assert ask(client, tools=[TOOL], tool_choice="none").choices[0].message.tool_calls is None
    with pytest.raises(openai.BadRequestError, match="must be auto, none, required or one of the tools"):
        ask(client, tools=[TOOL], tool_choice={"type": "function", "function": {"name": "other"}})


def test_a_model_that_is_not_there_is_refused(client: Any) -> None:
    with pytest.raises(openai.NotFoundError, match="there is no model 'gpt-9' here; there is 'tiny'"):
        client.chat.completions.create(model="gpt-9", messages=ASK)


def test_responses_of_the_openai_client(client: Any, session: Session) -> None:
    first = client.responses.create(model="tiny", input="12 + 3?", temperature=0, instructions="Add.")
    assert first.status in ("completed", "incomplete") and first.output_text
    more = client.responses.create(model="tiny", input="and 4?", previous_response_id=first.id, instructions="Add.")
    assert more.output_text is not None and session.state.talk.restarts == 0
    assert [turn.author for turn in session.state.talk.all[0].turns] == ["task", "policy", "env", "policy"]
    tool = {"type": "function", **TOOL["function"]}  # type: ignore[dict-item]
    called = client.responses.create(model="tiny", input="Look.", tools=[tool], tool_choice="required")
    [call] = [item for item in called.output if item.type == "function_call"]
    items: list[Any] = [{"role": "user", "content": "Look."}, *called.output]
    items.append({"type": "function_call_output", "call_id": call.call_id, "output": "a cat"})
    client.responses.create(model="tiny", input=items, tools=[tool])
    last = session.state.talk.all[-1]
    assert session.state.talk.restarts == 1 and [turn.author for turn in last.turns][-2:] == ["env", "policy"]
    parsed = client.responses.parse(model="tiny", input="Well?", text_format=Verdict).output_parsed
    assert isinstance(parsed, Verdict)
    text, done = "", None
    for event in client.responses.create(
        model="tiny", input="12 + 3?", temperature=0, instructions="Add.", stream=True
    ):
        text += event.delta if event.type == "response.output_text.delta" else ""
        done = event
    assert done.type in ("response.completed", "response.incomplete") and text == first.output_text
    with pytest.raises(openai.BadRequestError, match="is not known here"):
        client.responses.create(model="tiny", input="?", previous_response_id="resp_1")


def test_prompts_of_text_and_tokens_have_log_probs(client: Any, served: Served, session: Session) -> None:
    chat = served.step.models["policy"].chat
    found = client.completions.create(model="tiny", prompt="12+3=", max_tokens=4, echo=True, logprobs=2, temperature=0)
    choice = found.choices[0]
    prompt = chat.plain("12+3=")
    assert choice.text.startswith("12+3=") and choice.logprobs.token_logprobs[0] is None
    assert len(choice.logprobs.token_logprobs) == len(prompt) + len(choice.token_ids)
    mask = torch.ones(len(prompt), dtype=torch.bool)
    mask[0] = False
    turn = replace(session.state.talk.all[-1].turns[0], author="policy")
    [streams] = served.step.models["policy"].streams([Trace((turn,))], [mask], {"logp"}, 1000, 1.0)
    assert choice.logprobs.token_logprobs[1 : len(prompt)] == pytest.approx(streams["logp"][1:].tolist(), abs=1e-4)
    ids = [*prompt.tolist(), *choice.token_ids]
    client.completions.create(model="tiny", prompt=[*ids, *chat.plain(" 5").tolist()], max_tokens=3)
    assert [turn.author for turn in session.state.talk.all[-1].turns] == ["task", "policy", "env", "policy"]


def test_messages_of_the_anthropic_client(served: Served, session: Session) -> None:
    anthropic = pytest.importorskip("anthropic")
    url = served.server.base_url(session).removesuffix("/v1")
    for base in (url, served.server.base_url(session)):
        client = anthropic.Anthropic(base_url=base, api_key=served.server.token, max_retries=0)
        found = client.messages.create(model="tiny", max_tokens=12, messages=ASK, extra_body=GREEDY, system="Add.")
        assert found.content[0].type == "text" and found.stop_reason in ("end_turn", "max_tokens")
    with client.messages.stream(model="tiny", max_tokens=12, messages=ASK, extra_body=GREEDY, system="Add.") as stream:
        assert "".join(stream.text_stream) == found.content[0].text
    tool = {"name": "look", "description": "Look.", "input_schema": TOOL["function"]["parameters"]}  # type: ignore[index]
    said: dict[str, Any] = {"model": "tiny", "max_tokens": 96, "tools": [tool]}
    called = client.messages.create(**said, messages=ASK, tool_choice={"type": "any"})
    assert called.stop_reason == "tool_use"
    [use] = [block for block in called.content if block.type == "tool_use"]
    assert use.input["at"] in ("door", "wall")
    result = {"type": "tool_result", "tool_use_id": use.id, "content": [{"type": "text", "text": "a cat"}]}
    before = session.state.talk.restarts
    client.messages.create(
        **said, messages=[*ASK, {"role": "assistant", "content": called.content}, {"role": "user", "content": [result]}]
    )
    assert session.state.talk.restarts == before  # it goes on from the call's own tokens
    stop = found.content[0].text[1:3]
    cut = client.messages.create(
        model="tiny", max_tokens=12, messages=ASK, extra_body=GREEDY, system="Add.", stop_sequences=[stop]
    )
    assert (cut.stop_reason, cut.stop_sequence) == ("stop_sequence", stop)
    with pytest.raises(anthropic.AuthenticationError):
        anthropic.Anthropic(base_url=url, api_key="wrong", max_retries=0).messages.create(
            model="tiny", max_tokens=2, messages=ASK
        )
