"""A method with the scorers of a run in its score stage.

In each phase whose score stage writes the reward of replies, of the policy or another author, behind that part:

    verify -> the part of each --reward scorer -> add_rewards -> each --shape scorer, noting what it changed -> the rest
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from burnish.compose.guard import guarded
from burnish.compose.writers import POLICY, for_writer, writer_of
from burnish.core.method import Method, Phase
from burnish.core.parts import Part, chain
from burnish.core.roles import Role
from burnish.core.scorer import DENSE, MEASURED, Named, is_counted, is_failed, without_failed
from burnish.core.step import Step
from burnish.core.types import Group
from burnish.credit.steps import add_dense
from burnish.score.verify import verify
from burnish.tasks.source import Source

REWARD = "score:reward"


def with_scorers(
    method: Method, rewards: Sequence[Named], shapes: Sequence[Named], drop_failed: bool = False
) -> Method:
    """The method with rewards that are added and shapes that follow; raises ValueError where it scores no replies."""
    if not rewards and not shapes:
        return _without_failed_episodes(method) if drop_failed else method
    phases = tuple(_in_phase(phase, rewards, shapes, drop_failed) for phase in method.phases)
    if phases == method.phases:
        names = ", ".join(one.name for one in (*rewards, *shapes))
        raise ValueError(f"{method.name} does not score sampled replies, so {names} cannot score them; leave it out")
    return replace(method, phases=phases, models=_with_models(method, (*rewards, *shapes)))


def scores_replies(method: Method) -> bool:
    """Whether a reward can score replies in some phase: sampled ones, of the policy or another author."""
    return any(
        {REWARD, "tokens:policy"} <= phase.rollout.writes
        or any(REWARD in atom.writes and writer_of(atom) is not None for atom in phase.score)
        for phase in method.phases
    )


def _without_failed_episodes(method: Method) -> Method:
    """The method without the episodes whose environment, or agent, failed: those are rewarded in the rollout."""

    dropped = Part(
        name="drop_failed", call=lambda groups, step: without_failed(groups, is_failed), reads=frozenset({REWARD})
    )

    def change(phase: Phase) -> Phase:
        played = {REWARD, "tokens:policy"} <= phase.rollout.writes
        return replace(phase, score=chain(dropped, *phase.score)) if played else phase

    return replace(method, phases=tuple(map(change, method.phases)))


def _with_models(method: Method, named: Sequence[Named]) -> dict[str, Role]:
    models = dict(method.models)
    for one in named:
        for name, role in one.scorer.models.items():
            if models.setdefault(name, role) != role:
                raise ValueError(
                    f"{one.name} brings a model {name!r}, and {method.name} has another of that name; rename one"
                )
    return models


def scored_replies(source: Source, rewards: Sequence[Named]) -> Part:
    """The reward of sampled replies outside of a method: the source's own, and these rewards with their weights."""
    parts = [guarded(one.scorer.part, one.name, _measures(one)) for one in rewards]
    dense = [sum_of_dense(one.name, one.weight) for one in rewards if one.scorer.dense]
    added = add_rewards({one.name: one.weight for one in rewards if not one.scorer.dense})
    return chain(verify(source), *parts, added, *dense)


def _in_phase(phase: Phase, rewards: Sequence[Named], shapes: Sequence[Named], drop_failed: bool) -> Phase:
    atoms = list(phase.score)
    places = [i for i, atom in enumerate(atoms) if REWARD in atom.writes and writer_of(atom) is not None]
    if not places and not {REWARD, "tokens:policy"} <= phase.rollout.writes:
        return phase
    after = places[-1] + 1 if places else 0  # environments reward their episodes in the rollout
    author = (writer_of(atoms[places[-1]]) if places else None) or POLICY
    dense = [one for one in (*rewards, *shapes) if one.scorer.dense]
    token_rewards = [i for i, atom in enumerate(phase.credit) if "stream:reward" in atom.writes]
    added = [guarded(for_writer(one.scorer.part, author), one.name, _measures(one)) for one in rewards]
    if rewards:
        added.append(add_rewards({one.name: one.weight for one in rewards if not one.scorer.dense}))
    added += [_noting(one, author) for one in shapes]
    credits = list(phase.credit)
    for one in dense:
        if token_rewards:
            credits.insert(token_rewards[0] + 1, add_dense(DENSE + one.name, one.weight))
        else:
            added.append(sum_of_dense(one.name, one.weight))
    added.append(count_failures(drop_failed))
    score = chain(*atoms[:after], *added, *atoms[after:])
    return replace(phase, score=score, credit=chain(*credits))


def add_rewards(weights: dict[str, float]) -> Part:
    """scores["reward"] += sum over the rewards of weight x scores["reward/NAME"]; a failed trace has none of them."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        for trace in (trace for group in groups for trace in group.traces):
            if not is_failed(trace):
                trace.scores["reward"] += sum(w * trace.scores[MEASURED + name] for name, w in weights.items())
        return groups

    return Part(
        name=f"add_rewards({', '.join(weights)})",
        call=call,
        reads=frozenset({REWARD, *(f"score:{MEASURED}{name}" for name in weights)}),
        updates=frozenset({REWARD}),
    )


def sum_of_dense(name: str, weight: float) -> Part:
    """scores["reward"] += weight x the sum of a dense scorer's token rewards, for methods without token rewards."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        for trace in (trace for group in groups for trace in group.traces):
            if not is_failed(trace):
                total = float(torch.nansum(trace.streams[DENSE + name]))
                trace.scores[MEASURED + name] = total
                trace.scores["reward"] += weight * total
        return groups

    return Part(
        name=f"sum_of_dense({name})",
        call=call,
        reads=frozenset({REWARD, f"stream:{DENSE}{name}"}),
        updates=frozenset({REWARD}),
    )


def count_failures(drop: bool) -> Part:
    """Count the traces that could not be scored, unless verify did; drop them, or set their reward to 0."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        failed = 0
        for group in groups:
            for trace in filter(is_failed, group.traces):
                trace.scores["reward"], failed = 0.0, failed + (not is_counted(trace))
        if failed:
            step.notes.count("reward_failures", failed)
        return without_failed(groups, is_failed) if drop else groups

    return Part(name="count_failures", call=call, reads=frozenset({REWARD}), updates=frozenset({REWARD}))


def _measures(one: Named) -> str:
    """The score or the stream that the part of a reward writes."""
    return f"stream:{DENSE}{one.name}" if one.scorer.dense else f"score:{MEASURED}{one.name}"


def _noting(one: Named, author: str) -> Part:
    """The part of a shape, which notes how much it changed the reward of each trace as scores["reward/NAME"]."""
    inner = guarded(for_writer(one.scorer.part, author), one.name, REWARD)

    def call(groups: list[Group], step: Step) -> list[Group]:
        before = {trace.id: trace.scores["reward"] for group in groups for trace in group.traces}
        groups = inner.call(groups, step)
        for trace in (trace for group in groups for trace in group.traces):
            if not is_failed(trace):
                trace.scores[MEASURED + one.name] = trace.scores["reward"] - before[trace.id]
        return groups

    return replace(inner, call=call)
