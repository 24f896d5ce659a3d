"""Replies that are held to JSON: the grammar of a schema, and the tokens that it allows."""

from __future__ import annotations

import json
import random
from typing import Any

import pydantic
import pytest
import torch

from burnish.models.chat import Chat
from burnish.models.known_models import TINY
from burnish.models.load import load_chat
from burnish.serve.asked import Asked
from burnish.serve.constraint import Constraints, Framed, JsonConstraint
from burnish.serve.json_grammar import Grammar, after_text

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer"},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 2},
        "more": {"anyOf": [{"type": "number"}, {"type": "null"}]},
    },
    "required": ["name", "more"],
    "additionalProperties": False,
}


def accepts(schema: object, text: str) -> bool:
    return None in after_text(Grammar(schema).start, text)


@pytest.mark.parametrize(
    ("schema", "right", "wrong"),
    [
        ({"type": "integer"}, ["0", "-12", "907"], ["01", "1.0", "", "-", "+1", "1e3"]),
        ({"type": "number"}, ["0", "-1.5", "2e10", "3.25E-2"], [".5", "1.", "1e", "NaN", "--1"]),
        ({"type": "string"}, ['""', '"a\\n\\u00e9"', '"é"'], ['"', '"a\n"', "'a'", '"\\x"', '"\\ud800"']),
        ({"type": "boolean"}, ["true", "false"], ["True", "tru", "null"]),
        ({"enum": ["a", 1, None]}, ['"a"', "1", "null"], ["a", '"1"', "2"]),
        ({"type": ["integer", "null"]}, ["3", "null"], ['"3"']),
        ({"type": "array", "items": {"type": "integer"}, "minItems": 2}, ["[1,2]", "[1, 2, 3]"], ["[]", "[1]"]),
        ({"type": "string", "minLength": 1, "maxLength": 2}, ['"a"', '"ab"'], ['""', '"abc"']),
        (PERSON, ['{"name": "x", "more": 1}', '{"name":"x","age":3,"tags":["a","b"],"more":null}'],
         ['{"name": "x"}', '{"more": 1, "name": "x"}', '{"name": "x", "more": 1, "z": 2}',
          '{"name":"x","tags":["c"],"more":1}', '{"name":"x","tags":["a","b","a"],"more":1}']),
        ({"$ref": "#/$defs/T", "$defs": {"T": {"type": "object", "properties": {
            "left": {"anyOf": [{"$ref": "#/$defs/T"}, {"type": "null"}]}}, "required": ["left"]}}},
         ['{"left": null}', '{"left": {"left": null}}'], ['{"left": 3}', "{}"]),
        ({}, ['{"a": [1, {"b": "c"}]}', "[]", "{}", "3"], ["{,}", "[1,]", "a"]),
        ({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
         ["{}", '{"a": 1}', '{"b": 1}', '{"a": 1, "b": 2}'], ['{"b": 1, "a": 2}', '{, "b": 1}']),
    ],
)  # fmt: skip
def test_a_grammar_takes_what_its_schema_allows(schema: object, right: list[str], wrong: list[str]) -> None:
    for text in right:
        json.loads(text)
        assert accepts(schema, text), text
    for text in wrong:
        assert not accepts(schema, text), text


def test_what_a_grammar_cannot_hold_is_refused() -> None:
    for schema, why in (
        ({"type": "string", "pattern": "a+"}, "'pattern', which decoding cannot hold to"),
        ({"$ref": "#/$defs/X"}, "which it does not define"),
        ({"type": "text"}, "the type 'text', which JSON has not"),
        ({"allOf": [{}, {}]}, "'allOf' with several parts"),
        ({"type": "array", "items": 3}, "a JSON schema must be an object"),
    ):
        with pytest.raises(ValueError, match=why):
            Grammar(schema)


@pytest.fixture(scope="module")
def chat() -> Chat:
    return load_chat(TINY)


def random_reply(chat: Chat, constraint: JsonConstraint | Framed, seed: int) -> list[int]:
    """Tokens drawn with equal weight among those that are allowed, up to a stop token."""
    dice, tokens = random.Random(seed), list[int]()
    while not tokens or tokens[-1] not in chat.stops:
        allowed = constraint.mask(tokens).nonzero()[:, 0].tolist()
        stops = [token for token in allowed if token in chat.stops]
        tokens.append(stops[0] if stops and dice.random() < 0.5 else dice.choice(allowed))
        assert len(tokens) < 3000
    return tokens


@pytest.mark.parametrize("schema", [{"type": "integer"}, {"enum": ["red", "blue"]}, PERSON])
def test_whatever_is_drawn_among_the_allowed_tokens_is_json_by_the_schema(chat: Chat, schema: dict[str, Any]) -> None:
    for seed in range(5):
        constraint = Constraints().of(chat, {**schema, "$defs": {}})
        if schema is PERSON:  # strings as long as they please do not end by chance
            short = {"type": "string", "maxLength": 3}
            constraint = Constraints().of(chat, {**PERSON, "properties": {**PERSON["properties"], "name": short}})  # type: ignore[dict-item]
        text = chat.text(torch.tensor(random_reply(chat, constraint, seed)))
        value = json.loads(text)
        if schema is PERSON:
            model = pydantic.create_model(
                "M", name=(str, ...), age=(int, 0), tags=(list[str], []), more=(float | None, ...)
            )
            model.model_validate(value, strict=True)
        else:
            assert value in ("red", "blue") if "enum" in schema else isinstance(value, int)


def test_a_token_is_allowed_exactly_where_the_text_with_it_can_still_become_right(chat: Chat) -> None:
    """Against the definition, token by token: the text so far with the token's own has a state."""
    constraint, grammar = Constraints().of(chat, PERSON), Grammar(PERSON)
    pieces = chat.spelling.pieces.tolist()
    for text in ("", '{"na', '{"name": "x', '{"name": "x"', '{"name": "x", "more": -', '{"name": "x", "more": 1}'):
        tokens = chat.written(text).tolist()
        mask = constraint.mask(tokens)
        state = after_text(grammar.start, text)
        for token, piece in enumerate(pieces):
            if token in chat.stops:
                assert bool(mask[token]) == (None in state)
            elif piece and "\ufffd" not in piece:
                assert bool(mask[token]) == bool(after_text(state, piece)), (text, piece)
            else:
                assert not mask[token]


def test_a_call_that_is_required_stands_in_the_models_own_frame(chat: Chat) -> None:
    tool = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {
        "a": {"type": "integer", "minimum": 3}}, "required": ["a"]}}}  # fmt: skip
    asked = Asked((), (tool,), tool_choice="required")
    constraint = Constraints().of_request(chat, asked)
    assert isinstance(constraint, Framed) and not constraint.before
    reply = chat.text(torch.tensor(random_reply(chat, constraint, 1)))
    call = json.loads(reply)
    assert call["name"] == "add" and isinstance(call["arguments"]["a"], int)
    framed = Framed(constraint.inner, chat.written("<tool>").tolist(), chat.written("</tool>").tolist())
    reply = chat.text(torch.tensor(random_reply(chat, framed, 2)))
    assert reply.startswith("<tool>") and reply.endswith("</tool>")
    assert json.loads(reply.removeprefix("<tool>").removesuffix("</tool>"))["name"] == "add"
