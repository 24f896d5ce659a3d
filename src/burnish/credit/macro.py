"""Credit to macro actions: runs of tokens that count as one action (MA-RLHF, arXiv 2410.02743)."""

from __future__ import annotations

import torch
from torch import Tensor

from burnish.credit.gae import advantages_and_returns
from burnish.credit.returns import placed
from burnish.nouns import Group, Trace
from burnish.parts import Part, per_trace, supplies
from burnish.step import Step


def macro_lengths(tokens: int, length: int) -> list[int]:
    """Fixed n-grams: runs of `length` tokens; the last token is a macro of its own, so that the score stays whole."""
    before = tokens - 1
    runs = [length] * (before // length)
    rest = [before % length] if before % length else []
    return [*runs, *rest, 1]


def macro_advantages_and_returns(
    rewards: Tensor, values: Tensor, lengths: list[int], gamma: float, lam: float
) -> tuple[Tensor, Tensor]:
    """GAE over macro actions, shared by their tokens: [T], [T] -> [T], [T].

        V_tau = mean of the macro's token values,  r_tau = mean of its token rewards
        A_tau, R_tau by GAE over the macros;  A_t = A_tau and R_t = R_tau for every token t of tau

    Lengths of 1 are token-level GAE; one macro of all tokens is the bandit.
    """
    assert rewards.shape == values.shape and sum(lengths) == len(rewards)
    macro_rewards = torch.stack([part.mean() for part in rewards.split(lengths)])
    macro_values = torch.stack([part.mean() for part in values.split(lengths)])
    adv, returns = advantages_and_returns(macro_rewards, macro_values, gamma, lam)
    repeats = torch.tensor(lengths)
    return adv.repeat_interleave(repeats), returns.repeat_interleave(repeats)


@supplies("stream:adv", "stream:returns")
def macro_gae(length: int, *, gamma: float = 1.0, lam: float = 0.95, author: str = "policy") -> Part:
    """Advantages and returns of macro actions of `length` tokens, from streams "reward" and "value"."""
    if length < 1:
        raise ValueError(f"a macro action of {length} tokens is none; its length must be at least 1")

    def write(trace: Trace, group: Group, step: Step) -> None:
        mask = trace.by(author)
        reward, value = trace.streams["reward"][mask], trace.streams["value"][mask]
        found = macro_advantages_and_returns(reward, value, macro_lengths(len(reward), length), gamma, lam)
        trace.streams["adv"], trace.streams["returns"] = (placed(trace, mask, x) for x in found)

    return per_trace(
        write,
        name=f"macro_gae({length})",
        reads=frozenset({"stream:reward", "stream:value", f"tokens:{author}"}),
        writes=frozenset({"stream:adv", "stream:returns"}),
    )
