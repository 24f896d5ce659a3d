"""How a model's hidden states and logits are computed: the protocol, and the implementation for any
transformers model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from burnish.forward import sight
from burnish.forward.accelerate import kernels
from burnish.forward.attention import Layout, no_mask
from burnish.forward.logprob import Matmul, logits_of
from burnish.forward.module import decoder_states, head, plain_head
from burnish.forward.packing import Packed
from burnish.forward.prefix_tree import Numbers

NOT_EXACT = (
    "--exact needs a plain Llama, Qwen2 or Qwen3 on a CPU, or on a GPU one of these, a Mistral, Gemma 3 or Qwen3-MoE, "
    "without --quantization: only there was every product of sampler and trainer shown to be the same; leave "
    "it out, and mismatch/logp says how far they are apart"
)


class MasterGradients(Protocol):
    """The fp32 gradients of a model that computes in a lower precision (models/mixed_precision.py).

    leaves  the parameters that gradients are taken of, each with the master parameters that it is a copy of, side by
            side
    """

    leaves: list[tuple[nn.Parameter, list[nn.Parameter]]]

    def add(self, grads: list[Tensor], of: list[list[nn.Parameter]]) -> None:
        """Add gradients of leaves to those of their master parameters."""
        ...

    def settle(self) -> None:
        """Give every master parameter its gradient at a fixed address, zeros where it had none."""
        ...


@dataclass(frozen=True)
class HeadMatrix:
    """A head that is a matrix [V, H] and a factor. matmul: states @ weight.T as the sampler computes
    it; None: torch's.
    """

    weight: Tensor
    factor: float = 1.0
    matmul: Matmul | None = None


class ModelRunner(Protocol):
    """Computes what a module makes of tokens.

    accelerated   whether its layers run in kernels of our own
    has_cache     whether its module returns a cache of transformers' own, for decoding without our engine
    """

    @property
    def module(self) -> nn.Module: ...

    @property
    def accelerated(self) -> bool: ...

    @property
    def has_cache(self) -> bool: ...

    def hidden(self, given: Tensor, positions: Tensor, layout: Layout) -> Tensor:
        """[1, N, H]: the last hidden states of tokens [1, N], or of embeddings [1, N, H], that attend
        as `layout` says.
        """
        ...

    def logits(self, states: Tensor) -> Tensor:
        """[N, V] logits from hidden states, without gradient, in at least fp32."""
        ...

    def head(self) -> HeadMatrix | None:
        """The head, where it is a matrix and a factor; None for any other head."""
        ...

    def replay(self, rows: Sequence[Numbers], firsts: list[int] | None) -> tuple[Tensor, Packed] | None:
        """The hidden states [N, H] of a pass over packed rows, by a CUDA graph; None where there is none.

        firsts: the first token of each row that is asked about; None: rows share no prefix. With gradient, one backward
        follows.
        """
        ...

    def weights_moved(self) -> None:
        """The module's weights have changed: whatever was derived from them is stale."""
        ...

    def why_not_exact(self) -> str | None:
        """Why sampler and trainer may differ in the last bits; None where they cannot."""
        ...


class TransformersRunner:
    """Any model of transformers, by its own modules."""

    accelerated = False
    has_cache = True

    def __init__(self, module: nn.Module) -> None:
        self.module = module

    def hidden(self, given: Tensor, positions: Tensor, layout: Layout) -> Tensor:
        inputs = sight.read(self.module, given) if given.ndim == 2 else {"inputs_embeds": given}
        return decoder_states(
            self.module, **inputs, position_ids=positions, attention_mask=no_mask(given.device, layout), layout=layout
        )

    @torch.no_grad()
    def logits(self, states: Tensor) -> Tensor:
        matrix = plain_head(self.module)
        return logits_of(states, *matrix) if matrix is not None else head(self.module, states)

    def head(self) -> HeadMatrix | None:
        matrix = plain_head(self.module)
        return None if matrix is None else HeadMatrix(*matrix)

    def replay(self, rows: Sequence[Numbers], firsts: list[int] | None) -> tuple[Tensor, Packed] | None:
        return None

    def weights_moved(self) -> None:
        """Nothing is derived from the weights but the features of pictures."""
        if (seen := sight.sight_of(self.module)) is not None:
            seen.forget()

    def why_not_exact(self) -> str | None:
        return NOT_EXACT


def runner_of(module: nn.Module) -> ModelRunner:
    """The fastest runner for a module as it is."""
    accelerators = kernels()
    fast = None if accelerators is None else accelerators.runner(module)
    return TransformersRunner(module) if fast is None else fast
