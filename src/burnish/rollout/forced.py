"""Continuations of one prefix, and answers that are forced right after it (MRT, arXiv 2503.07572)."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from burnish.core import randomness
from burnish.core.parts import Rollout, names, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Task, Trace, Turn
from burnish.rollout.completions import closing_words
from burnish.rollout.sample import continue_from, sample
from burnish.score.segments import Segmentation


@supplies("tokens:forced", "tokens:state", "tag:forced")
def continued_or_forced(
    n: int, answers: int, cuts: Segmentation, closing: str, *, temperature: float = 1.0, who: str = "policy"
) -> Rollout:
    """n continuations (tag "sample") and `answers` forced answers (tag and author "forced") of one prefix per task.

    A reply is sampled, and one of its prefixes that end with a step is drawn, the empty one among them; its author is
    "state". A forced answer follows the prefix and the closing words, which are by author "guide". Continuations and
    answers have max_new_tokens each.
    """
    plain = sample(1, temperature=temperature, who=who, tag="state")

    def call(tasks: list[Task], step: Step) -> list[Group]:
        states = [_state(group, cuts, closing, step, who) for group in plain.call(tasks, step)]
        further = [(task, turns, i) for task, turns, _ in states for i in range(n)]
        stopped = [
            (task, (*turns, Turn(words, "guide", parent=turns[-1])), n + i)
            for task, turns, words in states
            for i in range(answers)
        ]
        samples = continue_from(further, who, step, tag="sample", temperature=temperature)
        forced = [_renamed(t) for t in continue_from(stopped, who, step, tag="forced", temperature=temperature)]
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
