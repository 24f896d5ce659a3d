"""Token rewards, generalised advantage estimation, whitening: the credit of actor-critic methods."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from burnish.core.parts import Part, names, per_trace, supplies
from burnish.core.schedules import Schedule, at, is_zero
from burnish.core.step import Step
from burnish.core.types import Group, Trace

Authors = str | tuple[str, ...]


def advantages_and_returns(rewards: Tensor, values: Tensor, gamma: float, lam: float) -> tuple[Tensor, Tensor]:
    """Generalised advantage estimation (Schulman et al., arXiv 1506.02438) for one sequence that ends.

        delta_t = r_t + gamma V_{t+1} - V_t,   A_t = delta_t + gamma lambda A_{t+1},   R_t = A_t + V_t,   V_{T} = 0

    rewards, values: [T]. lambda = 1 gives Monte-Carlo returns minus values; lambda = 0 the one-step TD error.
    """
    advantages = torch.zeros_like(rewards)
    running, following = 0.0, 0.0
    for t in range(len(rewards) - 1, -1, -1):
        delta = float(rewards[t]) + gamma * following - float(values[t])
        running = delta + gamma * lam * running
        advantages[t] = running
        following = float(values[t])
    return advantages, advantages + values


@supplies("stream:reward")
def token_rewards(*, score: str = "reward", kl: Schedule | None = 0.0, author: Authors = "policy") -> Part:
    """r_t = -kl (log pi_old - log pi_ref)(t), plus the trace's score at the author's last token, as stream "reward".

    The per-token penalty of RLHF (arXiv 2203.02155): the k1 estimate of KL(pi || ref) at the sampled token. With kl
    None there is no penalty and no reference is asked for. Several authors count as one writer.
    """

    def write(trace: Trace, group: Group, step: Step) -> None:
        mask = _by(trace, author)
        reward = torch.full((len(trace),), float("nan"))
        trace.streams["reward"] = reward
        if not bool(mask.any()):
            return
        reward[mask] = 0.0
        if kl is not None:
            penalty = trace.streams["old"][mask] - trace.streams["ref"][mask]
            reward[mask] = -at(kl, step.clock) * penalty
            step.notes.add("kl", float(penalty.sum()), int(mask.sum()))
        reward[int(mask.nonzero()[-1])] += trace.scores[score]

    compared = frozenset({"stream:old", "stream:ref"}) if kl is not None else frozenset()
    return per_trace(
        write,
        name="token_rewards",
        reads=_tokens(author) | compared | {f"score:{score}"},
        writes=frozenset({"stream:reward"}),
        idle=token_rewards(score=score, kl=None, author=author) if is_zero(kl) else None,
    )


@supplies("stream:adv", "stream:returns")
def gae(
    *,
    gamma: float = 1.0,
    lam: float | Callable[[int], float] = 0.95,
    value_lam: float | None = None,
    author: Authors = "policy",
) -> Part:
    """Advantages and returns over the author's tokens, from streams "reward" and "value"; other tokens are skipped.

    lam        lambda, or a function from the number of the author's tokens to lambda
    value_lam  another lambda for the returns (decoupled GAE, arXiv 2503.01491); None: the same
    """

    def write(trace: Trace, group: Group, step: Step) -> None:
        mask = _by(trace, author)
        reward, value = trace.streams["reward"][mask], trace.streams["value"][mask]
        own = lam(len(reward)) if callable(lam) else lam
        adv, returns = advantages_and_returns(reward, value, gamma, own)
        if value_lam is not None:
            returns = advantages_and_returns(reward, value, gamma, value_lam)[1]
        for name, numbers in (("adv", adv), ("returns", returns)):
            trace.streams[name] = torch.full((len(trace),), float("nan"))
            trace.streams[name][mask] = numbers

    return per_trace(
        write,
        name="gae",
        reads=_tokens(author) | {"stream:reward", "stream:value"},
        writes=frozenset({"stream:adv", "stream:returns"}),
    )


def whiten(
    stream: str = "adv",
    *,
    author: Authors = "policy",
    centre: bool = True,
    where: Callable[[Trace], Tensor] | None = None,
    needs: tuple[str, ...] = (),
) -> Part:
    """The stream with mean 0 (its own mean, without `centre`) and standard deviation 1 over the author's tokens in the
    batch.

    where  a function from a trace to [T] bool: only these tokens count, and only they change; `needs` names what it
           reads
    A turn that several traces share counts once in mean and deviation, as it is trained once; all its copies change.
    """

    def counted(trace: Trace) -> Tensor:
        return _by(trace, author) if where is None else _by(trace, author) & where(trace)

    def call(groups: list[Group], step: Step) -> list[Group]:
        traces = [(trace, counted(trace)) for group in groups for trace in group.traces]
        once = _once(traces)
        values = torch.cat([trace.streams[stream][mask] for trace, mask in once]) if once else torch.zeros(0)
        if not len(values):
            return groups
        mean, std = values.mean(), values.std(unbiased=False)
        shift = 0.0 if centre else mean
        for trace, mask in traces:
            trace.streams[stream][mask] = (trace.streams[stream][mask] - mean) / (std + 1e-8) + shift
        return groups

    name = f"stream:{stream}"
    return Part(name=f"whiten({stream})", call=call, reads=_tokens(author) | {name, *needs}, updates=frozenset({name}))


def _once(traces: list[tuple[Trace, Tensor]]) -> list[tuple[Trace, Tensor]]:
    """The same traces and masks, without the turns of which an earlier trace has tokens in its mask."""
    seen: set[int] = set()
    unseen = []
    for trace, mask in traces:
        unseen_mask = mask.clone()
        for turn, start, end in trace.spans():
            if id(turn) in seen:
                unseen_mask[start:end] = False
            elif bool(unseen_mask[start:end].any()):
                seen.add(id(turn))
        unseen.append((trace, unseen_mask))
    return unseen


def _by(trace: Trace, author: Authors) -> Tensor:
    return trace.by(author) if isinstance(author, str) else trace.by(*author)


def _tokens(author: Authors) -> frozenset[str]:
    return names("tokens", author)
