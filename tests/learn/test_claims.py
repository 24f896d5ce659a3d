"""Which tokens a term trains on: `Term(on=...)`, and claim() where that does not say enough."""

from __future__ import annotations

import pytest
import torch

from burnish.compose.swap import swap
from burnish.core.types import Group, Task, Trace, Turn
from burnish.learn.batch import claims, masks, write_claims
from burnish.learn.maths.token_weights import probability_weight
from burnish.learn.term import CLAIMED, Authors, Term
from burnish.learn.terms import imitate, pg_reinforce
from burnish.methods.imitation import sft
from burnish.tasks.table import source

TASK = Task("question", "?", {}, "q")


def tree() -> Group:
    """Two traces that share the prompt and the first reply: prompt 2, shared 2, then 1 by the policy
    and 3 by a demo.
    """
    prompt = Turn(torch.tensor([1, 2]), "task")
    shared = Turn(torch.tensor([3, 4]), "policy", parent=prompt)
    a = Turn(torch.tensor([5]), "policy", parent=shared)
    b = Turn(torch.tensor([6, 7, 8]), "demo", parent=shared)
    return Group(TASK, [Trace((prompt, shared, a)), Trace((prompt, shared, b))])


def claimed(term: Term, group: Group) -> list[list[int]]:
    return [mask.nonzero()[:, 0].tolist() for mask in masks(term, group)]


@pytest.mark.parametrize(
    ("on", "expected"),
    [
        ("policy", [[2, 3, 4], []]),
        ("demo", [[], [4, 5, 6]]),
        (("demo", "policy"), [[2, 3, 4], [4, 5, 6]]),
        ("env", [[], []]),
    ],
)
def test_on_is_what_the_authors_wrote_and_a_shared_turn_once(on: Authors, expected: list[list[int]]) -> None:
    assert claimed(imitate(on=on), tree()) == expected


def test_the_policy_is_the_default() -> None:
    assert imitate().on == pg_reinforce().on == "policy"


def test_a_claim_overrides_on() -> None:
    group = tree()
    for trace in group.traces:
        trace.streams["claim:sft"] = torch.arange(len(trace)) == len(trace) - 1
    assert claimed(imitate(), group) == [[4], [6]]
    assert claims([group], [imitate()])["sft"].sizes == [[1, 1]]


def test_a_term_that_waits_for_a_claim_says_so() -> None:
    with pytest.raises(ValueError, match=r"term 'sft' .* no part wrote 'claim:sft' .* add claim\('sft', AUTHOR\)"):
        masks(imitate(on=CLAIMED), tree())


def test_a_claim_on_some_traces_of_a_group_is_refused() -> None:
    group = tree()
    group.traces[0].streams["claim:sft"] = torch.ones(5, dtype=torch.bool)
    with pytest.raises(ValueError, match="no part wrote 'claim:sft'"):
        masks(imitate(), group)


def test_what_a_term_learns_from_is_written_on_the_traces() -> None:
    group = tree()
    write_claims([group], [imitate(on="demo")])
    assert [trace.streams["claim:sft"].tolist() for trace in group.traces] == [
        [False] * 5,
        [False] * 4 + [True] * 3,
    ]


def test_a_swapped_term_keeps_the_authors_of_the_old_one() -> None:
    swapped = swap(sft(source("sort")), sft=imitate(weight=probability_weight))
    assert [term.on for term in swapped.phases[0].learn.terms] == ["demo"]
    with pytest.raises(ValueError, match="term 'sft' reads 'tokens:guide'"):
        swap(sft(source("sort")), sft=imitate(on="guide"))
