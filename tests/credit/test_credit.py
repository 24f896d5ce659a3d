"""Advantages, claims and streams, against hand-derived numbers and slow loops."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from torch import tensor

from burnish.core.step import Notes
from burnish.core.types import Clock, Group, Task, Trace, Turn
from burnish.credit.claims import claim
from burnish.credit.gae import advantages_and_returns, gae, token_rewards, whiten
from burnish.credit.group import group_relative
from burnish.credit.streams import behaviour
from burnish.credit.utterance import at_utterance, td_targets, utterance_advantage

TASK = Task("question", "q", {}, "q")
STEP = SimpleNamespace(clock=Clock(0, 10), notes=Notes())


def trace(*turns: tuple[str, int], **facts: object) -> Trace:
    made: list[Turn] = []
    for author, length in turns:
        made.append(Turn(torch.arange(length), author, parent=made[-1] if made else None))
    return Trace(tuple(made), **facts)  # type: ignore[arg-type]


def scored(*rewards: float) -> Group:
    return Group(TASK, [trace(("task", 2), ("policy", 3), scores={"reward": r}) for r in rewards])


def test_group_relative_by_hand() -> None:
    """Rewards 1, 0, 0, 1: mean 1/2, sample std sqrt(4 * 1/4 / 3) = 0.57735: advantages +-0.866025."""
    group = scored(1, 0, 0, 1)
    group_relative(eps=0).call([group], STEP)
    found = [t.streams["adv"][0].item() for t in group.traces]
    assert found == pytest.approx([0.866025, -0.866025, -0.866025, 0.866025], abs=1e-6)
    group_relative(std=False).call([group], STEP)
    assert [t.streams["adv"][0].item() for t in group.traces] == [0.5, -0.5, -0.5, 0.5]


def test_group_relative_is_zero_where_nothing_differs() -> None:
    for group in (scored(1, 1, 1), scored(0.3)):
        group_relative().call([group], STEP)
        assert all(float(t.streams["adv"].abs().max()) == 0 for t in group.traces)


def test_group_relative_compares_only_peers() -> None:
    group = scored(1, 0, 5, 9)
    group_relative(std=False, peers=lambda t, g: t.scores["reward"] > 2).call([group], STEP)
    assert [t.streams["adv"][0].item() for t in group.traces] == [0.5, -0.5, -2.0, 2.0]


def test_gae_by_hand() -> None:
    """Rewards 0, 0, 1; values 0.5, 0.6, 0.8; gamma 0.9, lambda 0.5.
    delta: 0.9*0.6-0.5 = 0.04; 0.9*0.8-0.6 = 0.12; 1-0.8 = 0.2. A_2 = 0.2; A_1 = 0.12+0.45*0.2 = 0.21; A_0 =
    0.04+0.45*0.21 = 0.1345.
    """
    adv, returns = advantages_and_returns(tensor([0.0, 0, 1]), tensor([0.5, 0.6, 0.8]), 0.9, 0.5)
    assert torch.allclose(adv, tensor([0.1345, 0.21, 0.2]))
    assert torch.allclose(returns, tensor([0.6345, 0.81, 1.0]))


def test_gae_limits() -> None:
    """lambda 1: Monte-Carlo return minus value. lambda 0: the one-step error."""
    r, v = (
        torch.rand(7, generator=torch.Generator().manual_seed(0)),
        torch.rand(7, generator=torch.Generator().manual_seed(1)),
    )
    gamma = 0.95
    monte_carlo = tensor([sum(gamma ** (k - t) * float(r[k]) for k in range(t, 7)) for t in range(7)])
    assert torch.allclose(advantages_and_returns(r, v, gamma, 1.0)[1], monte_carlo, atol=1e-6)
    td = r + gamma * torch.cat([v[1:], tensor([0.0])]) - v
    assert torch.allclose(advantages_and_returns(r, v, gamma, 0.0)[0], td)


def test_gae_equals_the_sum_of_discounted_errors() -> None:
    """The slow obvious form: A_t = sum_k (gamma lambda)^k delta_{t+k}."""
    g = torch.Generator().manual_seed(2)
    r, v = torch.randn(9, generator=g), torch.randn(9, generator=g)
    delta = r + 0.9 * torch.cat([v[1:], tensor([0.0])]) - v
    slow = tensor([sum((0.9 * 0.8) ** (k - t) * float(delta[k]) for k in range(t, 9)) for t in range(9)])
    assert torch.allclose(advantages_and_returns(r, v, 0.9, 0.8)[0], slow, atol=1e-5)


def test_token_rewards_put_the_kl_on_tokens_and_the_score_on_the_last() -> None:
    t = trace(("task", 1), ("policy", 2), scores={"reward": 1.0})
    t.streams |= {"old": tensor([math.nan, -1.0, -2.0]), "ref": tensor([math.nan, -1.5, -1.0])}
    token_rewards(kl=0.1).call([Group(TASK, [t])], STEP)
    assert torch.allclose(t.streams["reward"][1:], tensor([-0.05, 1.1]))
    assert torch.isnan(t.streams["reward"][0])


def test_gae_and_whiten_touch_only_the_authors_tokens() -> None:
    t = trace(("task", 1), ("policy", 2), ("env", 1), ("policy", 1))
    t.streams |= {
        "reward": tensor([math.nan, 0, 0, math.nan, 1.0]),
        "value": tensor([math.nan, 0.1, 0.2, math.nan, 0.3]),
    }
    gae().call([Group(TASK, [t])], STEP)
    whiten().call([Group(TASK, [t])], STEP)
    adv = t.streams["adv"]
    assert torch.isnan(adv[[0, 3]]).all()
    assert adv[[1, 2, 4]].mean().item() == pytest.approx(0, abs=1e-6)
    assert adv[[1, 2, 4]].std(unbiased=False).item() == pytest.approx(1, abs=1e-4)


def test_claim_claims_authors_and_a_shared_turn_once() -> None:
    shared = Turn(torch.arange(2), "demo")
    prompt = Turn(torch.arange(2), "task")
    a = Trace((prompt, shared, Turn(torch.arange(1), "policy")))
    b = Trace((prompt, shared, Turn(torch.arange(2), "policy")))
    claim("pg", "demo", "policy").call([Group(TASK, [a, b])], STEP)
    assert a.streams["claim:pg"].tolist() == [False, False, True, True, True]
    assert b.streams["claim:pg"].tolist() == [False, False, False, False, True, True]


@pytest.mark.parametrize(("at", "expected"), [("first", [1, 4]), ("last", [2, 4]), ("end", [4])])
def test_claim_positions(at: str, expected: list[int]) -> None:
    t = trace(("task", 1), ("policy", 2), ("env", 1), ("policy", 1))
    claim("q", "policy", positions=at).call([Group(TASK, [t])], STEP)
    assert t.streams["claim:q"].nonzero()[:, 0].tolist() == expected


def test_claim_top_share_is_pooled_over_the_batch() -> None:
    """Ten demonstrated tokens with entropies 0..9 over two traces: the top 20% are the two largest,
    both in one trace.
    """
    a, b = trace(("task", 1), ("demo", 5)), trace(("task", 1), ("demo", 5))
    a.streams["entropy"] = tensor([math.nan, 0, 1, 2, 3, 4.0])
    b.streams["entropy"] = tensor([math.nan, 5, 6, 7, 8, 9.0])
    claim("pg", "demo", top=("entropy", 0.2)).call([Group(TASK, [a]), Group(TASK, [b])], STEP)
    assert a.streams["claim:pg"].sum() == 0
    assert b.streams["claim:pg"].nonzero()[:, 0].tolist() == [4, 5]


def test_behaviour_is_what_was_recorded_at_birth() -> None:
    prompt = Turn(torch.arange(1), "task")
    t = Trace((prompt, Turn(torch.arange(2), "policy", tensor([-0.5, -0.7]), parent=prompt)))
    behaviour().call([Group(TASK, [t])], STEP)
    assert torch.allclose(t.streams["old"][1:], tensor([-0.5, -0.7]))


def archer_group(ended: bool) -> Group:
    turns = [("task", 2), ("policy", 2)] + ([] if ended else [("env", 1)])
    past = trace(
        *turns,
        turn_scores={"reward": [math.nan, 0.5] + ([] if ended else [math.nan])},
        tags=frozenset({"past"}),
        note={"turn": 1, "ended": ended},
    )
    fresh = trace(("task", 2), ("policy", 3), tags=frozenset({"fresh"}))
    for t, last in ((past, [9.0, 9.0, 1.0, 2.0]), (fresh, [3.0, 4.0, 9.0, 9.0])):
        t.streams["target_score"] = torch.full((len(t), 4), math.nan)
        t.streams["target_score"][-1] = tensor(last)
    return Group(TASK, [past, fresh])


def test_archer_targets_by_hand() -> None:
    """r = 0.5, gamma = 0.9, V'(s') = (1, 2): Q targets (1.4, 2.3); an ended episode: (0.5, 0.5). V targets are Q'(s,
    u~) = (3, 4).
    """
    for ended, q in ((False, [1.4, 2.3]), (True, [0.5, 0.5])):
        group = archer_group(ended)
        td_targets(gamma=0.9).call([group], STEP)
        at_utterance("q", "last").call([group], STEP)
        at_utterance("v", "first").call([group], STEP)
        past = group.traces[0]
        assert past.streams["q_target"][past.streams["claim:q"]][0].tolist() == pytest.approx(q)
        assert past.streams["v_target"][past.streams["claim:v"]][0].tolist() == pytest.approx([3.0, 4.0])
        assert not group.traces[1].streams["claim:q"].any()


def test_archer_advantage_by_hand() -> None:
    """min Q (1.0, 2.0) - min V (0.25, 0.75) = 0.75, on the utterance's tokens alone."""
    fresh = trace(("task", 2), ("policy", 3), tags=frozenset({"fresh"}))
    fresh.streams["q"] = torch.zeros(5, 4) + tensor([1.0, 2.0, 0, 0])
    fresh.streams["v"] = torch.zeros(5, 4) + tensor([0, 0, 0.75, 0.25])
    utterance_advantage().call([Group(TASK, [fresh])], STEP)
    assert fresh.streams["adv"][2:].tolist() == [0.75, 0.75, 0.75]
    assert torch.isnan(fresh.streams["adv"][:2]).all()
