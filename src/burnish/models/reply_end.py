"""Where a reply ends: what follows one that stopped without its end of turn.

A reply that was sampled to its end has the token that ends a turn. One that was cut (`--max-new-tokens`, a stop string)
has none, and the template would not begin the next message without it. So what follows writes it, as a part of the
environment's turn: the policy did not, and is not trained on it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from burnish.core.messages import Message
from burnish.models.chat import Chat


def was_cut(chat: Chat, reply: Tensor) -> bool:
    """Whether a reply has no token that ends it."""
    return not len(reply) or int(reply[-1]) not in chat.stops


def unwritten_end(chat: Chat, reply: Tensor) -> Tensor:
    """The tokens of the template's end of a turn that a reply does not have; none where it is whole.

    A template may end turns with several tokens; a reply that was cut after some of them lacks the others.
    """
    if not was_cut(chat, reply):
        return reply[:0]
    closing, ids = chat.closing, reply.tolist()
    written = next(k for k in range(len(closing) - 1, -1, -1) if not k or ids[len(ids) - k :] == closing[:k].tolist())
    return closing[written:]


def following(chat: Chat, reply: Tensor, observed: str | Sequence[Message]) -> Tensor:
    """What an environment says after a reply, up to where the next reply begins; first its end, if cut."""
    missing, seen = unwritten_end(chat, reply), chat.observation(observed)
    return torch.cat([missing, seen]) if len(missing) else seen
