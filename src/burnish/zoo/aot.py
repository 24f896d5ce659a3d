"""Distributional Preference Alignment of LLMs via Optimal Transport (arXiv 2406.05882)."""

from __future__ import annotations

import torch
from torch import Tensor

from burnish import credit, draw, learn
from burnish.core.parts import Part, chain, supplies
from burnish.core.schedules import Schedule
from burnish.core.step import Step
from burnish.core.types import Group
from burnish.credit.preference import fill, pairs_in_order, reply_sum
from burnish.learn.maths.preference import Replies, logistic
from burnish.learn.term import Authors, Term
from burnish.learn.terms.compared import pair_term, unpaired_term
from burnish.method import Method, frozen, method, roles
from burnish.methods import opt, register
from burnish.methods.given_pairs import from_pairs_and_ref
from burnish.methods.preference_unpaired import labelled_replies
from burnish.papers import Paper

AOT = Paper("aot", "2406.05882", "Distributional Preference Alignment of LLMs via Optimal Transport")


def of_equal_rank(u: Tensor, v: Tensor) -> Tensor:
    """For each u_i the v of the same rank: v_(rank of u_i), ranks in ascending order, ties by position. Shapes [n].

    The pairing of two samples by optimal transport in one dimension.
    """
    assert u.shape == v.shape
    rank = torch.empty_like(u, dtype=torch.long)
    rank[torch.argsort(u, stable=True)] = torch.arange(len(u), device=u.device)
    return torch.sort(v, stable=True).values[rank]


@supplies("stream:matched")
def matched_margins(*, author: str = "demo") -> Part:
    """AOT on pairs (arXiv 2406.05882): for each pair the reference's margin of the same rank, as stream "matched".

    u_i = log pi(w_i) - log pi(l_i) from stream "now",  v_i = log ref(w_i) - log ref(l_i);  matched_i = v_(rank of u_i)
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        pairs = pairs_in_order(groups)
        mine, theirs = (
            torch.tensor([reply_sum(w, s, author) - reply_sum(r, s, author) for w, r in pairs], dtype=torch.float64)
            for s in ("now", "ref")
        )
        for (w, r), value in zip(pairs, of_equal_rank(mine, theirs).tolist(), strict=True):
            fill(w, "matched", value)
            fill(r, "matched", value)
        return groups

    return Part(
        name="matched_margins",
        call=call,
        reads=frozenset({"pairs", "stream:now", "stream:ref", f"tokens:{author}"}),
        writes=frozenset({"stream:matched"}),
    )


@supplies("stream:partner")
def matched_replies(*, author: str = "demo") -> Part:
    """AOT on unpaired replies: the log-ratio of the reply of the other class with the same rank, as stream "partner".

    Classes are those of stream "label". Where one class has more replies, its surplus (the lowest ranks) is matched
    with the other's replies again.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        traces = [t for group in sorted(groups, key=lambda g: g.task.key) for t in group.traces]
        ratios = [reply_sum(t, "now", author) - reply_sum(t, "ref", author) for t in traces]
        good, bad = (
            sorted(
                (i for i, t in enumerate(traces) if (float(t.streams["label"][0]) > 0) == kind), key=ratios.__getitem__
            )
            for kind in (True, False)
        )
        for mine, theirs in ((good, bad), (bad, good)):
            for k, i in enumerate(mine):
                at = k * len(theirs) // max(1, len(mine))
                fill(traces[i], "partner", ratios[theirs[at]] if theirs else ratios[i])
        return groups

    return Part(
        name="matched_replies",
        call=call,
        reads=frozenset({"stream:now", "stream:ref", "stream:label", f"tokens:{author}"}),
        writes=frozenset({"stream:partner"}),
    )


def transported(beta: Schedule, *, on: Authors = "policy") -> Term:
    """AOT on pairs: the logistic loss of beta (u - v'), u = log pi_w - log pi_l, v' the stream "matched"."""
    return pair_term(
        lambda w, r, beta: logistic(beta * (w.logp - r.logp - w["matched"])), beta=beta, marks=("matched",), on=on
    )


def transported_replies(beta: Schedule, *, on: Authors = "policy") -> Term:
    """AOT on unpaired replies: each against the held log-ratio of its partner of the other class (stream "partner").

    The mean over pairs of -log s(beta (lr_w - lr_l)) has the gradient of both halves together; the factor 2 makes the
    mean over replies that mean over pairs.
    """

    def loss(all: Replies, beta: float) -> Tensor:
        sign = torch.where(all["label"] > 0, 1.0, -1.0).to(all.logratio)
        return logistic(beta * sign * (all.logratio - all["partner"].to(all.logratio)))

    return unpaired_term(loss, beta=beta, marks=("partner",), coef=2.0, on=on)


@register(
    AOT,
    family="preference",
    summary="Make the policy's margins larger than the reference's as a distribution, not pair by pair.",
    when="As `dpo`, where single labels are noisy and the whole distribution of margins matters.",
)
def aot(task: draw.Source, *, beta: opt.Beta = 0.01) -> Method:
    """AOT on pairs: alignment by optimal transport in one dimension.

    u_i = log pi(y_w) - log pi(y_l),  v_i = log ref(y_w) - log ref(y_l), both sorted over the batch
    L = mean over i of -log s( beta (u_(i) - v_(i)) )

    Ranks come from the policy before the update. A batch of one pair is DPO. `aot_unpaired` compares single replies.
    """
    return from_pairs_and_ref(
        task, transported(beta, on="demo"), then=chain(credit.streams("policy", logp="now"), matched_margins())
    )


@register(
    AOT,
    family="preference",
    summary="Make the rewards of good replies larger than those of bad ones as a distribution.",
    when="As `kto`, by optimal transport between the two classes.",
)
def aot_unpaired(task: draw.Source, *, beta: opt.Beta = 0.01) -> Method:
    """AOT on unpaired replies.

    lr = log pi(y|x) - log ref(y|x), of good and of bad replies, each sorted over the batch
    L = mean over ranks i of -log s( beta (lr_good(i) - lr_bad(i)) )

    Ranks and partners come from the policy before the update; the gradient is that of the whole loss. One good and one
    bad reply are DPO.
    """
    return method(
        **labelled_replies(task),
        credit=chain(credit.cached_ref(task), credit.streams("policy", logp="now"), credit.label(), matched_replies()),
        learn=learn.Learn(transported_replies(beta, on="demo")),
        models=roles(ref=frozen("policy")),
        lr_share=0.1,
    )
