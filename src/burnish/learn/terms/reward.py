"""Terms that train reward models: pairs, lists, ratings and labels, for models with one output or several.

A reward model gives its numbers after a token ("score"). Unless a term says otherwise it claims the last token of each
trace, so that a row has one score, or one for each of k heads.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from burnish.core.schedules import Schedule
from burnish.learn.maths.preference import Replies, bradley_terry
from burnish.learn.maths.reward import all_pairs
from burnish.learn.norms import unit_mean
from burnish.learn.term import Authors, Live, Term
from burnish.learn.terms.compared import list_term, note_pairs, pair_term


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
    numbers = torch.zeros(live.rows, *values.shape[1:], dtype=values.dtype, device=values.device)
    return numbers.index_copy(0, live.row, values)


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
        losses = bradley_terry(
            chosen.score,
            rejected.score,
            centre,
            margin=_number(chosen, margin),
            label_smoothing=_number(chosen, label_smoothing),
            shrink=shrink,
        )
        return losses if weight is None else losses * chosen[weight]

    return pair_term(loss, anchor=None, marks=marks, output="score", trainee=trainee, coef=coef, on=on, name=name)


def _number(replies: Replies, value: float | str) -> float | Tensor:
    return replies[value] if isinstance(value, str) else value


def score_all_pairs(*, trainee: str = "rm", on: Authors = "policy", name: str = "end") -> Term:
    """All pairs of a ranked list, divided by their number: each prompt weighs the same."""
    return score_list_term(all_pairs, trainee, on, name)


def score_list_term(loss: Callable[[Tensor], Tensor], trainee: str, on: Authors, name: str) -> Term:
    """A term over the scores that a reward model gives the replies of one list, best first."""
    return list_term(
        lambda replies, _: loss(replies.score), anchor=None, output="score", trainee=trainee, on=on, name=name
    )


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


def score_pair_term(
    loss: Callable[[Live], Tensor], streams: tuple[str, ...], trainee: str, on: Authors, name: str, coef: Schedule = 1.0
) -> Term:
    """A term over the two scores that a reward model gives the replies of a pair."""
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
