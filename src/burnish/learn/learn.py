"""The stage where weights move: terms are summed, and this is the one place that divides.

    total = sum over terms of coef(clock) * sum over units of weight * loss / size

Sizes are counted over the whole batch of an update before its first backward.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

import torch
from torch import Tensor

from burnish.core import randomness
from burnish.core.learners import apart, own_model
from burnish.core.method import Phase
from burnish.core.rejected import NotFinite
from burnish.core.schedules import at
from burnish.core.step import LogpTemperature, Notes, Step
from burnish.core.types import Clock, Group
from burnish.forward.packing import joined
from burnish.learn.batch import (
    Filling,
    Micro,
    atoms,
    claims,
    count,
    micro_batches,
    pieces,
    write_claims,
)
from burnish.learn.entanglement import note_entanglement
from burnish.learn.explained_variance import note_explained
from burnish.learn.mismatch import note_mismatch
from burnish.learn.passes import Embed as Embed
from burnish.learn.passes import cut_masks, frozen_outputs, outputs_of, piecewise
from burnish.learn.rollback import taken_back
from burnish.learn.search import Search
from burnish.learn.sharded_passes import begin_backward, counts, end_pass, end_passes, most_passes
from burnish.learn.term import Term
from burnish.learn.units import at_mask, live_of, note_tasks, take_notes, unit_weights
from burnish.models.model import Model
from burnish.models.oom_backoff import or_out_of_memory
from burnish.util.work_units import UNITS

T = TypeVar("T")
Rest = Callable[[str, Clock], bool]  # whether the parameter of this name rests in this step


class Learn:
    """Terms to sum, and how the weights move by them: Learn(pg_clip(0.2), kl_k3(coef=0.04), updates=2).

    updates           passes over each batch, each of which is one update
    minibatches       updates that one pass is split into
    logp_temperature  of log-probs, logits and entropies; None: of the distribution that each token was drawn from (at 1
                      for given tokens; "run": at the run's temperature). A number departs from that for all tokens
    embed             changes a trainee's input embeddings while it learns (noise, mixtures)
    rest              parameters that keep still in a step
    move              how one update is made of a batch; AdamW on the clipped gradient by default
    search            moves weights by scores alone, once a pass; it needs no terms
    learners          trained models of other seats, each of which learns from the groups of its own (core/learners.py)
    """

    def __init__(
        self,
        *terms: Term,
        updates: int = 1,
        minibatches: int = 1,
        logp_temperature: LogpTemperature = None,
        embed: Embed | None = None,
        rest: Rest | None = None,
        move: Move | None = None,
        search: Search | None = None,
        learners: tuple[str, ...] = (),
    ) -> None:
        twice = {t.name for t in terms if sum(t.name == other.name for other in terms) > 1}
        if twice:
            raise ValueError(f"two terms are both called {twice.pop()!r}; name one of them otherwise")
        for name, value in (("updates", updates), ("minibatches", minibatches)):
            if value < 1:
                raise ValueError(f"{name} is {value}; it must be at least 1")
        self.terms: Final = terms
        self.updates: Final = updates
        self.minibatches: Final = minibatches
        self.logp_temperature: Final = logp_temperature
        self.embed: Final = embed
        self.rest: Final = rest
        self.move: Final = move
        self.search: Final = search
        self.learners: Final = learners

    def settings(self) -> dict[str, Any]:
        """Its arguments besides the terms, by name."""
        return {name: value for name, value in vars(self).items() if name != "terms"}

    def with_terms(self, *terms: Term) -> Learn:
        """The same plan with other terms."""
        return Learn(*terms, **self.settings())

    def with_learners(self, *learners: str) -> Learn:
        """The same plan for the policy, and for each of these models by itself."""
        return Learn(*self.terms, **{**self.settings(), "learners": learners})

    @property
    def reads(self) -> frozenset[str]:
        """What is read besides the terms' own needs."""
        streams = frozenset(f"stream:{name}" for name in self.embed.streams) if self.embed else frozenset()
        return streams | self.search.reads if self.search else streams

    @property
    def trainees(self) -> tuple[str, ...]:
        """The models that its terms train, and those that its search moves; of all learners."""
        own = dict.fromkeys((*(t.trainee for t in self.terms), *(self.search.trainees if self.search else ())))
        return (*own, *(own_model(learner, name) for learner in self.learners for name in own))

    def call(self, groups: list[Group], step: Step) -> None:
        """All the updates that one pass's groups make."""
        alone = self.with_learners() if self.learners else self
        for own, inside in apart(groups, step):
            learn(own, alone, inside)


def plan_of(phase: Phase) -> Learn:
    """The phase's Learn, whose terms and options the wiring does not know."""
    assert isinstance(phase.learn, Learn), f"phase {phase.name!r} learns by {type(phase.learn).__name__}, not by Learn"
    return phase.learn


Move = Callable[[list[Group], Learn, Step], None]


def learn(groups: list[Group], plan: Learn, step: Step) -> None:
    """All updates that the plan makes of one pass's groups. A non-finite update is refused: it changes no weight."""
    move = plan.move or descend
    write_claims(groups, plan.terms)
    note_entanglement(groups, plan.terms, step)
    note_explained(groups, plan.terms, step)
    for epoch in range(plan.updates if plan.terms else 0):
        for batch in _minibatches(groups, plan, step, epoch):
            try:
                move(batch, plan, step)
            except NotFinite as why:
                step.refuse(str(why), batch)
    if plan.search is not None and groups:
        plan.search.call(groups, step)


def descend(batch: list[Group], plan: Learn, step: Step) -> None:
    """One update: the gradient of the total, clipped, then AdamW."""
    for name in plan.trainees:
        step.models[name].optimiser.zero()
    if accumulate(batch, plan, step):
        apply_gradient(plan, step)


def apply_gradient(plan: Learn, step: Step) -> None:
    """Move the weights by the gradient that has been accumulated, clipped, by AdamW."""
    rests = plan.rest
    if rests is not None:
        for name in plan.trainees:
            step.models[name].optimiser.leave_out(lambda parameter: rests(parameter, step.clock))
    norms = {name: step.models[name].optimiser.clip() for name in plan.trainees}
    step.models.before_move()
    spoilt = 1.0 - torch.stack(list(norms.values())).isfinite().all().float()
    for name in norms:  # no model moves unless all can
        step.models[name].optimiser.step(step.clock, spoilt)
    norm_of = {name: float(norm) for name, norm in norms.items()}
    if bad := [norm for norm in norm_of.values() if not math.isfinite(norm)]:
        raise NotFinite(f"the gradient's norm is {bad[0]}")
    for name, norm in norm_of.items():
        step.models[name].fresh = False
        rate = step.models[name].optimiser.lr(step.clock)
        step.notes.add("grad_norm" if name == step.product else f"{name}/grad_norm", norm)
        step.notes.add("lr" if name == step.product else f"{name}/lr", rate)


def _minibatches(groups: list[Group], plan: Learn, step: Step, epoch: int) -> Iterable[list[Group]]:
    if plan.minibatches == 1:
        return [groups]
    clock = step.clock
    order = randomness.shuffled(len(groups), clock.seed, "minibatches", clock.step, clock.tick, epoch)
    return [[groups[i] for i in order[k :: plan.minibatches]] for k in range(min(plan.minibatches, len(groups)))]


@dataclass(frozen=True)
class _Update:
    """What is known of an update before its first backward: the sizes that divide, counted over the whole batch.

    atoms: those of this rank: consecutive rows, about as many tokens as every other rank has
    tokens: of one pass, at most: ranks that divide its tokens have agreed on it
    """

    plan: Learn
    step: Step
    sizes: dict[str, float]
    group_tokens: dict[tuple[str, int], int]
    atoms: list[Micro]
    tokens: int

    @classmethod
    def of(cls, groups: list[Group], plan: Learn, step: Step) -> _Update:
        longest, claimed = step.settings.max_new_tokens, claims(groups, plan.terms)
        sizes = {term.name: float(term.norm.size(count(term, groups, claimed, longest))) for term in plan.terms}
        tokens = {(name, g): sum(sizes) for name, claim in claimed.items() for g, sizes in enumerate(claim.sizes)}
        units = list(atoms(groups, plan.terms, claimed))
        lengths, width = [sum(row.length for row in atom.rows) for atom in units], step.settings.context_ranks
        own_units = step.models.ranks.portion_of_groups(units, lengths, width)
        ranks, budget = step.models.ranks, step.settings.token_budget
        return cls(plan, step, sizes, tokens, own_units, budget if width == 1 else ranks.lowest(budget))

    def terms(self, trainee: str) -> list[Term]:
        """The trainee's terms that claim anything."""
        return [term for term in self.plan.terms if term.trainee == trainee and self.sizes[term.name]]

    def budget(self, trainee: str) -> int:
        """Tokens of one pass: the run's budget, or fewer since memory ran out."""
        together = self.step.settings.context_ranks > 1
        return self.tokens if together else self.step.models[trainee].token_room.within(self.tokens)

    def micro_batches(self, trainee: str) -> list[Micro]:
        """This rank's atoms in passes that fit the token budget."""
        return micro_batches(self.atoms, self.budget(trainee), self.step.models[trainee].packed)

    def fitting(self, trainee: str, attempt: Callable[[], T], undo: Callable[[], None]) -> T:
        """What `attempt` gives, in smaller passes where it runs out of memory (models/oom_backoff.py)."""
        model, ranks = self.step.models[trainee], self.step.models.ranks
        if ranks.connected and (model.optimiser.states is not None or model.context_group is not None):
            return or_out_of_memory(attempt, ranks.rank, self.budget(trainee))

        def largest() -> tuple[int, int]:
            budget, packed = self.budget(trainee), model.packed
            passes = [rows for micro in self.micro_batches(trainee) for rows in pieces(micro, budget, packed)]
            return max((Filling(packed, rows).tokens, len(rows)) for rows in passes)

        return model.token_room.fitting(attempt, largest, undo)


def accumulate(groups: list[Group], plan: Learn, step: Step) -> bool:
    """The gradient of the total, added to every trainee's parameters. False where no term claims anything."""
    update = _Update.of(groups, plan, step)
    if not any(update.sizes.values()):
        return False
    with _notes_of_all_ranks(step):
        for name in plan.trainees:
            if terms := update.terms(name):
                undo = taken_back(step.models[name], step.notes)
                totals = update.fitting(name, partial(_gradient, update, name, terms), undo)
                _spoil(step.models[name], totals)
    whole = [step.models[name] for name in plan.trainees if step.models[name].optimiser.states is None]
    step.models.ranks.sum_gradients([model.module for model in whole])
    return True


@contextmanager
def _notes_of_all_ranks(step: Step) -> Iterator[None]:
    """Inside, each rank notes what its own micro-batches say; afterwards all ranks have the notes of all."""
    ranks = step.models.ranks
    if not ranks.connected:
        yield
        return
    before, step.notes = step.notes, Notes()
    try:
        yield
    finally:
        own, step.notes = step.notes, before
    step.notes.absorb(ranks.add_up(own if counts(step) else Notes()).state_dict())


def _gradient(update: _Update, trainee: str, terms: list[Term]) -> list[Tensor]:
    """The gradient of this rank's micro-batches, added to the trainee's parameters; the total of each."""
    model, totals = update.step.models[trainee], []
    micros, budget = update.micro_batches(trainee), update.budget(trainee)
    passes = sum(len(pieces(micro, budget, model.packed)) for micro in micros)
    most = most_passes(model, passes)
    with model.dropping(update.step.clock):
        for micro in micros:
            totals.append(_backward(update, micro, terms))
            model.working.collect()
            UNITS.done()
    end_passes(model, passes, most)
    return totals


@torch.no_grad()
def measure(groups: list[Group], plan: Learn, step: Step) -> float:
    """The total, and the terms' notes, on these groups; nothing moves."""
    update, ranks = _Update.of(groups, plan, step), step.models.ranks

    def attempt(name: str, terms: list[Term]) -> float:
        total = 0.0
        for micro in update.micro_batches(name):
            claimed, want = _claims(micro, terms)
            cut = pieces(micro, update.budget(name), step.models[name].packed)
            parts = piecewise(step.models[name], cut, claimed, want, step.logp_at(plan.logp_temperature))
            outputs = {output: torch.cat([part[output] for part in parts]) for output in want}
            total += float(_total(update, micro, terms, outputs, claimed))
        ranks.portion_done()
        return total

    trainees = [(name, update.terms(name)) for name in plan.trainees]
    with _notes_of_all_ranks(step):
        own = sum(update.fitting(n, partial(attempt, n, terms), step.notes.kept()) for n, terms in trainees if terms)
    return sum(total for total, _ in ranks.gather_values(own if counts(step) else 0.0))


def _claims(micro: Micro, terms: list[Term]) -> tuple[list[Tensor], set[str]]:
    """The tokens that any of the terms claims, row by row, and the outputs they want there."""
    claimed = [row.masks[terms[0].name] for row in micro.rows]
    for term in terms[1:]:
        claimed = [already | row.masks[term.name] for already, row in zip(claimed, micro.rows, strict=True)]
    return claimed, set().union(*(term.own for term in terms))


def _backward(update: _Update, micro: Micro, terms: list[Term]) -> Tensor:
    """One micro-batch's share of the gradient, and of the total.

    A micro-batch that exceeds the token budget (one group too large for memory) takes two passes: outputs without
    gradient, then d total / d outputs, then each piece again with that gradient. The result is the same.
    """
    plan, trainee = update.plan, update.step.models[terms[0].trainee]
    at = update.step.logp_at(plan.logp_temperature)
    claimed, want = _claims(micro, terms)
    cut = pieces(micro, update.budget(terms[0].trainee), trainee.packed)
    if len(cut) == 1:
        outputs = outputs_of(trainee, cut[0], claimed, want, at, plan.embed)
        _note(update.step, trainee, micro, claimed, outputs)
        total = _total(update, micro, terms, outputs, claimed)
        begin_backward(trainee)
        total.backward()
        end_pass(trainee)
        return total.detach()
    masks = cut_masks(cut, claimed)
    with torch.no_grad():
        pieces_of_outputs = piecewise(trainee, cut, claimed, want, at, plan.embed)
    joined = {name: torch.cat([out[name] for out in pieces_of_outputs]).requires_grad_() for name in want}
    _note(update.step, trainee, micro, claimed, joined)
    total = _total(update, micro, terms, joined, claimed)
    total.backward()
    begin = 0
    for piece, mask in zip(cut, masks, strict=True):
        outputs = outputs_of(trainee, piece, mask, want, at, plan.embed)
        end = begin + int(sum(m.sum() for m in mask))
        grads = [_slice(joined[name].grad, joined[name], begin, end) for name in want]
        begin_backward(trainee)
        torch.autograd.backward([outputs[name] for name in want], grads)
        end_pass(trainee)
        begin = end
    return total.detach()


def _note(step: Step, trainee: Model, micro: Micro, claimed: list[Tensor], outputs: dict[str, Tensor]) -> None:
    """What people want to know of a pass, whatever its terms."""
    if trainee is step.models.by_name.get(step.product):
        note_mismatch(step.notes, trainee, micro.rows, claimed, outputs, step.settings.exact)
        step.looks.note([row.trace for row in micro.rows], claimed, outputs)


def _spoil(trainee: Model, totals: list[Tensor]) -> None:
    """Make the gradient NaN where a total is NaN or infinite: every rank then refuses the update. 0 x total is 0 or
    NaN, and the host does not wait for the GPU to know which.
    """
    moved = [p.grad for p in trainee.optimiser.moved.values() if p.grad is not None and p.numel()]
    if moved and totals:
        min(moved, key=Tensor.numel).add_(0.0 * torch.stack(totals).sum())


def _slice(grad: Tensor | None, like: Tensor, begin: int, end: int) -> Tensor:
    return torch.zeros_like(like[begin:end]) if grad is None else grad[begin:end]


def _total(
    update: _Update, micro: Micro, terms: list[Term], outputs: dict[str, Tensor], claimed: list[Tensor]
) -> Tensor:
    """sum over terms of coef * sum over units of weight * loss / size, for one micro-batch."""
    device, clock = next(iter(outputs.values())).device, update.step.clock
    total = torch.zeros((), device=device)
    at_logp = update.step.logp_at(update.plan.logp_temperature)
    names = [name for term in terms for name in term.live]
    everything = {**outputs, **frozen_outputs(update.step.models, names, micro.rows, claimed, at_logp)}
    all_claimed = joined(claimed)
    for term in terms:
        claim = joined([row.masks[term.name] for row in micro.rows])
        live = live_of(term, micro, claim, at_mask(claim[all_claimed], {n: everything[n] for n in term.live}), clock)
        losses = term.loss(live)
        weights = unit_weights(update.group_tokens, term, micro, live).to(losses.dtype)
        assert losses.shape == weights.shape, (
            f"term {term.name!r} gave {tuple(losses.shape)} numbers for {tuple(weights.shape)} units"
        )
        total = total + at(term.coef, clock) * (weights * losses).sum() / update.sizes[term.name]
        live.note("loss", losses)
        take_notes(update.step.notes, term, live, weights, update.sizes[term.name])
        if update.step.measures:
            note_tasks(update.step.notes, term, live, weights, micro)
    return total
