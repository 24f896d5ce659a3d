"""The best candidate of each state, by a rule about the attempts before it (RISE, arXiv 2407.18219)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from burnish.core.parts import Part, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Trace

Rule = Callable[[Trace, Sequence[float]], bool]  # (the best candidate, the scores of the attempts before) -> kept

RULES: dict[str, Rule] = {
    "all": lambda best, earlier: True,
    "better": lambda best, earlier: not earlier or best.scores["reward"] > earlier[-1],
    "best": lambda best, earlier: not earlier or best.scores["reward"] > max(earlier),
    "success": lambda best, earlier: best.scores.get("correct", best.scores["reward"]) > 0,
}


@supplies("tag:improved")
def best_of_states(rule: str = "all") -> Part:
    """Of the candidates of each state the one that scores best, the earliest of equals, where the rule keeps it.

    rule  all: always;  better: it scores more than the attempt before;  best: more than every attempt before;
          success: it is right. The first attempt has none before it, and is kept by all but the last rule.
    """
    if rule not in RULES:
        raise ValueError(f"the rule {rule!r} is unknown; choose one of {', '.join(RULES)}")

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            states: dict[tuple[int, ...], list[Trace]] = {}
            for trace in group.traces:
                states.setdefault(tuple(trace.note["state"]), []).append(trace)
            best = [max(traces, key=lambda trace: trace.scores["reward"]) for traces in states.values()]
            kept = [trace for trace in best if RULES[rule](trace, trace.note["earlier"])]
            for trace in kept:
                trace.tags = trace.tags | {"improved"}
                step.notes.add("score/selected", trace.scores["reward"])
            step.notes.add("states_kept", len(kept), max(1, len(best)))
            group.traces = kept
        return [group for group in groups if group.traces]

    return Part(
        name=f"best_of_states({rule})",
        call=call,
        reads=frozenset({"tag:candidate", "score:reward"}),
        writes=frozenset({"tag:improved"}),
        updates=frozenset({"tokens:policy"}),
    )
