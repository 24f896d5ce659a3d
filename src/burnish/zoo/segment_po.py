"""Segment Policy Optimization: Effective Segment-Level Credit Assignment in RL for Large Language Models (arXiv
2505.23564).
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import Annotated

import torch
from torch import Tensor

from burnish import credit, draw, learn, rollout, score
from burnish.core.parts import Rollout, names, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Task, Turn
from burnish.credit.segments import cut_values
from burnish.method import Method, Option, Part, Sampling, Trace, chain, frozen, method, roles
from burnish.methods import Arguments, opt, register, variant
from burnish.models.chat import Chat
from burnish.papers import Paper
from burnish.rollout.branch import Cuts
from burnish.rollout.completions import Prefix, continued

SEGMENT_PO = Paper(
    "segment-po",
    "2505.23564",
    "Segment Policy Optimization: Effective Segment-Level Credit Assignment in RL for Large Language Models",
)


@supplies("stream:adv")
def segment_advantages(score: str = "reward") -> Part:
    """A = V(next cut) - V(own cut) for the tokens from one cut to the next (SPO-chain, arXiv 2505.23564).

    After the last cut, V(next) is the reply's own score. Tokens before the first cut have advantage 0, probes have
    none.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            values = cut_values(group, score)
            for trace in group.traces:
                trace.streams["adv"] = torch.full((len(trace),), 0.0 if "cuts" in trace.note else float("nan"))
                cuts = trace.note.get("cuts", [])
                known = [*(values[trace.index, at] for at in cuts), trace.scores[score]]
                for k, (start, end) in enumerate(zip(cuts, [*cuts, len(trace)][1:], strict=True)):
                    trace.streams["adv"][start:end] = known[k + 1] - known[k]
        return groups

    return Part(
        name="segment_advantages",
        call=call,
        reads=frozenset({f"score:{score}", "tag:probe"}),
        writes=frozenset({"stream:adv"}),
    )


@supplies("stream:adv")
def tree_advantages(score: str = "reward") -> Part:
    """A = V(node) - V(parent) for the tokens of every turn of a tree of replies (SPO-tree, arXiv 2505.23564).

    V of a reply that ended is its score; V of any other node is the mean V of its children.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            values = node_values(group.traces, score)
            for trace in group.traces:
                trace.streams["adv"] = torch.full((len(trace),), float("nan"))
                for turn, start, end in trace.spans():
                    if turn.parent is not None:
                        trace.streams["adv"][start:end] = values[id(turn)] - values[id(turn.parent)]
        return groups

    return Part(
        name="tree_advantages",
        call=call,
        reads=frozenset({f"score:{score}", "tag:tree"}),
        writes=frozenset({"stream:adv"}),
    )


def node_values(traces: list[Trace], score: str) -> dict[int, float]:
    """id of a turn -> its value: the score of the reply that it ends, or the mean value of its children."""
    values: dict[int, float] = {id(trace.turns[-1]): trace.scores[score] for trace in traces}
    deepest_first = sorted(
        {(depth, id(turn)): turn for trace in traces for depth, turn in enumerate(trace.turns)}.items(),
        key=lambda item: -item[0][0],
    )
    children: dict[int, dict[int, Turn]] = defaultdict(dict)
    for _, turn in deepest_first:
        if turn.parent is not None:
            children[id(turn.parent)][id(turn)] = turn
    for _, turn in deepest_first:
        mine = children[id(turn)]
        if mine:
            values[id(turn)] = sum(values[child] for child in mine) / len(mine)
    return values


def uncertain(below: float, interval: int) -> Cuts:
    """Before every `interval`-th of the tokens that had less than this probability when they were sampled."""
    if interval < 1:
        raise ValueError(f"interval is {interval}; a segment holds at least 1 uncertain token")

    def cuts(turn: Turn, chat: Chat) -> list[int]:
        assert turn.logp is not None
        return (turn.logp.exp() < below).nonzero()[:, 0].tolist()[::interval]

    return cuts


@supplies("tag:tree")
def tree(branch: int, depth: int, segment: int, *, temperature: float | None = None, who: str = "policy") -> Rollout:
    """Replies that share beginnings: each node has `branch` children, for `depth` levels; one trace per leaf.

    Every level but the last writes at most `segment` tokens; the last writes to the end. A reply that ends early is a
    leaf.
    Siblings and cousins share turns, so each turn is claimed once by a term.
    """

    def call(tasks: list[Task], step: Step) -> list[Group]:
        limit, room = step.settings.max_new_tokens, step.models[who].context
        alive = [
            _Path(task, (Turn(step.models[who].chat.prompt(task), "task"),), f"tree {i}")
            for i, task in enumerate(tasks)
        ]
        leaves: dict[str, list[_Path]] = {path.name: [] for path in alive}
        for level in range(depth):
            grown = [path.child(i) for path in alive for i in range(branch)]
            most = [limit - path.said() if level == depth - 1 else min(segment, limit - path.said()) for path in grown]
            starts = [path.start(size) for path, size in zip(grown, most, strict=True)]
            ended = []
            for path, (new, stopped) in zip(
                grown, continued(starts, who, step, step.sampling(temperature)), strict=True
            ):
                path.turns = (*path.turns, replace(new, parent=path.turns[-1]))
                path.stopped = stopped
                full = path.said() >= limit or len(Trace(path.turns)) >= room
                ended.append(stopped == "stop" or full or level == depth - 1)
                if ended[-1]:
                    leaves[path.root()].append(path)
            alive = [path for path, over in zip(grown, ended, strict=True) if not over]
        return [
            Group(task, [path.trace(k) for k, path in enumerate(leaves[f"tree {i}"])]) for i, task in enumerate(tasks)
        ]

    return Rollout(
        name=f"tree({branch}^{depth})",
        call=call,
        reads=frozenset({"task:prompt", f"model:{who}.generate"}),
        writes=names("tokens", ("task", who)) | names("mu", who) | names("tag", "tree"),
    )


@dataclass(eq=False)
class _Path:
    """A path from the root of a tree: its name tells its noise from every other path's."""

    task: Task
    turns: tuple[Turn, ...]
    name: str
    stopped: str = ""

    def child(self, i: int) -> _Path:
        return _Path(self.task, self.turns, f"{self.name}.{i}")

    def root(self) -> str:
        return self.name.partition(".")[0]

    def said(self) -> int:
        return sum(len(turn) for turn in self.turns[1:])

    def start(self, most: int) -> Prefix:
        noise = "tree" + self.name[len(self.root()) :]
        return Prefix(self.task, self.turns[0], Trace(self.turns).tokens[len(self.turns[0]) :], noise, 0, most)

    def trace(self, index: int) -> Trace:
        return Trace(self.turns, index, tags=frozenset({"tree"}), note={"stopped": self.stopped})


def _undecided(tag: str, below: float, *, moved: bool) -> Part:
    """The tokens that had less than this probability are claimed, and their advantages whitened.

    moved  only those whose advantage is not 0
    """

    def where(trace: Trace) -> Tensor:
        unsure = trace.by("policy" if tag in trace.tags else "nobody") & (trace.streams["old"] < math.log(below))
        return unsure & (trace.streams["adv"] != 0) if moved else unsure

    needs = ("stream:old", "stream:adv", f"tag:{tag}")
    return chain(
        credit.behaviour(),
        credit.ref(),
        credit.whiten(where=where, needs=needs),
        credit.claim("pg", "policy", where=where, needs=needs),
        credit.claim("kl", "policy", where=where, needs=needs),
    )


_Below = Annotated[float, Option("Tokens below this probability count as undecided.", above=0, at_most=1)]
_KL = Annotated[float, Option("Weight of the KL; 0 loads no reference.", at_least=0)]


def _by_segment(
    task: draw.Source,
    *,
    sampled: Rollout,
    credited: Part,
    eps: opt.ClipRange = 0.2,
    kl: _KL = 1e-4,
    updates: opt.Updates = 1,
) -> Method:
    """PPO's clip on the advantages of segments, near the starting policy."""
    return method(
        draw=draw.prompts(task),
        rollout=sampled,
        score=score.verify(task),
        credit=credited,
        learn=learn.Learn(
            learn.pg_clip(eps, on=learn.CLAIMED),
            learn.kl_k3(coef=kl, norm=learn.seq_sum_mean, on=learn.CLAIMED),
            updates=updates,
        ),
        models=roles(ref=frozen("policy")),
        sampling=Sampling(0.6, top_p=0.9),
    )


@register(
    SEGMENT_PO,
    family="policy",
    summary="Advantages of segments of a reply, from fresh continuations at their ends; no critic.",
    when="Replies are long, a single verdict says too little, and you can pay for extra samples at a few cut points.",
    trial={"n": 4, "probes": 2, "interval": 4},
)
@variant(_by_segment)
def spo_chain(
    *,
    n: opt.Replies = 8,
    probes: Annotated[int, Option("Continuations from each cut.", at_least=1)] = 9,
    interval: Annotated[int, Option("Cut points in a segment.", at_least=1)] = 5,
    below: _Below = 0.9,
) -> Arguments:
    """SPO-chain: values by Monte Carlo where the policy was undecided.

    Cut points stand before tokens with p < `below`; from the first on, every `interval`-th bounds a segment
    V(cut) = mean score of `probes` continuations from there
    A = V(next cut) - V(cut), after the last cut: own score - V(cut)
    L = mean over tokens with p < `below` of -min(rho A, clip(rho, 1-eps, 1+eps) A)
      + kl * mean over replies of their sum of k3
    A is whitened over those tokens; other tokens are not trained.

    The constants are the released code's. Continuations only tell values: they are not trained on. Departures:
    whitening by the population's variance, where the code has the sample's; no batch is skipped for its ratio.
    """
    credited = chain(segment_advantages(), _undecided("sample", below, moved=False))
    return {"sampled": rollout.probed(n, probes, uncertain(below, interval)), "credited": credited}


@register(
    SEGMENT_PO,
    family="policy",
    summary="A tree of replies: each segment's advantage is its value over its parent's.",
    when="As `spo_chain`, when a tree of shared prefixes is cheaper than separate probes.",
    trial={"branch": 3, "depth": 2, "segment": 4},
)
@variant(_by_segment)
def spo_tree(
    *,
    branch: Annotated[int, Option("Children of each node.", at_least=2)] = 6,
    depth: Annotated[int, Option("Levels of the tree.", at_least=1)] = 3,
    segment: Annotated[int, Option("Tokens in a segment, but for the last level.", at_least=1)] = 30,
    below: _Below = 0.9,
) -> Arguments:
    """SPO-tree: each node of a tree has `branch` children of `segment` tokens; the last level runs to the end.

    V(reply that ended) = its score,  V(node) = mean V of its children;   A(segment) = V(node) - V(parent)
    L = mean over tokens with p < `below` of -min(rho A, clip(rho, 1-eps, 1+eps) A)
      + kl * mean over replies of their sum of k3
    A is whitened over those tokens. Segments with A = 0 are dropped; each segment counts and is trained once, however
    many share it.

    The constants are the released code's for short solutions (segment 30; 600 for long ones). Departures: segments
    of this step only, where the code keeps them for 8 iterations, 32 a question; whitening by the population's
    variance; no batch is skipped for its ratio.
    """
    credited = chain(tree_advantages(), _undecided("tree", below, moved=True))
    return {"sampled": tree(branch, depth, segment), "credited": credited}
