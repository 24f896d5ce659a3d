"""From groups to micro-batches: what a term counts, what stays together, what fits a token budget."""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from burnish.core.types import Group, Trace, Turn, spans_once
from burnish.forward.packing import joined, trues
from burnish.forward.prefix_tree import Numbers
from burnish.learn.norms import Counts
from burnish.learn.term import Term


@dataclass(eq=False)
class Row:
    """A trace in a batch, the number of its group there, how many tokens it has, and the tokens that each term claims.

    masks, claimed  by the term's name: [T] bool, and how many of them there are
    """

    trace: Trace
    group: int
    length: int
    masks: dict[str, Tensor]
    claimed: dict[str, int]


@dataclass(eq=False)
class Micro:
    """Rows that one backward covers, with the pairs and lists among them (as row numbers).

    tokens  how many the model reads for them, where it has been counted
    """

    rows: tuple[Row, ...]
    pairs: tuple[tuple[int, int], ...] = ()
    lists: tuple[tuple[int, ...], ...] = ()
    tokens: int | None = None

    @property
    def groups(self) -> list[int]:
        """The group of each row, numbered 0, 1, ... in order of appearance."""
        number: dict[int, int] = {}
        return [number.setdefault(row.group, len(number)) for row in self.rows]


def tokens_of(rows: Sequence[Row]) -> list[Numbers]:
    """The tokens of each row."""
    flat, end, tokens = joined([turn.tokens for row in rows for turn in row.trace.turns]), 0, []
    for row in rows:
        tokens.append(flat[end : end + row.length])
        end += row.length
    return tokens


def masks(term: Term, group: Group) -> list[Tensor]:
    """[T] bool for each trace of the group: the tokens that the term trains on.

    They are what credit's claim() wrote; without one, all that the term's authors wrote, a turn that traces share once.
    """
    name = f"claim:{term.name}"
    claimed = [trace.streams[name] for trace in group.traces if name in trace.streams]
    if len(claimed) == len(group.traces):
        return claimed
    if claimed or not term.authors:
        raise ValueError(
            f"term {term.name!r} trains on what is claimed for it, but no part wrote {name!r} on a trace by "
            f"{', '.join(group.traces[0].authors())}; add claim({term.name!r}, AUTHOR) to credit, or give the term "
            "on=AUTHOR"
        )
    masks_of_group = []
    for trace, spans in zip(group.traces, spans_once(group.traces, term.authors), strict=True):
        mask = np.zeros(len(trace), dtype=np.bool_)  # a slice of a tensor costs ten times as much
        for start, end in spans:
            mask[start:end] = True
        masks_of_group.append(torch.from_numpy(mask))
    return masks_of_group


def write_claims(groups: Iterable[Group], terms: Iterable[Term]) -> None:
    """Write every term's tokens on the traces as stream "claim:TERM": later updates and the run store
    read them there.
    """
    for term in terms:
        for group in groups:
            for trace, mask in zip(group.traces, masks(term, group), strict=True):
                trace.streams[f"claim:{term.name}"] = mask


def stream(term: Term, trace: Trace, name: str) -> Tensor:
    """A stream that a term reads; never assigned is not zero."""
    if name not in trace.streams:
        raise ValueError(
            f"term {term.name!r} reads stream {name!r}, which was never assigned on a trace by "
            f"{', '.join(trace.authors())}"
        )
    return trace.streams[name]


@dataclass(frozen=True)
class Claim:
    """What one term trains on, of each group and each of its traces: the tokens, and how many they are."""

    masks: list[list[Tensor]]
    sizes: list[list[int]]


Claims = dict[str, Claim]  # by the term's name


def claims(groups: Sequence[Group], terms: Iterable[Term]) -> Claims:
    """What the terms train on, found and counted once for the whole batch of an update."""
    claimed_by_term: Claims = {}
    for term in terms:
        claimed = [masks(term, group) for group in groups]
        counts = iter(_counted([mask for of_group in claimed for mask in of_group]))
        claimed_by_term[term.name] = Claim(claimed, [[next(counts) for _ in of_group] for of_group in claimed])
    return claimed_by_term


def _counted(masks: list[Tensor]) -> list[int]:
    """How many tokens each mask has."""
    return np.diff(trues(masks, np.cumsum([mask.shape[0] for mask in masks]))[1]).tolist() if masks else []


def count(term: Term, groups: Iterable[Group], claimed: Claims, longest: int) -> Counts:
    """What the term claims over the whole batch."""
    tokens = sequences = with_members = pairs = lists = traces = comparing = 0
    everyone = zip(*(claim.sizes for claim in claimed.values()), strict=True)  # by group, then by term
    for group, sizes, of_all in zip(groups, claimed[term.name].sizes, everyone, strict=True):
        tokens += sum(sizes)
        sequences += sum(size > 0 for size in sizes)
        with_members += any(sizes)
        pairs += len(group.pairs or ())
        lists += len(group.lists or ())
        traces += sum(map(any, zip(*of_all, strict=True)))
        comparing += bool(group.pairs or group.lists)
    units = {"token": tokens, "sequence": sequences, "pair": pairs, "list": lists, "group": with_members}[term.unit]
    return Counts(tokens, sequences, with_members, units, longest, traces, comparing)


def atoms(groups: list[Group], terms: Iterable[Term], claimed: Claims) -> Iterator[Micro]:
    """The smallest things that must stay together: a group where a term compares traces, else a trace.

    A trace that no term claims, and that no pair or list mentions, costs nothing: it is left out.
    """
    terms = tuple(terms)
    compares = any(term.unit in ("pair", "list", "group") for term in terms)
    for g, group in enumerate(groups):
        rows = [
            Row(
                trace,
                g,
                len(trace),
                {term.name: claimed[term.name].masks[g][i] for term in terms},
                {term.name: claimed[term.name].sizes[g][i] for term in terms},
            )
            for i, trace in enumerate(group.traces)
        ]
        wanted = [i for i, row in enumerate(rows) if any(row.claimed.values())]
        if not compares:
            yield from (Micro((rows[i],)) for i in wanted)
        elif group.pairs or group.lists or wanted:
            compared = [i for item in (*(group.pairs or ()), *(group.lists or ())) for i in item]
            numbers = sorted({*wanted, *compared})
            place = {i: k for k, i in enumerate(numbers)}
            pairs = tuple((place[a], place[b]) for a, b in group.pairs or ())
            lists = tuple(tuple(place[i] for i in ranking) for ranking in group.lists or ())
            yield Micro(tuple(rows[i] for i in numbers), pairs, lists)


def join(micros: Iterable[Micro], tokens: int | None = None) -> Micro:
    """Several micro-batches as one, their pairs and lists renumbered."""
    rows: list[Row] = []
    pairs: list[tuple[int, int]] = []
    lists: list[tuple[int, ...]] = []
    for micro in micros:
        start = len(rows)
        rows += micro.rows
        if micro.pairs:
            pairs += [(a + start, b + start) for a, b in micro.pairs]
        if micro.lists:
            lists += [tuple(i + start for i in ranking) for ranking in micro.lists]
    return Micro(tuple(rows), tuple(pairs), tuple(lists), tokens)


class Filling:
    """A batch being filled: how many tokens the model will read for its rows.

    packed  end to end, beginnings that rows of one group share counted once; else padded to the longest
    """

    def __init__(self, packed: bool, rows: Sequence[Row] = ()) -> None:
        self.packed, self.rows, self.longest, self.tokens = packed, 0, 0, 0
        self.last: Row | None = None
        self.take(rows)

    def take(self, rows: Sequence[Row], budget: float = math.inf) -> bool:
        """Have these rows as well, unless it would then be more than `budget` tokens; whether it has."""
        count, longest, tokens, last = self.rows + len(rows), self.longest, self.tokens, self.last
        for row in rows:
            longest = max(longest, row.length)
            tokens += row.length
            if last is not None and last.group == row.group:
                tokens -= _shared(last.trace.turns, row.trace.turns)
            last = row
        tokens = tokens if self.packed else count * longest
        if tokens > budget:
            return False
        self.rows, self.longest, self.tokens, self.last = count, longest, tokens, last
        return True


def _shared(before: tuple[Turn, ...], turns: tuple[Turn, ...]) -> int:
    """The tokens of the turns with which both begin; the last one is each row's own."""
    shared = 0
    for k in range(min(len(before), len(turns)) - 1):
        if before[k] is not turns[k]:
            break
        shared += len(turns[k])
    return shared


def micro_batches(units: Iterable[Micro], budget: int, packed: bool = True) -> list[Micro]:
    """Atoms joined up to `budget` tokens; the largest batch first, so that memory runs out at once or never.

    Atoms are placed from the longest on. One goes to the atom before it, if that is of the same group: they share a
    prompt. Else, packed, into the batch that has the least room left for it (best fit, decreasing), so that short rows
    fill what long ones leave; padded, into the last one, whose rows are about as long. An atom larger than the budget
    is a micro-batch of its own; the learner then works on it in two passes.
    """
    atoms = [(atom.rows[0].group, max([row.length for row in atom.rows]), atom) for atom in units]
    longest: dict[int, int] = {}
    for group, length, _ in atoms:
        longest[group] = max(longest.get(group, 0), length)
    atoms.sort(key=lambda one: (-longest[one[0]], one[0], -one[1]))
    batches: list[list[Micro]] = []
    fillings: list[Filling] = []
    rooms: list[tuple[int, int]] = []  # room left and number of each batch, sorted
    at = -1  # the batch of the atom before
    for group, _, atom in atoms:
        beside = at >= 0 and (not packed or batches[at][-1].rows[-1].group == group)
        if not (beside and _placed(fillings, rooms, at, atom.rows, budget)):
            need = Filling(packed, atom.rows).tokens
            place = bisect.bisect_left(rooms, (need, -1)) if packed else len(rooms)
            if place < len(rooms):
                at = rooms[place][1]
                assert _placed(fillings, rooms, at, atom.rows, budget), "there was room"
            else:
                at = len(batches)
                batches.append([])
                fillings.append(Filling(packed, atom.rows))
                bisect.insort(rooms, (budget - need, at))
        batches[at].append(atom)
    largest_first = sorted(range(len(batches)), key=lambda i: -fillings[i].tokens)
    return [join(batches[i], fillings[i].tokens) for i in largest_first]


def _placed(fillings: list[Filling], rooms: list[tuple[int, int]], at: int, rows: Sequence[Row], budget: int) -> bool:
    """Put rows into a batch, if they fit, and note the room that is left."""
    before = fillings[at].tokens
    if not fillings[at].take(rows, budget):
        return False
    del rooms[bisect.bisect_left(rooms, (budget - before, at))]
    bisect.insort(rooms, (budget - fillings[at].tokens, at))
    return True


def pieces(micro: Micro, budget: int, packed: bool = True) -> list[tuple[Row, ...]]:
    """A micro-batch's rows in order, cut so that each piece fits the budget (one row at least)."""
    if micro.tokens is not None and micro.tokens <= budget:
        return [micro.rows]
    cut: list[list[Row]] = []
    filling = Filling(packed)
    for row in micro.rows:
        if cut and filling.take([row], budget):
            cut[-1].append(row)
        else:
            cut.append([row])
            filling = Filling(packed, [row])
    return [tuple(piece) for piece in cut]
