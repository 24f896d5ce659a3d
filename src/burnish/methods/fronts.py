"""Compositions that several papers of the zoo begin with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from burnish import credit, draw, learn, rollout, score
from burnish.method import Clock, Draw, Method, Part, Role, Rollout, Trace, chain, frozen, method, roles
from burnish.score.judges import Judge


def models_of(*judges: Judge | None) -> dict[str, Role]:
    """The models that these judges bring into a run."""
    return {name: role for one in judges if one is not None for name, role in one.models.items()}


def judge_grpo(
    drawn: Draw, source: draw.Source, n: int, temperature: float, eps: float, beta: float, *scored: Part
) -> Method:
    """GRPO on the tasks of a source."""
    return method(
        draw=drawn,
        rollout=rollout.sample(n, temperature=temperature),
        score=chain(score.verify(source), *scored),
        credit=chain(credit.group_relative(), credit.behaviour(), credit.ref()),
        learn=learn.Learn(learn.pg_clip(eps, norm=learn.seq_mean), learn.kl_k3(coef=beta, norm=learn.seq_mean)),
        models=roles(ref=frozen("policy")),
    )


def until_share(share: float) -> Callable[[Clock], int]:
    """1 in the first share of the run, then 0."""
    return lambda clock: int(clock.step < share * clock.of)


def from_share(share: float) -> Callable[[Clock], int]:
    """0 in the first share of the run, then 1."""
    return lambda clock: int(clock.step >= share * clock.of)


@dataclass(frozen=True)
class ListOptions:
    """Where the replies of a list come from: who wrote them, how they are scored."""

    author: str
    rollout: Rollout
    score: Part

    @classmethod
    def of(cls, task: draw.Source, sampled: Rollout, author: str, reward_model: str | None) -> ListOptions:
        """Those of the data, where it has any, else sampled ones."""
        if "responses" in task.gives:
            own = score.reward_model(author="demo") if reward_model else score.given_scores()
            return cls("demo", rollout.listed(), own)
        return cls(author, sampled, score.scoring(task, reward_model, author=author))


def names_in(judges: str) -> list[str]:
    return [name.strip() for name in judges.split(",") if name.strip()]


def taught() -> Part:
    """The labels of steps as a stream, and what is trained on: right paths by "sft", the ends of labelled steps by
    "step". A step that several paths share counts once.
    """

    def labelled(trace: Trace) -> Tensor:
        return ~trace.streams["label"].isnan()

    return chain(
        credit.turn_labels("value"),
        credit.claim("step", "policy", positions="last", where=labelled, needs=("stream:label",)),
        credit.claim("sft", "policy", tag="right"),
    )
