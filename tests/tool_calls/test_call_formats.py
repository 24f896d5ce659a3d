"""The formats of tool calls: what the families publish of their models' replies, and what is no call."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from burnish.tool_calls import FORMATS, format_of, parse_calls, reader_of
from burnish.tool_calls.table import Reader, format_named

PARIS = ("get_weather", {"city": "Paris", "unit": "celsius"})
TIME = ("get_time", {})


class Published(NamedTuple):
    """A reply in a format, as its family documents it, and its parts."""

    format: str
    text: str
    calls: list[tuple[str, dict[str, object]]]
    content: str = ""
    reasoning: str = ""
    auto: bool = True  # whether its marks alone say the format


def json_call(name: str = "get_weather", key: str = "arguments") -> str:
    arguments = '{"city": "Paris", "unit": "celsius"}' if name == "get_weather" else "{}"
    return f'{{"name": "{name}", "{key}": {arguments}}}'


DEEP = "<｜tool▁call▁begin｜>{}<｜tool▁sep｜>{}<｜tool▁call▁end｜>"
KIMI = "<|tool_call_begin|>functions.{}:{}<|tool_call_argument_begin|>{}<|tool_call_end|>"
ARGUMENTS = '{"city": "Paris", "unit": "celsius"}'
PUBLISHED = [
    Published("hermes", f"<tool_call>\n{json_call()}\n</tool_call>", [PARIS]),
    Published(
        "hermes",
        f"I look.\n<tool_call>\n{json_call()}\n</tool_call>\n<tool_call>\n{json_call('get_time')}\n</tool_call>",
        [PARIS, TIME],
        "I look.",
    ),
    Published(
        "hermes",
        f"<think>\n<tool_call>{json_call('get_time')}</tool_call> or not?\n</think>\n\n"
        f"<tool_call>{json_call()}</tool_call>",
        [PARIS],
        reasoning=f"<tool_call>{json_call('get_time')}</tool_call> or not?",
    ),
    Published(
        "qwen3_coder",
        "Sure.\n<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n<parameter=unit>\ncelsius\n"
        "</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=get_time>\n</function>\n</tool_call>",
        [PARIS, TIME],
        "Sure.",
    ),
    Published(
        "qwen3_coder",
        "<tool_call>\n<function=run>\n<parameter=code>\ndef f():\n    return '<b>'\n\n</parameter>\n</function>\n"
        "</tool_call>",
        [("run", {"code": "def f():\n    return '<b>'\n"})],
    ),
    Published(
        "glm",
        "<think>Which city?</think>\nI check.\n<tool_call>get_weather\n<arg_key>city</arg_key>\n"
        "<arg_value>Paris</arg_value>\n<arg_key>unit</arg_key>\n<arg_value>celsius</arg_value>\n</tool_call>"
        "<tool_call>get_time\n</tool_call>",
        [PARIS, TIME],
        "I check.",
        "Which city?",
    ),
    Published("mistral", f"[TOOL_CALLS] [{json_call()}, {json_call('get_time')}]", [PARIS, TIME]),
    Published("mistral", f"[TOOL_CALLS]get_weather[ARGS]{ARGUMENTS}[TOOL_CALLS]get_time[ARGS]{{}}", [PARIS, TIME]),
    Published("mistral", f"[THINK]Hm.[/THINK]I look.[TOOL_CALLS]get_weather{ARGUMENTS}", [PARIS], "I look.", "Hm."),
    Published("llama_json", json_call(key="parameters"), [PARIS]),
    Published("llama_json", f"{json_call(key='parameters')}; {json_call('get_time', 'parameters')}", [PARIS, TIME]),
    Published("llama_json", f"Let me look. {json_call(key='parameters')}", [PARIS], "Let me look.", auto=False),
    Published("llama_json", f"<|python_tag|>{json_call(key='parameters')}", [PARIS]),
    Published(
        "llama_json", '<|python_tag|>brave_search.call(query="Menlo Park")', [("brave_search", {"query": "Menlo Park"})]
    ),
    Published("llama_json", "<|python_tag|>print(1 + 1)", [("code_interpreter", {"code": "print(1 + 1)"})]),
    Published(
        "pythonic", "[get_weather(city='Paris', unit='celsius'), get_time()]", [PARIS, TIME], auto=False
    ),
    Published("pythonic", "<|python_start|>[get_weather(city='Paris', unit=\"celsius\")]<|python_end|>", [PARIS],
              auto=False),
    Published(
        "pythonic",
        "[add(a=-1, b=2.5, more={'x': [True, None]}, name='Martha\\'s')]",
        [("add", {"a": -1, "b": 2.5, "more": {"x": [True, None]}, "name": "Martha's"})],
        auto=False,
    ),
    Published(
        "harmony",
        "<|channel|>analysis<|message|>Need the weather.<|end|><|start|>assistant<|channel|>commentary "
        f"to=functions.get_weather <|constrain|>json<|message|>{ARGUMENTS}<|call|>",
        [PARIS],
        reasoning="Need the weather.",
    ),
    Published(
        "harmony",
        "<|channel|>commentary<|message|>I look it up.<|end|><|start|>assistant to=functions.get_time<|channel|>"
        "commentary json<|message|>{}<|call|>",
        [TIME],
        "I look it up.",
    ),
    Published(
        "harmony",
        "<|channel|>analysis<|message|>I might call to=functions.get_time.<|end|><|start|>assistant<|channel|>final"
        "<|message|>It is mild.<|return|>",
        [],
        "It is mild.",
        "I might call to=functions.get_time.",
    ),
    Published(
        "deepseek",
        "I look.<｜tool▁calls▁begin｜>"
        + DEEP.format("function", f"get_weather\n```json\n{ARGUMENTS}\n```")
        + "\n"
        + DEEP.format("function", "get_time\n```json\n{}\n```")
        + "<｜tool▁calls▁end｜>",
        [PARIS, TIME],
        "I look.",
    ),
    Published(
        "deepseek",
        f"<think>hm</think><｜tool▁calls▁begin｜>{DEEP.format('get_weather', ARGUMENTS)}<｜tool▁calls▁end｜>",
        [PARIS],
        reasoning="hm",
    ),
    Published(
        "deepseek",
        '<｜DSML｜function_calls>\n<｜DSML｜invoke name="get_weather">\n<｜DSML｜parameter name="city" string="true">'
        'Paris</｜DSML｜parameter>\n<｜DSML｜parameter name="unit" string="true">celsius</｜DSML｜parameter>\n'
        "</｜DSML｜invoke>\n</｜DSML｜function_calls>",
        [PARIS],
    ),
    Published(
        "kimi",
        f"I look.<|tool_calls_section_begin|>{KIMI.format('get_weather', 0, ARGUMENTS)}"
        f"{KIMI.format('get_time', 1, '{}')}<|tool_calls_section_end|>",
        [PARIS, TIME],
        "I look.",
    ),
    Published("granite", f"<|tool_call|>[{json_call()}, {json_call('get_time')}]", [PARIS, TIME]),
    Published("granite", f"<tool_call>[{json_call()}]", [PARIS]),
    Published("phi4", f"<|tool_call|>[{json_call()}]<|/tool_call|>", [PARIS]),
    Published("phi4", f"I look.\nfunctools[{json_call()}, {json_call('get_time')}]\nMore?", [PARIS, TIME], "I look."),
    Published(
        "command",
        "<|START_THINKING|>I call it.<|END_THINKING|><|START_ACTION|>[\n    "
        f'{{"tool_call_id": "0", "tool_name": "get_weather", "parameters": {ARGUMENTS}}}\n]<|END_ACTION|>',
        [PARIS],
        reasoning="I call it.",
    ),
    Published("command", "<|START_RESPONSE|>It is mild.<|END_RESPONSE|>", [], "It is mild.", auto=False),
    Published(
        "command",
        f'Action: ```json\n[{{"tool_name": "get_weather", "parameters": {ARGUMENTS}}}]\n```',
        [PARIS],
        auto=False,
    ),
    Published("command", 'Action: ```json\n[{"tool_name": "directly_answer", "parameters": {}}]\n```', [], auto=False),
    Published(
        "minimax",
        '<minimax:tool_call>\n<invoke name="get_weather">\n<parameter name="city">Paris</parameter>\n'
        '<parameter name="unit">celsius</parameter>\n</invoke>\n<invoke name="get_time">\n</invoke>\n'
        "</minimax:tool_call>",
        [PARIS, TIME],
    ),
    Published(
        "seed_oss",
        "<seed:think>hm</seed:think><seed:tool_call>\n<function=get_weather>\n<parameter=city>Paris</parameter>\n"
        "<parameter=unit>celsius</parameter>\n</function>\n</seed:tool_call>",
        [PARIS],
        reasoning="hm",
    ),
]  # fmt: skip


@pytest.mark.parametrize("one", PUBLISHED, ids=[f"{one.format}-{i}" for i, one in enumerate(PUBLISHED)])
def test_what_a_family_publishes_is_read(one: Published) -> None:
    readers = [Reader(format_named(one.format))] + ([Reader()] if one.auto else [])
    for reader in readers:
        reply = reader.read(one.text)
        assert [(call.name, dict(call.arguments), call.problem) for call in reply.calls] == [
            (*call, "") for call in one.calls
        ], reader.format.name
    reply = readers[0].read(one.text)
    assert (reply.content.strip(), reply.reasoning) == (one.content, one.reasoning)


def test_every_format_has_a_published_example() -> None:
    assert {format.name for format in FORMATS} == {one.format for one in PUBLISHED}


ANSWERS = (
    '{"name": "Marie", "age": 3}',
    '{"name": "Marie"}',
    '{"name": "add", "arguments": {"a": 1}, "why": "I would call this"}',
    "The tag <tool_call is not one.",
    "[1, 2, 3]",
    "[f(x) for x in y]",
    "Use print(1).",
    '[{"name": "Marie"}]',
)


@pytest.mark.parametrize("text", ANSWERS)
def test_an_answer_is_no_call(text: str) -> None:
    for reader in (Reader(), *map(Reader, FORMATS)):
        reply = reader.read(text)
        assert reply.calls == () and reply.content == text, reader.format.name


def test_a_call_in_a_thought_that_the_prompt_opened_is_not_made() -> None:
    text = f"<tool_call>{json_call()}</tool_call> perhaps\n</think>\n<tool_call>{json_call('get_time')}</tool_call>"
    for reader in (Reader(), Reader(format_named("hermes"), opened=True)):
        assert [call.name for call in reader.read(text).calls] == ["get_time"]
    cut = Reader(format_named("hermes"), opened=True).read(f"I shall write <tool_call>{json_call()}</tool_call>")
    assert cut.calls == () and cut.content == "" and cut.reasoning.startswith("I shall")
    never_closed = Reader().read(f"<think> <tool_call>{json_call()}</tool_call>")
    assert never_closed.calls == () and never_closed.content == ""


@pytest.mark.parametrize(
    ("format", "text"),
    [
        ("hermes", '<tool_call>{"name": "add", "arguments": {"a": 1}</tool_call>'),
        ("hermes", '<tool_call>{"name": "add"'),
        ("hermes", '<tool_call>{"arguments": {}}</tool_call>'),
        ("qwen3_coder", "<tool_call>add</tool_call>"),
        ("glm", "<tool_call>two words\n<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>"),
        ("mistral", '[TOOL_CALLS] [{"name": "add", "arguments": {"a": 1e999}}]'),
        ("mistral", "[TOOL_CALLS]add[ARGS]{"),
        ("llama_json", '<|python_tag|>{"name": "add"'),
        ("pythonic", "[add(1, 2)]"),
        ("pythonic", "[add(a=open('x'))]"),
        ("harmony", "<|channel|>commentary to=functions.add<|message|>{<|call|>"),
        ("deepseek", "<｜tool▁calls▁begin｜>function<｜tool▁sep｜>add<｜tool▁calls▁end｜>"),
        ("kimi", KIMI.format("add", "x", "{}").join(("<|tool_calls_section_begin|>", ""))),
        ("granite", "<|tool_call|>[oops]"),
        ("phi4", "functools[oops]"),
        ("command", "<|START_ACTION|>oops<|END_ACTION|>"),
        ("minimax", "<minimax:tool_call>oops</minimax:tool_call>"),
    ],
)
def test_a_call_that_cannot_be_read_says_why(format: str, text: str) -> None:
    [call] = Reader(format_named(format)).read(text).calls
    assert call.problem


def test_ids_are_kept_where_templates_take_them() -> None:
    kimi = f"<|tool_calls_section_begin|>{KIMI.format('get_time', 3, '{}')}<|tool_calls_section_end|>"
    assert Reader(format_named("kimi")).read(kimi).calls[0].id == "functions.get_time:3"
    assert parse_calls('[TOOL_CALLS]add[CALL_ID]abcdefghi[ARGS]{"a": 1}')[0].id == "abcdefghi"


@pytest.mark.parametrize(
    ("sign", "name"),
    [
        ("{{ '<tool_call>' }}", "hermes"),
        ("<tool_call> <function=example>", "qwen3_coder"),
        ("<tool_call>{{ name }}<arg_key>", "glm"),
        ("[TOOL_CALLS]", "mistral"),
        ("<|python_tag|> ipython", "llama_json"),
        ("[func_name1(params_name1=value)] ipython", "pythonic"),
        ("<|start|>assistant<|channel|>final", "harmony"),
        ("<｜tool▁calls▁begin｜>", "deepseek"),
        ("<|tool_calls_section_begin|>", "kimi"),
        ("<|tool_call|>{{ calls }}", "granite"),
        ("<|tool|>{{ tools }}<|/tool|>", "phi4"),
        ("<|START_ACTION|>", "command"),
        ("{{ messages }}", "auto"),
    ],
)
def test_the_format_is_that_of_the_template(sign: str, name: str) -> None:
    assert format_of(sign).name == name


def test_a_reader_knows_what_the_prompt_opens() -> None:
    assert reader_of("<tool_call>", "<|im_start|>assistant\n<think>\n").opened
    assert not reader_of("<tool_call>", "<|im_start|>assistant\n").opened
    assert reader_of("<tool_call><think>", "").thinks and not reader_of("<tool_call>", "").thinks
    assert reader_of("<tool_call>", "", "glm").format.name == "glm"
    with pytest.raises(ValueError, match="--tool-parser 'nope' is not known; choose one of auto, harmony"):
        reader_of("", "", "nope")
