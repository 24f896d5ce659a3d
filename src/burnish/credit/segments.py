"""Values from sampled continuations: of segments along a reply, and of the nodes of a tree of replies.

A reply with probes has note["cuts"], the positions (in the trace) at which it was continued afresh; each probe has
note["of"], the index of its reply, and note["at"], the position. V(cut) is the mean score of the probes from there.
"""

from __future__ import annotations

from collections import defaultdict

from burnish.core.types import Group


def cut_values(group: Group, score: str) -> dict[tuple[int, int], float]:
    """(reply, position) -> mean score of the continuations from there."""
    scores_at: dict[tuple[int, int], list[float]] = defaultdict(list)
    for trace in group.traces:
        if "probe" in trace.tags:
            scores_at[trace.note["of"], trace.note["at"]].append(trace.scores[score])
    return {where: sum(scores) / len(scores) for where, scores in scores_at.items()}
