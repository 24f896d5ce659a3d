"""Methods whose values come from sampled continuations of replies."""

from __future__ import annotations

import math

from torch import Tensor

from burnish.cast.roles import frozen, stage, trained
from burnish.credit.gae import whiten
from burnish.credit.members import member
from burnish.credit.segments import segment_advantages, success_rates, tree_advantages
from burnish.credit.sequence import shared
from burnish.credit.steps import step_advantage
from burnish.credit.streams import behaviour, ref
from burnish.draw.tasks import prompts
from burnish.learn.learn import Learn
from burnish.learn.norms import seq_sum_mean
from burnish.learn.terms import kl_k3, pg_clip
from burnish.learn.terms.fit import chance_fit
from burnish.learn.terms.regression import regress_advantage
from burnish.method import Method, Phase, method
from burnish.methods.table import register
from burnish.nouns import Trace
from burnish.parts import Part, chain
from burnish.rollout.branch import lines, next_steps, probed, tree, uncertain
from burnish.schedules import after, before
from burnish.score.shape import success_chance
from burnish.score.verify import verify
from burnish.select.apart import apart
from burnish.tasks.source import Source

_SPO = "Segment Policy Optimization: Effective Segment-Level Credit Assignment in RL for Large Language Models"


def _undecided(tag: str, below: float, temperature: float, *, moved: bool) -> Part:
    """The tokens that had less than this probability are claimed, and their advantages whitened.

    moved  only those whose advantage is not 0
    """

    def where(trace: Trace) -> Tensor:
        unsure = trace.by("policy" if tag in trace.tags else "nobody") & (trace.streams["old"] < math.log(below))
        return unsure & (trace.streams["adv"] != 0) if moved else unsure

    needs = ("stream:old", "stream:adv", f"tag:{tag}")
    return chain(
        behaviour(),
        ref(temperature=temperature),
        whiten(where=where, needs=needs),
        member("pg", "policy", where=where, needs=needs),
        member("kl", "policy", where=where, needs=needs),
    )


@register(
    family="policy",
    catalogue=("segment-po",),
    title=_SPO,
    arxiv="2505.23564",
    summary="Advantages of segments of a reply, from fresh continuations at their ends; no critic.",
    when="Replies are long, a single verdict says too little, and you can pay for extra samples at a few cut points.",
    trial={"n": 4, "probes": 2, "interval": 4},
)
def spo_chain(
    task: Source, *, n: int = 8, probes: int = 9, interval: int = 5, below: float = 0.9, eps: float = 0.2, kl: float = 1e-4, epochs: int = 1,
    temperature: float = 0.6, top_p: float = 0.9,
) -> Method:  # fmt: skip
    """SPO-chain: values by Monte Carlo where the policy was undecided.

    Cut points stand before tokens with p < `below`; from the first on, every `interval`-th bounds a segment
    V(cut) = mean score of `probes` continuations from there;   A = V(next cut) - V(cut), after the last cut: own score - V(cut)
    L = mean over tokens with p < `below` of -min(rho A, clip(rho, 1-eps, 1+eps) A) + kl * mean over replies of their sum of k3
    A is whitened over those tokens; other tokens are not trained.

    The constants are the released code's. Continuations only tell values: they are not trained on.
    n: replies sampled for each prompt. probes: continuations from each cut. interval: cut points in a segment.
    below: the probability under which a token counts as undecided. eps: the clip range. kl: weight of the KL.
    epochs: passes over each batch. top_p: the share of probability that samples come from.
    Departures: whitening by the population's variance, where the code has the sample's; no batch is skipped for its ratio.
    """
    return method(
        draw=prompts(task),
        rollout=probed(n, probes, uncertain(below, interval), temperature=temperature, top_p=top_p),
        score=verify(task),
        credit=chain(segment_advantages(), _undecided("sample", below, temperature, moved=False)),
        learn=Learn(pg_clip(eps), kl_k3(coef=kl, norm=seq_sum_mean), epochs=epochs, temperature=temperature),
        cast=stage(ref=frozen("policy")),
    )


@register(
    family="policy",
    catalogue=("segment-po",),
    title=_SPO,
    arxiv="2505.23564",
    summary="A tree of replies: each segment's advantage is its value over its parent's.",
    when="As `spo_chain`, when a tree of shared prefixes is cheaper than separate probes.",
    trial={"branch": 3, "depth": 2, "segment": 4},
)
def spo_tree(
    task: Source, *, branch: int = 6, depth: int = 3, segment: int = 30, below: float = 0.9, eps: float = 0.2, kl: float = 1e-4,
    epochs: int = 1, temperature: float = 0.6, top_p: float = 0.9,
) -> Method:  # fmt: skip
    """SPO-tree: each node of a tree has `branch` children of `segment` tokens; the last level runs to the end.

    V(reply that ended) = its score,  V(node) = mean V of its children;   A(segment) = V(node) - V(parent)
    L = mean over tokens with p < `below` of -min(rho A, clip(rho, 1-eps, 1+eps) A) + kl * mean over replies of their sum of k3
    A is whitened over those tokens. Segments with A = 0 are dropped; each segment is trained once, whoever shares it.

    The constants are the released code's for short solutions (segment 30; 600 for long ones).
    branch: children of each node. depth: levels of the tree. segment: tokens in a segment, but for the last level.
    below: the probability under which a token is trained. eps: the clip range. kl: weight of the KL.
    epochs: passes over each batch. top_p: the share of probability that samples come from.
    Departures: segments of this step only, where the code keeps them for 8 iterations, 32 a question; whitening by the
    population's variance; no batch is skipped for its ratio.
    """
    return method(
        draw=prompts(task),
        rollout=tree(branch, depth, segment, temperature=temperature, top_p=top_p),
        score=verify(task),
        credit=chain(tree_advantages(), _undecided("tree", below, temperature, moved=True)),
        learn=Learn(pg_clip(eps), kl_k3(coef=kl, norm=seq_sum_mean), epochs=epochs, temperature=temperature),
        cast=stage(ref=frozen("policy")),
    )


@register(
    family="policy",
    catalogue=("direct-advantage-po",),
    title="Improving Multi-Step Reasoning Abilities of Large Language Models with Direct Advantage Policy Optimization",
    arxiv="2412.18279",
    summary="A critic of steps, trained first; then the policy's log-ratios are regressed to its advantages.",
    when="Reasoning falls into steps, and you can afford to price them once, offline, and then train without sampling.",
    trial={"solutions": 2, "completions": 2, "candidates": 4, "critic_steps": 1, "least": 0.0},
)
def direct_advantage_po(
    task: Source, *, beta: float = 0.01, solutions: int = 6, completions: int = 8, candidates: int = 8, least: float = 0.1,
    critic_steps: int = 100, critic_lr: float = 1.0, temperature: float = 1.0,
) -> Method:  # fmt: skip
    """Direct advantage policy optimisation: steps of reasoning are lines, the starting policy ref writes them.

    Critic, first: at each step's start s, p(s) = mean score of `completions` continuations by ref;  V(s) = sigmoid(critic) -> p(s)
    by cross-entropy, and V(finished solution) -> its score
    Actor: `candidates` next steps a_i ~ ref(.|s) at one s of a fresh solution;   A_i = V(s a_i) - mean_j V(s a_j)
    L = mean over candidates of (A_i/beta - log pi(a_i|s)/ref(a_i|s))^2 / 2,   log-probs summed over the step
    Equal candidates count once; states whose advantages span less than `least` are dropped.

    Each step of the run works on fresh solutions. The actor begins in the step that ends the critic's training; from then on the
    critic is frozen. Scores are chances of success and should lie in [0, 1].
    beta: how far the policy may go; 0.01 and 0.02 are the paper's. solutions: replies for each prompt that train the critic.
    completions: continuations from each state (the paper: 16). candidates: next steps sampled at a state.
    least: the least span of advantages at a state. critic_steps: steps that train the critic, at least 1.
    critic_lr: multiplies the learning rate for the critic.
    Departures: the paper keeps 6 of 32 solutions, half of them right, and collects all its data beforehand.
    """
    if critic_steps < 1:
        raise ValueError(f"critic_steps is {critic_steps}; the critic must be trained for at least 1 step")
    critic = Phase(
        name="critic",
        times=before(critic_steps),
        draw=prompts(task),
        rollout=probed(solutions, completions, lines, temperature=temperature, who="ref"),
        score=verify(task, author="ref"),
        credit=chain(
            success_rates(), shared("reward", "outcome"), member("end", "ref", at="end", tag="sample"),
            member("chance", "ref", where=lambda trace: ~trace.streams["rate"].isnan(), needs=("stream:rate",)),
        ),
        learn=Learn(chance_fit("rate"), chance_fit("outcome", output="score", name="end")),
    )  # fmt: skip
    actor = Phase(
        name="actor",
        times=after(critic_steps - 1),
        draw=prompts(task),
        rollout=next_steps(candidates, temperature=temperature, who="ref"),
        score=success_chance("critic", author="ref"),
        select=apart(least, score="chance"),
        credit=chain(step_advantage("chance"), ref(temperature=temperature), member("step", "ref", tag="apart")),
        learn=Learn(regress_advantage(beta), temperature=temperature),
    )
    roles = stage(ref=frozen("policy"), critic=trained(outputs=1, lr=critic_lr))
    return Method(cast=roles, phases=(critic, actor))
