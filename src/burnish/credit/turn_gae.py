"""Generalised advantage estimation over turns: on two levels, or as a chain through the rows of an episode."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from burnish.core.parts import Part, per_trace, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Trace
from burnish.credit.gae import advantages_and_returns
from burnish.credit.returns import placed
from burnish.select.turn_rows import own_span


def bi_level_advantages(
    rewards: Tensor, values: Tensor, lengths: Sequence[int], gamma: float, lam: float, turn_gamma: float
) -> tuple[Tensor, Tensor]:
    """Bi-level GAE of one episode (RAGEN, arXiv 2504.20073): advantages and returns, [T], [T] -> [T], [T].

    Level of turns, over the last tokens e_1 .. e_K of the turns, with turn_gamma:
        A_k = sum over j >= k of (turn_gamma lam)^(j-k) (r_j + turn_gamma V(e_{j+1}) - V(e_j)),   V(e_{K+1}) = 0
    Level of tokens, in each turn by itself, with gamma: GAE with the reward A_k + V(e_k) at e_k in place of r_k.

    lengths: the tokens of each turn. Rewards at other tokens than the last of a turn (a KL penalty) count on the level
    of tokens. One turn is ordinary GAE.
    """
    assert sum(lengths) == len(rewards) == len(values)
    ends = torch.tensor(lengths).cumsum(0) - 1
    _, turn_returns = advantages_and_returns(rewards[ends], values[ends], turn_gamma, lam)
    paid = rewards.clone()
    paid[ends] = turn_returns.to(paid.dtype)
    parts = [
        advantages_and_returns(own, value, gamma, lam)
        for own, value in zip(paid.split(list(lengths)), values.split(list(lengths)), strict=True)
    ]
    return torch.cat([adv for adv, _ in parts]), torch.cat([returns for _, returns in parts])


@supplies("stream:adv", "stream:returns")
def bi_level_gae(*, gamma: float = 1.0, lam: float = 1.0, turn_gamma: float = 0.95, author: str = "policy") -> Part:
    """Advantages and returns on two levels, turns and tokens, from streams "reward" and "value".

    In the place of `gae`; with `turn_rewards` in the place of `token_rewards`, each turn has its own reward. The
    released code finds the ends of turns by rewards that are not 0, so that a turn without a reward is none; here they
    are the turns of the trace.
    """

    def write(trace: Trace, group: Group, step: Step) -> None:
        mask = trace.by(author)
        lengths = [len(turn) for turn in trace.turns if turn.author == author and len(turn)]
        estimates = (torch.zeros(0), torch.zeros(0))
        if lengths:
            reward, value = trace.streams["reward"][mask], trace.streams["value"][mask]
            estimates = bi_level_advantages(reward, value, lengths, gamma, lam, turn_gamma)
        trace.streams["adv"], trace.streams["returns"] = (placed(trace, mask, x) for x in estimates)

    return per_trace(
        write,
        name=f"bi_level_gae({turn_gamma:g})",
        reads=frozenset({f"tokens:{author}", "stream:reward", "stream:value"}),
        writes=frozenset({"stream:adv", "stream:returns"}),
    )


def fill_own(rows: Sequence[Trace], name: str, numbers: Sequence[float]) -> None:
    """One number on all tokens of each row's own turn, NaN on the others."""
    for row, number in zip(rows, numbers, strict=True):
        row.streams[name] = torch.full((len(row),), float("nan"))
        row.streams[name][slice(*own_span(row))] = number
