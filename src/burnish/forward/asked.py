"""The tokens that outputs are asked about, and the outputs that come from logits."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from burnish.forward.packing import trues
from burnish.forward.prefix_tree import Numbers

FROM_LOGITS = {"logp", "entropy", "logits", "greedy", "drift", "std"}


@dataclass(frozen=True)
class Asked:
    """The tokens that are asked about, row after row.

    flat, row, at  [N] their numbers among the tokens of all rows, their rows, their numbers there
    first, last    for each row: the first one and the last one; where there is none, 1 and 0
    """

    flat: Numbers
    row: Numbers
    at: Numbers
    first: list[int]
    last: list[int]

    def ends(self, themselves: bool) -> list[int]:
        """How many tokens of each row are read, one at least: all before the last that is asked about, or (themselves)
        that one, too.
        """
        return [max(1, last + themselves) for last in self.last]

    def some(self, which: Numbers | slice) -> Asked:
        """Those of the tokens; `first` and `last` stay those of all."""
        return replace(self, flat=self.flat[which], row=self.row[which], at=self.at[which])

    @classmethod
    def of(cls, masks: list[Tensor]) -> Asked:
        lengths = np.array([mask.shape[0] for mask in masks])
        ends = np.cumsum(lengths)
        starts = ends - lengths
        flat, cuts = trues(masks, ends)
        counts = np.diff(cuts)
        row = np.repeat(np.arange(len(masks)), counts)
        at = flat - np.repeat(starts, counts)
        if not at.all():
            raise ValueError(
                "the first token of a trace has no log-prob and no value: nothing comes before it; leave it out of "
                "what the term trains on"
            )
        some = counts > 0
        first, last = np.ones_like(lengths), np.zeros_like(lengths)
        first[some], last[some] = at[cuts[:-1][some]], at[cuts[1:][some] - 1]
        return cls(flat, row, at, first.tolist(), last.tolist())


def reduce_logits(logits: Tensor, chosen: Tensor, want: set[str]) -> dict[str, Tensor]:
    """Log-prob, likeliest token, entropy and coordinates, as far as wanted, of logits [N, V] and the tokens chosen [N].

    drift [N, V]: 2 sqrt(p). Half the squared distance of two is their KL, to the second order in how far they are
    apart. Of Gaussians with one std it is the KL exactly (forward/denoise.py), and "std" is theirs; of words it is 1.
    """
    outputs = {}
    if want:
        logz = torch.logsumexp(logits, -1)
    if "logp" in want:
        outputs["logp"] = logits.gather(-1, chosen[:, None])[:, 0] - logz
    if "greedy" in want:
        outputs["greedy"] = logits.argmax(-1)
    if "drift" in want:
        outputs["drift"] = 2 * (0.5 * (logits - logz[:, None])).exp()
    if "std" in want:
        outputs["std"] = torch.ones_like(logz)
    if "entropy" in want:
        outputs["entropy"] = logz - (torch.softmax(logits, -1) * logits).sum(-1)
    return outputs
