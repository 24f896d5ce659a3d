"""Triples (reference, better, worse) as pairs of texts that hold the reference (POLAR)."""

from __future__ import annotations

from burnish.core.parts import Part, names, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Trace
from burnish.score.data import beside


@supplies("pairs", "tokens:candidate")
def beside_reference(*tags: str, reader: str = "rm") -> Part:
    """Each group's triple becomes one pair: the better and the worse reply, each beside the reference.

    tags  of the reference, the better and the worse reply. With one tag a group's traces are ranked, best first: the
          first is the reference, the second the better and the last the worse one. With two, two traces have the first
          tag (the same policy), one the second. The reference itself is never scored.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        model, kept = step.models[reader], []
        limit = min(model.context, step.settings.max_length or model.context)
        for group in groups:
            triple = _triple(group, tags)
            if triple is None or triple[1].tokens.tolist() == triple[2].tokens.tolist():
                continue
            prompt, reference = triple[0].turns[0].tokens, triple[0].turns[-1].tokens
            read = [beside(prompt, reference, one.turns[-1].tokens, model.chat, limit) for one in triple[1:]]
            kept.append(Group(group.task, read, [(0, 1)]))
        step.notes.add("dropped/no_preference", len(groups) - len(kept), max(1, len(groups)))
        return kept

    return Part(
        name=f"beside_reference({', '.join(tags)})",
        call=call,
        reads=names("tag", tags),
        writes=frozenset({"pairs", "tokens:candidate"}),
    )


def _triple(group: Group, tags: tuple[str, ...]) -> tuple[Trace, Trace, Trace] | None:
    by_tag = [[trace for trace in group.traces if tag in trace.tags] for tag in tags]
    if len(tags) == 1 and len(by_tag[0]) > 2:
        return by_tag[0][0], by_tag[0][1], by_tag[0][-1]
    if len(tags) == 2 and len(by_tag[0]) > 1 and by_tag[1]:
        return by_tag[0][0], by_tag[0][1], by_tag[1][0]
    if len(tags) == 3 and all(by_tag):
        return by_tag[0][0], by_tag[1][0], by_tag[2][0]
    return None
