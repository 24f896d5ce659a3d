"""Methods whose values come from sampled continuations of replies."""

from __future__ import annotations

import math
from typing import Annotated

from torch import Tensor

from burnish import credit, draw, learn, rollout, score, select
from burnish.core.schedules import after, before
from burnish.method import Method, Option, Part, Phase, Trace, chain, frozen, method, roles, trained
from burnish.methods import opt, papers, register


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


@register(
    papers.SEGMENT_PO,
    family="policy",
    summary="Advantages of segments of a reply, from fresh continuations at their ends; no critic.",
    when="Replies are long, a single verdict says too little, and you can pay for extra samples at a few cut points.",
    trial={"n": 4, "probes": 2, "interval": 4},
)
def spo_chain(
    task: draw.Source,
    *,
    n: opt.Replies = 8,
    probes: Annotated[int, Option("Continuations from each cut.", at_least=1)] = 9,
    interval: Annotated[int, Option("Cut points in a segment.", at_least=1)] = 5,
    below: _Below = 0.9,
    eps: opt.ClipRange = 0.2,
    kl: _KL = 1e-4,
    updates: opt.Updates = 1,
    temperature: opt.Temperature = 0.6,
    top_p: opt.TopP = 0.9,
) -> Method:
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
    return method(
        draw=draw.prompts(task),
        rollout=rollout.probed(n, probes, rollout.uncertain(below, interval), temperature=temperature, top_p=top_p),
        score=score.verify(task),
        credit=chain(credit.segment_advantages(), _undecided("sample", below, moved=False)),
        learn=learn.Learn(
            learn.pg_clip(eps, on=learn.CLAIMED),
            learn.kl_k3(coef=kl, norm=learn.seq_sum_mean, on=learn.CLAIMED),
            updates=updates,
        ),
        models=roles(ref=frozen("policy")),
    )


@register(
    papers.SEGMENT_PO,
    family="policy",
    summary="A tree of replies: each segment's advantage is its value over its parent's.",
    when="As `spo_chain`, when a tree of shared prefixes is cheaper than separate probes.",
    trial={"branch": 3, "depth": 2, "segment": 4},
)
def spo_tree(
    task: draw.Source,
    *,
    branch: Annotated[int, Option("Children of each node.", at_least=2)] = 6,
    depth: Annotated[int, Option("Levels of the tree.", at_least=1)] = 3,
    segment: Annotated[int, Option("Tokens in a segment, but for the last level.", at_least=1)] = 30,
    below: _Below = 0.9,
    eps: opt.ClipRange = 0.2,
    kl: _KL = 1e-4,
    updates: opt.Updates = 1,
    temperature: opt.Temperature = 0.6,
    top_p: opt.TopP = 0.9,
) -> Method:
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
    return method(
        draw=draw.prompts(task),
        rollout=rollout.tree(branch, depth, segment, temperature=temperature, top_p=top_p),
        score=score.verify(task),
        credit=chain(credit.tree_advantages(), _undecided("tree", below, moved=True)),
        learn=learn.Learn(
            learn.pg_clip(eps, on=learn.CLAIMED),
            learn.kl_k3(coef=kl, norm=learn.seq_sum_mean, on=learn.CLAIMED),
            updates=updates,
        ),
        models=roles(ref=frozen("policy")),
    )


@register(
    papers.DIRECT_ADVANTAGE_PO,
    family="policy",
    summary="A critic of steps, trained first; then the policy's log-ratios are regressed to its advantages.",
    when="Reasoning falls into steps, and you can afford to price them once, offline, and then train without sampling.",
    trial={"solutions": 2, "completions": 2, "candidates": 4, "critic_steps": 1, "least": 0.0},
)
def direct_advantage_po(
    task: draw.Source,
    *,
    beta: Annotated[float, Option("How far the policy may go.", above=0)] = 0.01,
    solutions: Annotated[int, Option("Replies for each prompt that train the critic.", at_least=1)] = 6,
    completions: Annotated[int, Option("Continuations from each state (the paper: 16).", at_least=1)] = 8,
    candidates: Annotated[int, Option("Next steps sampled at a state.", at_least=2)] = 8,
    least: Annotated[float, Option("The least span of advantages at a state.", at_least=0)] = 0.1,
    critic_steps: Annotated[int, Option("Steps that train the critic.", at_least=1)] = 100,
    critic_lr: opt.CriticLR = 1.0,
    temperature: opt.Temperature = 1.0,
) -> Method:
    """Direct advantage policy optimisation: steps of reasoning are lines, the starting policy ref writes them.

    Critic, first: at each step's start s, p(s) = mean score of `completions` continuations by ref
    V(s) = sigmoid(critic) -> p(s) by cross-entropy, and V(finished solution) -> its score
    Actor: `candidates` next steps a_i ~ ref(.|s) at one s of a fresh solution;   A_i = V(s a_i) - mean_j V(s a_j)
    L = mean over candidates of (A_i/beta - log pi(a_i|s)/ref(a_i|s))^2 / 2,   log-probs summed over the step
    Equal candidates count once; states whose advantages span less than `least` are dropped.

    Each step of the run works on fresh solutions. The actor begins in the step that ends the critic's training;
    from then on the critic is frozen. Scores are chances of success and should lie in [0, 1]. Departures: the paper
    keeps 6 of 32 solutions, half of them right, and collects all its data beforehand. beta = 0.01 and 0.02 are the
    paper's.
    """
    critic = Phase(
        name="critic",
        times=before(critic_steps),
        draw=draw.prompts(task),
        rollout=rollout.probed(solutions, completions, rollout.lines, temperature=temperature, who="ref"),
        score=score.verify(task, author="ref"),
        credit=chain(
            credit.success_rates(),
            credit.shared("reward", "outcome"),
            credit.claim("end", "ref", positions="end", tag="sample"),
            credit.claim("chance", "ref", where=lambda trace: ~trace.streams["rate"].isnan(), needs=("stream:rate",)),
        ),
        learn=learn.Learn(
            learn.chance_fit("rate", on=learn.CLAIMED),
            learn.chance_fit("outcome", output="score", on=learn.CLAIMED, name="end"),
        ),
    )
    actor = Phase(
        name="actor",
        times=after(critic_steps - 1),
        draw=draw.prompts(task),
        rollout=rollout.next_steps(candidates, temperature=temperature, who="ref"),
        score=score.success_chance("critic", author="ref"),
        select=select.apart(least, score="chance"),
        credit=chain(credit.step_advantage("chance"), credit.ref(), credit.claim("step", "ref", tag="apart")),
        learn=learn.Learn(learn.regress_advantage(beta, on=learn.CLAIMED)),
    )
    models = roles(ref=frozen("policy"), critic=trained(outputs=1, lr=critic_lr))
    return Method(models=models, phases=(critic, actor))
