"""Runs of parameters that a rank owns, and fp32 master weights of them (--shard states)."""

from __future__ import annotations

import torch
from torch import nn

from burnish.models.ranks import Ranks
from burnish.models.sharded_states import ALIGN, ShardedStates, run_of, whole_masters, whole_states


def test_runs_cover_a_parameter_once() -> None:
    """576 numbers on two ranks: 288 each, rounded up to two blocks of 256; on eight ranks three own something."""
    assert [run_of(576, Ranks(rank, 2)) for rank in (0, 1)] == [slice(0, 512), slice(512, 576)]
    owned = [len(range(576)[run_of(576, Ranks(rank, 8))]) for rank in range(8)]
    assert owned == [256, 256, 64, 0, 0, 0, 0, 0]
    for numbers in (1, ALIGN, ALIGN + 1, 10_000):
        for world in (1, 2, 3, 7):
            runs = [range(numbers)[run_of(numbers, Ranks(rank, world))] for rank in range(world)]
            assert [i for run in runs for i in run] == list(range(numbers))


def test_master_weights_move_as_fp32_weights_do_and_the_copy_is_theirs_in_bf16() -> None:
    torch.manual_seed(0)
    weights = {"a": torch.randn(40, 30), "b": torch.randn(30)}
    plain = {name: nn.Parameter(w.clone()) for name, w in weights.items()}
    whole = {name: nn.Parameter(w.clone()) for name, w in weights.items()}
    states = ShardedStates(whole, Ranks())
    states.keep_masters()
    assert all(p.dtype == torch.bfloat16 for p in whole.values())
    ours = torch.optim.AdamW(list(states.owned.values()), lr=1e-4, eps=1e-8)
    theirs = torch.optim.AdamW(list(plain.values()), lr=1e-4, eps=1e-8)
    for _ in range(3):
        for p in states.owned.values():
            p.grad = None
        for _ in range(2):  # two passes, the second without a gradient of b
            grads = {name: torch.randn_like(w) for name, w in weights.items()}
            for name in ("b", "a") if plain["b"].grad is None else ("a",):
                states.deliver(whole[name], grads[name])
                before = plain[name].grad
                plain[name].grad = grads[name] if before is None else before + grads[name]
            states.finish()
        ours.step()
        theirs.step()
        states.publish()
        for p in plain.values():
            p.grad = None
    for name, p in plain.items():
        assert torch.equal(states.owned[name].view(p.shape), p), name
        assert torch.equal(whole[name], p.detach().bfloat16()) and not torch.equal(p, weights[name])
    with torch.no_grad():
        whole["a"].mul_(2)
    states.adopt()
    assert torch.equal(states.owned["a"].view(40, 30), whole["a"].float())


def test_a_checkpoint_has_the_states_of_whole_parameters() -> None:
    named = {"w": nn.Parameter(torch.zeros(20, 30))}
    parts = []
    for rank in range(2):
        run = run_of(600, Ranks(rank, 2))
        part = {
            "exp_avg/w": torch.arange(600.0)[run],
            "step/w": torch.tensor(3.0),
            "master/w": torch.arange(600.0)[run],
        }
        parts.append({**part, "m_scale/w": torch.arange(3.0)[run.start // ALIGN : -(-run.stop // ALIGN)]})
    assert [len(part["exp_avg/w"]) for part in parts] == [512, 88]
    whole = whole_states(named, parts)
    assert torch.equal(whole["exp_avg/w"], torch.arange(600.0).view(20, 30))
    assert float(whole["step/w"]) == 3.0 and whole["m_scale/w"].tolist() == [0.0, 1.0, 2.0]
    assert torch.equal(whole_masters(named, parts)["w"], torch.arange(600.0).view(20, 30))
    for rank in range(2):  # and back
        states = ShardedStates(named, Ranks(rank, 2))
        for key, value in whole.items():
            assert torch.equal(states.own_part("w", value), parts[rank][key]), key
