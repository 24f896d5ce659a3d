"""Axiomatic Preference Modeling for Longform Question Answering (arXiv 2312.02206).

Replies of the kinds that the axioms of preference compare, built from the rows of a batch.

Pairs of replies by the axioms of preference (arXiv 2312.02206).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Annotated

import torch
from torch import Tensor

from burnish import draw, learn
from burnish.core.parts import Part, Rollout, names, per_trace, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Task, Trace
from burnish.credit.preference import fill
from burnish.learn.maths.preference import bradley_terry
from burnish.learn.term import Authors, Live, Term
from burnish.learn.terms.reward import note_order, row_numbers, row_scores, score_pair_term
from burnish.method import Method, Option, chain, method, roles, trained
from burnish.methods import register
from burnish.methods.reward import END
from burnish.papers import Paper
from burnish.rollout.conditioned import conditioned
from burnish.rollout.given import given_trace

AXIOMATIC_PREFERENCE_MODEL = Paper(
    "axiomatic-preference-model", "2312.02206", "Axiomatic Preference Modeling for Longform Question Answering"
)


GROUNDED = "Evidence: {0}"
OPTIONAL = {"false": "false", "combined": "combined"}  # kind -> the column that holds such a reply


KINDS = ("useful", "useless", "elsewhere", "false", "grounded", "misgrounded", "combined")


AXIOMS: dict[str, tuple[str, str]] = {  # axiom -> (better, worse)
    "usefulness": ("useful", "useless"),  # more votes, or preferred
    "relevance": ("useful", "elsewhere"),  # the question's own answer over one to another question
    "truthfulness": ("useful", "false"),  # true over plausible but false
    "groundedness": ("grounded", "useful"),  # with evidence over without
    "relevant_grounding": ("grounded", "misgrounded"),  # with its own evidence over another question's
    "combination": ("combined", "useful"),  # several answers joined over one of them
}


def kind_among(tags: Collection[str]) -> str:
    """The kind of a reply with these tags."""
    return next(kind for kind in KINDS if kind in tags)


def pairs_by_axiom(kinds: Sequence[str]) -> list[tuple[int, int, str]]:
    """All (better, worse, axiom) among replies of these kinds, as indices."""
    return [
        (a, b, axiom)
        for axiom, (better, worse) in AXIOMS.items()
        for a, first in enumerate(kinds)
        for b, second in enumerate(kinds)
        if first == better and second == worse
    ]


@supplies("stream:kind")
def axiom_kinds() -> Part:
    """Stream "kind": the number of the reply's kind among those that the axioms of preference compare."""

    def write(trace: Trace, group: Group, step: Step) -> None:
        fill(trace, "kind", KINDS.index(kind_among(trace.tags)))

    return per_trace(write, name="axiom_kinds", reads=frozenset({"tag:axioms"}), writes=frozenset({"stream:kind"}))


def score_axioms(weights: dict[str, float], *, kind: str = "kind", trainee: str = "rm", on: Authors = ()) -> Term:
    """Bradley-Terry on pairs by axioms: each pair counts by the weight of its axiom; accuracy is noted by axiom.

    Stream `kind` has the number of each reply's kind (zoo); the axiom of a pair is that of its two kinds.
    """

    def loss(live: Live) -> Tensor:
        scores, kinds = row_scores(live), row_numbers(live, kind).long()
        a, b = live.pairs[:, 0], live.pairs[:, 1]
        note_order(live, scores[a], scores[b])
        total = bradley_terry(scores[a], scores[b])
        weight = torch.zeros_like(total)
        for axiom, (better, worse) in AXIOMS.items():
            here = (kinds[a] == KINDS.index(better)) & (kinds[b] == KINDS.index(worse))
            weight = weight + weights.get(axiom, 1.0) * here.to(total)
            live.note(f"accuracy_{axiom}", (scores[a] > scores[b]).to(total), here)
        return total * weight

    return score_pair_term(loss, (kind,), trainee, on, "end")


@supplies("tag:axioms")
def by_axioms(*, author: str = "demo", reader: str = "rm") -> Rollout:
    """The chosen and the rejected reply, the chosen reply of another question, and what further columns allow.

    Columns "false" (plausible, but wrong) and "combined" (several answers joined) are replies; "evidence" is put before
    the question: the chosen reply with its own evidence, and with another question's. The other question is the next
    one of the batch by its key.
    """

    def call(tasks: list[Task], step: Step) -> list[Group]:
        model, settings = step.models[reader], step.settings
        limit, cut = min(model.context, settings.max_length or model.context), settings.on_long == "truncate"
        order = sorted(tasks, key=lambda task: task.key)
        following = {task.key: order[(i + 1) % len(order)] for i, task in enumerate(order)}
        groups = []
        for task in tasks:
            found = [
                replace(
                    given_trace(asked, "reply", author, model.chat, limit, i, cut), tags=frozenset({"axioms", kind})
                )
                for i, (kind, asked) in enumerate(_asked(task, following[task.key]))
            ]
            groups.append(Group(task, found))
        return groups

    return Rollout(
        name="by_axioms",
        call=call,
        whole=True,  # a question gets the reply of the next one
        reads=frozenset({"task:prompt", "given:chosen", "given:rejected"}),
        writes=names("tokens", ("task", author)) | names("tag", "axioms"),
    )


def _asked(task: Task, other: Task) -> list[tuple[str, Task]]:
    """The kinds of reply that there are for a task: each as a task whose column "reply" has it."""

    def reply(text: object, evidence: object = None) -> Task:
        asked = task if evidence is None else conditioned(task, GROUNDED.format(evidence))
        return replace(asked, given={"reply": str(text)})

    chosen, evidence = task.given["chosen"], task.given.get("evidence")
    found = [("useful", reply(chosen)), ("useless", reply(task.given["rejected"]))]
    if other.key != task.key and str(other.given["chosen"]) != str(chosen):
        found.append(("elsewhere", reply(other.given["chosen"])))
    found += [(kind, reply(task.given[column])) for kind, column in OPTIONAL.items() if task.given.get(column)]
    if evidence:
        found.append(("grounded", reply(chosen, evidence)))
        if other.given.get("evidence") and other.key != task.key:
            found.append(("misgrounded", reply(chosen, other.given["evidence"])))
    return found


@supplies("pairs")
def axiom_pairs() -> Part:
    """Pairs of a group's replies by the axioms; a reply's kind is one of its tags."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            said = [tuple(trace.tokens.tolist()) for trace in group.traces]
            found = pairs_by_axiom([kind_among(trace.tags) for trace in group.traces])
            group.pairs = [(a, b) for a, b, _ in found if said[a] != said[b]]
        return [group for group in groups if group.pairs]

    return Part(name="axiom_pairs", call=call, reads=frozenset({"tag:axioms"}), writes=frozenset({"pairs"}))


@register(
    AXIOMATIC_PREFERENCE_MODEL,
    family="reward",
    summary="A reward model of pairs that axioms make: useful, relevant, true and grounded answers over others.",
    when="Questions have answers with votes or evidence, and few direct comparisons.",
)
def axiomatic_rm(
    task: draw.Source,
    *,
    usefulness: Annotated[float, Option("Weight of chosen over rejected.", at_least=0)] = 1.0,
    relevance: Annotated[float, Option("Weight of the own answer over one to another question.", at_least=0)] = 1.0,
    truthfulness: Annotated[float, Option("Weight of true over plausible but false.", at_least=0)] = 1.0,
    grounding: Annotated[float, Option("Weight of evidence over none, and of its own over other's.", at_least=0)] = 1.0,
    combination: Annotated[float, Option("Weight of joined answers over one of them.", at_least=0)] = 1.0,
) -> Method:
    """The axiomatic preference model.

    L = mean over the pairs of all axioms of weight(axiom) [ -log s( r(better) - r(worse) ) ]

    Columns: chosen and rejected; optional false, combined and evidence. Accuracy is noted for each axiom. Departure: of
    the paper the abstract was available; loss and weights are reconstructed, and another question is any of the batch,
    not a similar one. With usefulness alone it is reward_model.
    """
    weights = {
        "usefulness": usefulness,
        "relevance": relevance,
        "truthfulness": truthfulness,
        "groundedness": grounding,
        "relevant_grounding": grounding,
        "combination": combination,
    }
    return method(
        draw=draw.pairs(task),
        rollout=by_axioms(),
        select=axiom_pairs(),
        credit=chain(END, axiom_kinds()),
        learn=learn.Learn(score_axioms(weights, on=learn.CLAIMED)),
        models=roles("rm", rm=trained(outputs=1)),
        product="rm",
    )
