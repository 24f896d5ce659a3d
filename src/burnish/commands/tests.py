"""`burnish tests`: make or filter the tests of programming problems, and measure them."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from burnish.config.flags import read
from burnish.core.option import Option
from burnish.util.terminal import stdout_console

if TYPE_CHECKING:
    from burnish.sandbox.code.box import Box
    from burnish.sandbox.code.limits import Limits
    from burnish.verifiers.code.synthesis import Measured
    from burnish.verifiers.code.tests import Tests


@dataclass(frozen=True)
class TestsOptions:
    """burnish tests DATA --out FILE: make or filter the tests of programming problems.

    hardtests makes tests of standard inputs. It reads the columns direct (inputs), generators and hacks (sources of
    functions that return an input), validator (a source with validate(input)), judge (a source with judge(input,
    expected, printed), where several outputs are right) and oracles (right programs), and writes inputs and outputs.
    acecoder keeps the tests of a row that its reference solution passes (oracles, canonical_solution or code). Rows
    with a column labelled ([{"code": ..., "right": true}, ...]) measure the verdict. All programs run in the code
    sandbox (docs/code.md)."""

    __test__ = False  # not a test of pytest's

    out: str = ""
    """The JSONL file to write; it must not exist. Without it, only the measurements are printed."""
    rule: Literal["hardtests", "acecoder"] = "hardtests"
    """How tests are made: hardtests or acecoder."""
    writer: str = ""
    """A model, or endpoint(URL, NAME), that first writes the tests: asserts for acecoder; inputs, generators, hacks and
    a validator for hardtests. Of a row it reads the prompt and the first right program."""
    tasks: Annotated[int | None, Option(at_least=1)] = None
    """Number of rows; by default all."""
    agree: Annotated[int, Option(at_least=1)] = 2
    """hardtests: how many right programs must give the same output."""
    seconds: Annotated[float, Option(above=0)] = 10.0
    """The time limit of one run."""
    unsafe_code: bool = False
    """Run programs even where the machine cannot isolate them."""
    json: bool = False
    """Print the summary as JSON only."""


def main(words: list[str]) -> int:
    asked = read(TestsOptions, "tests", words, plain=1)
    if asked is None:
        return 0
    names, options = asked
    if not names:
        raise ValueError("say which data: burnish tests problems.jsonl --out tested.jsonl")
    out = Path(options.out) if options.out else None
    if out is not None and out.exists():
        raise ValueError(f"{out} exists already; choose another --out, or remove it")
    rows, summary = _made(names[0], options)
    if out is not None:
        out.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    if options.json:
        print(json.dumps(summary, indent=1))
    else:
        _show(summary, out)
    return 0


def _made(name: str, options: TestsOptions) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The rows that have tests now, and a summary."""
    from burnish.sandbox.code.limits import Limits
    from burnish.verifiers.code.grader import CodeGrader
    from burnish.verifiers.code.synthesis import Measured

    limits = Limits().within(options.seconds)
    dropped: Counter[str] = Counter()
    measured = Measured()
    kept: list[dict[str, Any]] = []
    count = 0
    written = _written(name, options)
    grader = CodeGrader(limits, workers=1, isolated=not options.unsafe_code)
    try:
        for count, (where, row) in enumerate(_rows(name, options.tasks), 1):
            with grader.box() as box:
                make = _hard if options.rule == "hardtests" else _filtered
                asked = dict(row) | (written[count - 1] if written else {})
                changed = make(box, asked, options, limits, dropped, where)
                if changed is not None:
                    kept.append(changed[0])
                    _measure(box, changed[1], row, limits, measured)
    finally:
        grader.end()
    summary = {"rows": count, "rows_with_tests": len(kept), "dropped": {k: n for k, n in dropped.items() if n}}
    return kept, {**summary, **_numbers(measured)}


def _rows(name: str, tasks: int | None) -> list[tuple[str, dict[str, Any]]]:
    """The first rows of the data, each with the place that an error names."""
    from burnish.tasks.data.files import read_rows

    found = ((table.where(i), row) for table in read_rows(name).values() for i, row in enumerate(table))
    return list(islice(found, tasks))


def _written(name: str, options: TestsOptions) -> list[dict[str, Any]]:
    """The columns that the writer adds to each row; empty without a writer."""
    if not options.writer:
        return []
    from burnish.core.step import Settings, Step
    from burnish.core.types import Clock
    from burnish.datagen import written_tests as written
    from burnish.models.build import Models, build
    from burnish.models.known_models import resolve
    from burnish.score.judges import read_judge

    judge, settings = read_judge(options.writer), Settings()
    roles = dict(judge.models)
    base = resolve(next(iter(roles.values())).source) if roles else None
    step = Step(Clock(0, 1), build(roles, base, settings) if base else Models({}), settings)
    by_inputs, by_asserts = (
        (written.inputs_question, written.inputs_of),
        (written.asserts_question, written.columns_of_asserts),
    )
    ask, read_answer = by_asserts if options.rule == "acecoder" else by_inputs
    rows = [row for _, row in _rows(name, options.tasks)]
    asked = [ask(str(row.get("prompt") or row.get("question") or ""), _solution(row) or "") for row in rows]
    return [{} if one.failed else read_answer(one.text) for (one,) in judge.ask(asked, step)]


def _solution(row: dict[str, Any]) -> str | None:
    """The first right program of a row."""
    return next(iter(row.get("oracles") or []), None) or row.get("canonical_solution") or row.get("code")


Changed = tuple[dict[str, Any], "Tests"]


def _hard(
    box: Box, row: dict[str, Any], options: TestsOptions, limits: Limits, dropped: Counter[str], where: str
) -> Changed | None:
    from burnish.verifiers.code.synthesis import Recipe, make_tests
    from burnish.verifiers.code.tests import Scripts

    columns = {name: row.get(name) or [] for name in ("direct", "generators", "hacks", "oracles")}
    judge = row.get("judge") or ""
    try:
        made = make_tests(
            box, Recipe(**columns, validator=row.get("validator") or "", judge=judge), limits, options.agree
        )
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    dropped.update(made.dropped)
    if not made.cases:
        dropped["rows without tests"] += 1
        return None
    row |= {"inputs": [one for one, _ in made.cases], "outputs": [two for _, two in made.cases]}
    return row | {"test_kinds": made.kinds}, Scripts(tuple(made.cases), judge)


def _filtered(
    box: Box, row: dict[str, Any], options: TestsOptions, limits: Limits, dropped: Counter[str], where: str
) -> Changed | None:
    from burnish.verifiers.code.synthesis import passed_by, single_tests
    from burnish.verifiers.code.tests import Asserts, Calls, Scripts, read_tests

    if options.writer and not row.get("test_list"):
        dropped["rows without tests"] += 1
        return None
    tests = read_tests(row, str(row.get("prompt") or ""), where)
    solution = _solution(row)
    if tests is None or not solution:
        raise ValueError(
            f"{where}: acecoder needs tests and a reference solution (oracles, canonical_solution or code)"
        )
    kept = passed_by(box, tests, solution, limits)
    dropped["failed by the reference"] += len(single_tests(tests)) - (len(single_tests(kept)) if kept else 0)
    if kept is None:
        dropped["rows without tests"] += 1
        return None
    if isinstance(kept, Asserts):
        row["test_list"] = list(kept.tests)
    elif isinstance(kept, Scripts):
        row |= {"inputs": [one for one, _ in kept.cases], "outputs": [two for _, two in kept.cases]}
    elif isinstance(kept, Calls):
        row["calls"] = [
            {"function": c.function, "args": list(c.arguments), "kwargs": dict(c.named), "expected": c.expected}
            for c in kept.calls
        ]
    return row, kept


def _measure(box: Box, tests: Tests, row: Any, limits: Limits, into: Measured) -> None:
    from burnish.verifiers.code.synthesis import measure

    labelled = [(str(one["code"]), bool(one["right"])) for one in row.get("labelled") or []]
    measure(box, tests, labelled, limits, into)


def _numbers(measured: Measured) -> dict[str, object]:
    counts = asdict(measured)
    return {**counts, "precision": measured.precision, "recall": measured.recall} if any(counts.values()) else {}


def _show(summary: dict[str, Any], out: Path | None) -> None:
    console = stdout_console()
    console.print(f"{summary['rows_with_tests']} of {summary['rows']} problems have tests now")
    for why, count in summary["dropped"].items():
        console.print(f"  {count:6} {why}")
    if "precision" in summary:
        shown = {name: "-" if summary[name] is None else f"{summary[name]:.1%}" for name in ("precision", "recall")}
        programs = sum(summary[name] for name in summary if name.endswith(("_accepted", "_rejected")))
        console.print(f"on {programs} labelled programs: precision {shown['precision']}, recall {shown['recall']}")
    if out is not None:
        console.print(f"next: burnish train grpo --task {out}", soft_wrap=True)
