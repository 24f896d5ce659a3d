"""How a reply came about that was not written from left to right: by a model that fills in hidden tokens (Canvas), or
by one that removes noise from a picture (Chain).
"""

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


@dataclass(frozen=True, eq=False)
class Chain:
    """The states of a picture from which noise was removed in K steps. A step that draws is a token of the turn.

    states   [K, ...] float32: the first is noise; state k + 1 was drawn by token k, from a Gaussian whose mean depends
             on state k. The step from the last state to the picture draws nothing, and is no token.
    levels   K + 1 shares of noise, from the first state's to 0
    sampler  its rule for a step, by name (forward/gaussian.py), and how much noise it draws
    guidance  how far the estimate was moved away from the one without a caption; 1: not at all
    """

    states: Tensor
    levels: tuple[float, ...]
    sampler: str
    noise: float
    guidance: float = 1.0
