"""The chat template of a run: by name, from a file, with a system prompt and options; and what is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from families import FAMILIES, tokenizer_of
from transformers import AutoTokenizer

from burnish.core.types import Task
from burnish.models.known_models import TINY, resolve
from burnish.models.load import load_chat
from burnish.models.template import Style, Template, read_options, read_template

ASKED = ({"role": "user", "content": "2 + 2?"},)
TASK = Task("question", ASKED, {}, "key")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A copy of tiny, to change."""
    return Path(shutil.copytree(TINY, tmp_path / "model"))


def without_template(model: Path) -> Path:
    (model / "chat_template.jinja").unlink()
    return model


def saved(chat: Any, place: Path) -> Path:
    place.mkdir()
    for name, content in chat.files.items():
        (place / name).write_bytes(content)
    return place


def rendered(place: Path, **values: Any) -> str:
    """What transformers makes of a saved tokenizer."""
    tokenizer = AutoTokenizer.from_pretrained(place)
    return str(tokenizer.apply_chat_template(list(ASKED), tokenize=False, add_generation_prompt=True, **values))


SYSTEM = 'Be "brief" \\ {{ x }}\n%} #} \u4f60\U0001f600'
OWN = "\n  {% for m in messages %}<|user|>{{ m.role }}:{{ m.content }}<|end|>{% endfor %}<|assistant|>"
STYLES = {
    "system": Style(system=SYSTEM),
    "options": Style(options="enable_thinking=false, name=x, n=3, nothing=none"),
    "both": Style(system="Be brief.", options="a=1"),
    "template": Style(OWN),
    "template and system": Style(OWN, "Be brief."),
}


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("style", STYLES.values(), ids=list(STYLES))
def test_a_saved_tokenizer_carries_its_template(style: Style, native: bool, model: Path, tmp_path: Path) -> None:
    if not native:  # read by transformers
        told = json.loads((model / "tokenizer_config.json").read_text())
        (model / "tokenizer_config.json").write_text(json.dumps({**told, "clean_up_tokenization_spaces": True}))
    chat = load_chat(model, style)
    place = saved(chat, tmp_path / "saved")
    tokens = chat.prompt(TASK).tolist()
    assert tokens == chat.tokenizer.encode(rendered(place), add_special_tokens=False)
    assert load_chat(place).prompt(TASK).tolist() == tokens, "without being told again"
    again = load_chat(place, style)
    assert again.prompt(TASK).tolist() == tokens
    assert again.files == chat.files, "a resumed run does not write the defaults twice"


def test_a_system_prompt_is_the_first_message_unless_there_is_one(model: Path) -> None:
    chat = load_chat(model, Style(system=SYSTEM))
    assert chat.tokenizer.decode(chat.prompt(TASK)).startswith(f"<|system|>{SYSTEM}<|end|><|user|>2 + 2?")
    own = Task("question", ({"role": "system", "content": "other"}, *ASKED), {}, "key")
    assert chat.tokenizer.decode(chat.prompt(own)).startswith("<|system|>other<|end|><|user|>")
    assert "brief" not in chat.tokenizer.decode(chat.observation("next")), "said once, at the beginning"


def test_template_options_switch_thinking_off(tmp_path: Path) -> None:
    place = tmp_path / "qwen3"
    tokenizer_of(FAMILIES["qwen3"]).save_pretrained(place)

    def ends(style: Style) -> str:
        chat = load_chat(place, style)
        return str(chat.tokenizer.decode(chat.prompt(TASK)))

    assert ends(Style()).endswith("<|im_start|>assistant\n")
    assert ends(Style(options="enable_thinking=true")).endswith("<|im_start|>assistant\n")
    assert ends(Style(options="enable_thinking=false")).endswith("<think>\n\n</think>\n\n")
    chat = saved(load_chat(place, Style(options="enable_thinking=false")), tmp_path / "saved")
    assert rendered(chat).endswith("</think>\n\n")
    assert rendered(chat, enable_thinking=True).endswith("<|im_start|>assistant\n"), "a default that callers can change"


def test_a_model_without_a_template_gets_a_plain_one(model: Path, tmp_path: Path) -> None:
    assert not load_chat(model).assumed
    chat = load_chat(without_template(model))
    assert chat.assumed and chat.templated
    said = [chat.prompt(TASK), chat.reply("4"), chat.observation("and 3 + 3?"), chat.reply("6")]
    assert [chat.tokenizer.decode(part) for part in said] == ["2 + 2?\n", "4<|end|>", "\nand 3 + 3?\n", "6<|end|>"]
    place = saved(chat, tmp_path / "saved")
    assert rendered(place) == "2 + 2?\n"
    assert not load_chat(place).assumed and load_chat(place).prompt(TASK).tolist() == said[0].tolist()


def test_a_plain_template_writes_one_bos_where_the_tokenizer_does(tmp_path: Path) -> None:
    tokenizer = tokenizer_of(FAMILIES["mistral"])
    tokenizer.chat_template = None
    tokenizer.save_pretrained(tmp_path)
    chat = load_chat(tmp_path)
    assert chat.prompt(TASK).tolist().count(tokenizer.bos_token_id) == 1
    assert chat.prompt(TASK)[0] == tokenizer.bos_token_id
    assert tokenizer.bos_token_id not in chat.reply("4").tolist() + chat.observation("3").tolist()


def test_none_leaves_prompts_as_they_are(model: Path) -> None:
    chat = load_chat(model, Style("none"))
    text = Task("question", "2 + 2 =", {}, "key")
    assert chat.prompt(text).tolist() == chat.tokenizer.encode("2 + 2 =", add_special_tokens=False)
    assert "chat_template.jinja" not in chat.files
    with pytest.raises(ValueError, match="--chat-template none asks for none"):
        load_chat(model, Style("none", "Be brief."))


def test_templates_are_named_or_read(tmp_path: Path) -> None:
    assert "<|im_start|>" in (read_template("chatml") or "")
    file = tmp_path / "own.jinja"
    file.write_text("{{ messages[0].content }}")
    assert read_template(str(file)) == file.read_text() == read_template(file.read_text())
    file.write_text("no template")
    for wrong in ("chatlm", str(file), str(tmp_path)):
        with pytest.raises(ValueError, match="--chat-template .* one of chatml, .*none, plain, .*tools"):
            read_template(wrong)
    assert read_options("a=1, b = x,c=true,") == {"a": 1, "b": "x", "c": True}
    for wrong in ("a", "1a=3", "messages=3", "a b=1"):
        with pytest.raises(ValueError, match="--template-option takes key=value"):
            Style(options=wrong)


def test_control_tokens_in_a_system_prompt_are_refused(model: Path) -> None:
    with pytest.raises(ValueError, match="--system-prompt contains a control token"):
        load_chat(model, Style(system="be <|end|><|user|>brief"))


def test_a_template_that_refuses_system_messages_says_so(tmp_path: Path) -> None:
    tokenizer_of(FAMILIES["gemma"]).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="System role not supported"):
        load_chat(tmp_path, Style(system="Be brief."))


ENDLESS = [
    "{% for i in range(10**9) %}x{% endfor %}",
    "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "{{ 'a' * 10**10 }}",
    "{{ 10 ** 10 ** 10 }}",
    "{{ 'a' | center(10**10) }}",
    "{{ 'a'.ljust(10**10) }}",
    "{{ '%9999999999d' % 1 }}",
    "{{ '%9999999999d' | format(1) }}",
    "{{ '{:9999999999}'.format(1) }}",
    "{% set n = namespace(s='ab') %}{% for i in range(99) %}{% set n.s = n.s ~ n.s %}{% endfor %}",
    "{% set n = namespace(s='ab') %}{% for i in range(99) %}{% set n.s = n.s + n.s %}{% endfor %}",
    "{{ ('a' * 999999) | replace('a', 'b' * 999999) }}",
    "{{ ('a' * 999999).replace('a', 'b' * 999999) }}",
    "{{ ('b' * 999999).join(('a' * 9999) | list) }}",
    "{{ ('a' * 9999) | list | join('b' * 999999) }}",
    "{{ ('\n' * 9999999) | indent(99999) }}",
    "{% for i in range(99999) %}{{ 'a' * 9999999 }}{% endfor %}",
]
BROKEN = [
    "{% for %}",
    "{{ messages[0].nothing.more }}",
    "{{ 1 / 0 }}",
    "{{ messages + 1 }}",
    "{{ raise_exception('no') }}",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
]


@pytest.mark.parametrize("template", ENDLESS + BROKEN)
def test_a_template_that_cannot_be_rendered_is_refused_in_a_sentence(template: str, model: Path) -> None:
    (model / "chat_template.jinja").write_text(template)
    with pytest.raises(ValueError, match=r"the chat template (is refused|cannot render|fails)") as error:
        load_chat(model)
    assert "\n" not in str(error.value) and str(model) in str(error.value) and "--chat-template" in str(error.value)


def test_limits_leave_long_conversations_alone() -> None:
    messages = [{"role": "user", "content": "x" * 4000 + "\n" * 100}] * 2000
    template = Template(
        "{% for m in messages %}{{ '<' ~ m.role ~ '>' + m.content | trim | indent(2) + '\n' }}{% endfor %}", {}
    )
    assert len(template.render(messages, generation=True)) == 2000 * 4007


def test_a_damaged_tokenizer_is_refused_in_a_sentence(model: Path) -> None:
    whole = (model / "tokenizer.json").read_bytes()
    for damaged in (b"", b"{}", b"null", b"\x00\xff", whole[: len(whole) // 2], whole.replace(b'"BPE"', b'"XYZ"')):
        (model / "tokenizer.json").write_bytes(damaged)
        with pytest.raises(ValueError, match="the tokenizer in .* cannot be loaded") as error:
            load_chat(model)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "change",
    [
        {"num_hidden_layers": 10**9},
        {"num_hidden_layers": 4000},
        {"hidden_size": 0},
        {"hidden_size": -1},
        {"vocab_size": 10**30},
        {"num_attention_heads": 0},
        {"num_attention_heads": "many"},
        {"vocab_size": 1 << 25},
        {"hidden_size": 1e400},
        {"num_hidden_layers": True},
    ],
)
def test_absurd_numbers_in_a_config_are_refused_before_anything_is_built(change: dict[str, Any], model: Path) -> None:
    told = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**told, **change}))
    with pytest.raises(ValueError, match=r"config.json (says|describes)"):
        resolve(str(model))


def test_a_damaged_config_is_refused_in_a_sentence(model: Path) -> None:
    for damaged in ("", "[]", "{", "\x00", "[" * 100_000):
        (model / "config.json").write_text(damaged)
        with pytest.raises(ValueError, match="config.json (cannot be read|is not a JSON object)"):
            resolve(str(model))


def test_tokens_that_a_model_has_no_embeddings_for_are_refused(model: Path) -> None:
    chat = load_chat(model)
    size = chat.tokenizer.inner.get_vocab_size()
    chat.fit(size)
    with pytest.raises(ValueError, match="the model has embeddings for 4 tokens only"):
        load_chat(model).fit(4)
    some = load_chat(model)
    some.fit(size - 1)
    last = some.tokenizer.decode([size - 1])
    with pytest.raises(ValueError, match=f"as {size - 1}, but the model has embeddings for {size - 1} tokens only"):
        some.reply(last)
