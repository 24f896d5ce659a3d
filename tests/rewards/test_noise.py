"""Flipped rewards: all replies of a prompt together, or each by itself; and a fixed set of prompts."""

from __future__ import annotations

import pytest
from shaping import a_step, group, scorer, trace

from burnish.core.types import Group
from burnish.methods.curricula import few
from burnish.methods.table import find
from burnish.tasks.table import source


def rewards(groups: list[Group]) -> list[list[float]]:
    return [[one.scores["reward"] for one in each.traces] for each in groups]


def flipped(words: str, groups: int = 400, step: int = 0) -> list[list[float]]:
    """The rewards of groups with replies 1, 1, 0, 0 after the shape."""
    batch = [group(*(trace(r) for r in (1.0, 1.0, 0.0, 0.0)), key=str(i)) for i in range(groups)]
    return rewards(scorer(words).part.call(batch, a_step(step=step)))


def test_a_prompt_is_flipped_as_a_whole() -> None:
    rows = flipped("flip(0.4)")
    assert {tuple(row) for row in rows} == {(1.0, 1.0, 0.0, 0.0), (0.0, 0.0, 1.0, 1.0)}
    share = sum(row[0] == 0.0 for row in rows) / 400
    assert share == pytest.approx(0.4, abs=0.08)  # three standard deviations of 400 draws are 0.073


def test_replies_are_flipped_one_by_one() -> None:
    """The chance that all four or none of a group are flipped is 0.4^4 + 0.6^4 = 0.155, so most groups are mixed."""
    rows = flipped("flip(0.4, per=reply)")
    whole = sum(tuple(row) in {(1.0, 1.0, 0.0, 0.0), (0.0, 0.0, 1.0, 1.0)} for row in rows) / 400
    assert whole == pytest.approx(0.155, abs=0.06)


def test_the_ends_and_the_seed() -> None:
    assert (
        flipped("flip(0.0)", 3) == [[1.0, 1.0, 0.0, 0.0]] * 3 and flipped("flip(1.0)", 3) == [[0.0, 0.0, 1.0, 1.0]] * 3
    )
    assert flipped("flip(0.4)") == flipped("flip(0.4)") != flipped("flip(0.4)", step=1)


def test_few_prompts_again_and_again() -> None:
    """One prompt in every step of a seed, another for another seed; without it a new one each step."""
    task = source("add:2")
    plain = find("grpo").build(task, n=2)
    method = few(size=1)(plain, task)

    def drawn(method: object, step: int) -> list[str]:
        tasks = method.phases[0].draw.call(a_step(step=step, prompts=4))  # type: ignore[attr-defined]
        return [one.key for one in tasks]

    assert len(drawn(method, 0)) == 1 and drawn(method, 0) == drawn(method, 5)
    assert len(drawn(plain, 0)) == 4 and not set(drawn(plain, 0)) & set(drawn(plain, 1))
    assert method.phases[0].draw.heldout is plain.phases[0].draw.heldout
