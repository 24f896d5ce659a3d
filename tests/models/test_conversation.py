"""Conversations as tokens: where trained messages begin and end, under the templates of many model families."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from families import FAMILIES, tokenizer_of

from burnish.core.types import Task
from burnish.models import prefixes
from burnish.models.chat import Chat
from burnish.models.conversation import Piece, conversation_pieces, message_weights, text_pieces
from burnish.rollout.demonstrated import cut_pieces, demonstration, demonstration_trace

TALK: list[dict[str, Any]] = [
    {"role": "user", "content": "one?"},
    {"role": "assistant", "content": "two."},
    {"role": "user", "content": "three?"},
    {"role": "assistant", "content": "four."},
]
STRIPS = (  # the thoughts of earlier replies go, as in Qwen3
    "{% for m in messages %}{% set said = m.content %}{% if m.role == 'assistant' and not loop.last %}"
    "{% set said = m.content.split('</think>')[-1] %}{% endif %}"
    "{{ '<|im_start|>' + m.role + '\n' + said + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


@pytest.fixture(params=sorted(FAMILIES))
def chat(request: pytest.FixtureRequest) -> Chat:
    return Chat(tokenizer_of(FAMILIES[request.param]))


def spelled(chat: Chat, tokens: torch.Tensor) -> str:
    return chat.tokenizer.decode(tokens.tolist(), skip_special_tokens=False)


def bare(text: str) -> str:
    return "".join(text.split())


def pieces_of(chat: Chat, messages: list[dict[str, Any]], train_on: str = "all", **more: Any) -> list[list[Piece]]:
    return conversation_pieces(chat, messages, message_weights(messages, train_on), **more)


def test_the_pieces_are_the_rendered_conversation_cut_at_its_replies(chat: Chat) -> None:
    ((asked, first, between, second),) = pieces_of(chat, TALK)
    assert [piece.weight for piece in (asked, first, between, second)] == [0, 1, 0, 1]
    assert torch.equal(asked.tokens, chat.prompt(Task("demo", tuple(TALK[:1]), {}, "")))
    assert (chat.text(first.tokens).strip(), chat.text(second.tokens).strip()) == ("two.", "four.")
    assert first.tokens[-1] == second.tokens[-1] == chat.closing[-1]
    whole = chat.template.render(TALK, generation=False)
    said = spelled(chat, torch.cat([asked.tokens, first.tokens, between.tokens, second.tokens]))
    assert bare(whole).startswith(bare(said))
    assert "three?" in spelled(chat, between.tokens)


def test_the_last_reply_alone_has_the_tokens_of_a_prompt_and_its_reply(chat: Chat) -> None:
    ((asked, said),) = pieces_of(chat, TALK, "last")
    assert torch.equal(asked.tokens, chat.prompt(Task("demo", tuple(TALK[:3]), {}, "")))
    assert chat.text(said.tokens).strip() == "four."


def test_everything_is_all_but_the_first_token(chat: Chat) -> None:
    samples = pieces_of(chat, TALK, "everything", headers=True)
    for pieces in samples:
        assert not pieces[0].weight
    if len(samples) == 1:
        assert len(samples[0][0].tokens) == 1
        assert sum(len(piece.tokens) for piece in samples[0] if not piece.weight) == 1
        said = spelled(chat, torch.cat([piece.tokens for piece in samples[0]]))
        assert bare(chat.template.render(TALK, generation=False)).startswith(bare(said))


def test_a_control_token_that_a_message_spells_stays_text(chat: Chat) -> None:
    end = chat.turn_end[1]
    talk = [*TALK[:3], {"role": "assistant", "content": f"four {end} five"}]
    try:
        ((_, first, _, second),) = pieces_of(chat, talk)
    except ValueError as error:
        assert "control token" in str(error)  # its tokenizer cannot spell it
        return
    number = chat.tokenizer.convert_tokens_to_ids(end)
    assert first.tokens.tolist().count(number) == second.tokens.tolist().count(number) == 1
    assert int(second.tokens[-1]) == number


LONG = [
    {"role": ("user", "assistant")[i % 2], "content": f" part {i}.\n" + "\u00e9 x" * (i % 3)}
    for i in range(2 * prefixes.WORTH)
]


@pytest.mark.parametrize("train_on", ["all", "everything"])
@pytest.mark.parametrize("headers", [False, True])
def test_long_conversations_have_the_pieces_that_rendering_every_beginning_gives(
    train_on: str, headers: bool, chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    spells = [*LONG[:7], {**LONG[7], "content": f"four {chat.turn_end[1]} five"}, *LONG[8:]]
    odd = [{**message, **({"weight": 0.5} if i % 5 == 1 else {})} for i, message in enumerate(LONG)]
    found = []
    for worth in (0, 10**6):  # from the loop over the messages; each by itself
        monkeypatch.setattr(prefixes, "WORTH", worth)
        samples = []
        for talk in (LONG, LONG[1:], odd, spells, LONG[:-1]):
            try:
                samples += pieces_of(chat, talk, train_on, headers=headers)
            except ValueError as error:
                samples.append(str(error))
        found.append([s if isinstance(s, str) else [(p.tokens.tolist(), p.weight) for p in s] for s in samples])
    assert found[0] == found[1]


def test_messages_say_themselves_whether_they_are_trained_on() -> None:
    assert message_weights(TALK, "all") == [0, 1, 0, 1]
    assert message_weights(TALK, "last") == [0, 0, 0, 1]
    assert message_weights(TALK, "everything") == [1, 1, 1, 1]
    own = [TALK[0], {**TALK[1], "train": False}, {**TALK[2], "weight": 0.25}, {**TALK[3], "weight": 0.5}]
    assert message_weights(own, "all") == [0, 0, 0.25, 0.5]
    assert message_weights([{**TALK[1], "train": True, "weight": 0.5}], "last") == [0.5]


def test_a_template_that_strips_thoughts_makes_one_sample_of_each_reply() -> None:
    tokenizer = tokenizer_of(FAMILIES["qwen2.5"])
    tokenizer.chat_template = STRIPS
    chat = Chat(tokenizer)
    talk = [TALK[0], {"role": "assistant", "content": "<think>hm</think>two."}, *TALK[2:]]
    first, second = pieces_of(chat, talk)
    assert chat.text(first[1].tokens) == "<think>hm</think>two."
    assert "hm" not in spelled(chat, second[0].tokens) and "two." in spelled(chat, second[0].tokens)
    assert chat.text(second[1].tokens) == "four."
    assert len(pieces_of(chat, TALK)) == 1  # without thoughts nothing changes


def test_tools_and_tool_calls_reach_the_template() -> None:
    tokenizer = tokenizer_of(FAMILIES["qwen2.5"])
    tokenizer.chat_template = (
        "{% if tools %}<|im_start|>system\n{{ tools | tojson }}<|im_end|>\n{% endif %}{% for m in messages %}"
        "{{ '<|im_start|>' + m.role + '\n' + m.content }}{% for call in m.tool_calls or [] %}"
        "{{ '<call>' + call.function.name + ' ' + (call.function.arguments | tojson) }}{% endfor %}{{ '<|im_end|>\n' }}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    )
    chat = Chat(tokenizer)
    call = {"type": "function", "function": {"name": "add", "arguments": {"a": 1, "b": 2}}}
    talk = [
        {"role": "user", "content": "1+2?"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "3"},
        {"role": "assistant", "content": "It is 3."},
    ]
    tools = [{"type": "function", "function": {"name": "add"}}]
    ((asked, called, result, answer),) = pieces_of(chat, talk, tools=tools)
    assert '"name": "add"' in spelled(chat, asked.tokens)
    assert spelled(chat, called.tokens) == '<call>add {"a": 1, "b": 2}<|im_end|>'
    assert "tool\n3" in spelled(chat, result.tokens)
    assert chat.text(answer.tokens) == "It is 3."
    assert '"name": "add"' in spelled(chat, chat.prompt(Task("demo", "1+2?", {"tools": tools}, "")))


def test_without_a_template_messages_go_line_by_line() -> None:
    tokenizer = tokenizer_of(FAMILIES["qwen2.5"])
    tokenizer.chat_template = None
    chat = Chat(tokenizer)
    (pieces,) = pieces_of(chat, TALK)
    assert [spelled(chat, piece.tokens) for piece in pieces] == [
        "one?\n",
        "two.<|im_end|>",
        "\nthree?\n",
        "four.<|im_end|>",
    ]


def test_texts_are_trained_on_from_their_second_token_and_closed(chat: Chat) -> None:
    first, rest = text_pieces(chat, "A plain text.")
    assert (len(first.tokens), first.weight, rest.weight) == (1, 0, 1)
    assert int(rest.tokens[-1]) == chat.tokenizer.eos_token_id
    assert bare(spelled(chat, torch.cat([first.tokens, rest.tokens]))).count("Aplaintext.") == 1


def test_traces_have_authors_and_are_cut_at_the_limit() -> None:
    chat = Chat(tokenizer_of(FAMILIES["qwen2.5"]))
    task = Task("demo", tuple(TALK[:3]), {"demo": "four.", "messages": [*TALK[:3], {**TALK[3], "weight": 0.5}]}, "")
    (pieces,) = demonstration(task, chat, "all")
    trace = demonstration_trace(pieces, "demo", 0)
    assert [turn.author for turn in trace.turns] == ["task", "demo", "env", "demo"]
    assert trace.note == {"weights": [0, 1, 0, 0.5]}
    sizes = [len(piece.tokens) for piece in pieces]
    assert len(cut_pieces(pieces, sum(sizes[:3]) + 2)) == 4
    assert [len(piece.tokens) for piece in cut_pieces(pieces, sum(sizes[:2]) + 1)] == sizes[:2]
    assert cut_pieces(pieces, sizes[0]) == []


def test_nothing_to_train_on_is_no_sample() -> None:
    chat = Chat(tokenizer_of(FAMILIES["qwen2.5"]))
    assert pieces_of(chat, [TALK[0], {**TALK[1], "train": False}]) == []


HEAD = "{% for m in messages %}{% set said = m.content %}"
STRIP_ALL = "{% if m.role == 'assistant' %}{% set said = m.content.split('</think>')[-1] %}{% endif %}"
BODY = "{{ '<|im_start|>' + m.role + '\n' + said + '<|im_end|>\n' }}{% endfor %}"
GENERATE = "{%% if add_generation_prompt %%}{{ '<|im_start|>assistant\n%s' }}{%% endif %%}"
THOUGHT = [TALK[0], {"role": "assistant", "content": "<think>\nhm\n</think>two."}]


def _templated(template: str) -> Chat:
    tokenizer = tokenizer_of(FAMILIES["qwen2.5"])
    tokenizer.chat_template = template
    return Chat(tokenizer)


def test_a_template_that_strips_all_thoughts_does_not_take_them_from_the_replies_that_are_trained_on() -> None:
    chat = _templated(HEAD + STRIP_ALL + BODY + GENERATE % "")
    first, second = pieces_of(chat, [*THOUGHT, *TALK[2:]])
    assert chat.text(first[1].tokens) == "<think>\nhm\n</think>two."
    assert "hm" not in spelled(chat, second[0].tokens) and chat.text(second[1].tokens) == "four."
    assert len(pieces_of(chat, TALK)) == 1  # without thoughts nothing is lost
    spaced = _templated(HEAD + "{% set said = said | trim %}" + BODY + GENERATE % "")
    assert len(pieces_of(spaced, [TALK[0], {"role": "assistant", "content": " two.\n"}, *TALK[2:]])) == 1


@pytest.mark.parametrize("strips", ["", STRIP_ALL])
@pytest.mark.parametrize("opened", ["<think>\n", "<think>", "<think>\n\n"])
def test_thoughts_that_the_prompt_opens_are_opened_once(strips: str, opened: str) -> None:
    """As DeepSeek-R1 and the thinking Qwen3 do."""
    chat = _templated(HEAD + strips + BODY + GENERATE % opened.replace("\n", "\\n"))
    prompt = chat.prompt(Task("demo", tuple(TALK[:1]), {}, ""))
    for reply in ("<think>\nhm\n</think>two.", "<think>hm\n</think>two.", "\n<think>\n\nhm\n</think>two."):
        whole = spelled(chat, torch.cat([prompt, chat.reply(reply)]))
        assert whole.count("<think>") == 1 and bare(whole).endswith("assistant<think>hm</think>two.<|im_end|>")
        for pieces in pieces_of(chat, [TALK[0], {"role": "assistant", "content": reply}, *TALK[2:]])[:1]:
            assert spelled(chat, torch.cat([piece.tokens for piece in pieces])).count("<think>") == 1
    assert chat.text(chat.reply("two.")) == "two."
    assert chat.text(chat.reply("I <think> so")) == "I <think> so"


def test_without_a_generation_prompt_a_reply_writes_its_header_alone_and_in_a_conversation() -> None:
    chat = _templated(HEAD + BODY)
    ((asked, first, _, second),) = pieces_of(chat, TALK)
    assert spelled(chat, first.tokens) == "<|im_start|>assistant\ntwo.<|im_end|>"
    assert torch.equal(chat.reply("two."), first.tokens) and torch.equal(chat.reply("four."), second.tokens)
    assert torch.equal(chat.prompt(Task("demo", tuple(TALK[:1]), {}, "")), asked.tokens)


def test_a_reply_alone_is_that_of_a_conversation(chat: Chat) -> None:
    ((_, first, _, second),) = pieces_of(chat, TALK)
    said = [spelled(chat, tokens).strip() for tokens in (first.tokens, second.tokens)]
    assert said == [spelled(chat, chat.reply(text)).strip() for text in ("two.", "four.")]


def test_a_conversation_that_begins_with_a_reply_is_one_sample_with_thoughts_that_prompts_open() -> None:
    chat = _templated(HEAD + BODY + GENERATE % "<think>\\n")
    talk = [TALK[1], {**TALK[2], "weight": 0.5}, TALK[3]]
    (pieces,) = pieces_of(chat, talk, "everything", headers=True)
    said = spelled(chat, torch.cat([piece.tokens for piece in pieces]))
    assert chat.template.render([*TALK[1:]], generation=False).startswith(said)


def test_a_reply_that_its_template_does_not_close_ends_with_the_end_token() -> None:
    """The last of a conversation, and each alone: a model that never saw an end would not stop."""
    tokenizer = tokenizer_of(FAMILIES["qwen2.5"])
    tokenizer.chat_template = (
        "{% for m in messages %}{{ m.role + ': ' + m.content }}{% if not loop.last %}{{ '\n' }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ '\nassistant: ' }}{% endif %}"
    )
    chat = Chat(tokenizer)
    for messages in (TALK, TALK[:2]):
        (*_, last) = pieces_of(chat, messages, "last")[-1]
        assert last.weight and last.tokens[-len(chat.closing) :].tolist() == chat.closing.tolist()
        assert spelled(chat, last.tokens).startswith(str(messages[-1]["content"]))
