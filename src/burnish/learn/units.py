"""What a term sees of a micro-batch: the outputs and streams at its tokens, the weight of each unit, its notes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from burnish.core.step import Notes
from burnish.core.types import Clock
from burnish.forward.packing import joined, send
from burnish.learn.batch import Micro, stream
from burnish.learn.term import Live, Term

Mask = npt.NDArray[np.bool_]
OF_TASK = "@"  # "reply/accuracy@3" is the accuracy of the pairs of group 3


def at_mask(inside: Mask, outputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """The outputs at the tokens that a term claims; itself where it claims all."""
    if inside.all():
        return outputs
    places = torch.from_numpy(np.flatnonzero(inside))
    return {name: out[send(places, out.device)] for name, out in outputs.items()}


def live_of(term: Term, micro: Micro, claimed: Mask, outputs: dict[str, Tensor], clock: Clock) -> Live:
    """What the term sees of the micro-batch: everything at the tokens that it claims (claimed, over all rows), flat."""
    device = next(iter(outputs.values())).device
    places = np.flatnonzero(claimed)

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


def unit_weights(group_tokens: Mapping[tuple[str, int], int], term: Term, micro: Micro, live: Live) -> Tensor:
    """The weight of each unit, by the term's norm. group_tokens: claimed by a term in each group."""
    device = live.row.device
    if term.unit in ("pair", "list"):
        firsts = [one[0] for one in (micro.pairs if term.unit == "pair" else micro.lists)]
        traces = Counter(row.group for row in micro.rows)  # a group that compares is whole in its micro-batch
        return send(torch.tensor([term.norm.compared(traces[micro.rows[i].group]) for i in firsts]), device)
    tokens = [row.claimed[term.name] for row in micro.rows]
    weight = [
        term.norm.weight(n, group_tokens[term.name, row.group]) if n else 0.0
        for n, row in zip(tokens, micro.rows, strict=True)
    ]
    by_row = send(torch.tensor(weight, dtype=torch.float64), device)
    if term.unit == "group":
        empty = torch.zeros(max(micro.groups) + 1, dtype=torch.float64, device=device)
        return empty.index_add(0, live.group, by_row).sign()
    return by_row[live.row] if term.unit == "token" else by_row


def take_notes(notes: Notes, term: Term, live: Live, weights: Tensor, size: float) -> None:
    """Means with the term's own weights: the sums of all micro-batches over the size of the batch."""
    for name, (x, where) in live.noted.items():
        counted = weights if where is None else weights * where
        notes.add(f"{term.name}/{name}", (counted * x).sum().double() / size, counted.sum().double() / size)


def note_tasks(notes: Notes, term: Term, live: Live, weights: Tensor, micro: Micro) -> None:
    """The same means for the units of each group alone, from which evaluations take intervals over tasks."""
    groups = torch.tensor([row.group for row in micro.rows])
    if term.unit == "group":
        owners = torch.tensor(list(dict.fromkeys(groups.tolist())))
    elif term.unit == "sequence":
        owners = groups
    else:
        rows = {"token": live.row, "pair": live.pairs[:, 0]}.get(term.unit)
        firsts = torch.tensor([one[0] for one in live.lists]) if rows is None else rows.cpu()
        owners = groups[firsts.long()]
    present = owners.unique().tolist()
    for name, (x, where) in live.noted.items():
        counted = (weights if where is None else weights * where).double().cpu()
        summed = counted * x.double().cpu()
        for group in present:
            inside = owners == group
            key = f"{term.name}/{name}{OF_TASK}{group}"  # of an evaluation alone: no run records it
            notes.add(key, float(summed[inside].sum()), float(counted[inside].sum()))
