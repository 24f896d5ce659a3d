"""The verdicts of a study, computed from its raw results alone."""

from __future__ import annotations

from dataclasses import dataclass, replace

from burnish.compare.statistics import holm
from burnish.studies.measures import Missing, Runs
from burnish.studies.results import Raw
from burnish.studies.rules import UNDECIDED, Part, count
from burnish.studies.study import Claim, Study

LEAST = 3  # seeds of every arm of a rule


@dataclass(frozen=True)
class Verdict:
    """The verdict on a claim with what it was computed from. why: no verdict by the rule, and the reason."""

    claim: Claim
    verdict: str
    parts: tuple[Part, ...] = ()
    why: str = ""


def judge(study: Study, runs: Runs) -> list[Verdict]:
    """The verdict on every claim; p-values are corrected over all claims of the study (Holm)."""
    measured: list[tuple[Claim, list[Part], str]] = []
    for claim in study.claims:
        try:
            measured.append((claim, claim.rule.parts(runs), ""))
        except Missing as error:
            measured.append((claim, [], str(error)))
    ps = [part.p for _, parts, _ in measured for part in parts if part.p is not None]
    corrected = iter(holm(ps))
    verdicts = []
    for claim, parts, missing in measured:
        parts = [part if part.p is None else replace(part, adjusted=next(corrected)) for part in parts]
        if missing:
            verdicts.append(Verdict(claim, UNDECIDED, (), missing))
            continue
        assert len(parts) == count(claim.rule)
        failing = _too_few(claim, runs) or _failing(claim, runs)
        verdict = UNDECIDED if _too_few(claim, runs) else claim.otherwise if failing else claim.rule.verdict(parts)
        verdicts.append(Verdict(claim, verdict, tuple(parts), failing))
    return verdicts


def _too_few(claim: Claim, runs: Runs) -> str:
    """Why the seeds are too few for any verdict; empty where they are not."""
    fewest = min(len(runs.matrix(arm, "accuracy")) for arm in claim.rule.arms)
    return f"{fewest} seeds are too few for a verdict; it takes {LEAST}" if fewest < LEAST else ""


def _failing(claim: Claim, runs: Runs) -> str:
    """The first manipulation check that is not met, in words; empty where all are."""
    for check in claim.checks:
        try:
            (part,) = check.parts(runs)
        except Missing as error:
            return f"its check cannot be made: {error}"
        if not check.met(part.mean):
            side = "at least" if check.at_least is not None else "at most"
            return f"its check fails: {check} is {part.mean:.3g}, and should be {side} {check.bound:.3g}"
    return ""


def changed_claim_file(study: Study, raw: Raw) -> str:
    """What is to be said of the claim file's version: empty where it is the one of before the first run."""
    if raw.shas and raw.shas[0] != study.sha:
        return (
            f"The claim file has changed since the first run: it was {raw.shas[0]} then, and is {study.sha} now. The "
            "verdicts are those of the present one."
        )
    return ""
