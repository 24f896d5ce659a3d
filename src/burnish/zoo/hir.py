"""The Wisdom of Hindsight Makes Language Models Better Instruction Followers (arXiv 2302.05206).

Replies told again with the words that fit how they turned out.
"""

from __future__ import annotations

from random import Random
from typing import Annotated

from torch import Tensor

from burnish import credit, draw, learn, rollout, score
from burnish.core import randomness
from burnish.core.parts import Part, supplies
from burnish.core.schedules import Schedule
from burnish.core.step import Step
from burnish.core.types import Group, Task, Trace, Turn
from burnish.learn import maths
from burnish.learn.term import Authors, Term
from burnish.learn.terms.compared import pair_term
from burnish.learn.terms.rows import row_mean
from burnish.method import Method, Option, chain, method, roles
from burnish.methods import opt, register
from burnish.models.model import Model
from burnish.papers import Paper
from burnish.rollout.conditioned import conditioned

HIR = Paper("hir", "2302.05206", "The Wisdom of Hindsight Makes Language Models Better Instruction Followers")


def contrast(smoothing: float, *, coef: Schedule = 1.0, on: Authors = "policy", name: str = "contrast") -> Term:
    """The first trace of a pair is likelier than the second: cross-entropy of P_a / (P_a + P_b), P the geometric means.

    P = exp(mean over the trace's claimed tokens of log pi), so that P_a / (P_a + P_b) = sigmoid(difference of the
    means).
    """

    return pair_term(
        lambda a, b, _: maths.dpo_logistic(a.logp, b.logp, 1.0, smoothing),
        anchor=None,
        reduce=row_mean,
        coef=coef,
        on=on,
        name=name,
    )


@supplies("pairs", "tag:own", "tokens:hindsight")
def relabel(right: str, wrong: str, *, threshold: float = 0.5, score: str = "reward", reader: str = "policy") -> Part:
    """Each sampled reply twice: under the instruction that it met and under the opposite one, paired in that order.

    A reply that scores more than the threshold met `right`, else `wrong`. Of the reply a random contiguous piece is
    taken: what comes before it stays as context (author "kept"), the piece itself is by "hindsight", what follows goes.
    The trace under its own instruction carries the tag "own". (HIR, arXiv 2302.05206.)
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        clock = step.clock
        for group in groups:
            told: list[Trace] = []
            for trace in group.traces:
                met = trace.scores[score] > threshold
                rng = randomness.rng(clock.seed, "hindsight", clock.step, clock.tick, group.task.key, trace.index)
                told += _told(
                    trace, group.task, (right, wrong) if met else (wrong, right), step.models[reader], len(told), rng
                )
            group.traces = told
            group.pairs = [(i, i + 1) for i in range(0, len(told), 2)]
        return [group for group in groups if group.traces]

    return Part(
        name="relabel",
        call=call,
        reads=frozenset({f"score:{score}", "tokens:policy"}),
        writes=frozenset({"pairs", "tag:own", "tokens:hindsight"}),
    )


def piece_of(length: int, rng: Random) -> tuple[int, int]:
    """A random contiguous piece [start, end) of a reply; the whole of it where it has at most three tokens."""
    if length <= 3:
        return 0, length
    start = rng.randrange(0, length - 3)
    return start, rng.randrange(start + 1, length + 1)


def _told(
    trace: Trace, task: Task, words: tuple[str, str], reader: Model, first: int, rng: Random
) -> tuple[Trace, ...]:
    """The trace under each of two instructions, its own first; nothing where no room is left for the reply."""
    prompts = [reader.chat.prompt(conditioned(task, each)) for each in words]
    room = reader.context - max(len(prompt) for prompt in prompts)
    reply = trace.turns[-1].tokens[: max(0, room)]
    if not len(reply):
        return ()
    start, end = piece_of(len(reply), rng)
    return tuple(
        Trace(_turns(prompt, reply, start, end), first + i, dict(trace.scores), tags=trace.tags | {tag})
        for i, (prompt, tag) in enumerate(zip(prompts, ("own", "other"), strict=True))
    )


def _turns(prompt: Tensor, reply: Tensor, start: int, end: int) -> tuple[Turn, ...]:
    asked = Turn(prompt, "task")
    kept = (Turn(reply[:start], "kept", parent=asked),) if start else ()
    return (asked, *kept, Turn(reply[start:end], "hindsight", parent=(kept or (asked,))[-1]))


@register(
    HIR,
    family="imitation",
    summary="Relabel each sample with the instruction that it met, and imitate it under that.",
    when="Wrong replies should teach too, through another instruction, without a reward in the loss.",
    trial={"n": 2, "updates": 1},
)
def hir(
    task: draw.Source,
    *,
    n: opt.Replies = 1,
    smoothing: Annotated[float, Option("Share of the target spread over other tokens.", at_least=0, below=1)] = 0.2,
    contrastive: Annotated[float, Option("Weight of the contrast.", at_least=0)] = 1.0,
    entropy: opt.EntropyCoef = 0.001,
    updates: opt.Updates = 10,
    right: Annotated[str, Option("Words before the prompt in sampling, and of replies that are right.")] = "",
    wrong: Annotated[
        str, Option("Words before the prompt of replies that are wrong.")
    ] = "Solve the question with wrong answer.",
) -> Method:
    """Hindsight instruction relabelling.

    A reply y sampled under `right` is repeated under the instruction i that it met (right or wrong); i' is the other.
    L = mean over replies of mean over tokens of [ -(1-s) log pi(y_t|x,i) - s mean over v of log pi(v) - entropy H(pi) ]
      + contrastive mean over replies of [ -(1-s) log P - s log(1 - P) ],   s = smoothing
    P = p(y|x,i) / (p(y|x,i) + p(y|x,i'))
    p(y|.) = the geometric mean of the token probabilities;  only a random contiguous piece of y is trained

    The constants are the released code's. Its label smoothing leaves a fifth of the probability to other tokens:
    greedy answers do not mind, but free sampling draws them, so on `tiny` held-out accuracy falls; with smoothing 0
    it rises. Departures: a step is a round; the instruction to be right is the bare prompt unless words are given,
    so that the product is asked like any other model.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.under(right, rollout.sample(n)),
        score=score.verify(task),
        select=relabel(right, wrong),
        credit=chain(credit.claim("sft", "hindsight", tag="own"), credit.claim("bonus", "hindsight", tag="own")),
        learn=learn.Learn(
            learn.imitate_smoothed(smoothing, on=learn.CLAIMED),
            learn.entropy_bonus(coef=entropy, norm=learn.seq_mean, on=learn.CLAIMED, name="bonus"),
            contrast(smoothing, coef=contrastive, on="hindsight"),
            updates=updates,
        ),
        models=roles(),
    )
