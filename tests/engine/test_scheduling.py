"""The engine's schedule: rows that come and go, memory that is planned, samples that depend on nothing
but themselves.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from conftest import SMALL

from burnish.core.roles import roles
from burnish.engine.batch import mates_among
from burnish.engine.kv_cache import Plan, Pool, plan
from burnish.engine.local import LocalEngine, Request, Sample
from burnish.engine.protocol import GenerateOptions
from burnish.models.build import build

PROMPTS = [torch.randint(4, 200, (n,), generator=torch.Generator().manual_seed(n)) for n in (3, 70, 12, 90)]


@pytest.fixture(scope="module")
def policy(small_model: Path):
    return build(roles(), small_model, SMALL, device="cpu")["policy"]


def requests(n: int = 24, longest: int = 30) -> list[Request]:
    return [Request(PROMPTS[k % 4], k, 1 + (k * 7) % longest) for k in range(n)]


def same(one: list[Sample], other: list[Sample]) -> bool:
    return all(
        torch.equal(a.tokens, b.tokens) and torch.allclose(a.logp, b.logp, atol=1e-5) and a.stopped == b.stopped
        for a, b in zip(one, other, strict=True)
    )


@pytest.mark.parametrize("share_from", [1, 1000], ids=["shared in place", "copied"])
@pytest.mark.parametrize("rows", [1, 3, 24])
def test_few_slots_give_the_same_samples(policy, rows: int, share_from: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request may wait for a slot, enter beside rows that are half done, and move up: its reply is the same."""
    alone = [policy.generate([request])[0] for request in requests()]
    monkeypatch.setattr("burnish.engine.local.MAX_ROWS", {"cpu": rows})
    monkeypatch.setattr("burnish.engine.strategy.SHARE_FROM", share_from)
    assert same(policy.generate(requests()), alone)


def test_the_budget_is_kept(policy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompts and rows wait for room; never are more tokens held than the budget allows."""
    monkeypatch.setattr("burnish.engine.strategy.SHARE_FROM", 1)
    per_token = 2 * 2 * 2 * 8 * 4  # keys and values, layers, heads, size, bytes
    engine = LocalEngine(policy.working.runner, policy.chat, policy.context, budget=per_token * (100 + 3 * 30))
    taken: list[int] = []
    take = Pool.take

    def watched(self: Pool, length: int) -> int | None:
        found = take(self, length)
        taken.append(sum(room for _, room in self.free))
        return found

    monkeypatch.setattr(Pool, "take", watched)
    assert same(engine.generate(requests()), [policy.generate([request])[0] for request in requests()])
    assert min(taken) >= 0 and len(taken) > 4  # prompts were taken in several times


def test_what_cannot_fit_is_refused_with_the_numbers(policy) -> None:
    engine = LocalEngine(policy.working.runner, policy.chat, policy.context, budget=1000)
    with pytest.raises(
        ValueError, match=r"a reply of up to 30 tokens after a prompt of 90 needs .* GiB .*--max-new-tokens"
    ):
        engine.generate([Request(PROMPTS[3], 0, 30)] * 2)


def test_a_plan_by_hand() -> None:
    """1000 tokens fit; prompts of 100 and 60 take 160 of them; rows of 50 each: (1000 - 160) / 50 = 16."""
    found = plan(most=64, reply=50, prompts=[100, 60], per_token=10, budget=10_000)
    assert (found.slots, found.capacity, found.pool) == (16, 50, 160)
    few = plan(most=4, reply=50, prompts=[100], per_token=10, budget=10_000)
    assert few.slots == 4
    longer = plan(most=2, reply=200, prompts=[100], per_token=10, budget=10_000)
    assert few.joined(longer, 900) == Plan(4, 200, 100) and few.joined(longer, 899) == few  # 4 x 200 + 100 tokens


def test_rows_that_share_a_root_by_fours_or_by_twos() -> None:
    assert mates_among([0] * 8 + [128] * 8) == 4
    assert mates_among([0] * 6 + [128] * 6) == 2  # the second four has rows of both
    assert mates_among([0, 0, 0, 128, 128, 128]) == 1
    assert mates_among([0] * 124 + [0, 0, 0, 9]) == 4  # one four of 32 may differ, and one of 31 may not
    assert mates_among([0] * 120 + [0, 0, 0, 9]) == 2
    assert mates_among([0] * 12 + [0, 1, 2, 9]) == 1
    assert mates_among([7]) == 1


def test_the_pool_joins_what_is_given_back() -> None:
    pool = Pool(100)
    a, b, c = (pool.take(n) for n in (30, 30, 40))
    assert (a, b, c) == (0, 30, 60) and pool.take(1) is None
    pool.give(0, 30)
    pool.give(60, 40)
    assert pool.take(41) is None
    pool.give(30, 30)
    assert pool.free == [(0, 100)]


def test_stop_strings_end_a_reply_and_are_kept(policy) -> None:
    free = policy.generate([Request(PROMPTS[0], 5, 40)])[0]
    text = policy.chat.text(free.tokens)
    word = text[6:8]
    (sample,) = policy.generate([Request(PROMPTS[0], 5, 40, stop=(word,))])
    said = policy.chat.text(sample.tokens)
    assert sample.stopped == "stop" and word in said and word not in policy.chat.text(sample.tokens[:-1])
    assert torch.equal(sample.tokens, free.tokens[: len(sample.tokens)])


def test_a_group_that_has_enough_ends(policy) -> None:
    """Two finished replies are enough: the other rows of the prompt end there, those of another prompt do not."""
    asked = [Request(PROMPTS[0], k, 3 if k < 2 else 60) for k in range(6)] + [Request(PROMPTS[2], 9, 40)]
    found = policy.engine.generate(asked, GenerateOptions(stop_rule=lambda finished: len(finished) >= 2))
    free = policy.generate(asked)
    assert [s.stopped for s in found[:2]] == [s.stopped for s in free[:2]]
    ended = [s for s in found[2:6] if s.stopped == "enough"]
    assert ended and all(len(s.tokens) <= 5 for s in ended)
    for mine, other in zip(found, free, strict=True):
        assert torch.equal(mine.tokens, other.tokens[: len(mine.tokens)])
    assert same(found[6:], free[6:])


def test_min_p_leaves_only_tokens_near_the_likeliest(policy) -> None:
    prompt = PROMPTS[2]
    with torch.no_grad():
        p = torch.softmax(policy.module(prompt[None]).logits[0, -1], -1)
    allowed = set((p >= 0.5 * p.max()).nonzero()[:, 0].tolist())
    found = policy.generate([Request(prompt, key, 1, min_p=0.5) for key in range(200)])
    assert {int(s.tokens[0]) for s in found} <= allowed and len(allowed) < 60
    for sample in found[:20]:
        assert float(sample.logp[0]) == pytest.approx(float(p[sample.tokens[0]].log()), abs=1e-4)


def test_nothing_asked_nothing_given(policy) -> None:
    assert policy.generate([]) == []
    assert not any(hasattr(module, "kv") for module in policy.module.modules())  # the memory is given back
