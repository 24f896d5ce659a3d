"""Improving Multi-Step Reasoning Abilities of Large Language Models with Direct Advantage Policy Optimization
(arXiv 2412.18279).

Candidates that differ enough to learn from.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import torch

from burnish import credit, draw, learn, rollout, score
from burnish.core import randomness
from burnish.core.parts import Part, Rollout, names, supplies
from burnish.core.schedules import after, before
from burnish.core.step import Step
from burnish.core.types import Group, Task, Trace, Turn
from burnish.credit.segments import cut_values
from burnish.method import Method, Option, Phase, chain, frozen, roles, trained
from burnish.methods import opt, register
from burnish.papers import Paper
from burnish.rollout.branch import Cuts, lines
from burnish.rollout.completions import Prefix, continued
from burnish.rollout.sample import sample
from burnish.score.reading import end_scores

DIRECT_ADVANTAGE_PO = Paper(
    "direct-advantage-po",
    "2412.18279",
    "Improving Multi-Step Reasoning Abilities of Large Language Models with Direct Advantage Policy Optimization",
)


@supplies("stream:rate")
def success_rates(score: str = "reward", stream: str = "rate") -> Part:
    """At the token after each cut: the mean score of the continuations from the cut; nan elsewhere."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            values = cut_values(group, score)
            for trace in group.traces:
                trace.streams[stream] = torch.full((len(trace),), float("nan"))
                for at in trace.note.get("cuts", []):
                    trace.streams[stream][at] = values[trace.index, at]
        return groups

    return Part(
        name=f"success_rates({stream})",
        call=call,
        reads=frozenset({f"score:{score}", "tag:probe"}),
        writes=frozenset({f"stream:{stream}"}),
    )


@supplies("stream:gain")
def step_advantage(score: str, stream: str = "gain") -> Part:
    """A_i = V_i - mean over the group of V_j, V the named score, on all tokens of trace i."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            mean = sum(trace.scores[score] for trace in group.traces) / max(1, len(group.traces))
            for trace in group.traces:
                trace.streams[stream] = torch.full((len(trace),), float(trace.scores[score] - mean))
        return groups

    return Part(
        name=f"step_advantage({score})",
        call=call,
        reads=frozenset({f"score:{score}"}),
        writes=frozenset({f"stream:{stream}"}),
    )


@supplies("tokens:state")
def next_steps(m: int, cuts: Cuts = lines, *, temperature: float | None = None, who: str = "policy") -> Rollout:
    """m candidates for one next step per task, from a state on a reply of `who`.

    A reply is sampled and one of its cuts is drawn; what was said up to there is the state (author "state"), and each
    candidate is a fresh continuation of it up to the end of its first line.
    """
    plain = sample(1, temperature=temperature, who=who)

    def call(tasks: list[Task], step: Step) -> list[Group]:
        chat, clock, limit = step.models[who].chat, step.clock, step.settings.max_new_tokens
        shared: list[tuple[Task, tuple[Turn, ...]]] = []
        for group in plain.call(tasks, step):
            prompt, reply = group.traces[0].turns
            at = randomness.rng(clock.seed, "state", clock.step, clock.tick, group.task.key).choice(cuts(reply, chat))
            state = replace(reply.first(at), author="state", logp=None)
            shared.append((group.task, (prompt, state) if at else (prompt,)))
        starts = [
            Prefix(task, turns[0], Trace(turns).tokens[len(turns[0]) :], "step", i, 0)
            for task, turns in shared
            for i in range(m)
        ]
        grown = continued([start.within(limit) for start in starts], who, step, step.sampling(temperature))
        groups = []
        for j, (task, turns) in enumerate(shared):
            candidates = []
            for i, (new, stopped) in enumerate(grown[j * m : (j + 1) * m]):
                first = lines(new, chat)[1:2] or [len(new)]
                said = replace(new.first(first[0]), parent=turns[-1])
                candidates.append(Trace((*turns, said), i, tags=frozenset({"sample"}), note={"stopped": stopped}))
            groups.append(Group(task, candidates))
        return groups

    return Rollout(
        name=f"next_steps({m})",
        call=call,
        reads=plain.reads,
        writes=plain.writes | names("tokens", "state"),
    )


@supplies("score:chance")
def success_chance(model: str = "critic", *, author: str = "policy", name: str = "chance") -> Part:
    """scores[name] = sigmoid of the model's score at the last token of the trace."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        traces = [trace for group in groups for trace in group.traces]
        found = end_scores(traces, step.models[model], step.settings.token_budget)
        for trace, logit in zip(traces, found, strict=True):
            trace.scores[name] = float(logit.sigmoid())
        return groups

    return Part(
        name=f"success_chance({model})",
        call=call,
        reads=frozenset({f"tokens:{author}", f"model:{model}.score"}),
        writes=frozenset({f"score:{name}"}),
    )


@supplies("tag:apart")
def apart(least: float, *, score: str) -> Part:
    """Of equal replies only the first stays; groups whose best and worst score less than `least` apart are dropped.

    What stays carries the tag "apart".
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        kept = []
        for group in groups:
            distinct = {tuple(trace.tokens.tolist()): trace for trace in reversed(group.traces)}
            group.traces = [trace for trace in group.traces if distinct[tuple(trace.tokens.tolist())] is trace]
            scores = [trace.scores[score] for trace in group.traces]
            if max(scores) - min(scores) >= least:
                kept.append(group)
            for trace in group.traces:
                trace.tags |= {"apart"}
        step.notes.add("dropped/too_close", len(groups) - len(kept), len(groups))
        return kept

    return Part(
        name=f"apart({least:g})",
        call=call,
        reads=frozenset({f"score:{score}"}),
        writes=frozenset({"tag:apart"}),
        updates=frozenset({"tokens:policy"}),
    )


@register(
    DIRECT_ADVANTAGE_PO,
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
        rollout=rollout.probed(solutions, completions, rollout.lines, who="ref"),
        score=score.verify(task, author="ref"),
        credit=chain(
            success_rates(),
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
        rollout=next_steps(candidates, who="ref"),
        score=success_chance("critic", author="ref"),
        select=apart(least, score="chance"),
        credit=chain(step_advantage("chance"), credit.ref(), credit.claim("step", "ref", tag="apart")),
        learn=learn.Learn(learn.regress_advantage(beta, on=learn.CLAIMED)),
    )
    models = roles(ref=frozen("policy"), critic=trained(outputs=1, lr=critic_lr))
    return Method(models=models, phases=(critic, actor))
