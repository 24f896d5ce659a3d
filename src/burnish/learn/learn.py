"""The room where weights move: terms are summed, and this is the one place that divides.

    total = sum over terms of coef(clock) * sum over units of weight * loss / size

Sizes are counted over the whole batch of an update before its first backward.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from burnish import randomness
from burnish.cast.member import Member
from burnish.cast.packing import joined, send
from burnish.learn.batch import Micro, Row, atoms, claims, count, members, micro_batches, pieces, stream, tokens_of
from burnish.learn.mismatch import note_mismatch
from burnish.learn.term import Live, Term
from burnish.nouns import Clock, Group, Trace
from burnish.refusal import NotFinite
from burnish.schedules import at
from burnish.step import Notes, Step

Mask = npt.NDArray[np.bool_]
Rest = Callable[[str, Clock], bool]  # whether the parameter of this name rests in this step


@dataclass(frozen=True)
class Embed:
    """What is read in place of a trace's tokens while a trainee learns.

    call     (input embeddings [T, H], trace, embedding table) -> [T, H]
    streams  the per-token numbers that it needs
    """

    name: str
    call: Callable[[Tensor, Trace, nn.Module], Tensor]
    streams: tuple[str, ...] = ()


@dataclass(frozen=True, init=False)
class Learn:
    """Terms to sum, and how the weights move by them.

    epochs, minibatches  how often a batch is walked, and in how many updates
    temperature          at which the policy sampled: log-probs that are compared must be of the same distribution
    embed                changes a trainee's input embeddings while it learns (noise, mixtures)
    rest                 parameters that keep still in a step
    move                 how one update is made of a batch; AdamW on the clipped gradient by default
    """

    terms: tuple[Term, ...]
    epochs: int = 1
    minibatches: int = 1
    temperature: float = 1.0
    embed: Embed | None = None
    rest: Rest | None = None
    move: Move | None = None

    def __init__(
        self,
        *terms: Term,
        epochs: int = 1,
        minibatches: int = 1,
        temperature: float = 1.0,
        embed: Embed | None = None,
        rest: Rest | None = None,
        move: Move | None = None,
    ) -> None:
        twice = {t.name for t in terms if sum(t.name == other.name for other in terms) > 1}
        if twice:
            raise ValueError(f"two terms are both called {twice.pop()!r}; name one of them otherwise")
        for name, value in (("epochs", epochs), ("minibatches", minibatches)):
            if value < 1:
                raise ValueError(f"{name} is {value}; it must be at least 1")
        set_once = {"terms": terms, "epochs": epochs, "minibatches": minibatches, "temperature": temperature}
        for name, what in {**set_once, "embed": embed, "rest": rest, "move": move}.items():
            object.__setattr__(self, name, what)

    @property
    def reads(self) -> frozenset[str]:
        """What is read besides the terms' own needs."""
        return frozenset(f"stream:{name}" for name in self.embed.streams) if self.embed else frozenset()

    @property
    def trainees(self) -> tuple[str, ...]:
        """The members that its terms train."""
        return tuple(dict.fromkeys(term.trainee for term in self.terms))


Move = Callable[[list[Group], Learn, Step], None]


def learn(groups: list[Group], plan: Learn, step: Step) -> None:
    """All the updates that the plan makes of one walk's groups. One that is not finite is refused: no weight moves by it."""
    move = plan.move or descend
    for epoch in range(plan.epochs if plan.terms else 0):
        for batch in _minibatches(groups, plan, step, epoch):
            try:
                move(batch, plan, step)
            except NotFinite as why:
                step.refuse(str(why), batch)


def descend(batch: list[Group], plan: Learn, step: Step) -> None:
    """One update: the gradient of the total, clipped, then AdamW."""
    for name in plan.trainees:
        step.cast[name].optimiser.zero()
    if not accumulate(batch, plan, step):
        return
    if plan.rest is not None:
        for name in plan.trainees:
            step.cast[name].optimiser.leave_out(lambda parameter: plan.rest(parameter, step.clock))  # type: ignore[misc]
    norms = {name: step.cast[name].optimiser.clip() for name in plan.trainees}
    step.cast.before_move()
    spoilt = 1.0 - torch.stack(list(norms.values())).isfinite().all().float()
    for name in norms:  # nobody moves unless everybody can
        step.cast[name].optimiser.step(step.clock, spoilt)
    known = {name: float(norm) for name, norm in norms.items()}
    for norm in known.values():
        if not math.isfinite(norm):
            raise NotFinite(f"the gradient's norm is {norm}")
    for name, norm in known.items():
        step.cast[name].fresh = False
        step.notes.add("grad_norm" if name == "policy" else f"{name}/grad_norm", norm)


def _minibatches(groups: list[Group], plan: Learn, step: Step, epoch: int) -> Iterable[list[Group]]:
    if plan.minibatches == 1:
        return [groups]
    clock = step.clock
    order = randomness.shuffled(len(groups), clock.seed, "minibatches", clock.step, clock.tick, epoch)
    return [[groups[i] for i in order[k :: plan.minibatches]] for k in range(min(plan.minibatches, len(groups)))]


@dataclass(frozen=True)
class _Update:
    """What is known of an update before its first backward: the sizes that divide, counted over the whole batch."""

    plan: Learn
    step: Step
    sizes: dict[str, float]
    group_tokens: dict[tuple[str, int], int]
    atoms: list[Micro]

    @classmethod
    def of(cls, groups: list[Group], plan: Learn, step: Step) -> _Update:
        longest, claimed = step.settings.max_new_tokens, claims(groups, plan.terms)
        sizes = {term.name: float(term.norm.size(count(term, groups, claimed, longest))) for term in plan.terms}
        tokens = {(name, g): sum(sizes) for name, of_groups in claimed.items() for g, sizes in enumerate(of_groups)}
        return cls(plan, step, sizes, tokens, list(atoms(groups, plan.terms, claimed)))

    def terms(self, trainee: str) -> list[Term]:
        """The trainee's terms that claim anything."""
        return [term for term in self.plan.terms if term.trainee == trainee and self.sizes[term.name]]

    def micro_batches(self, trainee: str) -> list[Micro]:
        return micro_batches(self.atoms, self.step.settings.token_budget, self.step.cast[trainee].packed)


def accumulate(groups: list[Group], plan: Learn, step: Step) -> bool:
    """The gradient of the total, added to every trainee's parameters. False where no term claims anything."""
    update = _Update.of(groups, plan, step)
    if not any(update.sizes.values()):
        return False
    for name in plan.trainees:
        terms = update.terms(name)
        totals = []
        for micro in step.cast.ranks.share(update.micro_batches(name)) if terms else ():
            totals.append(_backward(update, micro, terms))
            step.cast[name].working.collect()
        _spoil(step.cast[name], totals)
    step.cast.ranks.sum_gradients([step.cast[name].model for name in plan.trainees])
    return True


@torch.no_grad()
def measure(groups: list[Group], plan: Learn, step: Step) -> float:
    """The total, and the terms' notes, on these groups; nothing moves."""
    update = _Update.of(groups, plan, step)
    total = 0.0
    for name in plan.trainees:
        terms = update.terms(name)
        for micro in update.micro_batches(name) if terms else ():
            claimed, want = _claims(micro, terms)
            outputs = _outputs(step.cast[name], micro.rows, claimed, want, plan.temperature)
            total += float(_total(update, micro, terms, outputs, claimed))
    return total


def _claims(micro: Micro, terms: list[Term]) -> tuple[list[Tensor], set[str]]:
    """The tokens that any of the terms claims, row by row, and the outputs they want there."""
    claimed = [members(terms[0], row.trace) for row in micro.rows]
    for term in terms[1:]:
        claimed = [already | members(term, row.trace) for already, row in zip(claimed, micro.rows, strict=True)]
    return claimed, set().union(*(term.own for term in terms))


def _backward(update: _Update, micro: Micro, terms: list[Term]) -> Tensor:
    """One micro-batch's share of the gradient, and of the total.

    A micro-batch that exceeds the token budget (one group too large for memory) takes two passes: outputs without
    gradient, then d total / d outputs, then each piece again with that gradient. The result is the same.
    """
    plan, trainee = update.plan, update.step.cast[terms[0].trainee]
    claimed, want = _claims(micro, terms)
    cut = pieces(micro, update.step.settings.token_budget, trainee.packed)
    if len(cut) == 1:
        outputs = _outputs(trainee, cut[0], claimed, want, plan.temperature, plan.embed)
        _note(update.step, trainee, micro, claimed, outputs)
        total = _total(update, micro, terms, outputs, claimed)
        total.backward()
        return total.detach()
    starts = [sum(len(piece) for piece in cut[:k]) for k in range(len(cut) + 1)]
    masks = [claimed[starts[k] : starts[k + 1]] for k in range(len(cut))]
    with torch.no_grad():
        held = [
            _outputs(trainee, piece, mask, want, plan.temperature, plan.embed)
            for piece, mask in zip(cut, masks, strict=True)
        ]
    joined = {name: torch.cat([out[name] for out in held]).requires_grad_() for name in want}
    _note(update.step, trainee, micro, claimed, joined)
    total = _total(update, micro, terms, joined, claimed)
    total.backward()
    begin = 0
    for piece, mask in zip(cut, masks, strict=True):
        outputs = _outputs(trainee, piece, mask, want, plan.temperature, plan.embed)
        end = begin + int(sum(m.sum() for m in mask))
        grads = [_slice(joined[name].grad, joined[name], begin, end) for name in want]
        torch.autograd.backward([outputs[name] for name in want], grads)
        begin = end
    return total.detach()


def _note(step: Step, trainee: Member, micro: Micro, claimed: list[Tensor], outputs: dict[str, Tensor]) -> None:
    """What people want to know of a pass, whatever its terms."""
    note_mismatch(step.notes, trainee, micro.rows, claimed, outputs, step.settings.exact)
    if trainee.name == "policy":
        step.looks.note([row.trace for row in micro.rows], claimed, outputs)


def _spoil(trainee: Member, totals: list[Tensor]) -> None:
    """Make the gradient NaN where a total is NaN or infinite, whatever its slope: every rank then refuses the update.

    0 x total is 0 or NaN, and nobody waits for the GPU to know which.
    """
    moved = [p.grad for p in trainee.optimiser.named.values() if p.grad is not None]
    if moved and totals:
        min(moved, key=Tensor.numel).add_(0.0 * torch.stack(totals).sum())


def _slice(grad: Tensor | None, like: Tensor, begin: int, end: int) -> Tensor:
    return torch.zeros_like(like[begin:end]) if grad is None else grad[begin:end]


def _outputs(
    member: Member,
    rows: tuple[Row, ...],
    masks: list[Tensor],
    want: set[str],
    temperature: float,
    embed: Embed | None = None,
) -> dict[str, Tensor]:
    if embed is None:
        return member.outputs(tokens_of(rows), masks, want, temperature, recorded=torch.is_grad_enabled())
    table = member.working.weights().get_input_embeddings()  # type: ignore[operator]
    device = member.device
    tokens = tokens_of(rows)
    embedded = [
        embed.call(table(torch.from_numpy(its).to(device)), row.trace, table)  # type: ignore[operator]
        for its, row in zip(tokens, rows, strict=True)
    ]
    return member.outputs(tokens, masks, want, temperature, embedded)


def _total(
    update: _Update, micro: Micro, terms: list[Term], outputs: dict[str, Tensor], claimed: list[Tensor]
) -> Tensor:
    """sum over terms of coef * sum over units of weight * loss / size, for one micro-batch."""
    device, clock = next(iter(outputs.values())).device, update.step.clock
    total = torch.zeros((), device=device)
    everything = {**outputs, **_others(update, micro, terms, claimed)}
    all_claimed = joined(claimed)
    for term in terms:
        mine = joined([members(term, row.trace) for row in micro.rows])
        live = _live(term, micro, mine, _at(mine[all_claimed], {n: everything[n] for n in term.live}), clock)
        losses = term.loss(live)
        weights = _weights(update, term, micro, live).to(losses.dtype)
        assert losses.shape == weights.shape, (
            f"term {term.name!r} gave {tuple(losses.shape)} numbers for {tuple(weights.shape)} units"
        )
        total = total + at(term.coef, clock) * (weights * losses).sum() / update.sizes[term.name]
        live.note("loss", losses)
        _take_notes(update.step.notes, term, live, weights, update.sizes[term.name])
    return total


def _at(inside: Mask, outputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """The outputs at the tokens that a term claims; itself where it claims all."""
    if inside.all():
        return outputs
    places = torch.from_numpy(np.flatnonzero(inside))
    return {name: out[send(places, out.device)] for name, out in outputs.items()}


def _live(term: Term, micro: Micro, mine: Mask, outputs: dict[str, Tensor], clock: Clock) -> Live:
    """What the term sees of the micro-batch: everything at the tokens that it claims (mine, over all rows), flat."""
    device = next(iter(outputs.values())).device
    places = np.flatnonzero(mine)

    def flat(name: str) -> Tensor:
        return torch.from_numpy(joined([stream(term, row.trace, name) for row in micro.rows])[places])

    sizes = [row.claimed[term.name] for row in micro.rows]
    return Live(
        outputs=outputs,
        streams={name: send(flat(name), device) for name in term.streams},
        row=send(torch.from_numpy(np.repeat(np.arange(len(sizes)), sizes)), device),
        rows=len(micro.rows),
        pairs=send(torch.tensor(micro.pairs, dtype=torch.long).reshape(-1, 2), device),
        lists=list(micro.lists),
        group=send(torch.tensor(micro.groups), device),
        clock=clock,
    )


def _weights(update: _Update, term: Term, micro: Micro, live: Live) -> Tensor:
    device = live.row.device
    if term.unit in ("pair", "list"):
        return torch.ones(len(live.pairs) if term.unit == "pair" else len(live.lists), device=device)
    tokens = [row.claimed[term.name] for row in micro.rows]
    weight = [
        term.norm.weight(n, update.group_tokens[term.name, row.group]) if n else 0.0
        for n, row in zip(tokens, micro.rows, strict=True)
    ]
    by_row = send(torch.tensor(weight, dtype=torch.float64), device)
    if term.unit == "group":
        empty = torch.zeros(max(micro.groups) + 1, dtype=torch.float64, device=device)
        return empty.index_add(0, live.group, by_row).sign()
    return by_row[live.row] if term.unit == "token" else by_row


def _others(update: _Update, micro: Micro, terms: list[Term], claimed: list[Tensor]) -> dict[str, Tensor]:
    """Live outputs of members that are not trained here ("teacher.logits"), without gradient."""
    wanted: dict[str, set[str]] = defaultdict(set)
    for name in (name for term in terms for name in term.live if "." in name):
        member, output = name.split(".")
        wanted[member].add(output)
    found: dict[str, Tensor] = {}
    for member, want in wanted.items():
        with torch.no_grad():
            outputs = _outputs(update.step.cast[member], micro.rows, claimed, want, update.plan.temperature)
        found |= {f"{member}.{name}": out for name, out in outputs.items()}
    return found


def _take_notes(notes: Notes, term: Term, live: Live, weights: Tensor, size: float) -> None:
    """Means with the term's own weights: the sums of all micro-batches over the size of the batch."""
    for name, x in live.noted.items():
        notes.add(f"{term.name}/{name}", (weights * x).sum().double() / size, weights.sum().double() / size)
