"""The type of the context that torch passes to the functions of a torch.autograd.Function."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor


class Context(Protocol):
    """What a forward pass leaves for its backward pass. A Function that leaves more declares it in a subclass."""

    @property
    def saved_tensors(self) -> tuple[Tensor, ...]: ...

    @property
    def needs_input_grad(self) -> tuple[bool, ...]: ...

    def save_for_backward(self, *tensors: Tensor) -> None: ...

    def set_materialize_grads(self, value: bool) -> None: ...
