"""What the sampler has computed is the trainer's forward: the same log-probs and the same gradients, bit for bit."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from conftest import SMALL, make_model
from torch import Tensor

from burnish.core.roles import roles
from burnish.engine.local import Request
from burnish.kernels.cpu import activation_cache
from burnish.kernels.cpu import build as compiled
from burnish.kernels.cpu.activation_cache import ActivationCache
from burnish.models.build import build
from burnish.models.known_models import TINY
from burnish.models.model import Model

pytestmark = pytest.mark.skipif(compiled.kernels() is None, reason=f"no kernels here: {compiled.why_not()}")


@pytest.fixture(scope="module", params=["tiny", "Qwen2"])
def policy(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    path: Path = TINY
    if request.param == "Qwen2":
        path = make_model(tmp_path_factory.mktemp("remembered") / "model", kind="Qwen2", head_dim=32)
    with pytest.MonkeyPatch.context() as change:
        change.setattr(activation_cache, "CHECKED", 1 << 30)
        made = build(roles(), path, SMALL, device="cpu")["policy"]
        memory_of(made).asked = 1  # the first pack is computed, to see whether both agree
        yield made


def memory_of(policy: Model) -> ActivationCache:
    return policy.module.model.remembered  # type: ignore[no-any-return, union-attr]


def asked(policy: Model, lengths: tuple[int, ...]) -> list[Request]:
    """Groups of prompts of these lengths, that begin alike, with uneven replies: some are of one token."""
    words = policy.module.get_input_embeddings().weight.shape[0]  # type: ignore[operator, union-attr]
    common = torch.randint(4, words, (max(lengths),), generator=torch.Generator().manual_seed(0))
    prompts = [torch.cat([common[:n], torch.tensor([5 + n % 7])]) for n in lengths]
    return [Request(prompts[k % len(prompts)], k, 1 + (k * 5) % 14) for k in range(6 * len(prompts))]


def learnt(policy: Model, rows: list[Tensor], masks: list[Tensor]) -> list[Tensor]:
    """Log-probs, and the gradient of a mixture of them."""
    policy.module.zero_grad()
    logp = policy.outputs(rows, masks, {"logp"})["logp"]
    (logp * torch.linspace(-1, 1, len(logp))).sum().backward()
    return [logp.detach(), *(p.grad.clone() for p in policy.module.parameters() if p.grad is not None)]


def sampled(policy: Model, lengths: tuple[int, ...]) -> tuple[list[Tensor], list[Tensor]]:
    requests = asked(policy, lengths)
    samples = policy.generate(requests)
    rows = [torch.cat([r.prompt, s.tokens]) for r, s in zip(requests, samples, strict=True)]
    return rows, [torch.arange(len(row)) >= len(r.prompt) for row, r in zip(rows, requests, strict=True)]


def recalls(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Filled with whether each pack was recalled."""
    found: list[bool] = []
    plain = ActivationCache.recall

    def noted(self: ActivationCache, *given: object) -> object:
        known = plain(self, *given)  # type: ignore[arg-type]
        found.append(known is not None)
        return known

    monkeypatch.setattr(ActivationCache, "recall", noted)
    return found


@pytest.mark.parametrize("lengths", [(1, 2, 9), (70, 90, 130)], ids=["copied prompts", "shared prompts"])
@pytest.mark.parametrize("slots", [256, 5])
def test_the_trainer_learns_the_same_from_what_the_sampler_left(
    policy: Model, lengths: tuple[int, ...], slots: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("burnish.engine.local.MAX_ROWS", {"cpu": slots})
    rows, masks = sampled(policy, lengths)
    found = recalls(monkeypatch)
    recalled = learnt(policy, rows, masks)
    some = learnt(policy, rows[3:9], masks[3:9])  # another pack of the same tokens
    memory_of(policy).forget()
    assert found == [True, True]
    for mine, other in zip(recalled, learnt(policy, rows, masks), strict=True):
        assert torch.equal(mine, other)
    for mine, other in zip(some, learnt(policy, rows[3:9], masks[3:9]), strict=True):
        assert torch.equal(mine, other)


def test_what_was_not_sampled_or_is_no_longer_true_is_computed(policy: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    sampled(policy, (60, 60))  # room for all that follows
    memory_of(policy).forget()
    found = recalls(monkeypatch)
    rows, masks = sampled(policy, (3, 8))
    learnt(policy, rows, masks)
    strange = [*rows[:-1], torch.cat([rows[-1], rows[-1]])]
    learnt(policy, strange, [*masks[:-1], torch.cat([masks[-1], masks[-1]])])
    again, _ = sampled(policy, (30,))  # a second call with the same weights leaves the first one's where they are
    learnt(policy, rows, masks)
    with torch.no_grad():
        next(policy.module.parameters()).mul_(1.0)
    policy.weights_moved()
    learnt(policy, rows, masks)
    assert found == [True, False, True, False] and len(again) == 6


def test_one_pack_in_many_is_computed_all_the_same(policy: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    found = recalls(monkeypatch)
    monkeypatch.setattr(activation_cache, "CHECKED", 3)
    memory_of(policy).asked = 0
    rows, masks = sampled(policy, (4,))
    for _ in range(6):
        learnt(policy, rows, masks)
    assert found == [False, True, True, False, True, True]


def test_it_takes_no_more_than_its_share_and_no_copy_carries_it(policy: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, masks = sampled(policy, (4,))
    learnt(policy, rows, masks)
    memory = memory_of(policy)
    assert memory.count and memory.number
    for other in (copy.deepcopy(memory), pickle.loads(pickle.dumps(memory))):
        assert not other.count and not other.room and not other.number
    monkeypatch.setattr(activation_cache, "SHARE", 1 << 60)
    memory.room = 0
    found = recalls(monkeypatch)
    rows, masks = sampled(policy, (5,))
    learnt(policy, rows, masks)
    assert found == [False] and not memory.count


def test_what_a_backward_may_still_ask_for_is_not_written_over(policy: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, masks = sampled(policy, (9, 4))
    plain = learnt(policy, rows, masks)
    found = recalls(monkeypatch)
    memory, model = memory_of(policy), policy.module
    model.zero_grad()
    logp = policy.outputs(rows, masks, {"logp"})["logp"]
    memory.forget()
    sampled(policy, (7, 7))  # the sampler goes on
    (logp * torch.linspace(-1, 1, len(logp))).sum().backward()
    mine = [p.grad for p in model.parameters() if p.grad is not None]
    assert found == [True] and all(map(torch.equal, mine, plain[1:]))


def test_memory_is_used_again_once_a_backward_is_done(policy: Model) -> None:
    memory, places = memory_of(policy), []
    for _ in range(3):
        learnt(policy, *sampled(policy, (9, 4)))
        places.append(memory.layers[0].both.data_ptr())
        assert not len(memory.lent)
        memory.forget()
    assert places[1] == places[2]
