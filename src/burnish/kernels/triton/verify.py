"""The check of a spec when a model is put on a GPU: the fused decoder's hidden states beside those of the model's own
modules.

Both read the same weights in the same precision, so they differ by rounding alone. A spec that says something else
than the modules do gives other states, and is not used. Windows are longer than the rows here: they are compared as
numbers (kernels/triton/weights.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from burnish.forward.packing import pack
from burnish.forward.runner import TransformersRunner

if TYPE_CHECKING:
    from burnish.kernels.triton.decoder import FusedDecoder

LIMIT = {
    torch.float32: 1e-3,
    torch.float64: 1e-3,
}  # of the relative difference of a token's states that counts as rounding
HALF_LIMIT = 0.1
LENGTHS = 5, 2, 9


@torch.no_grad()
def difference(fused: FusedDecoder, runner: TransformersRunner) -> float:
    """|a - b| / |b| of the last hidden states of a few short rows, the median over their tokens.

    The median, because rounding may send a token to another expert.
    """
    device, vocabulary = fused.embedding.device, len(fused.embedding)
    dice = torch.Generator().manual_seed(0)
    rows = pack([torch.randint(0, vocabulary, (n,), generator=dice).numpy() for n in LENGTHS], None, device)
    mine = fused.states(fused.embed(rows.tokens), rows.positions, rows).float()
    with torch.compiler.set_stance("force_eager"):
        theirs: Tensor = TransformersRunner.hidden(runner, rows.tokens[None], rows.positions[None], rows)[0].float()
    apart = (mine - theirs).norm(dim=-1) / theirs.norm(dim=-1)
    return float(apart.nan_to_num(nan=float("inf")).median())


def trouble(fused: FusedDecoder, runner: TransformersRunner) -> str:
    """Why the fused decoder must not be used for this model; "": it may."""
    try:
        apart = difference(fused, runner)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # a kernel that does not compile for this shape or this device, say
        return f"they failed ({type(error).__name__}: {str(error).strip().partition(chr(10))[0][:100]})"
    limit = LIMIT.get(fused.embedding.dtype, HALF_LIMIT)
    return "" if apart <= limit else f"their hidden states came out {apart:.2g} off"
