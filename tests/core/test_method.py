"""Invalid compositions are refused when they are built, with an error that names possible suppliers."""

from __future__ import annotations

import pytest

from burnish.core.method import Method, method
from burnish.core.parts import Part, chain, everything, suppliers
from burnish.core.roles import frozen, roles, snapshot
from burnish.credit.claims import claim
from burnish.credit.group import group_relative
from burnish.credit.streams import behaviour, old, ref
from burnish.draw.tasks import prompts
from burnish.learn.learn import Learn
from burnish.learn.term import CLAIMED
from burnish.learn.terms import kl_k3, pg_clip
from burnish.rollout.sample import sample
from burnish.score.verify import verify
from burnish.tasks.table import source

TASK = source("sort")
ROOMS = {"draw": prompts(TASK), "rollout": sample(4), "score": verify(TASK)}


def build(**changed: object) -> Method:
    rooms = {
        **ROOMS,
        "credit": chain(group_relative(), behaviour()),
        "learn": Learn(pg_clip(0.2)),
        "models": roles(),
    }
    return method(**{**rooms, **changed})  # type: ignore[arg-type]


def test_the_plain_composition_builds() -> None:
    assert [placed.part.name for placed in build().phases[0].parts()][-1] == "behaviour"


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        (
            {"credit": behaviour()},
            "term 'pg' reads 'stream:adv'(?=.*credit.gae).*credit.group_relative",
        ),
        (
            {"credit": group_relative()},
            "term 'pg' reads 'stream:old'.*credit.old, credit.behaviour",
        ),
        ({"learn": Learn(pg_clip(0.2, on=CLAIMED))}, "term 'pg' reads 'claim:pg'.*credit.claim"),
        ({"learn": Learn(pg_clip(0.2, on="demo"))}, "term 'pg' reads 'tokens:demo'.*rollout.given"),
        ({"learn": Learn(pg_clip(0.2, on=("policy", "env")))}, "term 'pg' reads 'tokens:env'.*rollout.play"),
        (
            {"credit": chain(group_relative(), behaviour(), claim("sft", "policy"))},
            "claim.sft, policy. .* writes 'claim:sft', but nothing after it reads it",
        ),
        ({"score": everything}, "group_relative.* reads 'score:reward'.*score.verify"),
        ({"learn": Learn()}, "writes '(stream|claim):.*', but nothing after it reads it"),
        ({"learn": Learn(pg_clip(0.2), kl_k3(coef=0.1))}, "term 'kl' reads 'stream:ref'"),
        (
            {"credit": chain(group_relative(), behaviour(), old())},
            "writes 'stream:old', which behaviour .* wrote already",
        ),
        (
            {"credit": chain(group_relative(), behaviour(), ref())},
            "reads 'model:ref.logp'.*add ref=... with the capability 'logp'",
        ),
        ({"credit": chain(group_relative(), behaviour(), claim("pg", "demo"))}, "reads 'tokens:demo'.*rollout.given"),
        ({"models": {"policy": frozen("policy")}}, "term 'pg' trains 'policy', which is frozen"),
        ({"models": roles(old=snapshot("nobody"))}, "'old' is snapshot from 'nobody', which is not among its models"),
        ({"product": "critic"}, "its product 'critic' is not among its models"),
        ({"rollout": None}, "there is no part in stage 'rollout'"),
    ],
)
def test_bad_compositions_are_refused_in_words(changed: dict, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        build(**changed)


def test_chain_has_the_type_and_the_wiring_of_its_parts() -> None:
    a = Part(name="a", call=lambda g, s: [*g, "a"], reads=frozenset({"x"}), writes=frozenset({"y"}))  # type: ignore[list-item]
    b = Part(name="b", call=lambda g, s: [*g, "b"], reads=frozenset({"y", "z"}), writes=frozenset({"w"}))  # type: ignore[list-item]
    nested = chain(chain(a), everything, b)
    assert nested.call([], None) == ["a", "b"]  # type: ignore[arg-type, comparison-overlap]
    assert (nested.reads, nested.writes) == ({"x", "z"}, {"y", "w"})
    assert [part.name for part in nested] == ["a", "b"]


def test_two_terms_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two terms are both called 'pg'"):
        Learn(pg_clip(0.2), pg_clip(0.3))


def test_every_stream_of_every_term_has_a_supplier() -> None:
    for name in ("adv", "old", "ref", "returns", "value", "q_target"):
        assert suppliers(f"stream:{name}")
