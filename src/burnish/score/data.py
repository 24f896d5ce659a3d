"""Scores that need the data behind a reward model: its covariance, its neighbours, a user's comparisons, references."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from burnish.core.parts import Part, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Task, Trace, Turn
from burnish.learn.reward_head import head_of
from burnish.learn.terms.reward_heads import latent_posterior
from burnish.models.chat import Chat
from burnish.score import aggregate
from burnish.score.debias import data_replies, training_tasks
from burnish.score.heads import all_traces, answered, end_outputs, scoring_part
from burnish.tasks.source import Source

SEPARATOR = "\n=== candidate ===\n"


def pair_of(task: Task) -> tuple[str, str]:
    """The preferred and the other reply of a task."""
    columns = ("chosen", "rejected") if "chosen" in task.given else ("demo", "mistake")
    if not set(columns) <= task.given.keys():
        raise ValueError(f"task {task.key[:60]!r} has no pair; give data with the columns chosen and rejected")
    return str(task.given[columns[0]]), str(task.given[columns[1]])


@dataclass
class Coverage:
    """What the data says of the features of a reward model: (Sigma + lambda I)^-1 and the mean feature nu.

    Sigma is the mean over the pairs of dphi dphi^T, phi the last hidden state. Found once, from the first `count`
    training pairs of the source.
    """

    source: Source
    count: int
    ridge: float
    precision: Tensor | None = None
    centre: Tensor | None = None

    def find(self, step: Step, model: str) -> tuple[Tensor, Tensor]:
        if self.precision is None or self.centre is None:
            reader = step.models[model]
            sides = [
                end_outputs(
                    [answered(task, pair_of(task)[side], reader.chat, reader.context) for task in self._tasks()],
                    step,
                    model,
                    "state",
                )
                for side in (0, 1)
            ]
            gaps = sides[0] - sides[1]
            sigma = gaps.T @ gaps / len(gaps)
            identity = torch.eye(len(sigma), dtype=sigma.dtype)
            self.precision = torch.linalg.solve(sigma + self.ridge * identity, identity)
            self.centre = torch.cat(sides).mean(0)
        return self.precision, self.centre

    def _tasks(self) -> list[Task]:
        return training_tasks(self.source, self.count)


@supplies("score:reward")
def pessimistic(
    coverage: Coverage,
    coef: float,
    bound: aggregate.Bound = aggregate.pessimistic,
    *,
    model: str = "rm",
    author: str = "policy",
    name: str = "reward",
) -> Part:
    """scores[name]: the reward less coef times how far the replies' features are from what the data covers."""

    def values(groups: list[Group], step: Step) -> Tensor:
        precision, centre = coverage.find(step, model)
        features = end_outputs(all_traces(groups), step, model, "state")
        theta = head_of(step.models[model]).detach().double().cpu()[0]
        return bound(features, theta, precision, centre, coef)

    return scoring_part(f"pessimistic({coef:g})", values, models=(model,), author=author, name=name, output="state")


@dataclass
class Neighbours:
    """The replies of the data with their features (of length 1) and scores by a reward model; found once."""

    source: Source
    count: int
    features: Tensor | None = None
    scores: Tensor | None = None

    def find(self, step: Step, model: str) -> tuple[Tensor, Tensor]:
        if self.features is None or self.scores is None:
            traces = data_replies(self.source, self.count, step, model)
            self.features = F.normalize(end_outputs(traces, step, model, "state"), dim=-1)
            self.scores = end_outputs(traces, step, model).mean(-1)
        return self.features, self.scores


@supplies("score:reward")
def fused(
    neighbours: Neighbours,
    least: float,
    most: int,
    *,
    model: str = "rm",
    author: str = "policy",
    name: str = "reward",
) -> Part:
    """scores[name]: the reply's own score averaged with those of near replies of the data (RewardFusion)."""

    def values(groups: list[Group], step: Step) -> Tensor:
        known, scores = neighbours.find(step, model)
        traces = all_traces(groups)
        cosines = F.normalize(end_outputs(traces, step, model, "state"), dim=-1) @ known.T
        own = end_outputs(traces, step, model).mean(-1)
        found = [
            aggregate.fused(float(mine), list(zip(scores.tolist(), row.tolist(), strict=True)), least, most)
            for mine, row in zip(own, cosines, strict=True)
        ]
        return torch.tensor(found, dtype=torch.float64)

    return scoring_part(f"fused({least:g})", values, models=(model,), author=author, name=name)


@supplies("score:reward")
def personal(
    context: list[Task], *, model: str = "rm", author: str = "policy", name: str = "reward", rivals: bool = False
) -> Part:
    """scores[name] = r(x, y, z) of a VPL model, z the mean of q(z | the user's comparisons), without rescaling.

    rivals  SPO's scale: the mean over the prompt's other replies of sigmoid(r(y) - r(y')), comparable between users
    """

    def values(groups: list[Group], step: Step) -> Tensor:
        reader = step.models[model]
        sides = [
            end_outputs([answered(t, pair_of(t)[side], reader.chat, reader.context) for t in context], step, model)
            for side in (0, 1)
        ]
        size = (sides[0].shape[1] - 1) // 5
        if size < 1 or sides[0].shape[1] != 1 + 5 * size:
            raise ValueError(
                f"the reward model {model!r} has {sides[0].shape[1]} outputs, but one of `burnish train vpl` has "
                "1 + 5 x latent"
            )
        encoded = sides[0][:, 1 + size : 1 + 3 * size] + sides[1][:, 1 + 3 * size : 1 + 5 * size]
        z, _ = latent_posterior(encoded, size)
        ends = end_outputs(all_traces(groups), step, model)
        scores = ends[:, 0] + ends[:, 1 : 1 + size] @ z
        return torch.cat([among(part) for part in scores.split([len(g.traces) for g in groups])]) if rivals else scores

    return scoring_part("personal", values, models=(model,), author=author, name=name)


def among(scores: Tensor) -> Tensor:
    """r_i = mean over the other scores of sigmoid(r_i - r_j); 1/2 for one alone. [n] -> [n]."""
    wins = torch.sigmoid(scores[:, None] - scores[None])
    others = max(1, len(scores) - 1)
    return (wins.sum(-1) - 0.5) / others if len(scores) > 1 else torch.full_like(scores, 0.5)


def beside(
    prompt: Tensor, reference: Tensor, reply: Tensor, chat: Chat, limit: int, author: str = "candidate"
) -> Trace:
    """prompt + reference, a separator, prompt + reply. Each half is cut on its own, the separator never.

    The order matters: the score says how much the reply is like the reference, not the other way round.
    """
    separator = chat.written(SEPARATOR)
    room = (limit - len(separator)) // 2 - len(prompt)
    if room < 1:
        raise ValueError(
            f"a prompt of {len(prompt)} tokens does not fit twice, with two replies, into {limit} tokens; use a model "
            "with a longer context, or shorter prompts"
        )
    context = Turn(torch.cat([prompt, reference[:room], separator, prompt]), "task")
    return Trace((context, Turn(reply[:room], author, parent=context)))


@supplies("score:reward")
def like_reference(column: str = "demo", *, model: str = "rm", author: str = "policy", name: str = "reward") -> Part:
    """scores[name] = r(x, reference, y) of a POLAR model, the reference in a column of the task."""

    def values(groups: list[Group], step: Step) -> Tensor:
        reader, read = step.models[model], []
        for group in groups:
            reference = reader.chat.reply(str(group.task.given[column]))
            for trace in group.traces:
                reply = torch.cat([turn.tokens for turn in trace.turns[1:]])
                prompt = trace.turns[0].tokens
                read.append(beside(prompt, reference, reply, reader.chat, reader.context))
        return end_outputs(read, step, model).mean(-1)

    needs = (f"given:{column}",)
    return scoring_part(f"like_reference({column})", values, models=(model,), author=author, name=name, needs=needs)
