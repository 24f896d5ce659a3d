"""The first k messages of a conversation, rendered from the message on at which their text may be another.

The whole conversation is rendered once. For each message it is noted on what its text depends: how many messages there
are at least, or exactly, and the values that the template computed before its loop over the messages, each within
bounds. To render the first k messages, the template runs as ever, but its loop begins at the first message whose text
may be another for these k: what stands before it is known. A template that writes an earlier reply without its thoughts
once a later question follows (Qwen3) so renders each message a few times, not once for each beginning.

Nothing is guessed: a template of which the text of a message depends on anything else is left alone
(prefix_tail_syntax.py), and what a template writes before its loop must be the same as for the whole.
"""

from __future__ import annotations

import operator
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from jinja2 import Template as Compiled
from jinja2 import TemplateError, Undefined, nodes
from jinja2.runtime import LoopContext
from jinja2.utils import Namespace

from burnish.models.prefix_tail_syntax import Plan, rewritten
from burnish.models.template import Template
from burnish.models.template_sandbox import Sandbox
from burnish.models.watched_messages import Log, Rendered, Watched, extent

FAILS = (TemplateError, TypeError, ValueError, ArithmeticError, LookupError, AttributeError, RecursionError)
_OPERATORS: dict[str, Callable[..., object]] = {
    "gt": operator.gt,
    "gteq": operator.ge,
    "lt": operator.lt,
    "lteq": operator.le,
}
_SCALARS = (str, int, float, type(None))


@dataclass(frozen=True)
class Bounds:
    """What a value must be: the same as `value`, or a whole number from `low` to `high`."""

    value: object = None
    low: float = float("-inf")
    high: float = float("inf")
    exact: bool = False

    def hold(self, value: object) -> bool:
        if self.exact:
            return _same(self.value, value)
        return type(value) is int and self.low <= value <= self.high

    def within(self, other: Bounds) -> Bounds:
        """Both of them, where both hold today."""
        if self.exact or other.exact:
            return self if self.exact else other
        return Bounds(low=max(self.low, other.low), high=min(self.high, other.high))


@dataclass(frozen=True)
class Need:
    """On what a text depends: at least `seen` messages, exactly so many as there were (`end`), values in bounds."""

    seen: int = 0
    end: bool = False
    values: Mapping[str, Bounds] = field(default_factory=dict)

    def met(self, count: int, values: Mapping[str, object]) -> bool:
        return not self.end and self.seen <= count and all(b.hold(values.get(key)) for key, b in self.values.items())


@dataclass
class Record:
    """The texts of messages from number `start` on, and what all texts up to each of them need."""

    start: int = 0
    texts: list[str] = field(default_factory=list)
    needs: list[Need] = field(default_factory=list)

    def known(self, count: int, values: Mapping[str, object]) -> int:
        """The first message whose text may be another among the first `count`; less than `start` if one before is."""
        most = max(0, min(len(self.needs), count - self.start))
        return self.start + bisect_left(range(most), True, key=lambda at: not self.needs[at].met(count, values))


class Tails:
    """The beginnings of one conversation. text: what the template makes of the whole of it."""

    def __init__(self, template: Template, messages: Sequence[Mapping[str, object]], tools: object, text: str) -> None:
        self._room = _resumer(template.text)
        self._messages = messages
        self._values = {"tools": tools, "documents": None, **template.values}
        self._size = len(str(messages)) + (len(str(tools)) if tools else 0)
        self._live: dict[int, list[int]] = {}
        self._lead: str | None = None  # what is written before the loop over the messages
        self._first = 0  # the message with which that loop begins
        self._whole, self._last = Record(), Record()
        self._ends: list[int] = []  # of the messages in the text
        self._text = text
        if self._room is not None:
            self._begin()

    def text(self, count: int, generation: bool) -> Rendered | None:
        """The first `count` messages; None where the template must render them by itself."""
        if self._lead is None:
            return None
        run = self._run(count, generation)
        if run is None:
            return None
        text = "".join(run.written)
        if run.start is None or not self._alike(run):
            return Rendered.of(text)
        shared = self._last.start if run.resumed is self._last else run.start
        kept = "".join(self._last.texts[: run.start - shared])
        self._keep(run)
        same = len(self._lead) + (self._ends[shared - 1] if shared else 0)
        return Rendered(self._text, same, kept + text[len(self._lead) :])

    def _begin(self) -> None:
        """Render the whole, and note on what each message depends."""
        run = self._run(len(self._messages), False)
        if run is None or run.start is None or "".join(run.written) != self._text:
            return
        self._whole, self._lead, self._first = run.record, run.lead, run.first
        end = 0
        for said in run.record.texts:
            end += len(said)
            self._ends.append(end)

    def _run(self, count: int, generation: bool) -> Run | None:
        assert self._room is not None
        run = Run(self, count)
        values = {**self._values, "messages": Watched(self._messages[:count], run.log)}
        values["add_generation_prompt"] = generation
        try:
            self._room.write(run, values, self._size)
        except FAILS:
            return None
        return run

    def _keep(self, run: Run) -> None:
        """The texts of this beginning are the first guess for the next one."""
        assert run.start is not None
        if run.resumed is self._last:
            cut = run.start - self._last.start
            del self._last.texts[cut:], self._last.needs[cut:]
            self._last.texts += run.record.texts
            self._last.needs += run.record.needs
        else:
            self._last = run.record

    def _alike(self, run: Run) -> bool:
        """Whether a render begins as that of the whole does."""
        return run.lead == self._lead and run.first == self._first

    def resumable(self, run: Run) -> tuple[int, Record]:
        """The message with which the loop of a render begins, and the record that has those before it."""
        if not self._alike(run):
            return 0, self._whole
        count, values, last = run.count, run.values, self._last
        start = self._whole.known(count, values)
        if last.texts and start >= last.start and (later := last.known(count, values)) > start:
            return later, last
        return start, self._whole

    def live(self, number: int) -> list[int]:
        """The messages that matter to a loop before the one over the messages."""
        assert self._room is not None
        if number not in self._live:
            name, condition = self._room.live[number]
            self._live[number] = [
                at for at, message in enumerate(self._messages) if condition.render({name: message}) == "1"
            ]
        return self._live[number]


class Numbered:
    """What a loop of a template runs over, where it may leave out some: it knows the numbers that `loop` gives."""

    index = 0  # of the item in all of them
    count = 0

    def answer(self, name: str, room: Sandbox) -> object:
        """What `loop` has under this name."""
        ahead = self.count - self.index
        answers = {"index": self.index + 1, "index0": self.index, "first": not self.index, "last": ahead == 1}
        return {**answers, "length": self.count, "revindex": ahead, "revindex0": ahead - 1}[name]


class Live(Numbered):
    """Those of the first messages that matter to a loop."""

    def __init__(self, messages: Watched, order: int, live: list[int]) -> None:
        self.messages, self.order, self.live = extent(messages)[0], order, live
        self.count = len(self.messages)

    def __iter__(self) -> Iterator[object]:
        few = range(bisect_left(self.live, self.count))
        for number in few if self.order == 1 else reversed(few):
            at = self.live[number]
            self.index = at if self.order == 1 else self.count - 1 - at
            yield self.messages[at]


class Run(Numbered):
    """One render: its loop over the messages begins where it may write something else than is known."""

    def __init__(self, tails: Tails, count: int) -> None:
        self.tails, self.log, self.of = tails, Log(), count
        self.written: list[str] = []
        self.lead = ""
        self.start: int | None = None  # the message with which the loop began
        self.record, self.resumed = Record(), Record()
        self.values: dict[str, object] = {}
        self.bounds: dict[str, Bounds] = {}

    def begun(self, items: Watched, values: dict[str, object], turn: Callable[[], None]) -> Run:
        self.values, self.turn = values, turn
        self.messages, self.first = extent(items)
        self.count = self.of - self.first
        self.lead = "".join(self.written)
        return self

    def __iter__(self) -> Iterator[object]:
        """The messages; between two, what the first depended on is noted."""
        self.start, self.resumed = self.tails.resumable(self)
        need = self.resumed.needs[self.start - self.resumed.start - 1] if self.start else Need()
        self.record.start = self.start
        for index in range(self.start, self.count):
            self.index = index
            mark = len(self.written)
            self.log.seen, self.log.end, self.bounds = 0, False, dict(need.values)
            self.turn()
            yield self.messages[self.first + self.index]
            bounds = need.values if self.bounds == need.values else self.bounds
            seen = max(need.seen, self.log.seen - self.first, self.index + 1)
            need = Need(seen, need.end or self.log.end, bounds)
            self.record.texts.append("".join(self.written[mark:]))
            self.record.needs.append(need)

    def answer(self, name: str, room: Sandbox) -> object:
        at, first = self.index, self.first
        if name in ("previtem", "nextitem"):
            other = at + (1 if name == "nextitem" else -1)
            if name == "nextitem":
                self._ahead()
            return self.messages[first + other] if 0 <= other < self.count else room.undefined("there is none")
        if name == "last":
            self._ahead()
        elif name in ("length", "revindex", "revindex0"):
            self.log.end = True
        return super().answer(name, room)

    def _ahead(self) -> None:
        """The template asks whether a message follows."""
        if self.index + 1 < self.count:
            self.log.saw(self.first + self.index + 1)
        else:
            self.log.end = True

    def needs(self, key: str, bounds: Bounds) -> None:
        self.bounds[key] = self.bounds[key].within(bounds) if key in self.bounds else bounds


class _Under(threading.local):
    """The render that is under way in this thread."""

    run: Run | None = None


class Resumer(Sandbox):
    """The sandbox of templates, in which the loop over the messages can begin at a later one."""

    plan: Plan | None = None  # None: the template has another form

    def __init__(self, text: str) -> None:
        super().__init__()
        self.filters.update(_resumed=self._resumed, _live=self._chosen, _compared=self._compared, _exact=self._exact)
        self.under = _Under()
        self.compiled: Compiled = self.from_string(text)
        self.live: list[tuple[str, Compiled]] = []
        for name, condition in self.plan.live if self.plan is not None else ():
            condition.set_environment(self)
            self.live.append((name, self.from_string(condition)))

    def write(self, run: Run, values: dict[str, object], size: int) -> None:
        self.under.run = run
        try:
            for piece in self.pieces(self.compiled, values, size):
                run.written.append(piece)
        finally:
            self.under.run = None

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        parsed = super()._parse(source, name, filename)
        self.plan = rewritten(parsed, self)
        return parsed

    def getattr(self, obj: object, attribute: str) -> object:
        if isinstance(obj, LoopContext) and isinstance(obj._iterable, Numbered):
            return obj._iterable.answer(attribute, self)
        return super().getattr(obj, attribute)

    def getitem(self, obj: object, argument: object) -> object:
        if isinstance(obj, LoopContext) and isinstance(obj._iterable, Numbered) and isinstance(argument, str):
            return obj._iterable.answer(argument, self)
        return super().getitem(obj, argument)

    def _resumed(self, items: object, values: list[object]) -> object:
        run = self.under.run
        if run is None or self.plan is None or not isinstance(items, Watched):
            return items
        named = dict(zip(self.plan.values, values, strict=True))
        held = {}
        for key in self.plan.keys:
            name, _, attribute = key.partition(".")
            value = named[name]
            held[key] = super().getattr(value, attribute) if attribute and isinstance(value, Namespace) else value
        return run.begun(items, held, self._turn)

    def _chosen(self, messages: object, order: int, number: int) -> object:
        run = self.under.run
        if run is None or not isinstance(messages, Watched) or extent(messages)[1]:
            return messages if order == 1 else messages[::-1]  # type: ignore[index]
        return Live(messages, order, run.tails.live(number))

    def _compared(self, sides: list[object], how: str, key: str, at: int) -> object:
        held = bool(_OPERATORS[how](*sides))
        run = self.under.run
        assert run is not None
        value, other = sides[at], sides[1 - at]
        if type(value) is not int or type(other) is not int:
            run.needs(key, Bounds(run.values[key], exact=True))
            return held
        # with the value on the right, 3 > x is x < 3
        below = (how in ("lt", "lteq")) == (at == 0)  # whether the comparison says that the value is the smaller
        edge = how in ("lteq", "gteq")  # whether it holds for equal numbers
        if held == below:
            run.needs(key, Bounds(high=other if held == edge else other - 1))
        else:
            run.needs(key, Bounds(low=other if held == edge else other + 1))
        return held

    def _exact(self, value: object, key: str) -> object:
        run = self.under.run
        assert run is not None
        run.needs(key, Bounds(run.values[key], exact=True))
        return value


@lru_cache(maxsize=16)
def _resumer(text: str) -> Resumer | None:
    """A template whose loop over the messages can begin at a later one; None where it has another form."""
    room = Resumer(text)
    return room if room.plan is not None else None


def _same(one: object, other: object) -> bool:
    """Whether a template cannot tell two values apart; False where that is not known."""
    if isinstance(one, Undefined):
        return isinstance(other, Undefined)
    if isinstance(one, Watched):
        return isinstance(other, Watched) and extent(one)[1] == extent(other)[1]
    return one is other or (type(one) is type(other) and isinstance(one, _SCALARS) and one == other)
