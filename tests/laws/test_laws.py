"""The laws that every row of the method table obeys. A new method is tested here without a line being written."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest
import torch
from conftest import SMALL, build_cast, build_method, doubled
from cover import by_cover, first_of_each_unit
from gradients import apart, assert_same, gradient
from torch import Tensor

from burnish.core.loop import loop
from burnish.core.method import Method, Phase
from burnish.core.parts import Part, chain
from burnish.core.schedules import at
from burnish.core.step import Step
from burnish.core.types import Clock, Group, Trace, Turn
from burnish.forward.outputs import decoder
from burnish.learn.batch import masks
from burnish.learn.learn import Learn
from burnish.learn.term import CLAIMED, Term
from burnish.methods.table import METHODS
from burnish.models.build import Models
from burnish.models.ranks import Ranks


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


@dataclass(frozen=True)
class Phase64:
    """What one phase of a method learns from, in fp64: shared by the laws of that method, which leave it as it was."""

    phase: Phase
    groups: list[Group]
    step: Step
    whole: Tensor  # the gradient that the laws compare with

    @property
    def terms(self) -> tuple[Term, ...]:
        return tuple(self.phase.learn.terms)

    @contextmanager
    def streams_kept(self) -> Iterator[None]:
        """Streams and their dictionaries are as before once the block is left."""
        traces = [trace for group in self.groups for trace in group.traces]
        held = [{name: stream.clone() for name, stream in trace.streams.items()} for trace in traces]
        try:
            yield
        finally:
            for trace, streams in zip(traces, held, strict=True):
                trace.streams = streams


@pytest.fixture(scope="module", params=by_cover())
def name(request: pytest.FixtureRequest) -> str:
    """Every registered method in turn; those that only combine what others have, too, are slow tests."""
    return request.param


@pytest.fixture(scope="module")
def learned(name: str, small_model: Path, other_model: Path) -> list[Phase64]:
    """The phases of a method: loaded, sampled, scored and credited once for all laws."""
    method = build_method(name, other_model)
    found = list(apart(method, doubled(build_cast(method, small_model))))
    return [Phase64(phase, groups, step, gradient(groups, phase.learn, step)) for phase, groups, step in found]


# ------------------------------------------------------------------------------- laws of building: every method, always


def collect(check: Callable[[str], Iterator[str]]) -> None:
    """Run a check on every method; one failure lists all faults."""
    faults = [f"{name}: {fault}" for name in sorted(METHODS) for fault in check(name)]
    assert not faults, "\n".join(faults)


def refusal(build: Callable[[], object], pattern: str) -> str:
    """What is wrong with the way in which `build` is refused; empty if it raises a ValueError of that pattern."""
    try:
        build()
    except ValueError as error:
        return "" if re.search(pattern, str(error)) else f"is refused with other words: {error}"
    return "is not refused"


def test_a_method_is_refused_when_any_part_is_removed(other_model: Path) -> None:
    def check(name: str) -> Iterator[str]:
        built = list(_with_one_part_less(build_method(name, other_model)))
        if len(built) < 2:
            yield "fewer than two parts can be removed"
        for broken in built:
            if wrong := refusal(broken, r"reads|no part in stage|nothing after it reads"):
                yield f"with one part less it {wrong}"

    collect(check)


def test_a_term_on_tokens_that_nobody_writes_is_refused(other_model: Path) -> None:
    """`Term(on=...)` is wired like a stream: the author's tokens come from the rollout, a claim from credit."""

    def check(name: str) -> Iterator[str]:
        method = build_method(name, other_model)
        for i, phase in enumerate(method.phases):
            for term in phase.learn.terms:
                claimed = any(f"claim:{term.name}" in atom.writes for atom in phase.credit)
                if claimed != (term.authors == CLAIMED):
                    yield f"{term.name}: on={term.on!r}, claimed by credit: {claimed}"
                lost = replace(term, name="lost", on="an author without a turn")
                for changed in (lost, replace(lost, on=CLAIMED)):
                    terms = [changed if other is term else other for other in phase.learn.terms]
                    less = replace(phase, credit=_without_claims(phase, term), learn=Learn(*terms))
                    words = r"'lost' reads '(tokens:an author without a turn|claim:lost)'"
                    if wrong := refusal(partial(_rebuilt, method, i, less), words):
                        yield f"{term.name} on {changed.on!r} {wrong}"

    collect(check)


def test_no_method_measures_itself_on_tasks_that_it_trains_on(other_model: Path) -> None:
    def check(name: str) -> Iterator[str]:
        method = build_method(name, other_model)
        for phase in method.phases:
            draw = phase.draw
            if draw.heldout is None or any(need.startswith("model:") for need in draw.reads):
                continue
            models: Models = {}  # type: ignore[assignment]  # nothing reads one
            steps = [Step(Clock(i, 3), models, SMALL, phase=phase.name, product=method.product) for i in range(2)]
            trained = {task.key for step in steps for task in draw.call(step)}
            if both := trained & {task.key for task in draw.heldout(steps[0])}:
                yield f"draws {sorted(both)[0]!r} for training and as held out"

    collect(check)


def test_a_method_is_refused_without_one_of_its_models(other_model: Path) -> None:
    def check(name: str) -> Iterator[str]:
        method = build_method(name, other_model)
        for model in method.models:
            if model != method.product:
                less = {k: v for k, v in method.models.items() if k != model}
                if wrong := refusal(partial(replace, method, models=less), re.escape(model)):
                    yield f"without the model {model!r} it {wrong}"

    collect(check)


# ---------------------------------------------------------------------------------------------------- laws of one step


NEVER_PAID = {"no_thinking_cls_rl": "a random model never writes a bare label, which alone earns something"}


def test_one_step_runs_and_moves_what_it_trains(name: str, small_model: Path, other_model: Path) -> None:
    if name in NEVER_PAID:
        pytest.skip(NEVER_PAID[name])
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


def test_micro_batching_cannot_change_the_gradient(name: str, learned: list[Phase64]) -> None:
    """A token budget of 1 puts each row alone; it is tried where a method is the first with one of its units."""
    for one in learned:
        budgets = (1, 120, 300) if name in first_of_each_unit() else (120, 300)
        for budget in budgets:
            found = gradient(one.groups, one.phase.learn, one.step, replace(SMALL, token_budget=budget))
            assert_same(one.whole, found, f"a token budget of {budget}")


def test_order_padding_and_packing_cannot_change_the_gradient(learned: list[Phase64]) -> None:
    for one in learned:
        groups, plan, step = one.groups, one.phase.learn, one.step
        with shapes_read(step.models, plan.trainees) as shapes:
            assert_same(one.whole, gradient(groups[::-1], plan, step), "the order of groups")
        assert {rows for rows, _ in shapes} == {1}, "packed rows lie end to end"
        with shapes_read(step.models, plan.trainees) as shapes:
            assert_same(one.whole, gradient(groups, plan, step, packed=False), "packing")
        assert max(rows for rows, _ in shapes) > 1, "without packing, rows lie side by side"
        bystander = Group(groups[0].task, [_long_bystander(groups[0].traces[0])])
        found = gradient([*groups, bystander], plan, step)
        assert_same(one.whole, found, "a long row that no term claims (padding)")


def test_the_number_of_ranks_cannot_change_the_gradient(learned: list[Phase64]) -> None:
    small = replace(SMALL, token_budget=150)
    for one in learned:
        parts = []
        for rank in range(3):
            one.step.models.ranks = Ranks(rank, 3)
            parts.append(gradient(one.groups, one.phase.learn, one.step, small))
        one.step.models.ranks = Ranks()
        sizes = {len(part) for part in parts}
        parts = [part if len(part) == len(one.whole) else torch.zeros_like(one.whole) for part in parts]
        assert sizes <= {len(one.whole), 1}
        assert_same(one.whole, torch.stack(parts).sum(0), "three ranks")


def test_zero_advantages_give_no_policy_gradient(learned: list[Phase64]) -> None:
    for one in learned:
        terms = [term for term in one.terms if "adv" in term.streams]
        with one.streams_kept():
            for trace in (trace for group in one.groups for trace in group.traces):
                if "adv" in trace.streams:
                    trace.streams["adv"] = torch.zeros(len(trace))
            if terms:
                assert float(gradient(one.groups, Learn(*terms), one.step).abs().max()) == 0.0


def test_every_term_has_a_gradient(name: str, learned: list[Phase64]) -> None:
    """Otherwise the laws above say nothing of it."""
    if name in NEVER_PAID:
        pytest.skip(NEVER_PAID[name])
    for one in learned:
        for term in one.terms:
            alone = one.phase.learn.with_terms(replace(term, coef=1.0))
            largest = float(gradient(one.groups, alone, one.step).abs().max())
            assert largest > 1e-5, f"the gradient of {term.name!r} is nowhere larger than {largest:.0e}: rounding"


def test_tokens_outside_the_claim_get_no_gradient(learned: list[Phase64]) -> None:
    """What stands in the streams of tokens that a term does not claim cannot matter, not even nan."""
    for one in learned:
        for term in one.terms:
            alone = Learn(term, logp_temperature=one.phase.learn.logp_temperature)
            clean = gradient(one.groups, alone, one.step)
            with one.streams_kept():  # the next term may claim other tokens
                for group in one.groups:
                    for trace, mask in zip(group.traces, masks(term, group), strict=True):
                        assert term.authors == CLAIMED or not (mask & ~trace.by(*term.authors)).any()
                        for stream in term.streams:
                            if stream in trace.streams:
                                trace.streams[stream] = _spoiled(trace.streams[stream], mask)
                assert torch.isfinite(clean).all()
                assert torch.equal(clean, gradient(one.groups, alone, one.step)), f"{term.name} reads outside its claim"


def test_streams_that_were_never_assigned_are_an_error_not_zero(learned: list[Phase64]) -> None:
    for one in learned:
        for stream, term in {stream: each for each in one.terms for stream in each.streams}.items():
            with one.streams_kept():
                for trace in (trace for group in one.groups for trace in group.traces):
                    trace.streams.pop(stream, None)
                with pytest.raises(ValueError, match=rf"reads stream '{stream}', which was never assigned"):
                    gradient(one.groups, one.phase.learn.with_terms(term), one.step)


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
