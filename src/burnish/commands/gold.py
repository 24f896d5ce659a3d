"""A reward and the gold standard that it is held against: what `eval-reward` and `overoptimise` load and sample."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from burnish.core.call_syntax import Call
    from burnish.core.step import Settings
    from burnish.core.types import Group
    from burnish.evals.reward_eval import RewardScorer
    from burnish.models.build import Models
    from burnish.models.chat import Chat
    from burnish.tasks.source import Source

    Gold = Callable[[list[Group], Chat], list[list[float]]]

AT_ONCE = 16  # tasks whose replies are sampled together


def require_gold(source: Source) -> None:
    """Raise ValueError, before anything is loaded, if the task cannot be the gold standard."""
    from burnish.core.task import NoVerifier
    from burnish.score.judge import require_verifier

    try:
        require_verifier(source, "heldout")
    except NoVerifier:
        raise ValueError(
            f"the reward is measured against a gold standard, and task {source.name!r} has no answers to check "
            "replies against; pass --gold REWARD (a reward model or a reward by name)"
        ) from None


def called(name: str) -> Call:
    """A reward by name, or the reward model in a directory."""
    from burnish.core.call_syntax import Call, read_call
    from burnish.rewards.table import load_scorers

    call = read_call(name)
    if call is None or call.name not in load_scorers() or Path(name).exists():
        call = Call("rm", (name,))
    return call


def load_scorer(name: str, source: Source, settings: Settings, device: str) -> RewardScorer:
    """A reward with its models."""
    from burnish.core.roles import frozen
    from burnish.core.scorer import Named
    from burnish.evals.reward_eval import RewardScorer
    from burnish.models.build import build
    from burnish.models.known_models import resolve
    from burnish.rewards.table import build_scorer

    call = called(name)
    named = Named(call.name, build_scorer(call, source, "reward"))
    roles = dict(named.scorer.models)
    if not any(read.endswith(".score") for read in named.scorer.part.reads):
        roles = {"policy": frozen("tiny"), **roles}  # it reads texts: any tokenizer that loses nothing will do
    models = build(roles, resolve(next(iter(roles.values())).source), settings, device=device)
    return RewardScorer(named, models, settings)


def gold_standard(name: str | None, source: Source, settings: Settings, device: str) -> Gold:
    """The gold scores of sampled replies: by a reward, or by the task's verifier."""
    from burnish.score.judge import judge, reply_text

    if name is not None:
        scorer = load_scorer(name, source, settings, device)
        return lambda groups, chat: scorer.scores(scorer.read_again(groups, chat))

    def verified(groups: list[Group], chat: Chat) -> list[list[float]]:
        asked = [(group.task, trace) for group in groups for trace in group.traces]
        found = judge(source, [task for task, _ in asked], [reply_text(trace, chat) for _, trace in asked])
        flat = iter(verdict.score for verdict in found)
        return [[next(flat) for _ in group.traces] for group in groups]

    return verified


def sampled(
    models: Models, source: Source, settings: Settings, tasks: int, n: int, temperature: float = 1.0
) -> list[Group]:
    """n replies of the policy to each of the first held-out tasks."""
    from burnish.core.step import Step
    from burnish.core.types import Clock
    from burnish.evals.evaluate import held_out_tasks
    from burnish.rollout.sample import sample

    step, asked = Step(Clock(0, 1), models, settings), held_out_tasks(source, tasks)
    groups: list[Group] = []
    for i in range(0, len(asked), AT_ONCE):
        groups += sample(n, temperature=temperature).call(asked[i : i + AT_ONCE], step)
    return groups
