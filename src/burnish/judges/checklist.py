"""Checklists: requirements with weights, some of which a verifier can check."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from burnish.core.call_syntax import read_call
from burnish.core.task import Verdict
from burnish.judges.read import weighted_lines
from burnish.reward_functions.reward import Failed
from burnish.reward_functions.sandboxed import SandboxedReward
from burnish.verifiers.table import load_verifiers

HIGHEST = 100  # the largest weight


@dataclass(frozen=True)
class Requirement:
    """One item. check: a verifier by name, e.g. f1(minimum=0.5), that decides half of its score; empty: the judge."""

    text: str
    weight: float = 100.0
    check: str = ""

    def stored(self) -> dict[str, str | float]:
        return {"item": self.text, "weight": self.weight, "check": self.check}


UNIVERSAL = (  # RLCF adds two requirements that hold for every request
    Requirement("The reply answers the request directly, without anything that the request does not call for."),
    Requirement("The reply fits the context of the request: its language, its tone and what it takes for granted."),
)


def read_checklist(given: object, where: str) -> list[Requirement]:
    """The requirements of a row or a file: texts, lines `WEIGHT | text`, or objects with item, weight and check."""
    if isinstance(given, str):
        given = [line for line in given.splitlines() if line.strip()]
    if not isinstance(given, Sequence) or not given:
        raise ValueError(f"{where}: a checklist is a list of requirements, not {str(given)[:60]!r}")
    return [_requirement(one, where) for one in given]


def _requirement(one: object, where: str) -> Requirement:
    if isinstance(one, Mapping):
        text = one.get("item") or one.get("requirement") or one.get("text")
        weight, check = one.get("weight", 100.0), str(one.get("check") or "")
        if not isinstance(text, str) or not isinstance(weight, int | float) or not 0 <= weight <= HIGHEST:
            raise ValueError(
                f"{where}: a requirement is an object with item, weight from 0 to {HIGHEST} and perhaps check, not "
                f"{one!r:.80}"
            )
        require_check(check, where)
        return Requirement(text, float(weight), check)
    weighted = weighted_lines(str(one), HIGHEST, 1)
    return Requirement(weighted[0][1], float(weighted[0][0])) if weighted else Requirement(str(one))


def require_check(check: str, where: str) -> None:
    """Raise ValueError for a check that is no verifier by name."""
    if not check:
        return
    call = read_call(check)
    if call is None or call.name not in load_verifiers():
        raise ValueError(f"{where}: the check {check!r} is no verifier; `burnish rewards` lists them")


def passes(
    check: str, prompts: Sequence[object], replies: Sequence[str], rows: Sequence[Mapping[str, object]]
) -> list[bool | None]:
    """Whether each reply passes a verifier, in the sandbox; None where the verifier failed."""
    call = read_call(check)
    assert call is not None, check
    columns = {name: [row.get(name) for row in rows] for name in sorted({key for row in rows for key in row})}
    verdicts = SandboxedReward(call).answers(prompts, replies, columns)
    return [None if one is None or isinstance(one, Failed) else _correct(one) for one in verdicts]


def _correct(answer: float | Verdict) -> bool:
    return answer.correct if isinstance(answer, Verdict) else answer > 0.5
