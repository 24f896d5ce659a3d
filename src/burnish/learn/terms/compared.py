"""The factories of terms on whole replies: `pair_term`, `list_term` and `unpaired_term`.

A preference loss is a pure function of `Replies` (learn/maths/preference.py); its term is one call of a factory:

    def simpo(beta, gamma):
        return pair_term(
            lambda chosen, rejected, beta: logistic(beta * (chosen.logp - rejected.logp) - gamma),
            beta=beta, anchor=None, reduce=row_mean,
        )

Arguments that all three factories take:
    beta     a number or a schedule, which the loss is given as its last argument
    anchor   the stream of log-probs that `logratio` is relative to; None: `logratio` is `logp`
    streams  further streams, reduced over each reply like its log-probs
    marks    streams that hold one number on all tokens of a reply (`shared` in credit writes a score as one)
    weight   a stream of token weights that multiplies log-probs and log-ratios token by token
    reduce   row_sum, or row_mean for log-probs that are normalised by length
    output   "logp" of a policy, or "score" of a reward model

A number about the whole batch (KTO's baseline) may not be computed inside a loss: a loss sees one micro-batch. A credit
part computes it without gradient before the first backward and writes it on every token; the loss reads it as a mark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps

import torch
from torch import Tensor

from burnish.core.schedules import Schedule, at
from burnish.learn.maths.preference import Replies
from burnish.learn.norms import Norm, unit_mean
from burnish.learn.term import Authors, Live, Term, Unit
from burnish.learn.terms.rows import row_mean, row_sum

Reduce = Callable[[Live, Tensor], Tensor]  # [N] tokens -> [R] replies: row_sum or row_mean
PairLoss = Callable[[Replies, Replies, float], Tensor]  # (chosen, rejected, beta) -> [P]
PairNotes = Callable[[Replies, Replies, float], Mapping[str, Tensor]]  # the same -> name -> [P]
ListLoss = Callable[[Replies, float], Tensor]  # (replies of one list, best first; beta) -> []
UnpairedLoss = Callable[[Replies, float], Tensor]  # (replies, beta) -> [R]


def replies_of(
    live: Live,
    *,
    anchor: str | None = "ref",
    streams: tuple[str, ...] = (),
    marks: tuple[str, ...] = (),
    weight: str | None = None,
    reduce: Reduce = row_sum,
    output: str = "logp",
) -> Replies:
    """The R replies of a micro-batch, with the numbers that the term declared."""
    logp = live.outputs[output]
    ratio = logp if anchor is None else logp - live.streams[anchor]
    if weight is not None:
        logp, ratio = logp * live.streams[weight], ratio * live.streams[weight]
    summed = reduce(live, logp)
    return Replies(
        logp=summed,
        logratio=summed if anchor is None else reduce(live, ratio),
        tokens=live.per_row(torch.ones_like(logp)),
        streams={name: reduce(live, live.streams[name]) for name in streams},
        marks={name: row_mean(live, live.streams[name]) for name in marks},
    )


def pair_term(
    loss: PairLoss,
    *,
    beta: Schedule = 1.0,
    anchor: str | None = "ref",
    streams: tuple[str, ...] = (),
    marks: tuple[str, ...] = (),
    weight: str | None = None,
    reduce: Reduce = row_sum,
    output: str = "logp",
    notes: PairNotes | None = None,
    norm: Norm = unit_mean,
    trainee: str = "policy",
    coef: Schedule = 1.0,
    on: Authors = "policy",
    name: str = "reply",
) -> Term:
    """A term of one number per pair, loss(chosen, rejected, beta); by default the mean over pairs is minimised.

    It notes the margin beta (logratio_w - logratio_l), the accuracy, the log-probs of both sides apart, their
    lengths, how often the longer reply has the larger log-ratio, and the entropy. `notes` adds others. The remaining
    arguments are those of the module's docstring and of `Term`.
    """

    @wraps(loss)
    def losses(live: Live) -> Tensor:
        everyone = replies_of(
            live, anchor=anchor, streams=streams, marks=marks, weight=weight, reduce=reduce, output=output
        )
        chosen, rejected = everyone.at(live.pairs[:, 0]), everyone.at(live.pairs[:, 1])
        now = at(beta, live.clock)
        note_pairs(live, chosen, rejected, now, output)
        for note, x in (notes(chosen, rejected, now) if notes is not None else {}).items():
            live.note(note, x)
        return loss(chosen, rejected, now)

    return _term(losses, "pair", anchor, streams + marks, weight, output, norm, trainee, coef, on, name)


def note_pairs(live: Live, chosen: Replies, rejected: Replies, beta: float, output: str = "logp") -> None:
    """Note what every run on pairs shows: margin, accuracy, log-probs of both sides, entropy and length bias.

    Length bias: |chosen| - |rejected| in tokens, and how often the longer reply has the larger log-ratio.
    """
    live.note("margin", beta * (chosen.logratio - rejected.logratio))
    live.note_order(chosen.logratio, rejected.logratio)
    live.note(f"chosen_{output}", chosen.logp)
    live.note(f"rejected_{output}", rejected.logp)
    if output == "logp":
        longer, larger = chosen.tokens > rejected.tokens, chosen.logratio > rejected.logratio
        unequal = (chosen.tokens != rejected.tokens) & (chosen.logratio != rejected.logratio)
        live.note("length_gap", chosen.tokens - rejected.tokens)
        live.note("prefers_longer", (larger == longer).float(), unequal)
        note_entropy(live, live.pairs)


def note_entropy(live: Live, rows: Tensor | None = None) -> None:
    """Note the policy's mean entropy at the tokens of each reply, or of rows [n, k], if the term has it."""
    if "entropy" in live.outputs:
        entropy = row_mean(live, live.outputs["entropy"].detach())
        live.note("entropy", entropy if rows is None else entropy[rows].mean(-1))


def _first_is_best(replies: Replies) -> Tensor:
    """1 if the first reply has the largest log-ratio; shared where several have it, as in a tie of a pair."""
    largest = (replies.logratio == replies.logratio.max()).float()
    return largest[0] / largest.sum()


def list_term(
    loss: ListLoss,
    *,
    beta: Schedule = 1.0,
    anchor: str | None = "ref",
    streams: tuple[str, ...] = (),
    marks: tuple[str, ...] = (),
    weight: str | None = None,
    reduce: Reduce = row_sum,
    output: str = "logp",
    trainee: str = "policy",
    coef: Schedule = 1.0,
    on: Authors = "policy",
    name: str = "list",
) -> Term:
    """A term of one number per ranked list, loss(replies, beta), the best reply first.

    The mean over lists is minimised.

    It notes the accuracy (the best reply has the largest log-ratio) and the log-probs of the first and the last apart.
    """

    @wraps(loss)
    def losses(live: Live) -> Tensor:
        everyone = replies_of(
            live, anchor=anchor, streams=streams, marks=marks, weight=weight, reduce=reduce, output=output
        )
        now, device = at(beta, live.clock), live.row.device
        ranked = [everyone.at(torch.tensor(ranking, device=device)) for ranking in live.lists]
        none = everyone.logratio[:0]  # a micro-batch without lists: no number, but a gradient to follow

        def each(number: Callable[[Replies], Tensor]) -> Tensor:
            return torch.stack([number(one) for one in ranked]) if ranked else none

        if "entropy" in live.outputs:
            entropy = row_mean(live, live.outputs["entropy"].detach())
            shares = [entropy[torch.tensor(ranking, device=device)].mean() for ranking in live.lists]
            live.note("entropy", torch.stack(shares) if shares else none)
        live.note("accuracy", each(_first_is_best))
        live.note(f"chosen_{output}", each(lambda one: one.logp[0]))
        live.note(f"rejected_{output}", each(lambda one: one.logp[-1]))
        return each(lambda one: loss(one, now))

    return _term(losses, "list", anchor, streams + marks, weight, output, unit_mean, trainee, coef, on, name)


def unpaired_term(
    loss: UnpairedLoss,
    *,
    label: str = "label",
    beta: Schedule = 1.0,
    anchor: str | None = "ref",
    streams: tuple[str, ...] = (),
    marks: tuple[str, ...] = (),
    weight: str | None = None,
    reduce: Reduce = row_sum,
    output: str = "logp",
    norm: Norm = unit_mean,
    trainee: str = "policy",
    coef: Schedule = 1.0,
    on: Authors = "policy",
    name: str = "reply",
) -> Term:
    """A term of one number per reply, loss(replies, beta), for replies that are good or bad by themselves.

    label  the stream that says which: above 0 for a desirable reply; the loss reads it as replies[label]
    It notes log-probs and log-ratios of desirable (chosen) and undesirable (rejected) replies apart.
    """
    marks = (label, *marks)

    @wraps(loss)
    def losses(live: Live) -> Tensor:
        everyone = replies_of(
            live, anchor=anchor, streams=streams, marks=marks, weight=weight, reduce=reduce, output=output
        )
        desirable = everyone[label] > 0
        note_entropy(live)
        live.note(f"chosen_{output}", everyone.logp, desirable)
        live.note(f"rejected_{output}", everyone.logp, ~desirable)
        if anchor is not None:
            live.note("chosen_logratio", everyone.logratio, desirable)
            live.note("rejected_logratio", everyone.logratio, ~desirable)
        return loss(everyone, at(beta, live.clock))

    return _term(losses, "sequence", anchor, streams + marks, weight, output, norm, trainee, coef, on, name)


def _term(
    loss: Callable[[Live], Tensor],
    unit: Unit,
    anchor: str | None,
    streams: tuple[str, ...],
    weight: str | None,
    output: str,
    norm: Norm,
    trainee: str,
    coef: Schedule,
    on: Authors,
    name: str,
) -> Term:
    wanted = (anchor, *streams, weight)
    reads = tuple(dict.fromkeys(stream for stream in wanted if stream is not None))
    return Term(
        name=name,
        on=on,
        unit=unit,
        loss=loss,
        live=(output, "entropy") if output == "logp" else (output,),
        streams=reads,
        norm=norm,
        trainee=trainee,
        coef=coef,
    )
