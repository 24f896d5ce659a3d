"""Token in, token out with tool calls: prompt, sampled call and answer of the tool are, token by token, what a family's
template makes of the whole conversation. The templates are in the shape of the families' own, in our words.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from families import FAMILIES, Family, tokenizer_of

from burnish.core.types import Task, Turn
from burnish.envs.tools import Tool, ToolEnv, parse_calls
from burnish.models.chat import Chat
from burnish.models.load import load_chat
from burnish.run.warnings import unseen_tools
from burnish.serve.conversation import Conversations
from burnish.serve.protocol import Answered, Asked, assistant_message, read_message
from burnish.tasks.table import source
from burnish.tasks.task_set import with_tools
from burnish.tool_calls import bracketed
from burnish.tool_calls.harmony import MARKS

CALLS_JSON = '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}'
QWEN = (  # consecutive answers of tools are one turn of the user
    "{% if tools %}<|im_start|>system\n{% for t in tools %}{{ t | tojson }}\n{% endfor %}<|im_end|>\n{% endif %}"
    "{% for m in messages %}{% if m.role == 'tool' %}"
    "{% if loop.first or messages[loop.index0 - 1].role != 'tool' %}<|im_start|>user{% endif %}"
    "{{ '\n' }}<tool_response>\n{{ m.content }}\n</tool_response>"
    "{% if loop.last or messages[loop.index0 + 1].role != 'tool' %}<|im_end|>\n{% endif %}"
    "{% else %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% for c in m.tool_calls or [] %}{% if not loop.first or m.content %}{{ '\n' }}{% endif %}<tool_call>\n"
    + CALLS_JSON
    + "\n"
    "</tool_call>{% endfor %}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
HERMES = QWEN.replace("<|im_start|>user{% endif %}", "<|im_start|>tool{% endif %}")
LLAMA3 = (  # one call at a time; the tool answers as `ipython`
    "{{ bos_token }}{% if tools %}<|start_header_id|>system<|end_header_id|>\n\n{{ tools | tojson }}<|eot_id|>"
    "{% endif %}"
    "{% for m in messages %}{% if m.tool_calls %}{% if m.tool_calls | length != 1 %}"
    "{{ raise_exception('one call at a time') }}{% endif %}{% set c = m.tool_calls[0] %}"
    "<|start_header_id|>assistant<|end_header_id|>\n\n" + CALLS_JSON.replace('arguments"', 'parameters"') + "<|eot_id|>"
    "{% elif m.role == 'tool' %}<|start_header_id|>ipython<|end_header_id|>\n\n{{ m.content | tojson }}<|eot_id|>"
    "{% else %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{{ m.content | trim }}<|eot_id|>{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
MISTRAL = (  # ids have nine letters; tools stand before the last user message only in some, here at the beginning
    "{{ bos_token }}{% if tools %}[AVAILABLE_TOOLS] {{ tools | tojson }}[/AVAILABLE_TOOLS]{% endif %}"
    "{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }}[/INST]"
    "{% elif m.tool_calls %}[TOOL_CALLS] [{% for c in m.tool_calls %}{% if c.id | length != 9 %}"
    "{{ raise_exception('ids have nine letters') }}{% endif %}"
    "{{ ', ' if not loop.first }}" + CALLS_JSON[:-1] + ', "id": "{{ c.id }}"}'
    "{% endfor %}]{{ eos_token }}{% elif m.role == 'tool' %}{% if m.tool_call_id | length != 9 %}"
    "{{ raise_exception('ids have nine letters') }}{% endif %}"
    '[TOOL_RESULTS] {"content": {{ m.content }}, "call_id": "{{ m.tool_call_id }}"}[/TOOL_RESULTS]'
    "{% else %} {{ m.content }}{{ eos_token }}{% endif %}{% endfor %}"
)


def turns_of(start: str, end: str, call: str, tool: str, between: str = "", around: tuple[str, str] = ("", "")) -> str:
    """A template of turns. start: with ROLE in it; call: of c.function; tool: the turn of an answer."""
    user, assistant = start.replace("ROLE", "user"), start.replace("ROLE", "assistant")
    return (
        "{% if tools %}" + start.replace("ROLE", "system") + "{{ tools | tojson }}" + end + "{% endif %}"
        "{% for m in messages %}{% if m.role == 'tool' %}" + tool + "{% elif m.role == 'assistant' %}" + assistant
        + "{{ m.content }}{% if m.tool_calls %}" + around[0] + "{% for c in m.tool_calls %}"
        + ("{% if not loop.first %}" + between + "{% endif %}" if between else "") + call
        + "{% endfor %}" + around[1] + "{% endif %}" + end
        + "{% else %}" + user + "{{ m.content }}" + end + "{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}" + assistant + "{% endif %}"
    )  # fmt: skip


NAME, ARGUMENTS = "{{ c.function.name }}", "{{ c.function.arguments | tojson }}"
IM, IM_END = "<|im_start|>ROLE\n", "<|im_end|>\n"
IM_TOOL = "<|im_start|>user\n<tool_response>{{ m.content }}</tool_response>" + IM_END
CODER = turns_of(
    IM, IM_END,
    "<tool_call>\n<function=" + NAME + ">\n{% for k, v in c.function.arguments.items() %}<parameter={{ k }}>\n{{ v }}\n"
    "</parameter>\n{% endfor %}</function>\n</tool_call>", IM_TOOL, between="{{ '\n' }}",
)  # fmt: skip
GLM = turns_of(
    IM, IM_END,
    "<tool_call>" + NAME + "\n{% for k, v in c.function.arguments.items() %}<arg_key>{{ k }}</arg_key>\n"
    "<arg_value>{{ v }}</arg_value>\n{% endfor %}</tool_call>", IM_TOOL, between="{{ '\n' }}",
)  # fmt: skip
MINIMAX = turns_of(
    IM, IM_END,
    '<invoke name="' + NAME + '">\n{% for k, v in c.function.arguments.items() %}<parameter name="{{ k }}">{{ v }}'
    "</parameter>\n{% endfor %}</invoke>\n", IM_TOOL, around=("<minimax:tool_call>\n", "</minimax:tool_call>"),
)  # fmt: skip
DEEPSEEK = turns_of(
    IM, IM_END,
    "<｜tool▁call▁begin｜>" + NAME + "<｜tool▁sep｜>" + ARGUMENTS + "<｜tool▁call▁end｜>", IM_TOOL,
    around=("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
)  # fmt: skip
KIMI = turns_of(
    IM, IM_END,
    "<|tool_call_begin|>{{ c.id }}<|tool_call_argument_begin|>" + ARGUMENTS + "<|tool_call_end|>",
    "<|im_start|>tool\n## Return of {{ m.tool_call_id }}\n{{ m.content }}" + IM_END,
    around=("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
)  # fmt: skip
GRANITE = turns_of(IM, IM_END, CALLS_JSON, IM_TOOL, between=", ", around=("<|tool_call|>[", "]"))
PHI4 = turns_of(IM, IM_END, CALLS_JSON, IM_TOOL, between=", ", around=("<|tool_call|>[", "]<|/tool_call|>"))
COMMAND = turns_of(
    IM, IM_END,
    '{"tool_call_id": "{{ c.id }}", "tool_name": "' + NAME + '", "parameters": ' + ARGUMENTS + "}", IM_TOOL,
    between=", ", around=("<|START_ACTION|>[", "]<|END_ACTION|>"),
)  # fmt: skip
PYTHONIC = turns_of(
    IM, IM_END, NAME + "({% for k, v in c.function.arguments.items() %}{{ k }}={{ v }}{% endfor %})",
    "<|im_start|>ipython\n{{ m.content | tojson }}" + IM_END,
    between=", ", around=("<|python_start|>[", "]<|python_end|>"),
)  # fmt: skip


@dataclass(frozen=True)
class Format:
    """A family with tools. calls: how it writes calls of `add` with these arguments; several: in one reply."""

    family: Family
    one: str
    two: str | None = None


def family_with_tools(name: str, template: str, special: tuple[str, ...] = (), added: tuple[str, ...] = ()) -> Family:
    base = FAMILIES[name]
    return replace(base, template=template, special=(*base.special, *special), added=(*base.added, *added))


HARMONY = (  # a call is a message to a function, and its answer one from it
    "{% if tools %}<|start|>developer<|message|>{{ tools | tojson }}<|end|>{% endif %}"
    "{% for m in messages %}{% if m.role == 'tool' %}<|start|>functions.{{ m.name }} to=assistant<|channel|>commentary"
    "<|message|>{{ m.content | tojson }}<|end|>{% elif m.tool_calls %}{% set c = m.tool_calls[0] %}"
    "<|start|>assistant<|channel|>commentary to=functions." + NAME + " <|constrain|>json<|message|>" + ARGUMENTS
    + "<|call|>{% elif m.role == 'assistant' %}<|start|>assistant<|channel|>final<|message|>{{ m.content }}<|return|>"
    "{% else %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant{% endif %}"
)  # fmt: skip


def several(
    template: str, call: str, between: str, special: tuple[str, ...] = (), around: tuple[str, str] = ("", "")
) -> Format:
    """A family that writes one call like this, and two with `between` between them."""
    family = family_with_tools("qwen2.5", template, special=special)
    return Format(family, f"{around[0]}{call}{around[1]}", f"{around[0]}{call}{between}{call}{around[1]}")


CALL = '{"name": "add", "arguments": {"a": 1}}'
TAGGED = f"<tool_call>\n{CALL}\n</tool_call>"
FORMATS = {
    "qwen": Format(
        family_with_tools("qwen2.5", QWEN, added=("<tool_call>", "</tool_call>")), TAGGED, TAGGED + "\n" + TAGGED
    ),
    "qwen, special": Format(
        family_with_tools("qwen2.5", QWEN, special=("<tool_call>", "</tool_call>")), TAGGED, TAGGED + "\n" + TAGGED
    ),
    "hermes": Format(family_with_tools("qwen2.5", HERMES), TAGGED, TAGGED + "\n" + TAGGED),
    "llama3": Format(
        family_with_tools("llama3", LLAMA3, special=("<|python_tag|>",)), '{"name": "add", "parameters": {"a": 1}}'
    ),
    "mistral": Format(
        family_with_tools("mistral", MISTRAL, ("[TOOL_CALLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[AVAILABLE_TOOLS]",
                                        "[/AVAILABLE_TOOLS]")),
        '[TOOL_CALLS] [{"name": "add", "arguments": {"a": 1}, "id": "abcdefghi"}]',
    ),
    "qwen3_coder": several(
        CODER, "<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>", "\n"
    ),
    "glm": several(
        GLM, "<tool_call>add\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n</tool_call>", "\n",
        ("<tool_call>", "</tool_call>"),
    ),
    "minimax": several(
        MINIMAX, '<invoke name="add">\n<parameter name="a">1</parameter>\n</invoke>\n', "", (),
        ("<minimax:tool_call>\n", "</minimax:tool_call>"),
    ),
    "deepseek": several(
        DEEPSEEK, '<｜tool▁call▁begin｜>add<｜tool▁sep｜>{"a": 1}<｜tool▁call▁end｜>', "", bracketed.DEEPSEEK,
        ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
    ),
    "kimi": several(
        KIMI, '<|tool_call_begin|>functions.add:0<|tool_call_argument_begin|>{"a": 1}<|tool_call_end|>', "",
        bracketed.KIMI, ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
    ),
    "granite": several(GRANITE, CALL, ", ", ("<|tool_call|>",), ("<|tool_call|>[", "]")),
    "phi4": several(
        PHI4, CALL, ", ", ("<|tool_call|>", "<|/tool_call|>"), ("<|tool_call|>[", "]<|/tool_call|>")
    ),
    "command": several(
        COMMAND, '{"tool_call_id": "abcdefghi", "tool_name": "add", "parameters": {"a": 1}}', ", ", bracketed.COMMAND,
        ("<|START_ACTION|>[", "]<|END_ACTION|>"),
    ),
    "pythonic": several(
        PYTHONIC, "add(a=1)", ", ", ("<|python_start|>", "<|python_end|>"), ("<|python_start|>[", "]<|python_end|>")
    ),
}  # fmt: skip


def add(a: int) -> int:
    """Add one."""
    return a + 1


TOOL = Tool.of(add)
ASKED = ({"role": "user", "content": "1 + 1?"},)


def test_a_call_of_harmony_is_a_message_and_its_thoughts_end_no_reply(tmp_path: Path) -> None:
    base = FAMILIES["phi3"]
    harmony = replace(
        base, kind="bytes", template=HARMONY, bos=None, special=("<|endoftext|>", *MARKS), eos="<|return|>"
    )
    tokenizer_of(harmony).save_pretrained(tmp_path)
    chat = load_chat(tmp_path)
    assert chat.reader.format.name == "harmony"
    assert {chat.tokenizer.decode([token]) for token in chat.stops} == {"<|return|>"}
    call = "<|channel|>commentary to=functions.add <|constrain|>json<|message|>"
    said = chat.written(f'<|channel|>analysis<|message|>Add.<|end|><|start|>assistant{call}{{"a": 1}}<|call|>')
    env = ToolEnv([TOOL])
    env.reset(reader=chat.reader)
    [answer] = env.step(chat.action(said)).observation
    assert answer["content"] == "2"
    whole = chat.tokenizer.decode(whole_of(chat, *ASKED, {"role": "assistant", "content": "", "tool_calls": [
        {"id": "x", "function": {"name": "add", "arguments": {"a": 1}}}]}, answer))  # fmt: skip
    assert whole.endswith(chat.tokenizer.decode(chat.observation([answer]).tolist()))
    asked = Asked(ASKED, (dict(TOOL.schema),))
    message, reason = assistant_message(Answered(chat.action(said), "stop", [], [], [], [], chat.reader), asked)
    assert (message["reasoning_content"], message["content"], reason) == ("Add.", None, "tool_calls")


@pytest.fixture(params=list(FORMATS))
def format(request: pytest.FixtureRequest) -> Format:
    return FORMATS[request.param]


@pytest.fixture
def chat(format: Format, tmp_path: Path) -> Chat:
    tokenizer_of(format.family).save_pretrained(tmp_path)
    return load_chat(tmp_path)


def whole_of(chat: Chat, *messages: Any) -> list[int]:
    return list(chat._conversation(list(messages), tools=[TOOL.schema]).tolist())


def test_a_call_and_its_answer_are_the_tokens_of_the_whole_conversation(chat: Chat, format: Format) -> None:
    """As an environment with tools does it: the reply is parsed from its tokens, and answered with its id."""
    prompt = chat.prompt(Task("question", ASKED, {"tools": [dict(TOOL.schema)]}, "k"))
    for said in filter(None, (format.one, format.two)):
        reply = [*chat.written(said).tolist(), *chat.closing.tolist()]
        acted = chat.action(chat.written(said))
        calls = chat.reader.read(acted).calls
        made_of = [(call.name, TOOL.read(call.arguments), call.problem) for call in calls]
        assert made_of == [("add", {"a": 1}, "")] * len(calls)
        assert len(calls) == (2 if said == format.two else 1)
        env = ToolEnv([TOOL])
        env.reset(reader=chat.reader)
        found = env.step(acted)
        made = [
            {"id": call.id or answer["tool_call_id"], "type": "function",
             "function": {"name": "add", "arguments": {"a": 1}}}
            for call, answer in zip(calls, found.observation, strict=True)
        ]  # fmt: skip
        mine = [*prompt.tolist(), *reply, *chat.observation(found.observation).tolist()]
        whole = whole_of(chat, *ASKED, {"role": "assistant", "content": "", "tool_calls": made}, *found.observation)
        assert chat.tokenizer.decode(mine) == chat.tokenizer.decode(whole) and mine == whole


def test_an_endpoint_extends_the_tokens_of_a_call(chat: Chat, format: Format) -> None:
    """As a client of the protocol does it: the message that it got, sent back with the tool's answer."""
    talk = Conversations(chat)
    asked = Asked(ASKED, (dict(TOOL.schema),))
    conversation = talk.at(asked)
    said = chat.written(format.one)
    answered = Answered(chat.action(said), "stop", said.tolist(), [0.0] * len(said), [], [], chat.reader)
    message, reason = assistant_message(answered, asked)
    assert reason == "tool_calls" and message["content"] is None and message["tool_calls"][0]["id"]
    assert message["tool_calls"][0]["function"]["arguments"] == '{"a": 1}'
    conversation.replied(Turn(said, "policy", parent=conversation.turns[-1]), read_message(message))
    tool = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "2"}
    more = Asked((*ASKED, read_message(message), read_message(tool)), asked.tools)
    assert talk.at(more) is conversation and talk.restarts == 0
    assert [turn.author for turn in conversation.turns] == ["task", "policy", "env"]
    assert conversation.turns[1].tokens.tolist() == said.tolist()
    changed = Asked((*ASKED, {**read_message(message), "content": "other"}, read_message(tool)), asked.tools)
    assert talk.at(changed) is not conversation and talk.restarts == 1


def test_thoughts_that_a_client_drops_begin_a_new_sample(tmp_path: Path) -> None:
    """Qwen3's template leaves earlier thoughts out, and so do clients: that is counted, never tokenised again."""
    tokenizer_of(FAMILIES["qwen3"]).save_pretrained(tmp_path)
    chat = load_chat(tmp_path)
    talk = Conversations(chat)
    asked = Asked(ASKED)
    conversation = talk.at(asked)
    said = chat.written("<think>\nhm\n</think>\n\n2")
    text = "<think>\nhm\n</think>\n\n2"
    conversation.replied(Turn(said, "policy", parent=conversation.turns[-1]), {"role": "assistant", "content": text})
    kept = Asked((*ASKED, {"role": "assistant", "content": text}, {"role": "user", "content": "sure?"}))
    stripped = Asked((*ASKED, {"role": "assistant", "content": "2"}, {"role": "user", "content": "sure?"}))
    other = talk.at(stripped)
    assert other is not conversation and talk.restarts == 1 and len(other.turns) == 1
    assert chat.tokenizer.decode(other.turns[0].tokens).count("hm") == 0
    assert talk.at(kept) is conversation and talk.restarts == 1
    extended = [token for turn in conversation.turns for token in turn.tokens.tolist()]
    assert "hm" in chat.tokenizer.decode(extended)  # what was sampled stays in front of what follows


def test_a_template_that_writes_tools_is_no_reason_to_warn(chat: Chat) -> None:
    assert unseen_tools(with_tools(source("add"), [TOOL]), chat) == ""


def test_a_template_without_tools_is_warned_of(tmp_path: Path) -> None:
    tokenizer_of(FAMILIES["qwen2.5"]).save_pretrained(tmp_path)
    chat = load_chat(tmp_path)
    assert "the chat template does not write them" in unseen_tools(with_tools(source("add"), [TOOL]), chat)
    assert unseen_tools(source("add"), chat) == "" and unseen_tools(source("guess"), chat) == ""


def test_a_tokenizer_with_a_template_for_tools_uses_it(tmp_path: Path) -> None:
    """Hermes has two templates by name; the one for tools cannot be rendered without a list of them."""
    named = {
        "default": FAMILIES["qwen2.5"].template,
        "tool_use": HERMES.replace("{% if tools %}", "{% if tools | length %}"),
    }
    tokenizer = tokenizer_of(family_with_tools("qwen2.5", HERMES))
    tokenizer.chat_template = named
    chat = Chat(tokenizer)
    plain = chat.prompt(Task("question", ASKED, {}, "k"))
    tooled = chat.prompt(Task("question", ASKED, {"tools": [dict(TOOL.schema)]}, "k"))
    assert "You are helpful" in chat.tokenizer.decode(plain) and '"add"' in chat.tokenizer.decode(tooled)
    answered = chat.tokenizer.decode(chat.observation([{"role": "tool", "content": "2"}]))
    assert "<|im_start|>tool\n<tool_response>\n2\n</tool_response><|im_end|>" in answered


def test_mistrals_newer_calls_are_parsed() -> None:
    text = '[TOOL_CALLS]add[CALL_ID]abcdefghi[ARGS]{"a": 1}[TOOL_CALLS]add[ARGS]{"a": 2}'
    assert [(c.name, dict(c.arguments), c.id) for c in parse_calls(text)] == [
        ("add", {"a": 1}, "abcdefghi"),
        ("add", {"a": 2}, ""),
    ]
    assert parse_calls("[TOOL_CALLS]add[ARGS]{")[0].problem
