"""Similarity of a patch to the right one, without running anything (SWE-RL)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from burnish import papers
from burnish.core.option import Option
from burnish.core.task import Verdict
from burnish.verifiers.checks import BadRow
from burnish.verifiers.edits import WrongEdit, apply_blocks, apply_patch, change_similarity
from burnish.verifiers.final_answer import spoken
from burnish.verifiers.formats import tag_problem
from burnish.verifiers.limit import TooSlow, cpu_limit
from burnish.verifiers.read import column_json, too_long, wrong
from burnish.verifiers.table import Check, Row, verifier

SECONDS = 5.0  # of CPU time for one comparison


@verifier(
    papers.SWE_RL,
    needs=("files",),
    kinds=("patch",),
    summary="Similarity of the reply's edits to the right patch, -1 where they cannot be applied (SWE-RL).",
    when="Rows have `files` (path -> text) and `patch` (a unified diff) or `new_files` (path -> text).",
)
def swe_rl(
    *,
    think: Annotated[bool, Option("The reply must be <think>...</think><solution>...</solution>.")] = True,
    minimum: Annotated[float, Option("The similarity from which a reply counts as correct.", above=0, at_most=1)] = 1.0,
) -> Check:
    """-1 where the format is wrong, else the mean over the changed files of 2 M / T of their diffs (arXiv 2502.18449).

    The format is wrong where a think or solution tag (<solution>; <answer> does as well) does not occur exactly once or
    is empty, there is no search/replace block (burnish/verifiers/edits.py), the search text is not in the file, or
    search and replacement are the same. A block with an empty search text writes a new file. Diffs have three lines of
    context; 2 M / T is the ratio of difflib.SequenceMatcher(new, right) over characters without the junk heuristic. A
    file changed on one side alone counts 0. A comparison that takes more than 5 s of CPU time scores 0. Only an
    identical patch is 1.

    Departures: blocks are read with or without a ``` fence around each, and an empty search text in a file that has
    lines is wrong, where the released code puts the replacement before each of its lines.
    """

    def check(row: Row, reply: str) -> Verdict:
        files = _files(row, "files")
        right = _right(row, files)
        if reason := too_long(reply):
            return wrong(reason, -1.0)
        tag = "answer" if "<answer>" in reply and "<solution>" not in reply else "solution"
        if think and (problem := tag_problem(reply, ["think", tag], outside=True)):
            return wrong(problem, -1.0)
        try:
            patched = apply_blocks(spoken(reply, tag), files)
        except WrongEdit as error:
            return wrong(str(error), -1.0)
        try:
            with cpu_limit(SECONDS):
                score = change_similarity(patched, right, files)
        except TooSlow as error:
            return wrong(f"the comparison of the patches was stopped: {error}")
        return Verdict(score, True) if score >= minimum else wrong(f"similarity {score:.3f} to the patch", score)

    return check


def _files(row: Row, name: str) -> dict[str, str]:
    given: object = column_json(row, name)
    if not isinstance(given, Mapping) or not all(isinstance(text, str) for text in given.values()):
        raise BadRow(f"the column {name!r} of a row is not an object of path -> text")
    return dict(given)


def _right(row: Row, files: Mapping[str, str]) -> dict[str, str]:
    """The files that the right patch changes."""
    if row.get("new_files") is not None:
        return {path: text for path, text in _files(row, "new_files").items() if files.get(path) != text}
    if not isinstance(row.get("patch"), str):
        raise BadRow("swe_rl needs a column 'patch' (a unified diff) or 'new_files' (path -> text); a row has neither")
    try:
        return apply_patch(str(row["patch"]), files)
    except WrongEdit as error:
        raise BadRow(f"the patch of a row does not fit its files: {error}") from None
