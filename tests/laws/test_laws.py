"""The laws that every row of the method table obeys. A new method is tested here without a line being written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conftest import SMALL, build_cast, build_method, doubled
from gradients import apart, assert_same, gradient
from torch import Tensor

from burnish.forward.outputs import decoder
from burnish.learn.batch import masks
from burnish.learn.learn import Learn
from burnish.learn.term import CLAIMED, Term
from burnish.loop import loop
from burnish.method import Method, Phase
from burnish.models.build import Models
from burnish.models.ranks import Ranks
from burnish.parts import Part, chain
from burnish.schedules import at
from burnish.types import Clock, Group, Trace, Turn


@contextmanager
def shapes_read(models: Models, trainees: tuple[str, ...]) -> Iterator[list[tuple[int, ...]]]:
    """[rows, tokens] of everything that the trainees read inside the block."""
    found: list[tuple[int, ...]] = []

    def note(module: torch.nn.Module, positional: tuple, named: dict) -> None:
        given = named.get("input_ids", named.get("inputs_embeds"))
        found.append(tuple((given if given is not None else positional[0]).shape[:2]))

    hooks = [decoder(models[name].module).register_forward_pre_hook(note, with_kwargs=True) for name in trainees]
    yield found
    for hook in hooks:
        hook.remove()


def test_one_step_runs_and_moves_what_it_trains(name: str, small_model: Path, other_model: Path) -> None:
    method = build_method(name, other_model)
    models = build_cast(method, small_model)
    before = {model.name: _weights(models, model.name) for model in models}
    report = next(loop(method, models, SMALL, steps=1))
    walked = [phase for phase in method.phases if round(at(phase.times, Clock(0, 1)))]  # the others come in later steps
    trained = {t for phase in walked for t in phase.learn.trainees}
    assert method.product in trained or not any(phase.learn.terms for phase in method.phases)
    for model in models:
        moved = not torch.equal(before[model.name], _weights(models, model.name))
        follows = model.role.liveness in ("ema", "snapshot") and model.role.follows in trained
        follows = follows and model.role.due(Clock(0, 1))
        assert moved == (model.name in trained or follows), f"{model.name} ({model.role.liveness}) moved: {moved}"
    assert all(torch.isfinite(torch.tensor(float(v))) for v in report.metrics.values())


def test_a_method_is_refused_when_any_part_is_removed(name: str, other_model: Path) -> None:
    method = build_method(name, other_model)
    removed = 0
    for broken in _with_one_part_less(method):
        with pytest.raises(ValueError, match=r"reads|no part in stage|nothing after it reads"):
            broken()
        removed += 1
    assert removed >= 2


def test_a_term_on_tokens_that_nobody_writes_is_refused(name: str, other_model: Path) -> None:
    """`Term(on=...)` is wired like a stream: the author's tokens come from the rollout, a claim from credit."""
    method = build_method(name, other_model)
    for i, phase in enumerate(method.phases):
        for term in phase.learn.terms:
            claimed = any(f"claim:{term.name}" in atom.writes for atom in phase.credit)
            assert claimed == (term.authors == CLAIMED), f"{term.name}: on={term.on!r}, claimed by credit: {claimed}"
            lost = replace(term, name="lost", on="an author without a turn")
            for changed in (lost, replace(lost, on=CLAIMED)):
                terms = [changed if other is term else other for other in phase.learn.terms]
                with pytest.raises(ValueError, match=r"'lost' reads '(tokens:an author without a turn|claim:lost)'"):
                    _rebuilt(method, i, replace(phase, credit=_without_claims(phase, term), learn=Learn(*terms)))


def test_a_method_is_refused_without_a_member_of_its_cast(name: str, other_model: Path) -> None:
    method = build_method(name, other_model)
    for model in method.models:
        if model != method.product:
            with pytest.raises(ValueError, match=rf"{model}"):
                replace(method, models={k: v for k, v in method.models.items() if k != model})


def test_micro_batching_cannot_change_the_gradient(name: str, small_model: Path, other_model: Path) -> None:
    method = build_method(name, other_model)
    for phase, groups, step in apart(method, doubled(build_cast(method, small_model))):
        whole = gradient(groups, phase.learn, step)
        for budget in (1, 120, 300):
            assert_same(
                whole,
                gradient(groups, phase.learn, step, replace(SMALL, token_budget=budget)),
                f"a token budget of {budget}",
            )


def test_order_padding_and_packing_cannot_change_the_gradient(name: str, small_model: Path, other_model: Path) -> None:
    method = build_method(name, other_model)
    for phase, groups, step in apart(method, doubled(build_cast(method, small_model))):
        whole = gradient(groups, phase.learn, step)
        assert_same(whole, gradient(groups[::-1], phase.learn, step), "the order of groups")
        with shapes_read(step.models, phase.learn.trainees) as shapes:
            gradient(groups, phase.learn, step)
        assert {rows for rows, _ in shapes} == {1}, "packed rows lie end to end"
        with shapes_read(step.models, phase.learn.trainees) as shapes:
            assert_same(whole, gradient(groups, phase.learn, step, packed=False), "packing")
        assert max(rows for rows, _ in shapes) > 1, "without packing, rows lie side by side"
        bystander = Group(groups[0].task, [_long_bystander(groups[0].traces[0])])
        assert_same(
            whole, gradient([*groups, bystander], phase.learn, step), "a long row that no term claims (padding)"
        )


def test_the_number_of_ranks_cannot_change_the_gradient(name: str, small_model: Path, other_model: Path) -> None:
    method = build_method(name, other_model)
    small = replace(SMALL, token_budget=150)
    for phase, groups, step in apart(method, doubled(build_cast(method, small_model))):
        whole = gradient(groups, phase.learn, step, small)
        parts = []
        for rank in range(3):
            step.models.ranks = Ranks(rank, 3)
            parts.append(gradient(groups, phase.learn, step, small))
        step.models.ranks = Ranks()
        sizes = {len(part) for part in parts}
        parts = [part if len(part) == len(whole) else torch.zeros_like(whole) for part in parts]
        assert sizes <= {len(whole), 1}
        assert_same(whole, torch.stack(parts).sum(0), "three ranks")


def test_zero_advantages_give_no_policy_gradient(name: str, small_model: Path, other_model: Path) -> None:
    method = build_method(name, other_model)
    for phase, groups, step in apart(method, build_cast(method, small_model)):
        terms = [term for term in phase.learn.terms if "adv" in term.streams]
        for group in groups:
            for trace in group.traces:
                if "adv" in trace.streams:
                    trace.streams["adv"] = torch.zeros(len(trace))
        if terms:
            assert float(gradient(groups, Learn(*terms), step).abs().max()) == 0.0


def test_every_term_has_a_gradient(name: str, small_model: Path, other_model: Path) -> None:
    """Otherwise the laws above say nothing of it."""
    method = build_method(name, other_model)
    for phase, groups, step in apart(method, doubled(build_cast(method, small_model))):
        for term in phase.learn.terms:
            alone = phase.learn.with_terms(replace(term, coef=1.0))
            largest = float(gradient(groups, alone, step).abs().max())
            assert largest > 1e-5, f"the gradient of {term.name!r} is nowhere larger than {largest:.0e}: rounding"


def test_tokens_outside_the_claim_get_no_gradient(name: str, small_model: Path, other_model: Path) -> None:
    """What stands in the streams of tokens that a term does not claim cannot matter, not even nan."""
    method = build_method(name, other_model)
    for phase, groups, step in apart(method, build_cast(method, small_model)):
        for term in phase.learn.terms:
            alone = Learn(term, logp_temperature=phase.learn.logp_temperature)
            clean = gradient(groups, alone, step)
            held = [(trace, dict(trace.streams)) for group in groups for trace in group.traces]
            for group in groups:
                for trace, mask in zip(group.traces, masks(term, group), strict=True):
                    assert term.authors == CLAIMED or not (mask & ~trace.by(*term.authors)).any()
                    for stream in term.streams:
                        if stream in trace.streams:
                            trace.streams[stream] = _spoiled(trace.streams[stream], mask)
            assert torch.isfinite(clean).all()
            assert torch.equal(clean, gradient(groups, alone, step)), f"{term.name} reads outside its claim"
            for trace, streams in held:  # the next term may claim other tokens
                trace.streams = streams


def test_streams_that_were_never_assigned_are_an_error_not_zero(
    name: str, small_model: Path, other_model: Path
) -> None:
    method = build_method(name, other_model)
    for phase, groups, step in apart(method, build_cast(method, small_model)):
        for term in phase.learn.terms:
            for stream in term.streams:
                held = [(t, t.streams.pop(stream)) for g in groups for t in g.traces if stream in t.streams]
                with pytest.raises(ValueError, match=rf"reads stream '{stream}', which was never assigned"):
                    gradient(groups, phase.learn, step)
                for trace, values in held:
                    trace.streams[stream] = values


def _weights(models: Models, name: str) -> Tensor:
    return torch.cat([p.detach().flatten().clone() for p in models[name].module.parameters()])


def _with_one_part_less(method: Method):
    """Ways to build the method again with one part of one phase missing. Parts that only update others
    may be left out.
    """
    for i, phase in enumerate(method.phases):
        for room in ("draw", "rollout"):
            yield lambda i=i, phase=phase, room=room: _rebuilt(method, i, replace(phase, **{room: None}))
        for room in ("score", "select", "credit"):
            atoms = list(getattr(phase, room))
            for k, atom in enumerate(atoms):
                if atom.writes or room != "credit":
                    less: Part = chain(*atoms[:k], *atoms[k + 1 :])
                    if _only_adds_tokens(atom, atoms):
                        continue
                    yield lambda i=i, phase=phase, room=room, less=less: _rebuilt(
                        method, i, replace(phase, **{room: less})
                    )
        for term in (term for term in phase.learn.terms if _is_served(term, phase)):
            less_terms = Learn(*(t for t in phase.learn.terms if t is not term))
            yield lambda i=i, phase=phase, less_terms=less_terms: _rebuilt(method, i, replace(phase, learn=less_terms))


def _is_served(term: Term, phase: Phase) -> bool:
    """Whether a part works for this term alone. Without it the term comes and goes freely: SFT beside a policy
    gradient.
    """
    theirs = {name for other in phase.learn.terms if other is not term for name in other.reads}
    theirs |= {name for placed in phase.parts() for name in placed.part.reads} | phase.learn.reads
    mine = {*(f"stream:{name}" for name in term.streams), f"claim:{term.name}", "pairs", "lists"}
    written = {name for placed in phase.parts() for name in placed.part.writes}
    return bool((mine & written & (term.reads | {f"claim:{term.name}"})) - theirs)


def _without_claims(phase: Phase, term: Term) -> Part:
    return chain(*(atom for atom in phase.credit if f"claim:{term.name}" not in atom.writes))


def _only_adds_tokens(atom: Part, atoms: list[Part]) -> bool:
    """A second claim() of a term adds tokens to it: the composition stands without it, it is another method."""
    return bool(atom.updates) and sum(atom.writes == other.writes for other in atoms) > 1


def _rebuilt(method: Method, i: int, phase: Phase) -> Method:
    return replace(method, phases=(*method.phases[:i], phase, *method.phases[i + 1 :]))


def _long_bystander(trace: Trace) -> Trace:
    prompt = Turn(torch.cat([trace.turns[0].tokens] * 4), "task")
    copy = Trace((prompt, Turn(torch.full((40,), 9), "nobody", parent=prompt)), tags=trace.tags)
    for name in trace.streams:
        if name.startswith("claim:"):
            copy.streams[name] = torch.zeros(len(copy), dtype=torch.bool)
    return copy


def _spoiled(stream: Tensor, mask: Tensor) -> Tensor:
    spoiled = stream.clone()
    spoiled[~mask] = float("nan") if stream.is_floating_point() else -1
    return spoiled
