"""Terms that train reward models: pairs, lists, ratings and labels, for models with one output or several.

A reward model gives its numbers after a token ("score"). Unless a term says otherwise it claims the last token of each
trace, so that a row has one score, or one for each of k heads.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from burnish.core.schedules import Schedule
from burnish.learn.maths.axioms import AXIOMS, KINDS
from burnish.learn.maths.preference import Replies, bradley_terry, logistic
from burnish.learn.maths.preference_lists import plackett_luce
from burnish.learn.maths.reward import all_pairs, rating_error, reward_difference
from burnish.learn.norms import unit_mean
from burnish.learn.term import Authors, Live, Term
from burnish.learn.terms.compared import list_term, note_pairs, pair_term, unpaired_term


def row_scores(live: Live, where: Tensor | None = None) -> Tensor:
    """[R] or [R, k]: the scores at each trace's claimed tokens, summed; each times `where` [N], if it is given."""
    scores = live.outputs["score"]
    if where is not None:
        scores = scores * where.to(scores).reshape(-1, *[1] * (scores.ndim - 1))
    empty = torch.zeros(live.rows, *scores.shape[1:], dtype=scores.dtype, device=scores.device)
    return empty.index_add(0, live.row, scores)


def row_heads(live: Live) -> Tensor:
    """[R, k]: the same, with k = 1 for a model with one output."""
    return row_scores(live).reshape(live.rows, -1)


def row_numbers(live: Live, stream: str) -> Tensor:
    """[R, ...]: a stream that has the same numbers on all claimed tokens of a trace; NaN stays NaN."""
    values = live.streams[stream]
    found = torch.zeros(live.rows, *values.shape[1:], dtype=values.dtype, device=values.device)
    return found.index_copy(0, live.row, values)


def note_order(live: Live, chosen: Tensor, rejected: Tensor) -> None:
    """Note margin, accuracy and both scores of pairs [P], as every term on pairs does."""
    ones = torch.ones_like(chosen)
    note_pairs(live, Replies(chosen, chosen, ones), Replies(rejected, rejected, ones), 1.0, "score")


def score_pairs(
    *,
    centre: float = 0.0,
    margin: float | str = 0.0,
    label_smoothing: float | str = 0.0,
    shrink: float = 0.0,
    weight: str | None = None,
    trainee: str = "rm",
    coef: Schedule = 1.0,
    on: Authors = "policy",
    name: str = "end",
) -> Term:
    """Bradley-Terry on the scores at the claimed token (one a trace); options as in `maths.bradley_terry`.

    margin, label_smoothing  a number, or the name of a stream that has one on each reply of a pair
    weight                   a stream of weights of pairs
    """
    marks = tuple(name for name in (margin, label_smoothing, weight) if isinstance(name, str))

    def loss(chosen: Replies, rejected: Replies, _: float) -> Tensor:
        found = bradley_terry(
            chosen.score,
            rejected.score,
            centre,
            margin=_number(chosen, margin),
            label_smoothing=_number(chosen, label_smoothing),
            shrink=shrink,
        )
        return found if weight is None else found * chosen[weight]

    return pair_term(loss, anchor=None, marks=marks, output="score", trainee=trainee, coef=coef, on=on, name=name)


def _number(replies: Replies, value: float | str) -> float | Tensor:
    return replies[value] if isinstance(value, str) else value


def score_ranking(*, trainee: str = "rm", on: Authors = "policy", name: str = "end") -> Term:
    """Plackett-Luce on the scores of a ranked list, best first; one number a list."""
    return score_list_term(plackett_luce, trainee, on, name)


def score_all_pairs(*, trainee: str = "rm", on: Authors = "policy", name: str = "end") -> Term:
    """All pairs of a ranked list, divided by their number: each prompt weighs the same."""
    return score_list_term(all_pairs, trainee, on, name)


def score_list_term(loss: Callable[[Tensor], Tensor], trainee: str, on: Authors, name: str) -> Term:
    return list_term(
        lambda replies, _: loss(replies.score), anchor=None, output="score", trainee=trainee, on=on, name=name
    )


def score_labels(*, trainee: str = "rm", on: Authors = "policy", name: str = "end") -> Term:
    """-log sigmoid(label r) for replies that are good (label 1) or bad (-1) by themselves: r is their log-odds."""

    def loss(replies: Replies, _: float) -> Tensor:
        return logistic(replies["label"].sign() * replies.score)

    return unpaired_term(loss, anchor=None, output="score", trainee=trainee, on=on, name=name)


def head_pairs(
    columns: slice,
    *,
    bags: str | None = None,
    centre: float = 0.0,
    trainee: str = "rm",
    on: Authors = "policy",
    name: str = "end",
) -> Term:
    """Bradley-Terry of each of several heads, the mean over the heads; one number a pair.

    columns  the outputs of the model that are heads
    bags     a stream [T, k]: how often each head trains on the pair (a bootstrap sample of its own); by default once
    """

    def loss(live: Live) -> Tensor:
        scores = row_heads(live)[:, columns]
        chosen, rejected = scores[live.pairs[:, 0]], scores[live.pairs[:, 1]]
        note_order(live, chosen.mean(-1), rejected.mean(-1))
        live.note("disagreement", (chosen - rejected).std(-1, unbiased=False))
        losses = bradley_terry(chosen, rejected, centre)
        return (losses if bags is None else losses * row_numbers(live, bags)[live.pairs[:, 0]].to(losses)).mean(-1)

    return score_pair_term(loss, (bags,) if bags else (), trainee, on, name)


def chosen_head_pairs(head: str, *, trainee: str = "rm", on: Authors = "policy", name: str = "end") -> Term:
    """Bradley-Terry of one head for each pair: the one whose number stands in stream `head` (a cluster of users)."""

    def loss(live: Live) -> Tensor:
        scores = row_heads(live)
        mine = row_numbers(live, head)[live.pairs[:, :1]].long().squeeze(-1)
        chosen, rejected = (scores[live.pairs[:, side]].gather(-1, mine[:, None])[:, 0] for side in (0, 1))
        note_order(live, chosen, rejected)
        return bradley_terry(chosen, rejected)

    return score_pair_term(loss, (head,), trainee, on, name)


def gated_pairs(
    attributes: int, temperature: float, *, at_prompt: str = "at_prompt", trainee: str = "rm", name: str = "gate"
) -> Term:
    """ArmoRM's second stage: Bradley-Terry on sum_i softmax(g / temperature)_i r_i; only the gate gets a gradient.

    The term claims two tokens a trace: the end of the prompt, where stream `at_prompt` is 1 and the outputs after the
    attributes are the gate's logits g, and the end of the reply, where the first outputs are the attributes r.
    """

    def loss(live: Live) -> Tensor:
        here = live.streams[at_prompt]
        rewards = row_scores(live, 1 - here)[:, :attributes].detach()
        gate = torch.softmax(row_scores(live, here)[:, attributes:] / temperature, -1)
        scores = (gate * rewards).sum(-1)
        chosen, rejected = scores[live.pairs[:, 0]], scores[live.pairs[:, 1]]
        note_order(live, chosen, rejected)
        entropy = -(gate * gate.clamp(min=1e-30).log()).sum(-1)
        live.note("gate_entropy", entropy[live.pairs[:, 0]])
        return bradley_terry(chosen, rejected)

    return score_pair_term(loss, (at_prompt,), trainee, (), name)


def rate(
    attributes: int, target: str = "ratings", *, trainee: str = "rm", on: Authors = "policy", name: str = "rating"
) -> Term:
    """The squared error of the first outputs against the reply's ratings (stream [T, k]); missing ones are NaN."""

    def loss(live: Live) -> Tensor:
        predicted = row_heads(live)[:, :attributes]
        rated = row_numbers(live, target).to(predicted)
        live.note("rated", (~rated.isnan()).double().mean(-1))
        return rating_error(predicted, rated)

    return Term(
        name=name,
        on=on,
        unit="sequence",
        loss=loss,
        live=("score",),
        streams=(target,),
        norm=unit_mean,
        trainee=trainee,
    )


def logit_pairs(*, coef: Schedule = 1.0, trainee: str = "judge", on: Authors = "score", name: str = "end") -> Term:
    """Bradley-Terry on a language model's own score: the logit of the claimed token (one a trace, stream "token").

    A row of the language model's head is a linear head on the state before that token.
    """

    def loss(live: Live) -> Tensor:
        logits = live.logits.gather(-1, live.token[:, None])[:, 0]
        scores = live.per_row(logits)
        chosen, rejected = scores[live.pairs[:, 0]], scores[live.pairs[:, 1]]
        note_order(live, chosen, rejected)
        return bradley_terry(chosen, rejected)

    return Term(
        name=name,
        on=on,
        unit="pair",
        loss=loss,
        live=("logits",),
        streams=("token",),
        norm=unit_mean,
        trainee=trainee,
        coef=coef,
    )


def differences(*, trainee: str = "rm", on: Authors = (), name: str = "difference") -> Term:
    """-J of MetaRM: minus how far apart the scores of a group's claimed answers are; one number a group."""

    def loss(live: Live) -> Tensor:
        scores, mine = row_scores(live), live.per_row(torch.ones_like(live.outputs["score"])) > 0
        groups = [mine & (live.group == g) for g in range(int(live.group.max()) + 1)]
        found = [-reward_difference(scores[its]) if int(its.sum()) > 1 else scores.sum() * 0 for its in groups]
        return torch.stack(found)

    return Term(name=name, on=on, unit="group", loss=loss, live=("score",), norm=unit_mean, trainee=trainee)


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


def score_pair_term(
    loss: Callable[[Live], Tensor], streams: tuple[str, ...], trainee: str, on: Authors, name: str, coef: Schedule = 1.0
) -> Term:
    return Term(
        name=name,
        on=on,
        unit="pair",
        loss=loss,
        live=("score",),
        streams=streams,
        norm=unit_mean,
        trainee=trainee,
        coef=coef,
    )
