"""Weights as numpy arrays, which Ray keeps in shared memory. numpy has no bf16: its bits travel as 16-bit integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor


def as_array(weight: Tensor) -> np.ndarray[Any, Any]:
    """The numbers of a weight, or their bits where numpy does not know the format."""
    here = weight.detach().cpu()
    array: np.ndarray[Any, Any] = (here.view(torch.uint16) if here.dtype == torch.bfloat16 else here).numpy()
    return array


def as_weight(array: np.ndarray[Any, Any]) -> Tensor:
    """The inverse of `as_array`."""
    weight = torch.tensor(array)
    return weight.view(torch.bfloat16) if weight.dtype == torch.uint16 else weight
