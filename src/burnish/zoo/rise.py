"""Recursive Introspection: Teaching Language Model Agents How to Self-Improve (arXiv 2407.18219).

Attempts at a question, and better replies in the states that they led to (RISE, arXiv 2407.18219).

The best candidate of each state, by a rule about the attempts before it (RISE, arXiv 2407.18219).

Weights of replies by their rewards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated

import torch

from burnish import credit, draw, learn, score
from burnish.core.parts import Part, Rollout, names, per_trace, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Task, Trace
from burnish.method import Method, Option, chain, frozen, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper
from burnish.rollout.play import play
from burnish.rollout.sample import continue_from
from burnish.score.judge import LAST
from burnish.tasks.attempts import Attempt, Attempts

RISE = Paper("rise", "2407.18219", "Recursive Introspection: Teaching Language Model Agents How to Self-Improve")

METRICS = (("states_kept", "What was kept", "share of the visited states whose best candidate is trained on"),)


TAG = "candidate"

NOTES = {
    "earlier": "the scores of the attempts before it",
    "state": "the state in which it is one of several candidates",
}


@supplies("tag:candidate")
def improved(n: int, candidates: int, *, turns: int, who: str = "policy", improver: str = "policy") -> Rollout:
    """n episodes of attempts per task; in every state that they visit, `candidates` replies by the improver.

    A trace is one candidate after the turns that led to its state (tag "candidate"). note["state"] names the state, as
    the episode's number and the attempt's, and note["earlier"] has the scores of the attempts before it. The attempts
    themselves are context.
    """
    episodes = play(n, turns=turns, who=who)

    def call(tasks: list[Task], step: Step) -> list[Group]:
        played = episodes.call(tasks, step)
        states = [
            (place, group.task, trace, k, i)
            for place, group in enumerate(played)
            for trace in group.traces
            for k, i in enumerate(i for i, turn in enumerate(trace.turns) if turn.author == who)
        ]
        starts = [
            (task, trace.turns[:i], (trace.index * 1000 + k) * 1000 + c)
            for _, task, trace, k, i in states
            for c in range(candidates)
        ]
        written = continue_from(starts, improver, step, tag=TAG)
        groups = [Group(group.task, []) for group in played]
        for number, (place, _, trace, k, i) in enumerate(states):
            earlier = [trace.turn_scores["reward"][j] for j in range(i) if trace.turns[j].author == who]
            own = groups[place].traces
            for new in written[number * candidates : (number + 1) * candidates]:
                note = {**new.note, "state": [trace.index, k], "earlier": earlier}
                own.append(replace(new, index=len(own), tags=new.tags | {LAST}, note=note))
        return [group for group in groups if group.traces]

    return Rollout(
        name=f"improved({n}, {candidates})",
        call=call,
        reads=episodes.reads | {f"model:{improver}.generate"},
        writes=names("tokens", ("task", "env", who, improver)) | names("mu", improver) | names("tag", TAG),
    )


Rule = Callable[[Trace, Sequence[float]], bool]  # (the best candidate, the scores of the attempts before) -> kept

RULES: dict[str, Rule] = {
    "all": lambda best, earlier: True,
    "better": lambda best, earlier: not earlier or best.scores["reward"] > earlier[-1],
    "best": lambda best, earlier: not earlier or best.scores["reward"] >= max(earlier),
    "success": lambda best, earlier: best.scores.get("correct", best.scores["reward"]) > 0,
}


@supplies("tag:improved")
def best_of_states(rule: str = "all") -> Part:
    """Of the candidates of each state the one that scores best, the earliest of equals, where the rule keeps it.

    rule  all: always;  better: it scores more than the attempt before;  best: no attempt before scored more;
          success: it is right. The first attempt has none before it, and is kept by all but the last rule.
    """
    if rule not in RULES:
        raise ValueError(f"the rule {rule!r} is unknown; choose one of {', '.join(RULES)}")

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            states: dict[tuple[int, ...], list[Trace]] = {}
            for trace in group.traces:
                states.setdefault(tuple(trace.note["state"]), []).append(trace)
            best = [max(traces, key=lambda trace: trace.scores["reward"]) for traces in states.values()]
            kept = [trace for trace in best if RULES[rule](trace, trace.note["earlier"])]
            for trace in kept:
                trace.tags = trace.tags | {"improved"}
                step.notes.add("score/selected", trace.scores["reward"])
            step.notes.add("states_kept", len(kept), max(1, len(best)))
            group.traces = kept
        return [group for group in groups if group.traces]

    return Part(
        name=f"best_of_states({rule})",
        call=call,
        reads=frozenset({"tag:candidate", "score:reward"}),
        writes=frozenset({"tag:improved"}),
        updates=frozenset({"tokens:policy"}),
    )


@supplies("stream:weight")
def reward_weights(tau: float, score: str = "reward") -> Part:
    """Stream "weight": exp(r / tau) of each trace, on all its tokens (RISE, arXiv 2407.18219); not normalised."""

    def write(trace: Trace, group: Group, step: Step) -> None:
        weight = torch.tensor(trace.scores[score] / tau).exp()
        trace.streams["weight"] = weight.expand(len(trace)).clone()

    return per_trace(
        write,
        name=f"reward_weights({tau:g})",
        reads=frozenset({f"score:{score}"}),
        writes=frozenset({"stream:weight"}),
    )


@register(
    RISE,
    family="agents",
    summary="Try again until right; in every state reached, imitate the best of many replies, weighed by its reward.",
    when="A model should get better from attempt to attempt, and you have single questions with a verifier.",
    example="burnish train rise --task sort",
    trial={"n": 1, "attempts": 2, "candidates": 2, "updates": 1},
)
def rise(
    task: draw.Source,
    *,
    n: opt.Replies = 1,
    attempts: Annotated[int, Option("The most attempts of an episode.", at_least=1)] = 5,
    candidates: Annotated[int, Option("Replies sampled in each state, of which the best is kept.", at_least=1)] = 16,
    tau: Annotated[float, Option("Temperature of the weights.", above=0, unlimited=True)] = 0.4,
    rule: Annotated[str, Option("Which of the best replies are trained on.", choices=tuple(RULES))] = "all",
    expert: Annotated[
        str | None, Option("A stronger model that writes the replies: a name or directory, same tokenizer.")
    ] = None,
    updates: opt.Updates = 1,
) -> Method:
    """Recursive introspection: reward-weighted regression on improved replies in the states that the policy visits.

    Attempts at a question, each after "try again", until one is right; s_k: the conversation before attempt k
    a*_k = the best of `candidates` replies in s_k, by the policy itself or by `expert`;  w_k = exp(r(a*_k) / tau)
    L = mean over the a*_k of -w_k (mean over its tokens of log pi);  the attempts themselves are not trained on

    Weights are not normalised: a reply with r 0 weighs 1, one with r 1 exp(1 / 0.4) = 12.2. tau = inf is SFT on all
    the improved replies. rule: all, better than the attempt before, best so far, or only right ones. Departures: a step
    plays new episodes and makes one pass, where the paper builds a data set in each round; the released code goes on
    from the best reply of a state, and its rules compare best replies, where here the policy goes on from its own
    attempt, as the paper writes; the text between attempts is ours. Left out: the majority over attempts in inference,
    which is a matter of asking.
    """

    def own_score(made: Sequence[Attempt], over: bool) -> float:
        return made[-1].score

    improver = "policy" if expert is None else "expert"
    return method(
        draw=draw.prompts(Attempts(task, attempts, own_score), "env"),
        rollout=improved(n, candidates, turns=attempts, improver=improver),
        score=score.verify(task, author=improver),
        select=best_of_states(rule),
        credit=chain(reward_weights(tau), credit.last_turn("sft", "improved")),
        learn=learn.Learn(
            learn.imitate_weighted(norm=learn.seq_mean, on=learn.CLAIMED), updates=updates, logp_temperature=1.0
        ),
        models=roles() if expert is None else roles(expert=frozen(expert)),
    )
