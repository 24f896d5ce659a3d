"""Arithmetic Control of LLMs for Diverse User Preferences: Directional Preference Alignment with Multi-Objective
Rewards (arXiv 2402.18571).

Replies under a user's weights for several attributes, written into the prompt (DPA, arXiv 2402.18571).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Annotated

import torch
from torch import Tensor

from burnish import credit, draw, learn, rollout, score, select
from burnish.core import randomness
from burnish.core.parts import per_trace, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Task, Trace
from burnish.credit.reward import ratings_of
from burnish.learn.norms import unit_mean
from burnish.learn.term import Authors, Live, Term
from burnish.learn.terms.fit import head_term
from burnish.learn.terms.reward import row_heads, row_numbers
from burnish.method import Draw, Method, Option, Part, Rollout, chain, method, roles, trained
from burnish.methods import opt, papers, register
from burnish.methods.compositions import Attributes, names_of
from burnish.rollout.conditioned import conditioned
from burnish.rollout.sample import sample
from burnish.score.heads import end_outputs
from burnish.score.lengths import reply_length

WORDS = "You are a helpful assistant. Your response should maximize weighted rating = helpfulness*{0} + verbosity*{1}."

NOTES = {"direction": "the direction of preferences under which it was asked for"}


def rating_error(predicted: Tensor, rated: Tensor) -> Tensor:
    """The squared error of ratings: the mean over the k attributes that a reply is rated for. [R, k], [R, k] -> [R].

    A missing rating is NaN in `rated` and counts nothing. A reply without any gives 0.
    """
    assert predicted.shape == rated.shape
    known = ~rated.isnan()
    errors = torch.where(known, predicted - rated.nan_to_num(0.0), torch.zeros_like(predicted)).square()
    return errors.sum(-1) / known.sum(-1).clamp(min=1)


@supplies("stream:ratings")
def ratings(names: tuple[str, ...], *, author: str = "demo") -> Part:
    """Stream "ratings" [T, k]: what the data says of each attribute of a reply; NaN where it says nothing.

    The rating of a reply is the column NAME, or chosen_NAME and rejected_NAME of a pair. Without such a column two
    attributes are known: "quality" is 1 for a chosen reply or a demonstration and 0 for the other, and "length" is the
    reply's tokens over the longest reply of the run.
    """

    def write(trace: Trace, group: Group, step: Step) -> None:
        length = reply_length(trace, author) / step.settings.max_new_tokens
        found = ratings_of(group.task.given, names, trace.tags, length)
        trace.streams["ratings"] = torch.tensor(found).expand(len(trace), len(names)).clone()

    return per_trace(
        write,
        name=f"ratings({', '.join(names)})",
        reads=frozenset({f"tokens:{author}"}),
        writes=frozenset({"stream:ratings"}),
    )


@supplies("score:directed")
def directed_reward(model: str | None, *, author: str = "policy") -> Part:
    """scores["directed"] = v . (r_1, r_2), v the trace's direction (rollout `directed`).

    model  the reward model whose first two outputs are r; None: the reward and the share of the longest reply
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        traces = [trace for group in groups for trace in group.traces]
        longest = step.settings.max_new_tokens
        if model is not None:
            pairs = end_outputs(traces, step, model).tolist()
        else:
            pairs = [[trace.scores["reward"], reply_length(trace, author) / longest] for trace in traces]
        for trace, attributes in zip(traces, pairs, strict=True):
            if len(attributes) < 2:
                raise ValueError(
                    f"the reward model {model!r} has one output, but a direction weighs two attributes; pass one that "
                    "`burnish train rating_model` saved"
                )
            v = trace.note["direction"]
            trace.scores["directed"] = v[0] * attributes[0] + v[1] * attributes[1]
            if model is not None:
                trace.scores["reward"] = attributes[0]
        return groups

    scored = {f"model:{model}.score"} if model is not None else {"score:reward"}
    return Part(
        name="directed_reward",
        call=call,
        reads=frozenset({"tag:directed", f"tokens:{author}", *scored}),
        writes=frozenset({"score:directed"}),
    )


def rate(
    attributes: int, target: str = "ratings", *, trainee: str = "rm", on: Authors = "policy", name: str = "rating"
) -> Term:
    """The squared error of the first outputs against the reply's ratings (stream [T, k]); missing ones are NaN."""

    def loss(live: Live) -> Tensor:
        predicted = row_heads(live)[:, :attributes]
        rated = row_numbers(live, target).to(predicted)
        live.note("rated", (~rated.isnan()).double().mean(-1))
        return rating_error(predicted, rated)

    return head_term(loss, "score", target, name=name, trainee=trainee, on=on, unit="sequence", norm=unit_mean)


def direction(step: Step, task: Task, degrees: float) -> tuple[float, float]:
    """v = (cos t, sin t), t uniform within +- degrees, of this task in this step."""
    dice = randomness.rng(step.clock.seed, "direction", step.clock.step, step.clock.tick, task.key)
    angle = math.radians(dice.uniform(-degrees, degrees))
    return math.cos(angle), math.sin(angle)


def written(v: tuple[float, float]) -> str:
    """The weights as integers of a hundred, as the prompt states them."""
    return WORDS.format(*(round(100 * x) for x in v))


@supplies("tag:directed")
def directed(n: int, degrees: float) -> Rollout:
    """n replies per task, sampled after a direction of its own, which each trace has in its note (unrounded)."""
    inner = sample(n)

    def call(tasks: list[Task], step: Step) -> list[Group]:
        directions = [direction(step, task, degrees) for task in tasks]
        told = [conditioned(task, written(v)) for task, v in zip(tasks, directions, strict=True)]
        groups = []
        for group, task, v in zip(inner.call(told, step), tasks, directions, strict=True):
            for trace in group.traces:
                trace.note["direction"] = v
                trace.tags |= {"directed"}
            groups.append(replace(group, task=task))
        return groups

    return Rollout(
        name=f"directed({n})", call=call, reads=inner.reads, writes=inner.writes | frozenset({"tag:directed"})
    )


def given_replies(task: draw.Source) -> tuple[Draw, Rollout]:
    """The replies of the data: chosen and rejected ones where it has pairs, else the demonstrations."""
    paired = {"chosen", "rejected"} <= task.gives or {"demo", "mistake"} <= task.gives
    if paired:
        return draw.pairs(task), rollout.given("chosen", "rejected", reader="rm")
    return draw.demos(task), rollout.given("demo", reader="rm")


@register(
    papers.DPA,
    family="reward",
    summary="A reward model with one output per rated attribute, by regression; missing ratings are left out.",
    when="Replies are rated for several attributes, such as helpfulness and verbosity.",
)
def rating_model(task: draw.Source, *, attributes: Attributes = "quality,length") -> Method:
    """Ratings by regression: a linear head with one output for each attribute.

    L = mean over the rated attributes of (r_i(x, y) - rating_i)^2;  mean over replies

    A missing rating (no column, or null) counts nothing. Ratings should be on one scale: the heads are used side by
    side (`weighted`, `dpa`, `armorm`). The product has one label per attribute, in their order. DPA's reward model has
    10 heads on a scale of 0 to 100.
    """
    rated = names_of(attributes, task)
    drawn, replies = given_replies(task)
    return method(
        draw=drawn,
        rollout=replies,
        credit=chain(credit.claim("rating", "demo", positions="end"), ratings(rated)),
        learn=learn.Learn(rate(len(rated), on=learn.CLAIMED)),
        models=roles("rm", rm=trained(outputs=len(rated))),
        product="rm",
    )


@register(
    papers.DPA,
    family="reward",
    summary="Best-of-n fine-tuning with the user's weights in the prompt; replies are chosen by these weights.",
    when="Users want different trade-offs of two attributes, from one model.",
)
def dpa(
    task: draw.Source,
    *,
    n: opt.Replies = 16,
    degrees: Annotated[float, Option("The largest angle of a direction.", at_least=0, at_most=90)] = 45.0,
    reward_model: Annotated[
        str | None,
        Option(
            "A reward model whose first two outputs are the attributes (rating_model); without one they are the "
            "verifier's score and the share of the longest reply."
        ),
    ] = None,
) -> Method:
    """Directional preference alignment: rejection sampling with v in the prompt.

    v = (cos t, sin t), t uniform within +-degrees;  R(x, v, y) = v . (r_1, r_2);  L = -log pi(y* | x, v) on the reply
    with the largest R of n

    The prompt states round(100 v); the score uses the exact v. degrees = 0 is rejection sampling on the first
    attribute. Departure: directions are drawn anew in every step, not in rounds; the authors' policy code was never
    released.
    """
    attributes: Part = directed_reward("rm" if reward_model else None)
    scored = attributes if reward_model else chain(score.verify(task), attributes)
    return method(
        draw=draw.prompts(task),
        rollout=directed(n, degrees),
        score=scored,
        select=select.keep_best(1, "directed"),
        learn=learn.Learn(learn.imitate()),
        models=roles(**score.rm_role(reward_model)),
    )
