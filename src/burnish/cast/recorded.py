"""On a GPU: the decoder's pass over a pack, recorded once for packs of one size and replayed.

A small model's pass is thousands of kernels, and launching them takes longer than running them. Recorded as two CUDA
graphs, forward and backward, it costs two launches. Packs are filled up to the recorded size; gradients of the weights are
added up in fp32 where the optimiser looks for them, inside the recording.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from burnish.cast.packing import NONE, Packed, TooShort, families_of, lines_for, pack, packed_tokens
from burnish.cast.tree import Numbers

if TYPE_CHECKING:
    from burnish.cast.working import Working

SIZES = 4  # recordings that are kept
LARGEST = 1 << 17  # tokens; longer packs keep the device busy without it
AFTER = 1  # how often a size is asked for in vain before it is recorded
PATIENCE = 8  # how often a much larger recording serves before one of the right size is made
_log = logging.getLogger("burnish")


def size_for(tokens: int) -> int:
    """The recorded size that serves so many tokens: a sixteenth too large at most, so that a few sizes serve all packs."""
    step = max(256, 1 << max(0, tokens - 1).bit_length() >> 5)
    return -(-tokens // step) * step


class Recorder:
    """The recordings of one model."""

    def __init__(self, model: nn.Module, working: Working) -> None:
        self.model, self.working = model, working
        self.asked: dict[int, int] = {}
        self.kept: OrderedDict[int, Recording] = OrderedDict()
        self.memory: Any = None
        self.off = False
        self.dropout = [m for m in model.modules() if isinstance(m, nn.Dropout)]
        self.switch = torch.zeros((), device=next(model.parameters()).device, requires_grad=True)  # turns autograd on

    def states(self, rows: Sequence[Numbers], asked: list[int] | None) -> tuple[Tensor, Packed] | None:
        """The last hidden states [N, H] of rows, and how they are packed; None where nothing is recorded for them."""
        if not self._may():
            return None
        families = families_of(rows, asked)
        size = self._size(packed_tokens(rows, asked, families))
        if size is None:
            return None
        if size in self.kept:
            self.working.settle()  # the device sets gradients to zero while rows are being packed here
        try:
            packed = pack(rows, asked, self.switch.device, size, families)
        except TooShort:
            return None
        recording = self._recording(size, packed)
        return (_Replay.apply(self.switch, recording, packed), packed) if recording is not None else None  # type: ignore[return-value]

    def _may(self) -> bool:
        """Whether a pass is the same every time: with gradients, without windows, dropout and recomputing."""
        windows = getattr(self.model.config.get_text_config(), "sliding_window", None)  # type: ignore[union-attr, operator]
        if self.off or not torch.is_grad_enabled() or not self.working.leaves or windows:
            return False
        return not getattr(self.model, "recomputes", False) and not any(m.p for m in self.dropout)

    def _size(self, tokens: int) -> int | None:
        """The size to replay or to record; None where it was not asked for often enough."""
        size = size_for(tokens)
        if size > LARGEST or size in self.kept:
            return size if size in self.kept else None
        self.asked[size] = self.asked.get(size, 0) + 1
        larger = min((kept for kept in self.kept if kept > size), default=None)
        if larger is not None and (larger <= 1.25 * size or self.asked[size] <= PATIENCE):
            return larger
        return size if self.asked[size] > AFTER else None

    def _recording(self, size: int, packed: Packed) -> Recording | None:
        """The recording of a size, made if there is none that serves. Where the device will not have it, passes are computed from then on."""
        if size in self.kept and packed.long and not self.kept[size].layout.long:
            del self.kept[size]
        if size not in self.kept:
            if len(self.kept) >= SIZES:
                self.asked.pop(self.kept.popitem(last=False)[0], None)
            if self.memory is None:
                self.memory = torch.cuda.graph_pool_handle()
            try:
                self.kept[size] = Recording(self.model, self.working, packed, self.memory)
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as why:  # another thread was using the device, or a kernel cannot be recorded
                _log.warning("training passes are not recorded, which is slower: %s", str(why).splitlines()[0])
                self.off = True
                return None
        self.kept.move_to_end(size)
        return self.kept[size]


class Recording:
    """Forward and backward over packs of one size."""

    def __init__(self, model: nn.Module, working: Working, packed: Packed, memory: Any) -> None:
        self.model, self.working = model, working
        assert packed.table is not None and len(packed.table) == lines_for(len(packed.tokens))
        self.tokens, self.positions, self.table = packed.tokens.clone(), packed.positions.clone(), packed.table.clone()
        self.layout = Packed(self.tokens, self.positions, packed.bound, lambda: NONE, NONE, True, table=self.table)
        self.leaves = [leaf for leaf, _ in working.leaves]
        working.settle()
        self.grad = self._warm_up()
        self.forward, self.backward = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.forward, pool=memory), torch.enable_grad():
            states = self._pass()
        with torch.cuda.graph(self.backward, pool=memory):
            self._gradients(states)
        self.states = states.detach()  # what the pass kept for its backward may serve the next recording, too

    def _pass(self) -> Tensor:
        from burnish.cast.forward import hidden  # it knows this file

        return hidden(self.model, self.tokens[None], self.positions[None], self.layout)[0]

    def _gradients(self, states: Tensor) -> None:
        found = torch.autograd.grad(states, self.leaves, self.grad, allow_unused=True)
        have = [
            (grad, masters) for grad, (_, masters) in zip(found, self.working.leaves, strict=True) if grad is not None
        ]
        self.working.add([grad for grad, _ in have], [masters for _, masters in have])

    def _warm_up(self) -> Tensor:
        """Compilers and libraries set themselves up before anything is recorded; what it adds to gradients is 0."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side), torch.enable_grad():
            for _ in range(2):
                states = self._pass()
                self.grad = torch.zeros_like(states)
                self._gradients(states)
                del states
        torch.cuda.current_stream().wait_stream(side)
        return self.grad

    def replay(self, packed: Packed) -> Tensor:
        """The hidden states of a pack of this size."""
        assert packed.table is not None
        self.tokens.copy_(packed.tokens)
        self.positions.copy_(packed.positions)
        self.table.copy_(packed.table)
        self.forward.replay()
        return self.states

    def replay_backward(self, grad: Tensor) -> None:
        """Add the gradients of the weights to the model's."""
        self.working.settle()
        self.grad.copy_(grad)
        self.backward.replay()


class _Replay(torch.autograd.Function):
    """In the place of the recorded pass. The switch says that gradients are wanted; the recording adds them up."""

    @staticmethod
    def forward(ctx: Any, switch: Tensor, recording: Recording, packed: Packed) -> Tensor:
        ctx.recording = recording
        return recording.replay(packed)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, ...]:  # type: ignore[override]
        ctx.recording.replay_backward(grad)
        return None, None, None
