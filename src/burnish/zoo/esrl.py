"""ESRL: Efficient Sampling-based Reinforcement Learning for Sequence Generation (arXiv 2308.02223).

Replies dropped by how sure the policy was of them.
"""

from __future__ import annotations

import math
from typing import Annotated

from burnish import credit, draw, learn, rollout, score
from burnish.core.parts import Part
from burnish.core.state import State
from burnish.core.step import Step
from burnish.core.types import Group
from burnish.method import Method, Option, chain, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

ESRL = Paper("esrl", "2308.02223", "ESRL: Efficient Sampling-based Reinforcement Learning for Sequence Generation")


class RewardQueue:
    """The mean of the last `size` scores, first in, first out; a batch joins the queue before it is compared."""

    def __init__(self, name: str, size: int) -> None:
        if size < 1:
            raise ValueError(f"the reward queue's size is {size}; it must hold at least 1 score")
        self.name, self.size = name, size
        self.scores: list[float] = []

    def heard(self, scores: list[float]) -> float:
        self.scores = (self.scores + scores)[-self.size :]
        return sum(self.scores) / len(self.scores) if self.scores else 0.0

    def state_dict(self) -> State:
        return {"scores": list(self.scores)}

    def load_state_dict(self, state: State) -> None:
        self.scores = [float(score) for score in state["scores"]]


def drop_surest(share: float, *, stream: str = "entropy", author: str = "policy") -> Part:
    """Without the ceil(share x N) of the batch's N replies whose mean entropy (a stream) is smallest; ties: the earlier
    go.

    What the policy is sure of teaches it little (ESRL, arXiv 2308.02223). Groups left with no reply are dropped.
    """
    if not 0 <= share < 1:
        raise ValueError(f"the share to drop is {share}; it must be at least 0 and less than 1")

    def call(groups: list[Group], step: Step) -> list[Group]:
        traces = [trace for group in groups for trace in group.traces]
        entropy = [float(trace.streams[stream][trace.by(author)].mean()) for trace in traces]
        order = sorted(range(len(traces)), key=lambda i: entropy[i])
        gone = {id(traces[i]) for i in order[: math.ceil(share * len(traces))]}
        for group in groups:
            group.traces = [trace for trace in group.traces if id(trace) not in gone]
        step.notes.add("dropped/sure", len(gone), max(1, len(traces)))
        return [group for group in groups if group.traces]

    return Part(
        name=f"drop_surest({share:g})",
        call=call,
        reads=frozenset({f"stream:{stream}", f"tokens:{author}"}),
        updates=frozenset({f"tokens:{author}"}),
    )


@register(
    ESRL,
    family="policy",
    summary="REINFORCE against a queue of past scores, without the replies the policy is surest of.",
    when="Sampling is your bottleneck, and much of what is sampled is easy for the policy already.",
)
def esrl(
    task: draw.Source,
    *,
    n: opt.Replies = 1,
    drop: Annotated[float, Option("Share of the replies that is dropped.", at_least=0, below=1)] = 0.3,
    queue: Annotated[int, Option("Scores that the baseline remembers.", at_least=1)] = 512,
    reward_model: opt.RewardModel = None,
) -> Method:
    """ESRL: sample without a graph, keep what there is to learn from, then one parallel pass with gradient.

    H(y) = mean over tokens of the entropy of pi;   the ceil(drop N) of the batch's N replies of least H are dropped
    L = mean over the others of -(r - b) log pi(y | x),   b = mean of the last `queue` scores

    Two-stage sampling is how the engine always works. Dynamic sampling follows the authors' released code, which
    drops the 30% most confident replies; its measure is of the largest probability at each token, here it is the
    entropy itself. The paper's per-input sample sizes and temperatures are left out, and its baseline is taken to
    be a first-in-first-out queue; the released code puts the same dynamic sampling in front of PPO.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=score.scoring(task, reward_model),
        select=chain(credit.streams("policy", "policy", entropy="entropy"), drop_surest(drop)),
        credit=credit.over_memory(RewardQueue("rewards", queue)),
        learn=learn.Learn(learn.pg_reinforce(norm=learn.seq_sum_mean)),
        models=roles(**score.rm_role(reward_model)),
    )
