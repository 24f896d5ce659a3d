"""Outputs of a masked language model: one that reads in both directions and fills in hidden tokens.

It has no log-prob of a row from left to right. What is taken for one depends on what is hidden when a token is
predicted; that is the view:

  trajectory  each token as it was written: what its step had not written yet is hidden (turns with a canvas). The
              log-prob under the order of writing, exact:  sum_k sum_{t written at k} log p(x_t | x written before k)
              (AGRPO, arXiv 2510.04019). With blocks of one token it is the autoregressive log-prob. As many rows are
              computed as there were steps. The choice of the places is not part of it.
  all         the whole reply at once, and each token of the prompt with probability `prompt_share` (d1, arXiv
              2504.12216): one forward; mean-field, log p(x_t | prompt) of each token.
  random      each token with probability u ~ U(0, 1]; a hidden token counts log p / u, another one 0. In the mean
              over u and the hidden set it is the bound  E[sum_t 1[hidden] log p(x_t | the others) / u] <= log p(x)
              (LLaDA, arXiv 2502.09992). `draws` of them are averaged.

Which tokens are hidden is a function of the row and of the step of the run, so that the policy, its older self and the
reference are compared on the same ones. A row that was not written by the model itself has no trajectory: it gets the
view `random`. The mask itself is never a token that could be written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from burnish.core.randomness import generator
from burnish.core.types import Canvas, Chain, Drawn
from burnish.forward.asked import FROM_LOGITS, Asked, reduce_logits
from burnish.forward.drawn import NEVER, Temperature
from burnish.forward.module import bare, decoder_states, head
from burnish.forward.packing import send
from burnish.forward.prefix_tree import Numbers

VIEWS = ("trajectory", "all", "random")
PLACES = ("surest", "chance")
Floats = npt.NDArray[np.float64]
BLOCK = 16  # tokens of a block, unless the model's configuration says otherwise
TOKENS = 1 << 15  # of padded rows read at once


@dataclass(frozen=True)
class Masked:
    """What is known of a masked language model.

    mask, end     the ids of the hidden token and of the end of a reply
    block         tokens of a block, which are written together
    per_step      tokens that a step of the sampler writes
    by_chance     the sampler's places are chosen by chance, not by how likely their tokens are
    view          see above
    prompt_share  of the tokens of a prompt that view `all` hides
    draws         hidden sets that view `random` averages over
    step          of the run: other tokens are hidden in each; -1 outside of steps
    """

    mask: int
    end: int
    block: int = BLOCK
    per_step: int = 1
    by_chance: bool = False
    view: str = "trajectory"
    prompt_share: float = 0.15
    draws: int = 1
    step: int = -1


@dataclass(frozen=True)
class Filling:
    """What a run says of such models; "" and None: what the method and the model say."""

    view: str = ""
    per_step: int = 1
    places: str = "surest"
    block: int | None = None

    def of(self, known: Masked, view: str) -> Masked:
        """What is known of a model of the run, whose method wants a view."""
        wanted = self.view or view or "trajectory"
        assert wanted in VIEWS, wanted
        block = self.block or known.block
        return replace(known, view=wanted, per_step=self.per_step, by_chance=self.places == "chance", block=block)


@dataclass(frozen=True)
class _Read:
    """A row as it is read: tokens, some of them hidden; which of the tokens asked about are predicted from it, their
    places in it, and what their log-probs count.
    """

    tokens: Numbers
    which: Numbers
    at: Numbers
    weight: float = 1.0


_OF: WeakKeyDictionary[nn.Module, Masked | None] = WeakKeyDictionary()


def masked_of(module: nn.Module) -> Masked | None:
    """What is known of a masked language model; None for one that writes from left to right."""
    if module not in _OF:
        inner = bare(module)
        config = inner.config
        mask, end = getattr(config, "mask_token_id", None), getattr(config, "eos_token_id", None)
        if not type(inner).__name__.endswith("ForMaskedLM") or not isinstance(mask, int) or not isinstance(end, int):
            _OF[module] = None
        else:
            _OF[module] = Masked(mask, end, int(getattr(config, "block_length", None) or BLOCK))
    return _OF[module]


def set_known(module: nn.Module, known: Masked) -> None:
    """Change what is known of a masked language model: its view, its block, the step of the run."""
    _OF[module] = known


def outputs(
    module: nn.Module,
    known: Masked,
    tokens: Sequence[Tensor | Numbers],
    masks: list[Tensor],
    want: set[str],
    drawn: Drawn | Temperature = 1.0,
) -> dict[str, Tensor]:
    """What forward/outputs.py's `outputs` returns, under the model's view: flat in row order, [N] or [N, ...]."""
    if isinstance(drawn, Drawn) and (drawn.penalty is not None or drawn.allowed is not None):
        raise ValueError(
            "a model that fills in hidden tokens samples from all of them; leave out --top-p, --top-k, --min-p and "
            "--repetition-penalty"
        )
    if beyond := want - FROM_LOGITS - {"hidden"}:
        raise ValueError(
            f"a model that fills in hidden tokens has no {' and no '.join(sorted(beyond))}: nothing is read after a "
            "token or before it; use a method without a critic, such as grpo"
        )
    rows = [row.numpy() if isinstance(row, Tensor) else row for row in tokens]
    asked = Asked.of(masks)
    heats = drawn.temperature if isinstance(drawn, Drawn) else drawn
    divisors = np.broadcast_to(np.asarray(heats, dtype=np.float64), len(asked.at))
    canvases = drawn.canvases if isinstance(drawn, Drawn) else None
    reads = [
        read
        for number, row in enumerate(rows)
        for read in _reads(
            known, row, np.flatnonzero(asked.row == number), asked.at, None if canvases is None else canvases[number]
        )
    ]
    return _computed(module, known, reads, np.concatenate(rows)[asked.flat], divisors, want)


def _reads(
    known: Masked, row: Numbers, which: Numbers, at: Numbers, canvases: list[tuple[int, int, Canvas | Chain]] | None
) -> list[_Read]:
    """The rows that are read for the tokens of one row that are asked about: numbers `which`, places `at`."""
    if known.view == "all":
        return [_all_hidden(known, row, which, at[which])] if len(which) else []
    reads: list[_Read] = []
    left = which
    for start, end, canvas in canvases or [] if known.view == "trajectory" else []:
        assert isinstance(canvas, Canvas), "a masked language model draws no pictures"
        kept = (at[left] >= start) & (at[left] < end)
        reads += _steps(known, row, start, canvas, left[kept], at)
        left = left[~kept]
    return reads + (_at_random(known, row, left, at[left]) if len(left) else [])


def _all_hidden(known: Masked, row: Numbers, which: Numbers, places: Numbers) -> _Read:
    """View `all`: the tokens that are asked about are hidden, and some of the others."""
    read = row.copy()
    others = np.ones(len(row), dtype=bool)
    others[places] = False
    dice = generator("hidden prompt", known.step, row.tobytes())
    read[others & (dice.random(len(row)) < known.prompt_share)] = known.mask
    read[places] = known.mask
    return _Read(read, which, places)


def _steps(known: Masked, row: Numbers, start: int, canvas: Canvas, which: Numbers, at: Numbers) -> list[_Read]:
    """View `trajectory`: a row for each step, as the sampler read it."""
    whole, steps = canvas.tokens.numpy(), canvas.steps.numpy()
    inside = at[which] - start
    reads = []
    for step in np.unique(steps[inside]).tolist():
        mine = steps[inside] == step
        end = (int(inside[mine].max()) // canvas.block + 1) * canvas.block
        written = np.where(steps[:end] < step, whole[:end], known.mask)
        reads.append(_Read(np.concatenate([row[:start], written]), which[mine], start + inside[mine]))
    return reads


def _at_random(known: Masked, row: Numbers, which: Numbers, places: Numbers) -> list[_Read]:
    """View `random`: behind a row that ends with the end of a reply, ends fill its last block."""
    begin = int(places[0])
    fill = -(len(row) - begin) % known.block if row[-1] == known.end else 0
    whole = np.concatenate([row, np.full(fill, known.end)])
    open_ = np.concatenate([places, np.arange(len(row), len(whole))])
    reads = []
    for number in range(known.draws):
        dice = generator("hidden", known.step, number, row.tobytes())
        share = 1.0 - float(dice.random())  # in (0, 1]
        hidden = dice.random(len(open_)) < share
        read = whole.copy()
        read[open_[hidden]] = known.mask
        mine = hidden[: len(places)]
        reads.append(_Read(read, which[mine], places[mine], 1.0 / (share * known.draws)))
    return reads


def _computed(
    module: nn.Module, known: Masked, reads: list[_Read], chosen: Numbers, divisors: Floats, want: set[str]
) -> dict[str, Tensor]:
    """The outputs at all tokens that are asked about: the sum of what each row that is read says of them."""
    parts: list[dict[str, Tensor]] = []
    numbers: list[Numbers] = []
    for some in batches(reads):
        states = states_of(module, [read.tokens for read in some])
        row = np.repeat(np.arange(len(some)), [len(read.at) for read in some])
        at = np.concatenate([read.at for read in some])
        which = np.concatenate([read.which for read in some])
        here = states[send(torch.from_numpy(row), states.device), send(torch.from_numpy(at), states.device)]
        weight = np.concatenate([np.full(len(read.at), read.weight) for read in some])
        parts.append(_said(module, known, here, chosen[which], divisors[which], weight, want))
        numbers.append(which)
    device = next(module.parameters()).device
    places = send(torch.from_numpy(np.concatenate([*numbers, np.empty(0, dtype=np.int64)])), device)
    if not parts:
        return {name: torch.zeros(len(chosen), device=device) for name in want}
    whole = {name: torch.cat([part[name] for part in parts]) for name in want}
    return {
        name: torch.zeros(len(chosen), *x.shape[1:], dtype=x.dtype, device=device).index_add(0, places, x)
        for name, x in whole.items()
    }


def _said(
    module: nn.Module,
    known: Masked,
    states: Tensor,
    chosen: Numbers,
    divisors: Floats,
    weight: Floats,
    want: set[str],
) -> dict[str, Tensor]:
    by = send(torch.from_numpy(1.0 / divisors), states.device)
    logits = logits_of(module, known, states)
    logits = logits * by.to(logits.dtype)[:, None]
    said = reduce_logits(logits, send(torch.from_numpy(chosen), states.device), want & FROM_LOGITS - {"logits"})
    said |= {"logits": logits} if "logits" in want else {}
    said |= {"hidden": states} if "hidden" in want else {}
    counts = send(torch.from_numpy(weight), states.device).to(logits.dtype)
    return {name: x * counts if name in ("logp", "entropy") else x for name, x in said.items()}


def logits_of(module: nn.Module, known: Masked, states: Tensor) -> Tensor:
    """[n, V]: the logits at hidden tokens; the mask is no token that can be written."""
    logits = head(module, states)
    closed = torch.zeros(logits.shape[-1], dtype=torch.bool, device=logits.device)
    closed[known.mask] = True
    return logits.masked_fill(closed, NEVER)


def states_of(module: nn.Module, rows: Sequence[Numbers]) -> Tensor:
    """[B, T, H]: the last hidden states of rows, padded on the right."""
    device = next(module.parameters()).device
    width = max(map(len, rows))
    ids = np.zeros((len(rows), width), dtype=np.int64)
    real = np.zeros((len(rows), width), dtype=np.int64)
    for i, row in enumerate(rows):
        ids[i, : len(row)], real[i, : len(row)] = row, 1
    mask = None if real.all() else send(torch.from_numpy(real), device)
    inputs = {"input_ids": send(torch.from_numpy(ids), device), "attention_mask": mask}
    return decoder_states(module, **inputs)


def batches(reads: list[_Read]) -> list[list[_Read]]:
    """Rows of about one length, as many as may be read at once; those from which nothing is predicted are left out."""
    ordered = sorted((read for read in reads if len(read.at)), key=lambda read: -len(read.tokens))
    together: list[list[_Read]] = []
    for read in ordered:
        if together and (len(together[-1]) + 1) * len(together[-1][0].tokens) <= TOKENS:
            together[-1].append(read)
        else:
            together.append([read])
    return together
