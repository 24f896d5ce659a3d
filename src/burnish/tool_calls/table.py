"""Which format of tool calls a model writes: named by `--tool-parser`, or found by its chat template."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from burnish.tool_calls.bare import PYTHON, PYTHON_TAG, read_bare, read_llama_json, read_pythonic
from burnish.tool_calls.bracketed import (
    COMMAND,
    COMMAND_THOUGHTS,
    DEEPSEEK,
    KIMI,
    read_command,
    read_deepseek,
    read_kimi,
    read_mistral,
)
from burnish.tool_calls.call import ReadReply, ToolCall
from burnish.tool_calls.harmony import MARKS as HARMONY
from burnish.tool_calls.harmony import read_harmony
from burnish.tool_calls.tagged import (
    read_any_tag,
    read_glm,
    read_granite,
    read_hermes,
    read_minimax,
    read_phi4,
    read_qwen3_coder,
    read_seed_oss,
)
from burnish.tool_calls.thoughts import THINK, split_thoughts

AUTO = "auto"


@dataclass(frozen=True)
class Format:
    """A format of tool calls.

    marks     special tokens of which its calls are made: decoding would leave them out
    signs     what a chat template has that writes calls in this format: one of these
    thoughts  what stands around thoughts; None where `read` separates them itself
    inner     tokens that end a message inside of a reply, which goes on
    frame     what stands around one call as JSON, so that decoding can be held to a call; None: calls are no JSON
    """

    name: str
    read: Callable[[str], ReadReply]
    marks: tuple[str, ...]
    signs: tuple[str, ...]
    thoughts: tuple[str, str] | None = THINK
    inner: tuple[str, ...] = ()
    frame: tuple[str, str] | None = None


_TAGS = ("<tool_call>", "</tool_call>")
FORMATS = (  # a template is of the first format of which it has a sign
    Format("harmony", read_harmony, HARMONY, ("<|channel|>",), None, ("<|end|>",)),
    Format("kimi", read_kimi, KIMI, (KIMI[0],)),
    Format("deepseek", read_deepseek, DEEPSEEK, (DEEPSEEK[0], "｜DSML｜")),
    Format("command", read_command, COMMAND, ("<|START_ACTION|>", "Action:```", "Action: ```"), COMMAND_THOUGHTS),
    Format("minimax", read_minimax, ("<minimax:tool_call>", "</minimax:tool_call>"), ("minimax:tool_call",)),
    Format("seed_oss", read_seed_oss, ("<seed:tool_call>", "</seed:tool_call>"), ("seed:tool_call",),
           ("<seed:think>", "</seed:think>")),
    Format("mistral", read_mistral, ("[TOOL_CALLS]", "[CALL_ID]", "[ARGS]", "[THINK]", "[/THINK]"), ("[TOOL_CALLS]",),
           ("[THINK]", "[/THINK]"), frame=("[TOOL_CALLS] [", "]")),
    Format("glm", read_glm, (*_TAGS, "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"), ("<arg_key>",)),
    Format("qwen3_coder", read_qwen3_coder, _TAGS, ("<function=",)),
    Format("phi4", read_phi4, ("<|tool_call|>", "<|/tool_call|>"), ("<|/tool_call|>", "<|/tool|>", "functools["),
           frame=("<|tool_call|>[", "]<|/tool_call|>")),
    Format("granite", read_granite, ("<|tool_call|>",), ("<|tool_call|>",), frame=("<|tool_call|>[", "]")),
    Format("hermes", read_hermes, _TAGS, ("<tool_call>",), frame=("<tool_call>\n", "\n</tool_call>")),
    Format("pythonic", read_pythonic, PYTHON, ("<|python_start|>", "func_name1(")),
    Format("llama_json", read_llama_json, (PYTHON_TAG,), ("<|python_tag|>", "ipython"), frame=("", "")),
)  # fmt: skip
NAMES = (AUTO, *(format.name for format in FORMATS))
MARKS = frozenset(mark for format in FORMATS for mark in format.marks) - {"<|start|>", "<|end|>", "<|return|>"}


def read_auto(text: str) -> ReadReply:
    """Calls in whichever format a reply writes them, known by its marks; without any, JSON that is a call and nothing
    else
    """
    for mark, read in (
        ("<|channel|>", read_harmony),
        (KIMI[0], read_kimi),
        (DEEPSEEK[0], read_deepseek),
        ("<｜DSML｜function_calls>", read_deepseek),
        ("<|START_ACTION|>", read_command),
        ("<minimax:tool_call>", read_minimax),
        ("<seed:tool_call>", read_seed_oss),
        ("[TOOL_CALLS]", read_mistral),
        ("<tool_call>", read_any_tag),
        ("<|/tool_call|>", read_phi4),
        ("<|tool_call|>", read_granite),
        ("functools[{", read_phi4),
        (PYTHON_TAG, read_llama_json),
    ):
        if mark in text:
            return read(text)
    return read_bare(text)


_AUTO = Format(AUTO, read_auto, tuple(sorted(MARKS)), (), frame=("", ""))


@dataclass(frozen=True)
class Reader:
    """How the replies of a model are read. opened: its prompts end inside of a thought.

    thinks: thoughts are a part of its format, so that an endpoint returns them apart from what the reply says
    """

    format: Format = _AUTO
    opened: bool = False
    thinks: bool = False

    def read(self, text: str) -> ReadReply:
        """The parts of a reply. Nothing that a reply may say raises an error."""
        if self.format.thoughts is None:
            return self.format.read(text)
        thoughts, rest = split_thoughts(text, self.format.thoughts, self.opened)
        if self.format.thoughts != THINK:  # small models of every family think in these tags
            more, rest = split_thoughts(rest)
            thoughts = "\n".join(filter(None, (thoughts, more)))
        answer = self.format.read(rest)
        return ReadReply(answer.content, answer.calls, thoughts)

    def answer(self, text: str) -> str:
        """What a reply says besides its thoughts, with its calls as they are written."""
        if self.format.thoughts is None:
            return self.format.read(text).content
        return split_thoughts(split_thoughts(text, self.format.thoughts, self.opened)[1])[1]


AUTO_READER = Reader()


def format_named(name: str) -> Format:
    """The format of a name; raises ValueError."""
    for format in (_AUTO, *FORMATS):
        if format.name == name:
            return format
    raise ValueError(f"--tool-parser {name!r} is not known; choose one of {', '.join(NAMES)}")


def format_of(template: str) -> Format:
    """The format that a chat template writes; auto where it writes none that is known."""
    return next((format for format in FORMATS if any(sign in template for sign in format.signs)), _AUTO)


def reader_of(template: str, prompt_end: str, named: str | None = None) -> Reader:
    """The reader for a chat template. prompt_end: what its prompts end with; named: the format, where one is given."""
    format = format_of(template) if named in (None, AUTO) else format_named(str(named))
    start = format.thoughts[0] if format.thoughts else ""
    thinks = format.thoughts is None or start in template or THINK[0] in template or "reasoning_content" in template
    return Reader(format, bool(start) and prompt_end.rstrip().endswith(start), thinks)


def parse_calls(text: str) -> list[ToolCall]:
    """The calls in a reply of a model whose format is not known."""
    return list(AUTO_READER.read(text).calls)
