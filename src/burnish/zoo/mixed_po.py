"""Mixed Preference Optimization: Reinforcement Learning with Data Selection and Better Reference Model (arXiv
2403.19443).

Pairs split by how far apart they score: easy ones to learn from, difficult ones to remember.
"""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score, select
from burnish.core.parts import Draw, Part, chain, per_trace, supplies
from burnish.core.roles import snapshot, trained
from burnish.core.schedules import after, before
from burnish.core.state import State
from burnish.core.step import Step
from burnish.core.types import Group, Task, Trace
from burnish.draw.stored import draw_from, sampled_groups
from burnish.method import Method, Option, Phase, roles
from burnish.methods import opt, register
from burnish.methods.actor_critic import ppo_credit
from burnish.papers import Paper
from burnish.select.remember import Store

MIXED_PO = Paper(
    "mixed-po",
    "2403.19443",
    "Mixed Preference Optimization: Reinforcement Learning with Data Selection and Better Reference Model",
)


def stored_prompts(store: Store) -> Draw:
    """The tasks of groups in the store, to be answered anew: as many as the run has prompts, without replacement."""

    def call(step: Step) -> list[Task]:
        return [group.task for group in sampled_groups(store, 1.0, step)]

    return draw_from(store, call, ())


@supplies("score:gap")
def mean_logp_of(who: str, *, author: str = "demo") -> Part:
    """scores["gap"] = the mean log-prob that a model gives to the author's tokens: how well it knows the reply."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        traces = [trace for group in groups for trace in group.traces]
        masks = [trace.by(author) for trace in traces]
        found = step.models[who].streams(traces, masks, {"logp"}, step.settings.token_budget)
        for trace, mask, output in zip(traces, masks, found, strict=True):
            trace.scores["gap"] = float(output["logp"][mask].mean()) if "logp" in output else 0.0
        return groups

    return Part(
        name=f"mean_logp_of({who})",
        call=call,
        reads=frozenset({f"tokens:{author}", f"model:{who}.logp"}),
        writes=frozenset({"score:gap"}),
    )


@supplies("score:gap")
def as_gap(score: str = "reward") -> Part:
    """scores["gap"] = another score."""

    def write(trace: Trace, group: Group, step: Step) -> None:
        trace.scores["gap"] = trace.scores[score]

    return per_trace(write, name="as_gap", reads=frozenset({f"score:{score}"}), writes=frozenset({"score:gap"}))


class Gaps:
    """The score gaps of the last `capacity` pairs: whether a gap is among the largest `share` of them."""

    def __init__(self, share: float, capacity: int = 512, name: str = "gaps") -> None:
        self.name, self.share, self.capacity = name, share, capacity
        self.seen: list[float] = []

    def add(self, gaps: list[float]) -> None:
        self.seen = [*self.seen, *gaps][-self.capacity :]

    def threshold(self) -> float:
        """The smallest gap that counts as easy."""
        ranked = sorted(self.seen, reverse=True)
        return ranked[min(len(ranked), max(1, round(self.share * len(ranked)))) - 1]

    def state_dict(self) -> State:
        return {"seen": self.seen}

    def load_state_dict(self, state: State) -> None:
        self.seen = [float(gap) for gap in state["seen"]]


@supplies("store:*", "tag:easy")
def easy_pairs(gaps: Gaps, difficult: Store, *, score: str = "gap") -> Part:
    """Groups whose pair's gap is among the largest, tagged "easy"; the others go into the store and are dropped.

    The gap of a pair (a, b) is score(a) - score(b), in absolute value. (MPO, arXiv 2403.19443.)
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        found = [(group, *(group.pairs or [(0, 0)])[0]) for group in sorted(groups, key=lambda one: one.task.key)]
        sizes = [abs(g.traces[a].scores[score] - g.traces[b].scores[score]) for g, a, b in found]
        gaps.add(sizes)
        easy = [group for (group, _, _), size in zip(found, sizes, strict=True) if size >= gaps.threshold()]
        difficult.add([group for group, _, _ in found if not any(group is one for one in easy)])
        step.notes.add("dropped/difficult", len(groups) - len(easy), max(1, len(groups)))
        for trace in (trace for group in easy for trace in group.traces):
            trace.tags |= {"easy"}
        return easy

    return Part(
        name=f"easy_pairs({gaps.share:g})",
        call=call,
        reads=frozenset({"pairs", f"score:{score}"}),
        writes=frozenset({f"store:{difficult.name}", "tag:easy"}),
        state=(gaps, difficult),
    )


ONCE = 10**9  # the period of a snapshot that is taken a single time


@register(
    MIXED_PO,
    family="preference",
    summary="DPO on easy pairs first, then PPO on the prompts of difficult ones, held to the DPO policy.",
    when="Pairs of which many are hard to tell apart, and compute for PPO on the rest.",
    trial={"n": 2, "updates": 1, "switch": 1},
)
def mixed_po(
    task: draw.Source,
    *,
    switch: Annotated[float, Option("Steps of DPO before PPO begins; below 1, a share of all steps.", above=0)] = 0.5,
    share: Annotated[float, Option("Share of the pairs that counts as easy.", above=0, at_most=1)] = 0.5,
    beta: opt.Beta = 0.1,
    n: opt.Replies = 1,
    eps: opt.ClipRange = 0.2,
    kl: opt.KLPenalty = 0.05,
    lam: opt.Lam = 0.95,
    updates: opt.Updates = 4,
    reward_model: opt.RewardModel = None,
) -> Method:
    """MPO: mixed preference optimisation.

    the first `switch` steps: L = -log s( beta [lr_w - lr_l] ) on pairs whose reward gap is among the largest `share`
    from then on:             PPO on prompts of the other pairs, KL and start relative to the DPO policy

    The gap is |r(y_w) - r(y_l)| of the reward model; without one it is that of the reference's mean log-probs, and PPO
    is rewarded by the verifier. The paper has a threshold per data set in place of a share.
    """
    difficult = select.Store("difficult", 2048)
    gap = chain(score.reward_model(author="demo"), as_gap()) if reward_model else mean_logp_of("ref")
    easy = Phase(
        name="dpo",
        times=before(switch),
        draw=draw.pairs(task),
        rollout=rollout.given("chosen", "rejected"),
        score=gap,
        select=chain(select.given_pairs(), easy_pairs(Gaps(share), difficult)),
        credit=chain(credit.ref(), credit.claim("reply", "demo", tag="easy")),
        learn=learn.Learn(learn.dpo(beta, on=learn.CLAIMED)),
    )
    hard = Phase(
        name="ppo",
        times=after(switch),
        draw=stored_prompts(difficult),
        rollout=rollout.sample(n),
        score=score.scoring(task, reward_model),
        credit=ppo_credit(kl, lam),
        learn=learn.Learn(learn.pg_clip(eps), learn.value_clip(eps, coef=0.5), updates=updates),
    )
    models = roles(
        ref=snapshot("policy", ONCE, offset=switch), critic=trained(outputs=1), **score.rm_role(reward_model)
    )
    return Method(models=models, phases=(easy, hard), lr_share=0.1)
