"""The laws that every row of the method table obeys. A new method is tested here without a line being written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conftest import SMALL, build_cast, build_method, credited, doubled
from torch import Tensor

from burnish.cast.ranks import Ranks
from burnish.cast.stage import Cast
from burnish.learn.learn import Learn, accumulate
from burnish.loop import loop
from burnish.method import Method, Phase
from burnish.nouns import Clock, Group, Trace, Turn
from burnish.parts import Part, chain
from burnish.schedules import at
from burnish.step import Settings, Step


def gradient(groups: list[Group], plan: Learn, step: Step, settings: Settings = SMALL, packed: bool = True) -> Tensor:
    """The gradient of all trainees of a plan, as one vector."""
    for name in plan.trainees:
        step.cast[name].optimiser.zero()
        step.cast[name].packed = packed
    accumulate(groups, plan, replace_settings(step, settings))
    found = [
        p.grad.flatten() for name in plan.trainees for p in step.cast[name].model.parameters() if p.grad is not None
    ]
    return torch.cat(found).clone() if found else torch.zeros(1)


def replace_settings(step: Step, settings: Settings) -> Step:
    return Step(step.clock, step.cast, settings)


def assert_same(a: Tensor, b: Tensor, what: str) -> None:
    """Equal to 1e-9 of the gradient's own size, in fp64: rounding cannot hide a wrong weight."""
    scale = max(float(a.norm()), 1e-12)
    assert float((a - b).norm()) / scale < 1e-9, (
        f"{what} changed the gradient by {float((a - b).norm()) / scale:.2e} of its norm"
    )


def test_one_step_runs_and_moves_what_it_trains(name: str, small_model: Path, other_model: Path) -> None:
    method = build_method(name, other_model)
    cast = build_cast(method, small_model)
    before = {member.name: _weights(cast, member.name) for member in cast}
    report = next(loop(method, cast, SMALL, steps=1))
    walked = [phase for phase in method.phases if round(at(phase.times, Clock(0, 1)))]  # the others come in later steps
    trained = {t for phase in walked for t in phase.learn.trainees}
    assert method.product in trained or not any(phase.learn.terms for phase in method.phases)
    for member in cast:
        moved = not torch.equal(before[member.name], _weights(cast, member.name))
        follows = member.role.liveness in ("ema", "snapshot") and member.role.follows in trained
        assert moved == (member.name in trained or follows), f"{member.name} ({member.role.liveness}) moved: {moved}"
    assert all(torch.isfinite(torch.tensor(float(v))) for v in report.metrics.values())


def test_a_method_is_refused_when_any_part_is_removed(name: str, other_model: Path) -> None:
    method = build_method(name, other_model)
    removed = 0
    for broken in _with_one_part_less(method):
        with pytest.raises(ValueError, match=r"reads|no part in room|nothing after it reads"):
            broken()
        removed += 1
    assert removed >= 2


def test_a_method_is_refused_without_a_member_of_its_cast(name: str, other_model: Path) -> None:
    method = build_method(name, other_model)
    for member in method.cast:
        if member != method.product:
            with pytest.raises(ValueError, match=rf"{member}"):
                replace(method, cast={k: v for k, v in method.cast.items() if k != member})


def test_micro_batching_cannot_change_the_gradient(name: str, small_model: Path, other_model: Path) -> None:
    method = build_method(name, other_model)
    for phase, groups, step in credited(method, doubled(build_cast(method, small_model))):
        whole = gradient(groups, phase.learn, step)
        for budget in (1, 120, 300):
            assert_same(
                whole,
                gradient(groups, phase.learn, step, replace(SMALL, token_budget=budget)),
                f"a token budget of {budget}",
            )


def test_order_padding_and_packing_cannot_change_the_gradient(name: str, small_model: Path, other_model: Path) -> None:
    method = build_method(name, other_model)
    for phase, groups, step in credited(method, doubled(build_cast(method, small_model))):
        whole = gradient(groups, phase.learn, step)
        assert_same(whole, gradient(groups[::-1], phase.learn, step), "the order of groups")
        assert_same(whole, gradient(groups, phase.learn, step, packed=False), "packing")
        bystander = Group(groups[0].task, [_long_bystander(groups[0].traces[0])])
        assert_same(
            whole, gradient([*groups, bystander], phase.learn, step), "a long row that no term claims (padding)"
        )


def test_the_number_of_ranks_cannot_change_the_gradient(name: str, small_model: Path, other_model: Path) -> None:
    method = build_method(name, other_model)
    small = replace(SMALL, token_budget=150)
    for phase, groups, step in credited(method, doubled(build_cast(method, small_model))):
        whole = gradient(groups, phase.learn, step, small)
        parts = []
        for rank in range(3):
            step.cast.ranks = Ranks(rank, 3)
            parts.append(gradient(groups, phase.learn, step, small))
        step.cast.ranks = Ranks()
        sizes = {len(part) for part in parts}
        parts = [part if len(part) == len(whole) else torch.zeros_like(whole) for part in parts]
        assert sizes <= {len(whole), 1}
        assert_same(whole, torch.stack(parts).sum(0), "three ranks")


def test_zero_advantages_give_no_policy_gradient(name: str, small_model: Path, other_model: Path) -> None:
    method = build_method(name, other_model)
    for phase, groups, step in credited(method, build_cast(method, small_model)):
        terms = [term for term in phase.learn.terms if "adv" in term.streams]
        for group in groups:
            for trace in group.traces:
                if "adv" in trace.streams:
                    trace.streams["adv"] = torch.zeros(len(trace))
        if terms:
            assert float(gradient(groups, Learn(*terms), step).abs().max()) == 0.0


def test_tokens_outside_the_members_get_no_gradient(name: str, small_model: Path, other_model: Path) -> None:
    """What stands in the streams of tokens that a term does not claim cannot matter, not even nan."""
    method = build_method(name, other_model)
    for phase, groups, step in credited(method, build_cast(method, small_model)):
        for term in phase.learn.terms:
            alone = Learn(term, temperature=phase.learn.temperature)
            clean = gradient(groups, alone, step)
            for group in groups:
                for trace in group.traces:
                    for stream in term.streams:
                        if stream in trace.streams:
                            trace.streams[stream] = _spoiled(trace, trace.streams[stream], term.name)
            assert torch.isfinite(clean).all()
            assert torch.equal(clean, gradient(groups, alone, step)), f"{term.name} reads outside its members"


def test_streams_that_were_never_assigned_are_an_error_not_zero(
    name: str, small_model: Path, other_model: Path
) -> None:
    method = build_method(name, other_model)
    for phase, groups, step in credited(method, build_cast(method, small_model)):
        for term in phase.learn.terms:
            for stream in term.streams:
                held = [(t, t.streams.pop(stream)) for g in groups for t in g.traces if stream in t.streams]
                with pytest.raises(ValueError, match=rf"reads stream '{stream}', which was never assigned"):
                    gradient(groups, phase.learn, step)
                for trace, values in held:
                    trace.streams[stream] = values


def _weights(cast: Cast, name: str) -> Tensor:
    return torch.cat([p.detach().flatten().clone() for p in cast[name].model.parameters()])


def _with_one_part_less(method: Method):
    """Ways to build the method again with one part of one phase missing. Parts that only update others may be left out."""
    for i, phase in enumerate(method.phases):
        for room in ("draw", "rollout"):
            yield lambda i=i, phase=phase, room=room: _rebuilt(method, i, replace(phase, **{room: None}))
        for room in ("score", "select", "credit"):
            atoms = list(getattr(phase, room))
            for k, atom in enumerate(atoms):
                if atom.writes or room != "credit":
                    less: Part = chain(*atoms[:k], *atoms[k + 1 :])
                    if _only_adds_members(atom, atoms):
                        continue
                    yield lambda i=i, phase=phase, room=room, less=less: _rebuilt(
                        method, i, replace(phase, **{room: less})
                    )
        for term in phase.learn.terms:
            less_terms = Learn(*(t for t in phase.learn.terms if t is not term))
            yield lambda i=i, phase=phase, less_terms=less_terms: _rebuilt(method, i, replace(phase, learn=less_terms))


def _only_adds_members(atom: Part, atoms: list[Part]) -> bool:
    """A second member() of a term adds tokens to it: the composition stands without it, it is another method."""
    return bool(atom.updates) and sum(atom.writes == other.writes for other in atoms) > 1


def _rebuilt(method: Method, i: int, phase: Phase) -> Method:
    return replace(method, phases=(*method.phases[:i], phase, *method.phases[i + 1 :]))


def _long_bystander(trace: Trace) -> Trace:
    prompt = Turn(torch.cat([trace.turns[0].tokens] * 4), "task")
    copy = Trace((prompt, Turn(torch.full((40,), 9), "nobody", parent=prompt)), tags=trace.tags)
    for name in trace.streams:
        if name.startswith("member:"):
            copy.streams[name] = torch.zeros(len(copy), dtype=torch.bool)
    return copy


def _spoiled(trace: Trace, stream: Tensor, term: str) -> Tensor:
    mask = trace.streams[f"member:{term}"]
    spoiled = stream.clone()
    spoiled[~mask] = float("nan") if stream.is_floating_point() else -1
    return spoiled
