"""Policy Filtration in RLHF to Fine-Tune LLM for Code Generation (arXiv 2409.06957).

Policy filtration: of the replies to a prompt, those at the ranks where the reward can be trusted (PF-PPO).
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

from burnish import credit, draw, learn, rollout, score
from burnish.core import randomness
from burnish.core.parts import Part, Stateful, supplies
from burnish.core.state import State
from burnish.core.step import Step
from burnish.core.types import Group
from burnish.method import Method, Option, chain, method
from burnish.methods import opt, register
from burnish.methods.actor_critic import ppo_credit, ppo_models
from burnish.papers import Paper

PF_PPO = Paper("pf-ppo", "2409.06957", "Policy Filtration in RLHF to Fine-Tune LLM for Code Generation")

METRICS = (
    (
        "r2/*",
        "What was sampled",
        "R^2 of the verifier's score against the reward, of the replies that a filtration keeps",
        "up",
    ),
    ("filtration/*", "What was sampled", "share of the steps in which this filtration was chosen"),
)


Ranks = Callable[[int, random.Random], tuple[int, ...]]  # (replies, dice) -> the ranks that stay, 0 is the best


def best(n: int, dice: random.Random) -> tuple[int, ...]:
    """The top reply."""
    return (0,)


def best_and_random(n: int, dice: random.Random) -> tuple[int, ...]:
    """The top reply, and a random one of the others."""
    return (0,) if n < 2 else (0, dice.randrange(1, n))


def best_and_worst(n: int, dice: random.Random) -> tuple[int, ...]:
    """The top reply and the bottom one."""
    return (0,) if n < 2 else (0, n - 1)


def every_rank(n: int, dice: random.Random) -> tuple[int, ...]:
    """All replies."""
    return tuple(range(n))


STRATEGIES: dict[str, Ranks] = {"bon": best, "br": best_and_random, "bw": best_and_worst, "all": every_rank}
BY_FIT = ("bon", "br", "bw")  # those that a fit chooses among


def r_squared(rewards: Sequence[float], truth: Sequence[float]) -> float:
    """R^2 of the linear regression of the true scores on the rewards: 1 - SSE / SST.

    0 where the rewards are all equal: the line is then the mean. 1 where the true scores are all equal: there is no
    error. 0 for fewer than three points, through which a line says nothing.
    """
    if len(rewards) < 3:
        return 0.0
    if len(set(truth)) < 2:
        return 1.0
    return statistics.correlation(rewards, truth) ** 2 if len(set(rewards)) > 1 else 0.0


class Fits:
    """For each strategy the newest (reward, true score) of the replies that it keeps: at most `capacity`."""

    def __init__(self, name: str, capacity: int = 4096) -> None:
        self.name, self.capacity = name, capacity
        self.points: dict[str, list[tuple[float, float]]] = {name: [] for name in BY_FIT}

    def add(self, strategy: str, points: list[tuple[float, float]]) -> None:
        self.points[strategy] = [*self.points[strategy], *points][-self.capacity :]

    def r_squared(self, strategy: str) -> float:
        """R^2 of the replies that a strategy keeps."""
        points = self.points[strategy]
        return r_squared([x for x, _ in points], [y for _, y in points])

    def choice(self) -> str:
        """The strategy with the largest R^2; the last of those that are equal (bw)."""
        return max(reversed(BY_FIT), key=self.r_squared)

    def state_dict(self) -> State:
        return {name: [list(point) for point in points] for name, points in self.points.items()}

    def load_state_dict(self, state: State) -> None:
        self.points = {name: [(float(x), float(y)) for x, y in points] for name, points in state.items()}


@supplies("tag:filtered")
def filtered(strategy: str | Fits, *, score: str = "reward", truth: str = "reward") -> Part:
    """Of each group the traces at the ranks of a strategy, by score, with the tag "filtered"; ties go to the earlier.

    strategy  a name of STRATEGIES, or Fits: the strategy whose replies have the largest R^2 of `truth` against `score`
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        ranked = [sorted(group.traces, key=lambda trace: -trace.scores[score]) for group in groups]
        dice = [randomness.key_of(step.clock.seed, "filtered", step.clock.step, group.task.key) for group in groups]
        chosen = strategy if isinstance(strategy, str) else _chosen(strategy, ranked, dice)
        for group, traces, key in zip(groups, ranked, dice, strict=True):
            kept = {id(traces[rank]) for rank in STRATEGIES[chosen](len(traces), random.Random(key))}
            step.notes.add("dropped/filtered", len(traces) - len(kept), max(1, len(traces)))
            group.traces = [trace for trace in group.traces if id(trace) in kept]
            for trace in group.traces:
                trace.tags = trace.tags | {"filtered"}
        if isinstance(strategy, Fits):
            for name in BY_FIT:
                step.notes.add(f"r2/{name}", strategy.r_squared(name))
                step.notes.add(f"filtration/{name}", float(name == chosen))
        return groups

    def _chosen(fits: Fits, ranked: list[list[Any]], keys: list[int]) -> str:
        for name in BY_FIT:
            for traces, key in zip(ranked, keys, strict=True):
                ranks = STRATEGIES[name](len(traces), random.Random(key))
                fits.add(name, [(traces[rank].scores[score], traces[rank].scores[truth]) for rank in ranks])
        return fits.choice()

    state: tuple[Stateful, ...] = () if isinstance(strategy, str) else (strategy,)
    return Part(
        name=f"filtered({strategy if isinstance(strategy, str) else 'by fit'})",
        call=call,
        reads=frozenset({f"score:{score}", f"score:{truth}"}),
        writes=frozenset({"tag:filtered"}),
        updates=frozenset({"tokens:policy"}),
        state=state,
    )


@register(
    PF_PPO,
    family="policy",
    summary="PPO on the replies whose rank makes their reward trustworthy: the best, and a random one or the worst.",
    when="A reward model is noisy for middling replies, and more reliable for those that it finds best or worst.",
)
def pf_ppo(
    task: draw.Source,
    *,
    n: opt.GroupSize = 5,
    strategy: Annotated[
        Literal["bon", "br", "bw", "all", "r2"],
        Option(
            "Replies of a prompt that stay: the best (bon), with a random one (br), with the worst (bw), all, or those "
            "of the strategy with the largest R^2 (r2, which needs a reward model and a verifier).",
        ),
    ] = "bw",
    eps: opt.ClipRange = 0.2,
    value_eps: opt.ValueClipRange = 0.2,
    value_coef: opt.ValueCoef = 0.5,
    kl: opt.KLPenalty = 0.05,
    gamma: opt.Gamma = 1.0,
    lam: opt.Lam = 0.95,
    updates: opt.Updates = 4,
    minibatches: opt.Minibatches = 1,
    critic_lr: opt.CriticLR = 1.0,
    reward_model: opt.RewardModel = None,
) -> Method:
    """Policy filtration for PPO.

    The n replies to a prompt are ranked by reward; those at the strategy's ranks stay:  bon {1};  br {1, one of 2..n};
    bw {1, n}.  PPO on what stays: GAE, whitening over the kept tokens, the clipped surrogate and the critic's loss
    r2: the strategy with the largest R^2 = 1 - SSE / SST of the regression of the verifier's score on the reward, over
    the replies that each would keep (the newest 4,096)

    strategy = all is PPO, and so is bw with n = 2. Ranks are within a prompt, as in the paper; the released code takes
    the largest and smallest score of the whole batch, or samples by the square of the score. The paper chooses a
    strategy once, before training; r2 chooses anew in every step.
    """
    fitted = strategy == "r2"
    if fitted and not reward_model:
        raise ValueError("strategy r2 compares a reward model with the task's verifier; pass --reward-model DIR")
    scored = (
        chain(score.verify(task), score.reward_model(name="proxy")) if fitted else score.scoring(task, reward_model)
    )
    by = "proxy" if fitted else "reward"
    terms = learn.pg_clip(eps, on=learn.CLAIMED), learn.value_clip(value_eps, coef=value_coef)
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=scored,
        select=filtered(Fits("fits") if fitted else strategy, score=by),
        credit=chain(
            ppo_credit(kl, lam, gamma=gamma, score=by),
            credit.claim("pg", "policy", tag="filtered"),
        ),
        learn=learn.Learn(*terms, updates=updates, minibatches=minibatches),
        models=ppo_models(critic_lr, reward_model),
    )
