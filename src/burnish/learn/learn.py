"""The room where weights move: terms are summed, and this is the one place that divides.

    total = sum over terms of coef(clock) * sum over units of weight * loss / size

Sizes are counted over the whole batch of an update before its first backward.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from burnish import randomness
from burnish.cast.member import Member
from burnish.learn.batch import Micro, Row, atoms, count, members, micro_batches, pieces, stream
from burnish.learn.term import Live, Term
from burnish.nouns import Group
from burnish.schedules import at
from burnish.step import Notes, Step

Sizes = dict[str, float]


@dataclass(frozen=True, init=False)
class Learn:
    """Terms to sum; how often a batch is walked (epochs) and in how many updates (minibatches); the temperature
    at which the policy sampled, since the log-probs that are compared must be those of the same distribution."""

    terms: tuple[Term, ...]
    epochs: int = 1
    minibatches: int = 1
    temperature: float = 1.0

    def __init__(self, *terms: Term, epochs: int = 1, minibatches: int = 1, temperature: float = 1.0) -> None:
        twice = {t.name for t in terms if sum(t.name == other.name for other in terms) > 1}
        if twice:
            raise ValueError(f"two terms are both called {twice.pop()!r}; name one of them otherwise")
        for name, count_ in (("epochs", epochs), ("minibatches", minibatches)):
            if count_ < 1:
                raise ValueError(f"{name} is {count_}; it must be at least 1")
        set_once = {"terms": terms, "epochs": epochs, "minibatches": minibatches, "temperature": temperature}
        for name, value in set_once.items():
            object.__setattr__(self, name, value)

    @property
    def trainees(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(term.trainee for term in self.terms))


def learn(groups: list[Group], plan: Learn, step: Step) -> None:
    """All the updates that the plan makes of one walk's groups."""
    for epoch in range(plan.epochs if plan.terms else 0):
        for batch in _minibatches(groups, plan, step, epoch):
            for name in plan.trainees:
                step.cast[name].optimiser.zero()
            if accumulate(batch, plan, step):
                norms = {name: step.cast[name].optimiser.clip(step.clock) for name in plan.trainees}
                for name, norm in norms.items():  # nobody moves unless everybody can
                    step.cast[name].optimiser.step(step.clock)
                    step.notes.add("grad_norm" if name == "policy" else f"{name}/grad_norm", norm)


def _minibatches(groups: list[Group], plan: Learn, step: Step, epoch: int) -> Iterable[list[Group]]:
    if plan.minibatches == 1:
        return [groups]
    clock = step.clock
    order = randomness.shuffled(len(groups), clock.seed, "minibatches", clock.step, clock.tick, epoch)
    return [[groups[i] for i in order[k :: plan.minibatches]] for k in range(min(plan.minibatches, len(groups)))]


def accumulate(groups: list[Group], plan: Learn, step: Step) -> bool:
    """The gradient of the total, added to every trainee's parameters. False where no term claims anything."""
    sizes = _sizes(groups, plan, step)
    if not any(sizes.values()):
        return False
    found = list(atoms(groups, plan.terms))
    group_tokens = _group_tokens(groups, plan.terms)
    for name in plan.trainees:
        terms = [term for term in plan.terms if term.trainee == name and sizes[term.name]]
        for micro in step.cast.ranks.share(micro_batches(found, step.settings.token_budget)) if terms else ():
            _backward(micro, terms, sizes, group_tokens, step, plan.temperature)
    step.cast.ranks.sum_gradients([step.cast[name].model for name in plan.trainees])
    return True


@torch.no_grad()
def measure(groups: list[Group], plan: Learn, step: Step) -> None:
    """The terms' notes on these groups, and nothing moved: for held-out data."""
    sizes = _sizes(groups, plan, step)
    found, group_tokens = list(atoms(groups, plan.terms)), _group_tokens(groups, plan.terms)
    for name in plan.trainees:
        terms = [term for term in plan.terms if term.trainee == name and sizes[term.name]]
        for micro in micro_batches(found, step.settings.token_budget) if terms else ():
            claimed, want = _claims(micro, terms)
            outputs = _outputs(step.cast[name], micro.rows, claimed, want, plan.temperature)
            _total(micro, terms, sizes, group_tokens, outputs, claimed, step, plan.temperature)


def _sizes(groups: list[Group], plan: Learn, step: Step) -> Sizes:
    return {term.name: float(term.norm.size(count(term, groups, step.settings.max_new_tokens))) for term in plan.terms}


def _claims(micro: Micro, terms: list[Term]) -> tuple[list[Tensor], set[str]]:
    """The tokens that any of the terms claims, row by row, and the outputs they want there."""
    claimed = [torch.stack([members(term, row.trace) for term in terms]).any(0) for row in micro.rows]
    return claimed, set().union(*(term.own for term in terms))


def _group_tokens(groups: list[Group], terms: Iterable[Term]) -> dict[tuple[str, int], int]:
    return {
        (term.name, g): sum(int(members(term, trace).sum()) for trace in group.traces)
        for term in terms
        for g, group in enumerate(groups)
    }


def _backward(
    micro: Micro, terms: list[Term], sizes: Sizes, group_tokens: dict, step: Step, temperature: float
) -> None:
    """One micro-batch's share of the gradient.

    A micro-batch that exceeds the token budget (one group too large for memory) takes two passes: outputs without
    gradient, then d total / d outputs, then each piece again with that gradient. The result is the same.
    """
    trainee = step.cast[terms[0].trainee]
    claimed, want = _claims(micro, terms)
    cut = pieces(micro, step.settings.token_budget)
    if len(cut) == 1:
        outputs = _outputs(trainee, cut[0], claimed, want, temperature)
        _total(micro, terms, sizes, group_tokens, outputs, claimed, step, temperature).backward()
        return
    starts = [sum(len(piece) for piece in cut[:k]) for k in range(len(cut) + 1)]
    masks = [claimed[starts[k] : starts[k + 1]] for k in range(len(cut))]
    with torch.no_grad():
        held = [_outputs(trainee, piece, mask, want, temperature) for piece, mask in zip(cut, masks, strict=True)]
    joined = {name: torch.cat([out[name] for out in held]).requires_grad_() for name in want}
    _total(micro, terms, sizes, group_tokens, joined, claimed, step, temperature).backward()
    begin = 0
    for piece, mask in zip(cut, masks, strict=True):
        outputs = _outputs(trainee, piece, mask, want, temperature)
        end = begin + int(sum(m.sum() for m in mask))
        grads = [_slice(joined[name].grad, joined[name], begin, end) for name in want]
        torch.autograd.backward([outputs[name] for name in want], grads)
        begin = end


def _slice(grad: Tensor | None, like: Tensor, begin: int, end: int) -> Tensor:
    return torch.zeros_like(like[begin:end]) if grad is None else grad[begin:end]


def _outputs(
    member: Member, rows: tuple[Row, ...], masks: list[Tensor], want: set[str], temperature: float
) -> dict[str, Tensor]:
    return member.outputs([row.trace.tokens for row in rows], masks, want, temperature)


def _total(micro: Micro, terms: list[Term], sizes: Sizes, group_tokens: dict, outputs: dict[str, Tensor],
           claimed: list[Tensor], step: Step, temperature: float) -> Tensor:  # fmt: skip
    """sum over terms of coef * sum over units of weight * loss / size, for one micro-batch."""
    device = next(iter(outputs.values())).device
    total = torch.zeros((), device=device)
    others = _others(micro, terms, claimed, step, temperature)
    for term in terms:
        mine = [members(term, row.trace) for row in micro.rows]
        inside = torch.cat([own[all_] for own, all_ in zip(mine, claimed, strict=True)]).to(device)
        live = Live(
            outputs={name: out[inside] for name, out in {**outputs, **others}.items() if name in term.live},
            streams={
                s: torch.cat([stream(term, row.trace, s)[own] for row, own in zip(micro.rows, mine, strict=True)]).to(
                    device
                )
                for s in term.streams
            },
            row=torch.repeat_interleave(torch.arange(len(mine)), torch.tensor([int(m.sum()) for m in mine])).to(device),
            rows=len(micro.rows),
            pairs=torch.tensor(micro.pairs, dtype=torch.long, device=device).reshape(-1, 2),
            lists=list(micro.lists),
            group=torch.tensor(micro.groups, device=device),
            clock=step.clock,
        )
        losses = term.loss(live)
        weights = _weights(term, micro, mine, group_tokens, live).to(losses.dtype)
        assert losses.shape == weights.shape, (
            f"term {term.name!r} gave {tuple(losses.shape)} numbers for {tuple(weights.shape)} units"
        )
        coef = at(term.coef, step.clock)
        total = total + coef * (weights * losses).sum() / sizes[term.name]
        live.note("loss", losses)
        _take_notes(step.notes, term, live, weights, sizes[term.name])
    return total


def _weights(term: Term, micro: Micro, mine: list[Tensor], group_tokens: dict, live: Live) -> Tensor:
    if term.unit == "pair":
        return torch.ones(len(live.pairs), device=live.row.device)
    if term.unit == "list":
        return torch.ones(len(live.lists), device=live.row.device)
    tokens = [int(m.sum()) for m in mine]
    weight = [
        term.norm.weight(n, group_tokens[term.name, row.group]) if n else 0.0
        for n, row in zip(tokens, micro.rows, strict=True)
    ]
    by_row = torch.tensor(weight, dtype=torch.float64, device=live.row.device)
    if term.unit == "group":
        return (
            torch.zeros(max(micro.groups) + 1, dtype=torch.float64, device=live.row.device)
            .index_add(0, live.group, by_row)
            .sign()
        )
    return by_row[live.row] if term.unit == "token" else by_row


def _others(
    micro: Micro, terms: list[Term], claimed: list[Tensor], step: Step, temperature: float
) -> dict[str, Tensor]:
    """Live outputs of members that are not trained here ("teacher.logits"), without gradient."""
    wanted: dict[str, set[str]] = defaultdict(set)
    for term in terms:
        for name in term.live:
            if "." in name:
                member, output = name.split(".")
                wanted[member].add(output)
    found: dict[str, Tensor] = {}
    for member, want in wanted.items():
        with torch.no_grad():
            outputs = _outputs(step.cast[member], micro.rows, claimed, want, temperature)
        found |= {f"{member}.{name}": out for name, out in outputs.items()}
    return found


def _take_notes(notes: Notes, term: Term, live: Live, weights: Tensor, size: float) -> None:
    """Means with the term's own weights: the sums of all micro-batches over the size of the batch."""
    for name, x in live.noted.items():
        share = float((weights * x).sum()) / size
        notes.add(f"{term.name}/{name}", share, float(weights.sum()) / size)
