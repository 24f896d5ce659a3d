"""MaxMin-RLHF: Towards Equitable Alignment of Large Language Models with Diverse Human Preferences (arXiv
2402.08925).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import torch.nn.functional as F
from torch import Tensor

from burnish import draw, learn, rollout, select
from burnish.core.parts import Part, supplies
from burnish.core.state import State
from burnish.core.step import Step
from burnish.core.types import Group
from burnish.credit.preference import fill
from burnish.learn.maths.preference import bradley_terry
from burnish.learn.term import Authors, Live, Term
from burnish.learn.terms.reward import note_order, row_heads, row_numbers, score_pair_term
from burnish.method import Method, Option, chain, method, roles, trained
from burnish.methods import papers, register
from burnish.methods.reward import END
from burnish.score.heads import end_outputs
from burnish.tasks.resolve import datasets_of
from burnish.tasks.source import Source

METRICS = (("users_moved", "Credit", "share of the pairs whose user changed the cluster in this step"),)


class Clusters:
    """Which cluster each user belongs to: the one whose reward model explains the user's pairs best (MaxMin-RLHF).

    For each user the log-likelihood of every pair under every cluster's model, as last computed; the cluster is the
    argmax of their sums. A user who was never seen is put into cluster (number of the user) modulo clusters.
    """

    def __init__(self, clusters: int, name: str = "clusters") -> None:
        self.name, self.clusters = name, clusters
        self.likelihoods: dict[str, dict[str, list[float]]] = {}

    def saw(self, user: str, pair: str, loglik: list[float]) -> None:
        self.likelihoods.setdefault(user, {})[pair] = loglik

    def first(self, user: str) -> int:
        """Where a user begins."""
        order = list(self.likelihoods)
        return (order.index(user) if user in self.likelihoods else len(order)) % self.clusters

    def of(self, user: str) -> int:
        """The user's cluster now; ties go to the first."""
        sums = [sum(column) for column in zip(*self.likelihoods[user].values(), strict=True)]
        return max(range(self.clusters), key=lambda u: (sums[u], -u))

    def state_dict(self) -> State:
        return {"likelihoods": self.likelihoods}

    def load_state_dict(self, state: State) -> None:
        self.likelihoods = {user: dict(pairs) for user, pairs in state["likelihoods"].items()}


@supplies("stream:cluster")
def clustered(clusters: Clusters, column: str, warmup: int, *, model: str = "rm") -> Part:
    """The hard E-step over users: stream "cluster" of each pair, from the scores of all heads without gradient.

    column  who compared the replies; rows without it are one user's
    warmup  steps in which users stay where they begin, so that the heads have something to tell them apart by
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        traces = [trace for group in groups for trace in group.traces]
        scores = {id(trace): row for trace, row in zip(traces, end_outputs(traces, step, model), strict=True)}
        moved, users = 0, set()
        for group in sorted(groups, key=lambda group: group.task.key):
            user = str(group.task.given.get(column, ""))
            new = user not in clusters.likelihoods
            before = clusters.first(user) if new or step.clock.step < warmup else clusters.of(user)
            for a, b in group.pairs or ():
                loglik = F.logsigmoid(scores[id(group.traces[a])] - scores[id(group.traces[b])])
                clusters.saw(user, f"{group.task.key}/{a}/{b}", loglik.tolist())
            held = step.clock.step < warmup
            now = clusters.first(user) if held else clusters.of(user)
            moved += now != before
            users.add(user)
            for trace in group.traces:
                fill(trace, "cluster", now)
        step.notes.add("users_moved", moved, max(1, len(groups)))
        return groups

    return Part(
        name=f"clustered({column})",
        call=call,
        reads=frozenset({"pairs", f"model:{model}.score"}),
        writes=frozenset({"stream:cluster"}),
        state=(clusters,),
    )


def require_values(source: Source, column: str, least: int, option: str) -> None:
    """Raise ValueError where a column of a dataset has fewer than so many values; rows without it have one together."""
    seen: set[str] = set()

    def enough(given: Mapping[str, Any]) -> bool:
        seen.add(str(given.get(column, "")))
        return len(seen) >= least

    datasets = datasets_of(source)
    if datasets and all(dataset.first(enough) is None for dataset in datasets):
        raise ValueError(
            f"task {source.name!r} has {len(seen)} values in its column {column!r}, fewer than {option}; lower it, or "
            "choose data with more"
        )


def chosen_head_pairs(head: str, *, trainee: str = "rm", on: Authors = "policy", name: str = "end") -> Term:
    """Bradley-Terry of one head for each pair: the one whose number stands in stream `head` (a cluster of users)."""

    def loss(live: Live) -> Tensor:
        scores = row_heads(live)
        mine = row_numbers(live, head)[live.pairs[:, :1]].long().squeeze(-1)
        chosen, rejected = (scores[live.pairs[:, side]].gather(-1, mine[:, None])[:, 0] for side in (0, 1))
        note_order(live, chosen, rejected)
        return bradley_terry(chosen, rejected)

    return score_pair_term(loss, (head,), trainee, on, name)


@register(
    papers.MAXMIN_RLHF,
    family="reward",
    summary="One reward model per group of users; who belongs to which group is learned.",
    when="Annotators disagree by taste, and nobody should be left behind by the average.",
    trial={"user": "answer"},
    example="burnish train maxmin_rm --task pairs.jsonl",
)
def maxmin_rm(
    task: draw.Source,
    *,
    groups: Annotated[int, Option("Groups of users.", at_least=1)] = 2,
    user: Annotated[str, Option("The column that says who compared the replies.")] = "user",
    warmup: Annotated[int, Option("Steps in which users stay in their first group.", at_least=0)] = 10,
) -> Method:
    """MaxMin-RLHF's reward models, by expectation maximisation with hard assignments; one head per group.

    E:  u(user) = argmax_u sum over the user's pairs of log s( r_u(y_w) - r_u(y_l) )
    M:  L = -log s( r_u(y_w) - r_u(y_l) ), u the user's group;  mean over pairs

    Users begin in group (number of the user) modulo groups. A user's sum has the newest value of each of its pairs; E
    and M alternate batch by batch, where the paper refits each model completely in 10 rounds. Its use: `maxmin(DIR)`
    rewards with the group whose mean over the batch is the lowest. Groups share a backbone. groups = 1 is reward_model.
    """
    if groups > 1:  # with fewer users than groups a head would never be trained, and then used
        draw.require_column(task, (user,), f"user={user}", "who compared the replies", "groups=1")
        require_values(task, user, groups, f"groups={groups}")
    return method(
        draw=draw.pairs(task),
        rollout=rollout.given("chosen", "rejected", reader="rm"),
        select=select.given_pairs(),
        credit=chain(END, clustered(Clusters(groups), user, warmup)),
        learn=learn.Learn(chosen_head_pairs("cluster", on=learn.CLAIMED)),
        models=roles("rm", rm=trained(outputs=groups)),
        product="rm",
    )
