"""Every metric is defined in one table, speaks of the tokens it says it speaks of, and does not depend on
micro-batching.
"""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import SMALL, build_cast, build_method

import burnish
from burnish.core.loop import Report, loop
from burnish.core.step import Settings
from burnish.core.types import Clock
from burnish.engine.subprocess import probe
from burnish.learn import mismatch
from burnish.methods.table import METHODS
from burnish.report.definitions import definition, definitions, markdown

DOCS = Path(__file__).parents[2] / "docs" / "metrics.md"
VARIED = ("grpo", "dapo", "dpo", "sft", "ppo", "gdpo", "icepop", "disco", "best_of_n", "reward_model", "trpo", "gkd")


def reports(name: str, model: Path, teacher: Path, settings: Settings = SMALL, steps: int = 2) -> list[Report]:
    method = build_method(name, teacher)
    return list(loop(method, build_cast(method, model, settings), settings, steps=steps))


def undefined(name: str, model: Path, teacher: Path) -> set[str]:
    found = {metric for report in reports(name, model, teacher) for metric in report.metrics} - {"step"}
    return {metric for metric in found if definition(metric) is None}


@pytest.mark.parametrize("name", VARIED)
def test_what_a_method_measures_is_defined(name: str, small_model: Path, other_model: Path) -> None:
    assert not undefined(name, small_model, other_model)


@pytest.mark.slow
def test_what_any_method_measures_is_defined(small_model: Path, other_model: Path) -> None:
    found = {name: undefined(name, small_model, other_model) for name in METHODS if name not in VARIED}
    assert not {name: names for name, names in found.items() if names}


def test_whatever_a_part_may_note_is_defined() -> None:
    """Every name that stands in the code, also where no test's run comes by: in f-strings, any word for
    what is put in.
    """
    names = {mismatch.NAME, probe.NAME, "seconds/learn", "memory_mb", "heldout/accuracy"}
    for file in sorted(Path(burnish.__file__).parent.rglob("*.py")):
        for call in ast.walk(ast.parse(file.read_text())):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.args:
                names |= noted(call.func, call.args[0])
    assert len(names) > 60
    assert not {name for name in names if definition(name) is None}


def noted(called: ast.Attribute, first: ast.expr) -> set[str]:
    """The names that a call such as step.notes.add("kl", ...) or live.note("nll", ...) writes."""
    owner = ast.unparse(called.value)
    if not (owner.endswith("notes") and called.attr in ("add", "count")) and not (
        owner == "live" and called.attr == "note"
    ):
        return set()
    options = [first.body, first.orelse] if isinstance(first, ast.IfExp) else [first]
    found = set()
    for one in options:
        if isinstance(one, ast.JoinedStr):
            found.add("".join(str(x.value) if isinstance(x, ast.Constant) else "loss" for x in one.values))
        elif isinstance(one, ast.Constant):
            found.add(str(one.value))
    return {f"pg/{name}" for name in found} if owner == "live" else found


def test_definitions_are_looked_up_the_specific_first() -> None:
    assert "KL to the reference" in definition("kl/loss").what  # type: ignore[union-attr]
    assert "term" in definition("pg/loss").what  # type: ignore[union-attr]
    assert "held-out" in definition("heldout/accuracy").what  # type: ignore[union-attr]
    assert "pairs" in definition("reply/accuracy").what  # type: ignore[union-attr]
    assert definition("nonsense") is None and definition("pg/nonsense") is None
    assert len({one.name for one in definitions()}) == len(definitions())


def test_the_docs_hold_the_table() -> None:
    """Regenerate with: python -c 'from burnish.report.definitions import markdown; print(markdown())'."""
    assert markdown() in DOCS.read_text()
    assert not [one.name for one in definitions() if "|" in one.what]  # it would end the cell of a table


@pytest.mark.parametrize("name", ["grpo", "dapo", "dpo", "ppo"])
def test_micro_batches_do_not_change_what_is_measured(name: str, small_model: Path, other_model: Path) -> None:
    whole = reports(name, small_model, other_model, replace(SMALL, token_budget=100_000), steps=1)[0].metrics
    split = reports(name, small_model, other_model, replace(SMALL, token_budget=64), steps=1)[0].metrics
    assert whole.keys() == split.keys()
    for metric, value in whole.items():
        assert split[metric] == pytest.approx(value, rel=1e-4, abs=1e-6), metric


def test_means_are_over_reply_tokens_alone(small_model: Path, other_model: Path) -> None:
    """length, cut_off and sampled_tokens, counted again from the groups by hand; no prompt token is in them."""
    (report,) = reports("grpo", small_model, other_model, steps=1)
    traces = [trace for group in report.groups["main"] for trace in group.traces]
    said = [sum(len(turn) for turn in trace.turns if turn.author == "policy") for trace in traces]
    assert report.clock == Clock(0, 1, 0)
    assert report.metrics["sampled_tokens"] == sum(said)
    assert report.metrics["length"] == pytest.approx(sum(said) / len(said))
    assert report.metrics["cut_off"] == pytest.approx(sum(t.note["stopped"] == "length" for t in traces) / len(traces))
    assert report.metrics["reward"] == pytest.approx(sum(t.scores["reward"] for t in traces) / len(traces))
