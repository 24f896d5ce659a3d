"""docs/reliability.md states only what tests hold: what it names exists, and its figures are those of the raw files."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reliability.md").read_text()


def raw(name: str) -> dict[str, Any]:
    return dict(json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text()))


def section(title: str) -> str:
    """The text below a heading, on one line."""
    return " ".join(PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0].split())


def test_every_test_and_script_of_the_page_exists() -> None:
    named = set(re.findall(r"`((?:tests|scripts|examples)/[\w/.]+?\.py)", PAGE))
    assert len(named) > 40 and not [name for name in named if not (ROOT / name).is_file()]


@pytest.mark.parametrize("title", re.findall(r"^## (.+)$", PAGE, re.MULTILINE))
def test_every_section_names_its_tests(title: str) -> None:
    assert title == "What is not guaranteed" or "`tests/" in section(title)


def test_figures_are_those_of_the_raw_files() -> None:
    kills = raw("kills")["summary"]
    hostile, damage, faults, load = raw("hostile"), raw("damage"), raw("faults"), raw("endpoint")
    text = section("Hostile replies")
    assert f"{hostile['replies']:,} hostile replies to {hostile['scorers']} scorers" in text
    assert hostile["code_executions"] == hostile["hangs"] == hostile["code_executions_without_the_sandbox"] == 0
    assert f"the slowest verdict took {hostile['slowest_verdict_s']:.1f} s" in text
    text = section("Checkpoint integrity")
    assert f"{damage['detected']:,} of {damage['damages']:,} damaged checkpoints were noticed" in text
    text = section("Lost processes on Ray")
    assert f"{faults['useful']:.2f} ({faults['undisturbed_s']:.0f} s without faults" in text and faults["identical"]
    text = section("Requests to the endpoint")
    assert f"all of {load['requests']:,} requests of {load['clients']} clients in {load['seconds']:.0f} s" in text
    assert f"{load['mb_second_tenth']:.1f} MiB in the second tenth of that time and {load['mb_last_tenth']:.1f}" in text
    assert load["failed"] == 0 and f"{load['connections_of_strangers']:,} connections of strangers" in text
    text, memory = section("Memory"), raw("memory")["summary"]["run"]
    assert f"was {memory['early_mb']:.0f} MiB, over the last 1,000 steps {memory['late_mb']:.0f} MiB" in text
    text, slips = section("Tests that notice mistakes"), raw("mutants")
    assert f"{slips['run']} of the {slips['wanted']} have been run, and {slips['noticed']} were noticed" in text
    assert f"the other {slips['wanted'] - slips['run']} have not been run" in text
    text = section("Killed runs")
    assert f"{kills['identical']} of {kills['kills']} kills" in text
    assert f"{kills['killed_before_the_first_checkpoint']} kills before the first checkpoint" in text
    for run, number in kills["by_variant"].items():
        assert re.search(rf"\| {run} \| [^|]+\| \d+ \| \d+ \| [^|]+\| {number} \|", text), run
