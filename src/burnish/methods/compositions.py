"""Compositions that several papers of the zoo begin with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from burnish import credit, draw, learn, rollout, score
from burnish.method import Clock, Draw, Method, Option, Part, Role, Rollout, chain, frozen, method, roles
from burnish.score.judges import Judge


def models_of(*judges: Judge | None) -> dict[str, Role]:
    """The models that these judges bring into a run."""
    return {name: role for one in judges if one is not None for name, role in one.models.items()}


def judge_grpo(
    drawn: Draw, source: draw.Source, n: int, eps: float, beta: float, *scored: Part, by: str = "reward"
) -> Method:
    """GRPO on the tasks of a source, by the score of this name."""
    return method(
        draw=drawn,
        rollout=rollout.sample(n),
        score=chain(score.verify(source), *scored),
        credit=chain(credit.group_relative(score=by), credit.behaviour(), credit.ref()),
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


Attributes = Annotated[
    str,
    Option(
        "The rated attributes, with commas: columns of the data (chosen_NAME and rejected_NAME of pairs). Two need no "
        "column: quality (1 for chosen replies and demonstrations, else 0) and length (a share of the longest reply)."
    ),
]


KNOWN = ("quality", "length")  # attributes that need no column


def names_of(attributes: str, task: draw.Source) -> tuple[str, ...]:
    """The names in a list with commas, each once; raises ValueError for one of which the task says nothing."""
    chosen = tuple(dict.fromkeys(name.strip() for name in attributes.split(",") if name.strip()))
    if not chosen:
        raise ValueError("attributes names nothing to rate; give columns with commas, such as helpfulness,verbosity")
    for name in chosen:
        if name not in KNOWN:
            columns = (name, f"chosen_{name}", f"rejected_{name}", f"demo_{name}")
            draw.require_column(task, columns, f"attributes={attributes}", f"how {name} a reply is", "")
    return chosen
