"""The text of every beginning of a conversation, in time linear in its messages where the template allows it.

A conversation is cut where rendering its first k messages ends, for many k. To render each beginning is quadratic. But
as long as a template has seen the first k messages alone, it writes the same for every conversation that begins with
them. So one render notes what has been written whenever the loop over the messages asks for message k, and what the
template has seen by then. If it has seen nothing of the messages from k on (not how many there are, not whether one is
the last), the first k messages alone are rendered as that text and what the template writes after its loop. The latter
is the same for every k, where nothing behind the loop depends on messages or on what the loop computed.

A k for which it has seen more (Qwen3 looks for the last question first) is rendered from the message on at which its
text may differ from what was rendered before (prefix_tails.py); a template of another form as before, the first k
messages by themselves.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from jinja2 import Template as Compiled
from jinja2 import TemplateError, nodes
from jinja2.runtime import LoopContext

from burnish.models.prefix_tails import Tails
from burnish.models.template import Template
from burnish.models.template_sandbox import Sandbox, filtered
from burnish.models.watched_messages import Log, Rendered, Watched

T = TypeVar("T")

WORTH = 12  # messages; fewer are rendered again and again as fast
_LATER = frozenset({"last", "length", "nextitem", "revindex", "revindex0"})  # attributes of a loop that look ahead
_ELSEWHERE = (nodes.Block, nodes.Extends, nodes.Include, nodes.Import, nodes.FromImport)
_CALLS = (nodes.Call, nodes.CallBlock, nodes.Macro, nodes.With)
_CLOCK = frozenset({"strftime_now", "lipsum"})  # what differs from one render to the next
_ASKED = "add_generation_prompt"


class Prefixes:
    """The texts of a conversation's beginnings."""

    def __init__(self, template: Template, messages: Sequence[Mapping[str, object]], tools: object) -> None:
        self._template, self._messages, self._tools = template, messages, tools
        self.whole = Rendered.of(template.render(messages, False, tools))
        self._points = self._followed() if len(messages) >= WORTH else {}
        self._tails: dict[bool, str] = {}
        if self._points and not self._read_tails():
            self._points = {}
        self._later: Tails | None = None  # of the conversation, once one is asked for

    def text(self, count: int, generation: bool) -> Rendered:
        """The first `count` messages as the template renders them. generation: up to where a reply begins."""
        if not count and not generation:
            return Rendered.of("")
        if count == len(self._messages) and not generation:
            return self.whole
        if count in self._points:
            return Rendered(self.whole.base, self._points[count], self._tails[generation])
        tails = self._resumed()
        resumed = tails.text(count, generation) if tails is not None else None
        return (
            resumed
            if resumed is not None
            else Rendered.of(self._template.render(self._messages[:count], generation, self._tools))
        )

    def _resumed(self) -> Tails | None:
        """Where the first messages can be rendered from a later one on; None for a short conversation."""
        if self._later is None and len(self._messages) >= WORTH:
            self._later = Tails(self._template, self._messages, self._tools, self.whole.base)
        return self._later

    def _followed(self) -> dict[int, int]:
        """By number of messages, how much of the whole is written when the template has seen these and no others."""
        following = _following(self._template.text)
        if following is None:
            return {}
        values = {"tools": self._tools, "documents": None, **self._template.values, "add_generation_prompt": False}
        size = len(str(self._messages)) + (len(str(self._tools)) if self._tools else 0)
        try:
            text, points = following.follow(self._messages, values, size)
        except (TemplateError, TypeError, ValueError, ArithmeticError, LookupError, AttributeError, RecursionError):
            return {}
        return points if text == self.whole.base else {}

    def _read_tails(self) -> bool:
        """What the template writes after its loop, from the shortest beginning; whether the longest has it, too."""
        first, last = min(self._points), max(self._points)
        for generation in (False, True):
            for count in (first, last):
                text = self._template.render(self._messages[:count], generation, self._tools)
                at = self._points[count]
                tail = self._tails.setdefault(generation, text[at:])
                if not text.startswith(self.whole.base[:at]) or text[at:] != tail:
                    return False
        return True


class _Watching(threading.local):
    """The log of the render that is under way in this thread."""

    log: Log | None = None


class Follower(Sandbox):
    """The sandbox of templates, in which the loop over the messages is followed."""

    def __init__(self) -> None:
        super().__init__()
        self.filters["_followed"] = _followed
        self.watching = _Watching()

    def follow(
        self, template: Compiled, messages: Sequence[object], values: Mapping[str, object], length: int
    ) -> tuple[str, dict[int, int]]:
        """What a template makes of these messages, and by number of messages how much of it they determine."""
        log = self.watching.log = Log()
        written = []
        for piece in self.pieces(template, {**values, "messages": Watched(messages, log)}, length):
            log.written += len(piece)
            written.append(piece)
        return "".join(written), log.points

    def getattr(self, obj: object, attribute: str) -> object:
        return self._looking(obj, attribute, super().getattr)

    def getitem(self, obj: object, argument: object) -> object:
        return self._looking(obj, argument, super().getitem)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        parsed = super()._parse(source, name, filename)
        for loop in (node for node in parsed.body if isinstance(node, nodes.For)):
            assert isinstance(loop.iter, nodes.Filter)  # the one that counts its turns
            loop.iter.node = filtered(loop.iter.node, "_followed", self)
        return parsed

    def _looking(self, obj: object, name: T, get: Callable[[object, T], object]) -> object:
        """An attribute or an item; what a loop reads to answer a question about later messages is no step of it."""
        log = self.watching.log
        if log is None or not isinstance(obj, LoopContext) or name not in _LATER:
            return get(obj, name)
        log.ahead += 1
        try:
            return get(obj, name)
        finally:
            log.ahead -= 1


def _followed(items: object) -> object:
    return items.followed() if isinstance(items, Watched) else items


@dataclass(frozen=True)
class _Following:
    """A template in a follower of its own."""

    room: Follower
    compiled: Compiled

    def follow(self, messages: Sequence[object], values: Mapping[str, object], size: int) -> tuple[str, dict[int, int]]:
        return self.room.follow(self.compiled, messages, values, size)


@lru_cache(maxsize=16)
def _following(text: str) -> _Following | None:
    """A template that can be followed; None where what it writes after its loop may depend on the messages."""
    room = Follower()
    return _Following(room, room.from_string(text)) if _separable(Sandbox().parse(text)) else None


def _separable(tree: nodes.Template) -> bool:
    """Whether a template is a loop over something, before and after other things, where those after it depend neither
    on messages nor on what the loop computes, and the wish for a generation prompt is read there alone."""
    loops = [at for at, node in enumerate(tree.body) if isinstance(node, nodes.For)]
    if len(loops) != 1 or any(True for _ in tree.find_all(_ELSEWHERE)):
        return False
    loop, behind = tree.body[loops[0]], tree.body[loops[0] + 1 :]
    assert isinstance(loop, nodes.For)
    if loop.test is not None or loop.else_ or loop.recursive:
        return False
    names = [name.name for name in tree.find_all(nodes.Name)]
    if _CLOCK & {*names} or any(one.name == "random" for one in tree.find_all(nodes.Filter)):
        return False
    if any(True for node in behind for _ in (*node.find_all(_CALLS), *([node] if isinstance(node, _CALLS) else ()))):
        return False
    read = [name.name for node in behind for name in node.find_all(nodes.Name)]
    questions = [one.node for one in tree.find_all(nodes.Getattr)] + [one.node for one in tree.find_all(nodes.Getitem)]
    plain = sum(isinstance(node, nodes.Name) and node.name == "loop" for node in questions)
    return (
        plain == names.count("loop")  # what is passed the loop itself may look ahead in other ways
        and read.count(_ASKED) == names.count(_ASKED)
        and not {"messages", "loop"} & {*read}
        and not _computed(tree) & {*read}
    )


def _computed(tree: nodes.Template) -> set[str]:
    """The names that a template sets to something else than a constant."""
    blocks = {name.name for one in tree.find_all(nodes.AssignBlock) for name in one.target.find_all(nodes.Name)}
    names = {one.target.name for one in tree.find_all(nodes.AssignBlock) if isinstance(one.target, nodes.Name)}
    names |= {one.name for one in tree.find_all(nodes.NSRef)} | blocks
    for one in tree.find_all(nodes.Assign):
        value = (one.node, *one.node.find_all(nodes.Node))
        if any(isinstance(node, nodes.Name | nodes.Call) for node in value):
            targets = (one.target, *one.target.find_all(nodes.Name))
            names |= {target.name for target in targets if isinstance(target, nodes.Name)}
    return names
