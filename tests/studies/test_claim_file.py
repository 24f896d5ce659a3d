"""Claim files: what is read, and one sentence for each mistake."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from burnish.commands.study import main
from burnish.papers import studies as catalogued
from burnish.studies.claim_file import names, parse_study, read_study
from burnish.studies.plan import DEV, Plan
from burnish.studies.rules import Difference

GOOD: dict[str, Any] = yaml.safe_load("""
paper: {id: mine, title: My own method}
about: Is mine better?
arms:
  theirs: grpo(beta=0)
  mine: {method: grpo, beta: 0, n: 4, about: "smaller groups"}
  after: {method: grpo, model: "{mine}", lr: 1.0e-5}
design: {tasks: ["add:2"], seeds: 3, budget: tokens=1k}
claims:
  better: {claim: Mine is better., rule: {difference: {of: mine, less: theirs, margin: 0.03}}}
""")


def test_a_claim_file_is_read() -> None:
    study = parse_study(GOOD, "mine.yaml", "mine")
    assert study.arms["theirs"].flags == {"beta": 0} and study.arms["mine"].flags == {"beta": 0, "n": 4}
    assert study.quick == study.full and study.full.seeds == 3
    rule = study.claims[0].rule
    assert isinstance(rule, Difference) and rule.contrast.weights == {"mine": 1.0, "theirs": -1.0}
    assert study.sha == parse_study(copy.deepcopy(GOOD), "other place", "mine").sha
    changed = {**GOOD, "about": "Is it?"}
    assert study.sha != parse_study(changed, "mine.yaml", "mine").sha


def without(*keys: str) -> Callable[[dict[str, Any]], None]:
    def change(stored: dict[str, Any]) -> None:
        inner = stored
        for key in keys[:-1]:
            inner = inner[key]
        del inner[keys[-1]]

    return change


def with_value(value: object, *keys: str) -> Callable[[dict[str, Any]], None]:
    def change(stored: dict[str, Any]) -> None:
        inner = stored
        for key in keys[:-1]:
            inner = inner[key]
        inner[keys[-1]] = value

    return change


RULE = ("claims", "better", "rule")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (without("paper"), "`paper` should hold lines `name: value`"),
        (without("about"), "needs `about:` with a text"),
        (without("arms"), "`arms` should hold lines"),
        (with_value({}, "arms"), "has no arms"),
        (with_value("grpo", "arms", "a b"), "an arm cannot be called 'a b'"),
        (with_value({"beta": 0}, "arms", "mine"), "arm 'mine' needs `method:` with a text"),
        (with_value([1], "arms", "mine", "n"), "the flag 'n' should have one value"),
        (with_value("{nobody}", "arms", "mine", "model"), "refers to {nobody}, which is neither an arm above it"),
        (with_value("tokens", "design", "budget"), "the budget 'tokens' is not UNIT=AMOUNT"),
        (with_value(0, "design", "seeds"), "`seeds` is 0; it must be a whole number of at least 1"),
        (with_value({"arms": ["other"]}, "quick"), "an arm 'other'"),
        (with_value({}, "claims"), "has no claims"),
        (with_value({"differing": {}}, *RULE), "has 'differing', which is not known there; did you mean 'difference'?"),
        (with_value({"difference": {"of": "mine", "less": "thiers", "margin": 0.1}}, *RULE), "did you mean 'theirs'?"),
        (with_value({"difference": {"of": "mine", "less": "theirs"}}, *RULE), "needs `margin:` with a number"),
        (with_value({"difference": {"of": "mine", "less": "theirs", "margin": 0}}, *RULE), "must be above 0"),
        (with_value({"difference": {"margin": 0.1}}, *RULE), "`of:` and `less:`, two arms"),
        (with_value({"level": {"arm": "mine", "measure": "gain"}}, *RULE), "either `at_least:` or `at_most:`"),
        (with_value({"all": []}, *RULE), "`all:` should be a list of rules"),
        (with_value({"correlation": {"of": ["mine"], "x": "gain", "y": "gain", "at_least": 1, "bound": 0}}, *RULE),
         "fewer than 4 says nothing"),
        (with_value("maybe", "claims", "better", "otherwise"), "it must be one of undecided, needs scale"),
        (with_value(["a"], "tune"), "should be a list of learning rates"),
        (with_value(["right_reply"], "probes"), "there is no probe 'right_reply'"),
        (with_value("x", "unknown"), "has 'unknown', which is not known there"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_sentence(change: Callable[[dict[str, Any]], None], said: str) -> None:
    stored = copy.deepcopy(GOOD)
    change(stored)
    with pytest.raises(ValueError) as error:
        parse_study(stored, "mine.yaml", "mine")
    text = str(error.value)
    assert said in text and "mine.yaml" in text, text
    assert "\n" not in text


def test_names_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no study 'noisy-reward'; did you mean noisy-rewards-rpr"):
        read_study("noisy-reward")
    with pytest.raises(ValueError, match="there is no claim file"):
        read_study(str(tmp_path / "none.yaml"))
    with pytest.raises(ValueError, match="write list, show NAME, run NAME or report NAME"):
        main(["runs"])
    with pytest.raises(ValueError, match="there are no results in"):
        main(["report", names()[0], "--out", str(tmp_path)])


@pytest.mark.parametrize("name", names())
def test_every_claim_file_of_the_box_can_be_run(name: str) -> None:
    """Its paper is in the catalogue, and every arm's method, flags and tasks exist, in both versions."""
    study = read_study(name)
    paper = next(paper for paper in catalogued.ALL if paper.id == name)
    assert (study.source.id, study.source.arxiv, study.source.title) == (paper.id, paper.arxiv, paper.title)
    assert study.quoted and study.departures and all(claim.guess for claim in study.claims)
    for quick in (False, True):
        plan = Plan(study, study.design(quick), Path("nowhere"))
        plan.check()
        assert {arm for claim in study.claims for arm in claim.rule.arms} <= {arm.name for arm in plan.arms}


def test_waves_put_an_arm_after_those_it_refers_to(tmp_path: Path) -> None:
    study = parse_study(GOOD, "mine.yaml", "mine")
    first, second = Plan(study, study.full, tmp_path).waves({})
    assert {job.label for job in first} == {"theirs", "mine"} and {job.label for job in second} == {"after"}
    assert second[0].flags["model"] == f"{tmp_path}/runs/mine-add-2-seed0/model"
    assert [job.keep_model for job in first if job.label == "mine"] == [True] * 3


def test_learning_rates_are_chosen_on_seeds_of_their_own(tmp_path: Path) -> None:
    study = parse_study({**GOOD, "tune": [1e-5, 1e-4]}, "mine.yaml", "mine")
    plan = Plan(study, study.full, tmp_path)
    jobs = plan.tuning()
    assert {job.seed for job in jobs} == {DEV, DEV + 1} and {job.label.split()[0] for job in jobs} == {"theirs", "mine"}
    assert len(jobs) == 2 * 2 * 2  # arms that name no rate, rates, seeds
    assert {job.flags["lr"] for job in plan.waves({"mine": 1e-4})[0] if job.label == "mine"} == {1e-4}
    with pytest.raises(ValueError, match=r"arm 'mine': .*'betta'"):
        bad = copy.deepcopy(GOOD)
        bad["arms"]["mine"]["betta"] = 1
        Plan(parse_study(bad, "mine.yaml", "mine"), study.full, tmp_path).check()
