"""How episodes ended: won, lost, or aborted because the rules were broken."""

from __future__ import annotations

from burnish.core.parts import Part, supplies
from burnish.core.scorer import is_failed
from burnish.core.step import Step
from burnish.core.types import Group, Trace

WORDS = {"success": "won", "won": "won", "lose": "lost", "lost": "lost", "abort": "aborted", "aborted": "aborted"}


def outcome_of(trace: Trace, win: float) -> str:
    """won, lost or aborted: by the environment's info["outcome"], else won where the reward is at least `win`."""
    said = str(trace.note.get("outcome", "")).lower()
    return WORDS.get(said, "won" if trace.scores["reward"] >= win else "lost")


@supplies("tag:won", "tag:lost", "tag:aborted", "tag:counted")
def outcomes(win: float) -> Part:
    """Tag each episode "won", "lost" or "aborted", and "counted"; one whose environment failed gets no tag.

    A game that is aborted (a reply breaks the rules of the format) is not a lost one: their shares are metrics apart.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        for trace in (trace for group in groups for trace in group.traces if not is_failed(trace)):
            found = outcome_of(trace, win)
            trace.tags |= {found, "counted"}
            for name in ("won", "lost", "aborted"):
                step.notes.add(f"episodes/{name}", float(found == name))
        return groups

    return Part(
        name=f"outcomes({win:g})",
        call=call,
        reads=frozenset({"score:reward"}),
        writes=frozenset({"tag:won", "tag:lost", "tag:aborted", "tag:counted"}),
    )
