"""Whether the sampler and the trainer agree on the log-prob of a token that the current weights have sampled.

They run the same weights, so the difference is rounding alone: below 1e-5 in fp32, about 1e-3 in bf16. More means that
the sampler was not running what is trained; a run then says so.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from burnish.cast.member import Member
from burnish.cast.packing import send
from burnish.learn.batch import Row
from burnish.nouns import Trace, Turn
from burnish.step import Notes

NAME = "mismatch/logp"
ALARM = {torch.float32: 1e-3, torch.float64: 1e-3, torch.bfloat16: 2e-2}  # mean difference from which a run warns


def note_mismatch(
    notes: Notes, member: Member, rows: Sequence[Row], claimed: list[Tensor], outputs: dict[str, Tensor]
) -> None:
    """Note mean |trainer - sampler| over claimed tokens that the member sampled with the weights it has now."""
    if "logp" not in outputs or member.name != "policy" or not member.fresh:
        return
    sampled = torch.cat([_sampled(row.trace, member)[mask] for row, mask in zip(rows, claimed, strict=True)])
    known = sampled.isfinite()
    if not bool(known.any()):
        return
    theirs = send(sampled.nan_to_num(), outputs["logp"].device)
    apart = (outputs["logp"].detach() - theirs).abs() * send(known.float(), theirs.device)
    notes.add(NAME, apart.sum(), float(known.sum()))


def _sampled(trace: Trace, member: Member) -> Tensor:
    """[T]: the log-probs that the member's present weights gave while sampling; nan elsewhere."""
    return torch.cat([_of_version(turn, member) for turn in trace.turns])


def _of_version(turn: Turn, member: Member) -> Tensor:
    if turn.logp is None or turn.versions is None or turn.author != member.name:
        return torch.full((len(turn),), torch.nan)
    return turn.logp.masked_fill(turn.versions != member.version, torch.nan)
