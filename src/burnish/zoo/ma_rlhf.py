"""MA-RLHF: Reinforcement Learning from Human Feedback with Macro Actions (arXiv 2410.02743).

Credit to macro actions: runs of tokens that count as one action (MA-RLHF, arXiv 2410.02743).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Annotated, Literal

import torch
from torch import Tensor

from burnish import credit, draw, learn, rollout, score
from burnish.core import randomness
from burnish.core.parts import Part, per_trace, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Trace
from burnish.credit.gae import advantages_and_returns
from burnish.credit.returns import placed
from burnish.method import Method, Option, Sampling, chain, method
from burnish.methods import opt, register
from burnish.methods.actor_critic import anchors, ppo_models
from burnish.papers import Paper

MA_RLHF = Paper("ma-rlhf", "2410.02743", "MA-RLHF: Reinforcement Learning from Human Feedback with Macro Actions")


@supplies("score:clipped")
def clipped(limit: float, *, score: str = "reward", name: str = "clipped") -> Part:
    """scores[name] = the score clipped to [-limit, limit]."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        for trace in (trace for group in groups for trace in group.traces):
            trace.scores[name] = max(-limit, min(limit, trace.scores[score]))
        return groups

    return Part(
        name=f"clipped({limit:g})",
        call=call,
        reads=frozenset({f"score:{score}"}),
        writes=frozenset({f"score:{name}"}),
    )


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


def random_lengths(tokens: int, repeats: int, rng: Random) -> list[int]:
    """Random n-grams: lengths 1, 2, 3, 5 and 10, each at most `repeats` times, in a random order; what is left over is
    one
    macro, and the last token one of its own."""
    order = [length for length in (1, 2, 3, 5, 10) for _ in range(repeats)]
    rng.shuffle(order)
    left, found = tokens - 1, []
    for length in order:
        if left < length:
            break
        found.append(length)
        left -= length
    return [*found, *([left] if left else []), 1]


def surprise_lengths(surprise: Tensor) -> list[int]:
    """Cut by perplexity: a macro begins at every token after which the next one is more surprising. [T] -> lengths."""
    last = len(surprise) - 1
    rises = [t for t in range(1, last) if surprise[t + 1] > surprise[t]]
    starts = [0, *rises, last] if last else [0]
    return [*(b - a for a, b in zip(starts, starts[1:], strict=False)), 1]


@dataclass(frozen=True)
class Cut:
    """A rule that cuts a reply into macro actions: call(trace, mask, group, step) -> lengths, and what it reads."""

    name: str
    call: Callable[[Trace, Tensor, Group, Step], list[int]]
    reads: frozenset[str] = frozenset()


def fixed_cut(length: int) -> Cut:
    """Runs of `length` tokens."""
    if length < 1:
        raise ValueError(f"a macro action of {length} tokens is none; its length must be at least 1")
    return Cut(str(length), lambda trace, mask, group, step: macro_lengths(int(mask.sum()), length))


def random_cut(repeats: int) -> Cut:
    """Runs of random lengths, the same in a rerun."""

    def call(trace: Trace, mask: Tensor, group: Group, step: Step) -> list[int]:
        clock = step.clock
        rng = randomness.rng(clock.seed, "macro", clock.step, clock.tick, group.task.key, trace.index)
        return random_lengths(int(mask.sum()), repeats, rng)

    return Cut("random", call)


def perplexity_cut() -> Cut:
    """Runs over which the reference's surprise falls."""

    def call(trace: Trace, mask: Tensor, group: Group, step: Step) -> list[int]:
        return surprise_lengths(-trace.streams["ref"][mask])

    return Cut("perplexity", call, frozenset({"stream:ref"}))


CUTS: dict[str, Callable[[int, int], Cut]] = {
    "fixed": lambda length, repeats: fixed_cut(length),
    "random": lambda length, repeats: random_cut(repeats),
    "perplexity": lambda length, repeats: perplexity_cut(),
}


@supplies("stream:adv", "stream:returns")
def macro_gae(
    length: int = 5,
    *,
    cut: str = "fixed",
    repeats: int = 3,
    gamma: float = 1.0,
    lam: float = 0.95,
    author: str = "policy",
) -> Part:
    """Advantages and returns of macro actions, from streams "reward" and "value".

    cut  fixed: `length` tokens each; random: lengths up to 10, each `repeats` times; perplexity: where surprise rises
    """
    if cut not in CUTS:
        raise ValueError(f"cut is {cut!r}; choose one of {', '.join(CUTS)}")
    rule = CUTS[cut](length, repeats)

    def write(trace: Trace, group: Group, step: Step) -> None:
        mask = trace.by(author)
        reward, value = trace.streams["reward"][mask], trace.streams["value"][mask]
        lengths = rule.call(trace, mask, group, step)
        found = macro_advantages_and_returns(reward, value, lengths, gamma, lam)
        trace.streams["adv"], trace.streams["returns"] = (placed(trace, mask, x) for x in found)
        step.notes.add("macros", len(lengths))

    return per_trace(
        write,
        name=f"macro_gae({rule.name})",
        reads=frozenset({"stream:reward", "stream:value", f"tokens:{author}"}) | rule.reads,
        writes=frozenset({"stream:adv", "stream:returns"}),
    )


@register(
    MA_RLHF,
    family="policy",
    summary="PPO whose values and advantages belong to runs of tokens.",
    when="Token-level credit is too noisy for your replies, and words or phrases are better units.",
    trial={"n": 4, "length": 3},
)
def ma_rlhf(
    task: draw.Source,
    *,
    n: opt.Replies = 1,
    cut: Annotated[
        Literal["fixed", "random", "perplexity"], Option("How a reply is cut into macro actions.")
    ] = "fixed",
    length: Annotated[int, Option("Tokens in a macro action of a fixed cut.", at_least=1)] = 5,
    repeats: Annotated[int, Option("How often a random cut uses each of 1, 2, 3, 5 and 10.", at_least=1)] = 3,
    eps: opt.ClipRange = 0.2,
    value_eps: opt.ValueClipRange = 0.2,
    kl: opt.KLPenalty = 0.05,
    gamma: Annotated[float, Option("Discount per macro action.", at_least=0, at_most=1)] = 1.0,
    lam: opt.Lam = 0.95,
    limit: Annotated[float, Option("The largest score.", above=0)] = 2.5,
    updates: opt.Updates = 1,
    critic_lr: opt.CriticLR = 1.0,
    reward_model: opt.RewardModel = None,
) -> Method:
    """PPO over macro actions tau: runs of tokens (the last token is a macro of its own).

    r_t = -kl log(pi_old/ref)(y_t), plus the score, cut to +-limit, at the last token
    r_tau = mean r_t,  V_tau = mean V_t over tau;   A_tau, R_tau by GAE over macros, shared by their tokens
    L = mean over tokens of -min(rho A, clip(rho) A) + mean over tokens of max((V - R)^2, (V_clip - R)^2) / 2

    length = 1 is PPO (without whitening). This is the released code; the paper's equations sum the rewards of a
    macro where the code averages them, and clip one ratio per macro where the code clips every token's. Of the
    paper's four ways to cut three are here; the one by constituents needs a parser. With perplexity a macro begins
    where the next token surprises the reference more.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=chain(score.scoring(task, reward_model), clipped(limit)),
        credit=chain(
            anchors(),
            credit.token_rewards(score="clipped", kl=kl),
            macro_gae(length, cut=cut, repeats=repeats, gamma=gamma, lam=lam),
        ),
        learn=learn.Learn(learn.pg_clip(eps), learn.value_clip(value_eps), updates=updates),
        models=ppo_models(critic_lr, reward_model),
        sampling=Sampling(0.8),
    )
