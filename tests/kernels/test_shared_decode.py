"""Rows that say the same are computed once, and part without losing what they have read."""

from __future__ import annotations

import copy
from ctypes import byref
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from burnish.core.randomness import generator
from burnish.core.roles import roles
from burnish.core.step import Settings
from burnish.engine.batch import RunningBatch
from burnish.engine.local import Request
from burnish.engine.protocol import GenerateOptions
from burnish.forward.runner import runner_of
from burnish.kernels.cpu import build as compiled
from burnish.kernels.cpu import shared_decode
from burnish.models.build import build
from burnish.models.known_models import TINY
from burnish.models.model import Model

needs_kernels = pytest.mark.skipif(compiled.kernels() is None, reason=f"no kernels here: {compiled.why_not()}")


def begun(dice: np.random.Generator, rows: int) -> tuple[shared_decode.SharedDecode, npt.NDArray[np.int64]]:
    """Rows with three prompts, in any slots; and the prompt of each."""
    state = RunningBatch(rows, 16, (-1,), torch.device("cpu"))
    slots, prompts = dice.permutation(rows), dice.integers(0, 3, rows)
    state.put(slice(0, rows), {"slot": slots.tolist(), "count": [1] * rows, "base": [4] * rows})
    found = shared_decode.SharedDecode([], state, None, filtered=False)
    found.at[:rows] = [slots[np.flatnonzero(prompts == p)[0]] for p in prompts]
    return found, prompts


@needs_kernels
@pytest.mark.parametrize("leaving", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_every_row_finds_what_it_has_read(seed: int, leaving: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that say one of two words, and sometimes end; what lies in the slots is kept in the test."""
    dice, rows = generator("alike", seed), 12
    its, prompts = begun(dice, rows)
    said = [[int(p)] for p in prompts]
    held = {int(slot): [int(p)] for slot, p in zip(its.at, prompts, strict=False)}
    gone, alive = set[int](), np.ones(rows, dtype=bool)

    def copied(addresses: object, capacity: int, moved: npt.NDArray[np.int64], copies: int) -> None:
        for source, to, tokens in moved[:, :copies].T:
            assert tokens == 4 + its.batch.count[0] - 1
            held[int(to)] = list(held[int(source)])

    monkeypatch.setattr(shared_decode, "copy_slots", copied)
    its.decoders = [SimpleNamespace(addresses=None, cache=SimpleNamespace(capacity=16))]  # type: ignore[list-item]
    for _ in range(8):
        words = dice.integers(0, 2, rows)
        its.batch.last[:] = torch.from_numpy(words)
        alive &= dice.random(rows) > 0.1
        its.batch.done[:] = torch.from_numpy(~alive)
        its.part(alive, leaving)
        if leaving:
            gone = set(its.batch.slot[~alive].tolist())
        leaders = its.leaders[: its.leading(byref(its.rows), rows)].tolist()
        for row in np.flatnonzero(alive):
            assert held[int(its.at[row])] == said[row]  # what it had read before it said this
            assert int(its.at[row]) not in gone
            said[row].append(int(words[row]))
            leader = leaders[its.number[row]]
            assert its.at[leader] == its.at[row] and said[leader][: len(said[row]) - 1] == said[row][:-1]
        kinds = {tuple(said[row]) for row in np.flatnonzero(alive)}
        assert len(leaders) == len(kinds)
        for row in leaders:
            held[int(its.at[row])] = list(said[row])
        its.batch.count += 1


@pytest.fixture(scope="module")
def policy() -> Model:
    return build(roles(), TINY, Settings(), device="cpu")["policy"]


@needs_kernels
@pytest.mark.parametrize("length", [12, 100])  # a prompt that is copied, and one that is looked at where it lies
def test_what_is_alike_is_computed_once_and_changes_nothing(
    policy: Model, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = torch.Generator().manual_seed(1)
    prompts = [torch.randint(4, 400, (length,), generator=dice) for _ in range(3)]
    requests = [Request(prompts[k % 3], k, 5 + k % 9, temperature=0.4) for k in range(24)]
    computed = []
    following = shared_decode.next_logits

    def counted(llama: Any, addresses: Any, rows: Any, leaders: int, first: int | None) -> torch.Tensor:
        computed.append(leaders)
        return following(llama, addresses, rows, leaders, first)

    monkeypatch.setattr(shared_decode, "next_logits", counted)
    together = policy.generate(requests)
    tokens = sum(len(sample.tokens) - 1 for sample in together)
    assert sum(computed) < 0.8 * tokens
    with monkeypatch.context() as apart:
        apart.setattr("burnish.engine.local.MAX_ROWS", {"cpu": 1})
        computed.clear()
        alone = policy.generate(requests)
    assert sum(computed) == tokens
    for one, other in zip(together, alone, strict=True):
        assert torch.equal(one.tokens, other.tokens) and torch.equal(one.logp, other.logp)


@needs_kernels
@pytest.mark.parametrize("length", [12, 100])
def test_other_models_and_early_ends_change_no_reply(policy: Model, length: int) -> None:
    """A second model that the kernels run, one that they do not, and groups that end when they have enough."""
    dice = torch.Generator().manual_seed(2)
    prompts = [torch.randint(4, 400, (length + i,), generator=dice) for i in range(3)]
    requests = [Request(prompts[k % 3], k, 3 + k % 11, temperature=0.6) for k in range(24)]
    wanted = policy.engine.generate(requests)
    same, wide = copy.deepcopy(policy.module), copy.deepcopy(policy.module).double()
    for found in (
        policy.engine.generate(requests, GenerateOptions([runner_of(same)], lambda logits: logits[1])),
        policy.engine.generate(requests, GenerateOptions([runner_of(wide)], lambda logits: logits[0])),
    ):
        assert all(torch.equal(a.tokens, b.tokens) for a, b in zip(wanted, found, strict=True))
        assert all(torch.equal(a.logp, b.logp) for a, b in zip(wanted, found, strict=True))
    some = policy.engine.generate(requests, GenerateOptions(stop_rule=lambda finished: len(finished) >= 3))
    assert any(sample.stopped == "enough" for sample in some)
    assert all(torch.equal(a.tokens[: len(b.tokens)], b.tokens) for a, b in zip(wanted, some, strict=True))
