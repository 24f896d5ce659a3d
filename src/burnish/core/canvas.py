"""How a reply came about that was not written from left to right: by a model that fills in hidden tokens."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, eq=False)
class Canvas:
    """The blocks of a reply, one after the other, and the step at which each of their tokens was written.

    What was written behind the end of the reply is kept here alone: the tokens before it were chosen in its sight.

    tokens  [c] int64: all tokens of the blocks; the reply is the first of them
    steps   [c] int32: the number of the step that wrote each; they count through all blocks
    block   tokens of a block: a step sees the blocks before its own, and of its own what earlier steps wrote
    """

    tokens: Tensor
    steps: Tensor
    block: int
