"""Rows that say the same are computed once, and part without losing what they have read."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from burnish.cast.engine import alike, reader
from burnish.cast.local import Request
from burnish.cast.member import Member
from burnish.cast.models import TINY
from burnish.cast.native import compiled
from burnish.cast.roles import stage
from burnish.cast.stage import build
from burnish.randomness import generator
from burnish.step import Settings

needs_kernels = pytest.mark.skipif(compiled.kernels() is None, reason=f"no kernels here: {compiled.why_not()}")


@pytest.mark.parametrize("seed", range(10))
def test_every_row_finds_what_it_has_read(seed: int) -> None:
    """Rows that say one of two words, and sometimes end; what lies in the slots is kept in the test."""
    dice, rows = generator("alike", seed), 12
    slots = dice.permutation(rows + 3)[:rows]
    prompts = dice.integers(0, 3, rows)
    at = np.array([slots[np.flatnonzero(prompts == p)[0]] for p in prompts])
    said = [[int(p)] for p in prompts]
    held = {int(slot): [int(p)] for slot, p in zip(at, prompts, strict=True)}
    alive = np.ones(rows, dtype=bool)
    for _ in range(8):
        words = dice.integers(0, 2, rows)
        alive &= dice.random(rows) > 0.1
        at, movers = alike.parted(at, slots, words, alive)
        for row, source in movers:
            held[int(at[row])] = list(held[int(source)])
        leaders, number = alike.leading(at, alive)
        for row in np.flatnonzero(alive):
            assert held[int(at[row])] == said[row]  # what it had read before it said this
            said[row].append(int(words[row]))
            assert at[leaders[number[row]]] == at[row] and said[leaders[number[row]]][:-1] == said[row][:-1]
        kinds = {tuple(said[row]) for row in np.flatnonzero(alive)}
        assert len(leaders) == len(kinds)
        for row in leaders:
            held[int(at[row])] = list(said[row])


@pytest.fixture(scope="module")
def policy() -> Member:
    return build(stage(), TINY, Settings(), device="cpu")["policy"]


@needs_kernels
@pytest.mark.parametrize("length", [12, 100])  # a prompt that is copied, and one that is looked at where it lies
def test_what_is_alike_is_computed_once_and_changes_nothing(
    policy: Member, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = torch.Generator().manual_seed(1)
    prompts = [torch.randint(4, 400, (length,), generator=dice) for _ in range(3)]
    requests = [Request(prompts[k % 3], k, 5 + k % 9, temperature=0.4) for k in range(24)]
    computed = []
    following = reader.Reader.next

    def counted(self: reader.Reader, rows: object, at: torch.Tensor, *more: object) -> torch.Tensor:
        computed.append(len(at))
        return following(self, rows, at, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(reader.Reader, "next", counted)
    together = policy.generate(requests)
    tokens = sum(len(sample.tokens) - 1 for sample in together)
    assert sum(computed) < 0.8 * tokens
    with monkeypatch.context() as apart:
        apart.setattr("burnish.cast.local.MAX_ROWS", {"cpu": 1})
        computed.clear()
        alone = policy.generate(requests)
    assert sum(computed) == tokens
    for one, other in zip(together, alone, strict=True):
        assert torch.equal(one.tokens, other.tokens) and torch.equal(one.logp, other.logp)


@needs_kernels
@pytest.mark.parametrize("length", [12, 100])
def test_other_models_and_early_ends_change_no_reply(policy: Member, length: int) -> None:
    """A second model that the kernels run, one that they do not, and groups that end when they have enough."""
    dice = torch.Generator().manual_seed(2)
    prompts = [torch.randint(4, 400, (length + i,), generator=dice) for i in range(3)]
    requests = [Request(prompts[k % 3], k, 3 + k % 11, temperature=0.6) for k in range(24)]
    wanted = policy.engine.generate(requests)
    same, wide = copy.deepcopy(policy.model), copy.deepcopy(policy.model).double()
    for found in (
        policy.engine.generate(requests, [same], lambda logits: logits[1]),
        policy.engine.generate(requests, [wide], lambda logits: logits[0]),
    ):
        assert all(torch.equal(a.tokens, b.tokens) for a, b in zip(wanted, found, strict=True))
        assert all(torch.equal(a.logp, b.logp) for a, b in zip(wanted, found, strict=True))
    some = policy.engine.generate(requests, enough=lambda finished: len(finished) >= 3)
    assert any(sample.stopped == "enough" for sample in some)
    assert all(torch.equal(a.tokens[: len(b.tokens)], b.tokens) for a, b in zip(wanted, some, strict=True))
