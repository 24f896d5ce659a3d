"""A language model read as a soft Q-function: its logits are Q, their logsumexp is V, log pi = Q - V."""

from __future__ import annotations

import torch

from burnish.learn.maths.shapes import PerToken


def next_values(value: PerToken, row: PerToken) -> PerToken:
    """V of the state after each token: the value at the same row's next token, and 0 after a row's last. Shapes [N]."""
    assert value.shape == row.shape
    ahead = torch.cat([value[1:], value.new_zeros(1)])
    goes_on = torch.cat([row[1:] == row[:-1], row.new_zeros(1, dtype=torch.bool)])
    return torch.where(goes_on, ahead, torch.zeros_like(ahead))
