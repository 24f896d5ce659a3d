"""Returns that critics regress to, and n-step advantages."""

from __future__ import annotations

import torch
from torch import Tensor

from burnish.core.parts import Part, per_trace, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Trace
from burnish.credit.gae import advantages_and_returns


def n_step_returns(rewards: Tensor, values: Tensor, gamma: float, steps: int) -> Tensor:
    """The returns of A3C (Mnih et al., arXiv 1602.01783, Alg. S3) for one sequence that ends: [T].

    The sequence is cut into stretches of `steps`; inside a stretch R_t = r_t + gamma R_{t+1}, and after its last token
    R is V of the next stretch's first state (0 after the end). steps >= T gives Monte-Carlo returns; steps = 1 the
    one-step target r_t + gamma V_{t+1}.
    """
    assert rewards.shape == values.shape
    returns = torch.zeros_like(rewards)
    running = 0.0
    for t in range(len(rewards) - 1, -1, -1):
        if (t + 1) % steps == 0 and t + 1 < len(rewards):
            running = float(values[t + 1])
        running = float(rewards[t]) + gamma * running
        returns[t] = running
    return returns


@supplies("stream:adv", "stream:returns")
def n_step(steps: int, *, gamma: float = 1.0, author: str = "policy") -> Part:
    """A_t = R_t - V_t with n-step returns R, over the author's tokens, from streams "reward" and "value"."""
    if steps < 1:
        raise ValueError(f"steps is {steps}; a return looks at least 1 token ahead")

    def write(trace: Trace, group: Group, step: Step) -> None:
        mask = trace.by(author)
        values = trace.streams["value"][mask]
        returns = n_step_returns(trace.streams["reward"][mask], values, gamma, steps)
        trace.streams["returns"] = placed(trace, mask, returns)
        trace.streams["adv"] = placed(trace, mask, returns - values)

    return per_trace(
        write,
        name=f"n_step({steps})",
        reads=frozenset({"stream:reward", "stream:value", f"tokens:{author}"}),
        writes=frozenset({"stream:adv", "stream:returns"}),
    )


@supplies("stream:returns")
def monte_carlo(*, gamma: float = 1.0, author: str = "policy") -> Part:
    """R_t = sum over k >= t of gamma^(k-t) r_k over the author's tokens, from stream "reward": no value model."""

    def write(trace: Trace, group: Group, step: Step) -> None:
        mask = trace.by(author)
        reward = trace.streams["reward"][mask]
        returns = n_step_returns(reward, torch.zeros_like(reward), gamma, len(reward) + 1)
        trace.streams["returns"] = placed(trace, mask, returns)

    return per_trace(
        write,
        name="monte_carlo",
        reads=frozenset({"stream:reward", f"tokens:{author}"}),
        writes=frozenset({"stream:returns"}),
    )


@supplies("stream:returns")
def lambda_returns(*, gamma: float = 1.0, lam: float = 0.95, author: str = "policy") -> Part:
    """R_t = A_t + V_t by GAE(gamma, lam), from streams "reward" and "value": targets where no advantage is wanted."""

    return gae_stream("lambda_returns", "returns", gamma, lam, author)


def gae_stream(name: str, stream: str, gamma: float, lam: float, author: str) -> Part:
    """GAE's advantages (stream "adv") or its returns (stream "returns"), the one without the other."""

    def write(trace: Trace, group: Group, step: Step) -> None:
        mask = trace.by(author)
        reward, value = trace.streams["reward"][mask], trace.streams["value"][mask]
        adv, returns = advantages_and_returns(reward, value, gamma, lam)
        trace.streams[stream] = placed(trace, mask, adv if stream == "adv" else returns)

    return per_trace(
        write,
        name=name,
        reads=frozenset({"stream:reward", "stream:value", f"tokens:{author}"}),
        writes=frozenset({f"stream:{stream}"}),
    )


def placed(trace: Trace, mask: Tensor, values: Tensor) -> Tensor:
    """[T]: the values at the masked tokens, nan elsewhere."""
    stream = torch.full((len(trace),), float("nan"))
    stream[mask] = values
    return stream
