"""Optimizing Test-Time Compute via Meta Reinforcement Fine-Tuning (arXiv 2503.07572).

Continuations of one prefix, and answers that are forced right after it (MRT, arXiv 2503.07572).

The baseline of answers that are forced at the state from which replies go on.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import torch
from torch import Tensor

from burnish import credit, draw, learn, score
from burnish.core import randomness
from burnish.core.parts import Part, Rollout, names, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Task, Trace, Turn
from burnish.method import Method, Option, chain, frozen, method, roles
from burnish.methods import opt, papers, register
from burnish.rollout.completions import closing_words
from burnish.rollout.sample import continue_from, sample
from burnish.score.segments import Segmentation


@supplies("tokens:forced", "tokens:state", "tag:forced")
def continued_or_forced(n: int, answers: int, cuts: Segmentation, closing: str, *, who: str = "policy") -> Rollout:
    """n continuations (tag "sample") and `answers` forced answers (tag and author "forced") of one prefix per task.

    A reply is sampled, and one of its prefixes that end with a step is drawn, the empty one among them; its author is
    "state". A forced answer follows the prefix and the closing words, which are by author "guide". Continuations and
    answers have max_new_tokens each.
    """
    plain = sample(1, who=who, tag="state")

    def call(tasks: list[Task], step: Step) -> list[Group]:
        states = [_state(group, cuts, closing, step, who) for group in plain.call(tasks, step)]
        further = [(task, turns, i) for task, turns, _ in states for i in range(n)]
        stopped = [
            (task, (*turns, Turn(words, "guide", parent=turns[-1])), n + i)
            for task, turns, words in states
            for i in range(answers)
        ]
        samples = continue_from(further, who, step, tag="sample")
        forced = [_renamed(t) for t in continue_from(stopped, who, step, tag="forced")]
        return [
            Group(task, samples[k * n : (k + 1) * n] + forced[k * answers : (k + 1) * answers])
            for k, (task, _, _) in enumerate(states)
        ]

    return Rollout(
        name=f"continued_or_forced({n}, {answers})",
        call=call,
        reads=plain.reads,
        writes=names("tokens", ("task", "state", "guide", "forced", who))
        | names("mu", who)
        | names("tag", ("sample", "forced")),
    )


def _state(
    group: Group, cuts: Segmentation, closing: str, step: Step, who: str
) -> tuple[Task, tuple[Turn, ...], Tensor]:
    """The prompt with a prefix of the reply that leaves room for an answer, and the words that stop the thought."""
    model, clock = step.models[who], step.clock
    prompt, reply = group.traces[0].turns
    room = model.context - len(prompt) - len(model.chat.written(closing)) - 1
    places = [0, *(end + 1 for end in cuts(reply.tokens, model.chat)[:-1] if end + 1 <= room)]
    at = randomness.rng(clock.seed, "forced", clock.step, clock.tick, group.task.key).choice(places)
    turns: tuple[Turn, ...] = (prompt,)
    if at:
        turns += (replace(reply.first(at), author="state", logp=None, parent=prompt),)
    return group.task, turns, closing_words(reply.tokens[:at], closing, model.chat)


def _renamed(trace: Trace) -> Trace:
    """The trace with its last turn by author "forced", which no term of the policy trains on."""
    return replace(trace, turns=(*trace.turns[:-1], replace(trace.turns[-1], author="forced")))


def progress_advantages(rewards: list[float], forced: list[float], alpha: float) -> list[float]:
    """A_i = r_i - (1 - alpha) mean r - alpha J, J the mean reward of the forced answers (arXiv 2503.07572).

    alpha = 1: r_i - J, the progress that continuation i makes over answering at once. alpha = 0: r_i less the mean of
    the group, as GRPO without the division.
    """
    mean, reached = sum(rewards) / len(rewards), sum(forced) / len(forced)
    return [reward - (1 - alpha) * mean - alpha * reached for reward in rewards]


@supplies("stream:adv")
def over_forced(alpha: float) -> Part:
    """progress_advantages on all tokens of a continuation; forced answers have none."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            samples = [trace for trace in group.traces if "forced" not in trace.tags]
            forced = [trace.scores["reward"] for trace in group.traces if "forced" in trace.tags]
            for trace in group.traces:
                trace.streams["adv"] = torch.full((len(trace),), float("nan"))
            if not samples or not forced:
                continue
            rewards = [trace.scores["reward"] for trace in samples]
            for trace, advantage in zip(samples, progress_advantages(rewards, forced, alpha), strict=True):
                trace.streams["adv"] = torch.full((len(trace),), advantage)
            step.notes.add("progress", sum(rewards) / len(rewards) - sum(forced) / len(forced))
        return groups

    return Part(
        name=f"over_forced({alpha:g})",
        call=call,
        reads=frozenset({"score:reward", "tag:forced", "tokens:forced"}),
        writes=frozenset({"stream:adv"}),
    )


@register(
    papers.MRT,
    family="policy",
    summary="Continuations of a prefix are compared with the answers that are forced right after it.",
    when="Replies think at length, and more thinking should pay only where it brings the answer nearer.",
    trial={"n": 2, "answers": 2},
    example="burnish train mrt --task multiply",
)
def mrt(
    task: draw.Source,
    *,
    n: opt.Replies = 4,
    answers: Annotated[int, Option("Answers that are forced after the prefix.", at_least=1)] = 4,
    alpha: Annotated[float, Option("Weight of progress; 0: the group's mean is the baseline.", at_least=0)] = 1.0,
    closing: Annotated[str, Option("The words that stop a thought; thinking models: </think>\\n.")] = "\\nanswer:",
    episodes: Annotated[str, Option("What an episode is: lines, paragraphs, sentences, after:TEXT.")] = "lines",
    eps: opt.ClipRange = 0.2,
    beta: opt.KLCoef = 0.04,
) -> Method:
    """Meta reinforcement fine-tuning, in the form of its released code.

    s = the prompt and a prefix of a reply that ends with an episode;  J(s) = mean reward of `answers` forced answers
    A_i = r_i - (1 - alpha) mean r - alpha J(s)  for n continuations of s, on the tokens after s
    L = mean over replies of mean over tokens of [ -min(rho A, clip(rho, 1-eps, 1+eps) A) + beta k3 ]

    alpha = 1 is the code's: the reward of the forced answer takes the place of the group's mean, so a continuation is
    right to go on only if that beats stopping. alpha = 0 is GRPO on continuations, without the division by the spread.
    Departures: the prefix is of this step's policy, where the code continues stale ones; J is a mean of several
    answers. The form with a bonus for each episode is the reward progress_bonus; the paper found it worse. Cost: a step
    samples one reply, n continuations and `answers` answers a prompt.
    """
    return method(
        draw=draw.prompts(task),
        rollout=continued_or_forced(n, answers, score.segmentation(episodes), closing.replace("\\n", "\n")),
        score=score.verify(task),
        credit=chain(over_forced(alpha), credit.behaviour(), credit.ref()),
        learn=learn.Learn(learn.pg_clip(eps, norm=learn.seq_mean), learn.kl_k3(coef=beta, norm=learn.seq_mean)),
        models=roles(ref=frozen("policy")),
    )
