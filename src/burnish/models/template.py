"""Chat templates: which one a run uses, what is written into it, and how it is rendered.

The template of a run is one text. A system prompt and template options become part of that text, as defaults at its
beginning, so a saved model carries them, and every program that reads its chat template renders the conversations
that it was trained on.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from burnish.tool_calls.table import format_named
from burnish.util.paths import expanded
from burnish.util.safe_yaml import parse_yaml

if TYPE_CHECKING:
    from jinja2 import Template as Compiled

    from burnish.models.template_sandbox import Sandbox

PLAIN, NONE = "plain", "none"  # none: prompts stay as they are, even where the model has a template
TOOLS = "tools"  # the model's own, with tools in it (tool_template.py); after another name and a +, that one with tools
ASSUMED = (
    "the model has none, so messages go line by line and a reply ends with eos (plain); --chat-template FILE, "
    "chatml or none "
    "chooses another"
)
TEMPLATES = {
    "chatml": (
        "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
        "{{ message['content'] }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    ),
}
NAMES = frozenset({*TEMPLATES, PLAIN, NONE, TOOLS, *(f"{name}+{TOOLS}" for name in (*TEMPLATES, PLAIN))})
_NAME = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class Style:
    """What a run says about its chat template; None leaves it to the model directory.

    template  a Jinja text, or a name: plain, none, tools, plain+tools, chatml+tools
    system    the system message of conversations that have none
    options   values for the template: {"enable_thinking": False}
    calls     the format of tool calls, by name; None: that of the template (tool_calls/table.py)
    """

    template: str | None = None
    system: str | None = None
    options: str | None = None
    calls: str | None = None

    def __post_init__(self) -> None:
        read_options(self.options)
        if self.calls is not None:
            format_named(self.calls)

    def defaults(self) -> str:
        """The Jinja text that gives a template the options and the system prompt, wherever a caller gives none."""
        lines = [
            f"{{%- if {key} is not defined %}}{{%- set {key} = {_literal(value)} %}}{{%- endif %}}"
            for key, value in read_options(self.options).items()
        ]
        if self.system is not None:
            message = _literal({"role": "system", "content": self.system})
            lines.append(
                "{%- if not messages or messages[0]['role'] != 'system' %}"
                f"{{%- set messages = [{message}] + (messages | list) %}}{{%- endif %}}"
            )
        return "".join(lines)

    def applied(self, template: str) -> str:
        """A template with the defaults of this style; one that has them already stays as it is.

        The line end after the defaults is not part of what is rendered: chat templates are rendered with trim_blocks.
        """
        head = self.defaults()
        return template if not head or template.startswith(head) else f"{head}\n{template}"


def plain_template(bos: bool) -> str:
    """For models that have none: messages line by line, a reply closed by eos. bos: written at the beginning."""
    start = "{{ bos_token }}" if bos else ""
    return (
        start + "{% for message in messages %}{{ message['content'] }}"
        "{{ eos_token if message['role'] == 'assistant' else '' }}{{ '\\n' }}{% endfor %}"
    )


def _literal(value: object) -> str:
    """A value as Jinja reads it."""
    return "none" if value is None else json.dumps(value, ensure_ascii=False)


def read_template(named: str | None) -> str | None:
    """The text of a template that is given by name, as a file, or as the text itself; names that depend on the model
    (plain, none, tools) stay names.
    """
    if named is None or named in NAMES - TEMPLATES.keys() or "{{" in named or "{%" in named:
        return named
    if named in TEMPLATES:
        return TEMPLATES[named]
    file = expanded(named)
    names = ", ".join(sorted(NAMES))
    try:
        text = file.read_text()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ValueError(
            f"--chat-template {named!r} cannot be read ({why}); give a file with a Jinja template, or one of {names}"
        ) from None
    if "{{" not in text and "{%" not in text:
        raise ValueError(
            f"--chat-template {named!r} holds no Jinja template: there is neither "
            f"{{{{ nor {{% in it; give another file, "
            f"or one of {names}"
        )
    return text


def read_options(given: str | None) -> dict[str, object]:
    """key=value, several with commas; values as in YAML: true, 3, text."""
    options: dict[str, object] = {}
    for one in (given or "").split(","):
        key, equals, value = (part.strip() for part in one.partition("="))
        if not one.strip():
            continue
        if not equals or not _NAME.fullmatch(key) or key in ("messages", "add_generation_prompt"):
            raise ValueError(
                f"--template-option takes key=value, several with commas, not {one.strip()!r}; "
                "for example: --template-option enable_thinking=false"
            )
        try:
            read = parse_yaml(value)
        except ValueError:
            read = value
        plain = isinstance(read, bool | int | str | None) or (isinstance(read, float) and math.isfinite(read))
        options[key] = read if plain else value
    return options


def special_values(tokenizer: object) -> dict[str, str]:
    """bos_token, eos_token and the like, as templates read them."""
    named = getattr(tokenizer, "special_tokens_map", None) or getattr(tokenizer, "named", {})
    return {name: str(token) for name, token in named.items() if isinstance(token, str)}


class Template:
    """A chat template that is rendered within limits. values: bos_token, eos_token and the like.

    parts: whether it takes lists of parts alone, so that a text becomes such a list (templates of models that see)
    """

    def __init__(self, text: str, values: Mapping[str, object]) -> None:
        self.text, self.values = text, dict(values)
        self.parts = False

    def render(self, messages: Sequence[Mapping[str, object]], generation: bool, tools: object = None) -> str:
        """The messages as text. generation: up to where the assistant's reply begins. tools: JSON schemas."""
        from jinja2 import TemplateError

        from burnish.models.template_sandbox import TooMuch

        if self.parts:
            messages = [_in_parts(message) for message in messages]
        values = {"messages": list(messages), "tools": tools, "documents": None, **self.values}
        values["add_generation_prompt"] = generation
        try:
            room, template = self._compiled
            text: str = room.render(template, values, len(str(messages)) + (len(str(tools)) if tools else 0))
            return text
        except TooMuch as error:
            raise ValueError(
                f"the chat template is refused because {error}; use another with --chat-template"
            ) from None
        except TemplateError as error:
            raise ValueError(
                f"the chat template cannot render a conversation of {_roles(messages)} ({_first_line(error)}); "
                "change the messages, or use another template with --chat-template"
            ) from None
        except (
            TypeError,
            ValueError,
            ArithmeticError,
            LookupError,
            AttributeError,
            RecursionError,
            MemoryError,
        ) as error:
            raise ValueError(
                f"the chat template fails at a conversation of {_roles(messages)} ({type(error).__name__}: "
                f"{_first_line(error)}); "
                "mend it, or use another with --chat-template"
            ) from None

    @cached_property
    def _compiled(self) -> tuple[Sandbox, Compiled]:
        from burnish.models.template_sandbox import Sandbox

        room = Sandbox()
        return room, room.from_string(self.text)

    def __deepcopy__(self, memo: dict[int, object]) -> Template:
        twin = Template(self.text, self.values)
        twin.parts = self.parts
        return twin


def _in_parts(message: Mapping[str, object]) -> Mapping[str, object]:
    """A message whose text is a list of one part."""
    content = message.get("content")
    return {**message, "content": [{"type": "text", "text": content}]} if isinstance(content, str) else message


def _roles(messages: Sequence[Mapping[str, object]]) -> str:
    return ", ".join(str(message.get("role"))[:20] for message in messages[:4]) + (", ..." if len(messages) > 4 else "")


def _first_line(error: BaseException) -> str:
    return (str(error).strip().partition("\n")[0] or type(error).__name__)[:200].rstrip(". ")
