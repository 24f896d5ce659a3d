"""Replies that branch: continued afresh from points along them, grown as trees, or by one step at a time."""

from __future__ import annotations

from collections.abc import Callable

from burnish.core.parts import Rollout, names, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Task, Trace, Turn
from burnish.models.chat import Chat
from burnish.rollout.completions import Prefix, continued
from burnish.rollout.sample import sample

Cuts = Callable[[Turn, Chat], list[int]]


def lines(turn: Turn, chat: Chat) -> list[int]:
    """At the start, and after every token that ends a line: where steps of reasoning begin."""
    return [0, *(i + 1 for i in range(len(turn) - 1) if "\n" in chat.text(turn.tokens[i : i + 1]))]


@supplies("tag:probe")
def probed(n: int, k: int, cuts: Cuts, *, temperature: float | None = None, who: str = "policy") -> Rollout:
    """n replies per task (tag "sample"), and k fresh continuations (tag "probe") from every cut of every reply.

    A reply's note["cuts"] holds the cuts as positions in the trace; a probe's note says "of" which reply and "at" which
    position it is a continuation. A probe holds the reply's tokens up to the cut; its whole length obeys the run's
    limit.
    """
    plain = sample(n, temperature=temperature, who=who)

    def call(tasks: list[Task], step: Step) -> list[Group]:
        groups = plain.call(tasks, step)
        chat, limit = step.models[who].chat, step.settings.max_new_tokens
        wanted: list[tuple[Group, Trace, int, Prefix]] = []
        for group in groups:
            for trace in group.traces:
                prompt, reply = trace.turns
                found = cuts(reply, chat)
                trace.note["cuts"] = [len(prompt) + at for at in found]
                starts = [
                    Prefix(group.task, prompt, reply.tokens[:at], f"probe {trace.index} {at}", i, limit - at)
                    for at in found
                    for i in range(k)
                ]
                wanted += [(group, trace, len(prompt) + len(start.said), start) for start in starts]
        grown = continued([start for *_, start in wanted], who, step, step.sampling(temperature))
        for (group, trace, at, start), (new, stopped) in zip(wanted, grown, strict=True):
            group.traces.append(_probe(group, trace, at, start, new, stopped, who))
        return groups

    return Rollout(
        name=f"probed({n}, {k})",
        call=call,
        reads=plain.reads,
        writes=plain.writes | names("tag", "probe"),
    )


def _probe(group: Group, trace: Trace, at: int, start: Prefix, new: Turn, stopped: str, who: str) -> Trace:
    prompt, reply = trace.turns
    turn = reply.first(len(start.said)).followed_by(new)
    note = {"stopped": stopped, "of": trace.index, "at": at}
    return Trace((prompt, turn), len(group.traces), tags=frozenset({"probe"}), note=note)
