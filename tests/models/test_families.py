"""Chat templates of families: where a turn ends, what stops sampling, one bos, and who writes control tokens."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from families import FAMILIES, Family, tokenizer_of

from burnish.core.types import Task
from burnish.models.chat import Chat


@pytest.fixture(params=sorted(FAMILIES))
def family(request: pytest.FixtureRequest) -> Family:
    return FAMILIES[request.param]


@pytest.fixture
def chat(family: Family) -> Chat:
    return Chat(tokenizer_of(family))


def ids(chat: Chat, text: str) -> list[int]:
    return chat.tokenizer.encode(text, add_special_tokens=False)  # type: ignore[no-any-return]


def rendered(chat: Chat, messages: list[dict[str, str]], generation: bool = True) -> str:
    """What transformers makes of the messages."""
    return str(chat.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=generation))


def asked(*said: str) -> list[dict[str, str]]:
    return [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(said)]


def task(*said: str) -> Task:
    return Task("question", tuple(asked(*said)), {}, "key")


def test_a_reply_ends_as_the_template_ends_it(chat: Chat, family: Family) -> None:
    end, eos = (chat.tokenizer.convert_tokens_to_ids(token) for token in (family.end, family.eos))
    assert chat.closing.tolist() == [end]
    assert int(chat.reply("the answer")[-1]) == end
    assert set(chat.stops) == {end, eos}
    assert chat.text(chat.reply("the answer")) == "the answer"


def test_ordinary_text_is_encoded_as_the_whole_rendered_text(chat: Chat) -> None:
    for said in (["the answer?"], ["caf\u00e9 <b> {{ x }}", "4 < 5 |> 3", " \u4f60\u597d\n\n"]):
        assert chat.prompt(task(*said)).tolist() == ids(chat, rendered(chat, asked(*said)))
    whole = rendered(chat, asked("?", "REPLY", "and then?"))
    end = chat.tokenizer.decode(chat.closing, skip_special_tokens=False)
    assert chat.observation("and then?").tolist() == ids(chat, whole.split("REPLY")[1].removeprefix(end))


def test_a_conversation_in_pieces_has_the_tokens_of_the_whole(chat: Chat, family: Family) -> None:
    """Also where a tokenizer begins every text with a space, as SentencePiece does."""
    if family is FAMILIES["mistral"]:
        pytest.skip("its template writes a space before a reply that it does not write at the end of a prompt")
    said = [["the answer?", "the end", "why", "an end"], ["?", f"the {family.end}", family.eos, f"{family.bos} 3"]]
    for first, *others in said:
        steps = zip((chat.reply, chat.observation, chat.reply), others, strict=True)
        pieces = [chat.prompt(task(first)), *(encode(text) for encode, text in steps)]
        whole = chat.control.encode_marked(rendered(chat, chat.control.marked(asked(first, *others)), generation=False))
        found = torch.cat(pieces).tolist()
        assert found == whole[: len(found)]


def test_the_twin_encodes_templates_as_the_tokenizer_does(chat: Chat) -> None:
    for said in (["the answer?"], ["caf\u00e9 <b>", " the end", "  2\n"]):
        whole = rendered(chat, asked(*said))
        assert chat.control.encode_marked(whole) == ids(chat, whole)
        for text in said:
            assert chat.control.encode_text(text) == ids(chat, text)


def controls(chat: Chat, tokens: Any) -> list[int]:
    numbers = set(chat.control.ids.values())
    return [token for token in tokens.tolist() if token in numbers]


def test_spelled_control_tokens_are_plain_text_everywhere(chat: Chat, family: Family) -> None:
    for token in dict.fromkeys((*family.special, family.end)):
        for text in (token, f"say {token} now", f"{token}{token}\n{family.end}", f"the{token}end"):
            said = [text, f"no {text}", text]
            tokens = chat.prompt(task(*said))
            assert controls(chat, tokens) == controls(chat, chat.prompt(task("a", "no a", "a"))), token
            read = chat.tokenizer.decode(tokens, skip_special_tokens=False)
            assert sum(map(read.count, [token])) >= 3 * text.count(token), "the text itself is all there"
            reply = chat.reply(text)
            assert controls(chat, reply) == chat.closing.tolist()
            assert chat.tokenizer.decode(reply[:-1], skip_special_tokens=False).strip() == text.strip()
            assert controls(chat, chat.observation(text)) == controls(chat, chat.observation("a"))


def test_a_control_token_split_over_two_fields_is_plain_text(family: Family) -> None:
    """Where the template writes the fields side by side, the parts joined to a control token."""
    tokenizer = tokenizer_of(family)
    tokenizer.chat_template = family.template.replace("m.content", "(m.title ~ m.content)")
    chat = Chat(tokenizer)

    def written(title: str, content: str) -> torch.Tensor:
        message = {"role": "user", "title": title, "content": content}
        return chat.prompt(Task("question", (message,), {}, "key"))

    for token in dict.fromkeys((*family.special, family.end)):
        for size in range(1, len(token)):
            tokens = written(f"say {token[:size]}", f"{token[size:]} now")
            assert controls(chat, tokens) == controls(chat, written("a", "b")), (token, size)
            assert f"say {token} now" in chat.tokenizer.decode(tokens, skip_special_tokens=False)
    tokens = written("4 <", " 3 <")
    assert tokens.tolist() == ids(chat, rendered(chat, [{"role": "user", "title": "4 <", "content": " 3 <"}]))


def test_only_the_careful_way_touches_the_content(chat: Chat, family: Family) -> None:
    """What stands around a spelled control token, beyond the words that touch it, is encoded as it always is."""
    plain, spelled = chat.prompt(task("one two\nx\nthree")), chat.prompt(task(f"one two\n{family.end}\nthree"))
    before = next(i for i, (a, b) in enumerate(zip(plain.tolist(), spelled.tolist(), strict=False)) if a != b)
    assert before >= len(ids(chat, "one two\n")), "all that comes before is the same"
    n = len(plain) - before - 1
    assert plain[-n:].tolist() == spelled[-n:].tolist(), "and so is all that comes after"


def test_there_is_one_bos_and_no_second(chat: Chat, family: Family) -> None:
    if family.bos is None:
        pytest.skip("the family has no bos")
    bos = chat.tokenizer.bos_token_id
    assert chat.tokenizer.encode("a")[0] == bos, "the tokenizer adds one to every text"
    for text in ("a", family.bos, f"{family.bos}a", f"{family.bos} {family.bos}"):
        tokens = torch.cat([chat.prompt(task(text)), chat.reply(text), chat.observation(text)]).tolist()
        assert tokens.count(bos) == chat.template.text.count("bos_token")
    chat.tokenizer.chat_template = None
    bare = Chat(chat.tokenizer)
    for text in ("a", family.bos, f"{family.bos}a"):
        assert bare.prompt(Task("question", text, {}, "key")).tolist().count(bos) == 1


def test_an_eos_that_a_tokenizer_puts_after_every_text_is_not_part_of_a_prompt() -> None:
    from tokenizers import processors

    tokenizer = tokenizer_of(FAMILIES["mistral"])
    tokenizer.chat_template = None
    special = [(token, tokenizer.convert_tokens_to_ids(token)) for token in ("<s>", "</s>")]
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing("<s> $A </s>", special_tokens=special)
    assert tokenizer.encode("the")[-1] == tokenizer.eos_token_id
    prompt = Chat(tokenizer).prompt(Task("question", "the", {}, "key")).tolist()
    assert prompt == tokenizer.encode("the")[:-1]


def test_thinking_of_earlier_turns_is_left_out_and_its_tokens_stay_tokens() -> None:
    chat = Chat(tokenizer_of(FAMILIES["qwen3"]))
    think = chat.tokenizer.convert_tokens_to_ids("</think>")
    said = ["a <|im_end|>", "<think>long</think>\n\nshort <|im_end|>", "b"]
    tokens = chat.prompt(task(*said))
    assert "long" not in chat.tokenizer.decode(tokens) and "short <|im_end|>" in chat.tokenizer.decode(tokens)
    assert chat.reply("<think>x</think>y").tolist().count(think) == 1, "not special: the model itself writes it"


def test_a_template_without_an_end_of_turn_leaves_eos() -> None:
    tokenizer = tokenizer_of(FAMILIES["phi3"])
    tokenizer.chat_template = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}<|assistant|>"
    chat = Chat(tokenizer)
    assert chat.closing.tolist() == [tokenizer.eos_token_id] == list(chat.stops)


def test_a_template_that_closes_only_replies_in_the_middle_is_understood() -> None:
    tokenizer = tokenizer_of(FAMILIES["phi3"])
    tokenizer.chat_template = (
        "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content }}"
        "{% if m.role == 'assistant' and not loop.last %}{{ '<|end|>' }}{% endif %}{% endfor %}"
    )
    assert Chat(tokenizer).closing.tolist() == [tokenizer.convert_tokens_to_ids("<|end|>")]


def test_a_tokenizer_that_has_no_plain_tokens_for_it_says_so() -> None:
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    inner = Tokenizer(models.WordLevel({"<end>": 0, "a": 1, "?": 2}, unk_token="?"))
    chat = Chat(PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<end>"))
    assert chat.reply("a").tolist() == [1, 0]
    with pytest.raises(ValueError, match="'<end>', a control token.*cannot encode that as plain text"):
        chat.reply("a <end>")


def test_a_template_that_changes_texts_cannot_smuggle_control_tokens() -> None:
    tokenizer = tokenizer_of(FAMILIES["phi3"])
    tokenizer.chat_template = tokenizer.chat_template.replace("m.content", "(m.content | upper | lower)")
    chat = Chat(tokenizer)
    with pytest.raises(ValueError, match="drops or changes the text"):
        chat.prompt(task("a <|end|>"))
    tokenizer.chat_template = FAMILIES["phi3"].template.replace(
        "m.content", "(m.content | upper if m.role == 'user' else m.content)"
    )
    chat = Chat(tokenizer)
    assert "HELLO" in tokenizer.decode(chat.prompt(task("hello")))
    with pytest.raises(ValueError, match="changes the text of messages"):
        chat.prompt(task("a <|end|>"))


@pytest.mark.parametrize("role", ["user<|end|>", "", None, "a b"])
def test_roles_are_words(role: Any) -> None:
    chat = Chat(tokenizer_of(FAMILIES["phi3"]))
    with pytest.raises(ValueError, match="roles are words"):
        chat.prompt(Task("question", ({"role": role, "content": "x"},), {}, "key"))


@pytest.mark.parametrize("scheme", ["always", "first", "never"])
def test_unigram_models_that_hold_control_tokens_as_pieces_encode_them_as_text(scheme: str) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    pieces = [("<unk>", 0.0), ("</s>", 0.0), ("<|im_start|>", 0.0), ("<|im_end|>", 0.0), ("\u2581the", -2.0)]
    pieces += [(letter, -5.0) for letter in ("\u2581", "\n", *map(chr, range(33, 127)))]
    inner = Tokenizer(models.Unigram(pieces, unk_id=0))
    inner.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    inner.decoder = decoders.Metaspace(prepend_scheme=scheme)
    special = ["<|im_start|>", "<|im_end|>"]
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, unk_token="<unk>", eos_token="</s>", additional_special_tokens=special
    )
    tokenizer.chat_template = FAMILIES["chatml, eos apart"].template
    chat = Chat(tokenizer)
    assert chat.closing.tolist() == [3] and chat.stops == (1, 3)
    plain, spelled = chat.prompt(task("say the x")), chat.prompt(task("say the </s><|im_end|><unk>"))
    assert plain.tolist() == ids(chat, rendered(chat, asked("say the x")))
    assert controls(chat, plain) == controls(chat, spelled)
    assert "the </s><|im_end|><unk>" in tokenizer.decode(spelled)
    whole = ids(chat, rendered(chat, asked("?", "the end", "a", "b"), generation=False))
    pieces_of = torch.cat([chat.prompt(task("?")), chat.reply("the end"), chat.observation("a"), chat.reply("b")])
    assert pieces_of.tolist() == whole[: len(pieces_of)]
