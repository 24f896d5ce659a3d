"""Episodes of several turns in a dataset: conversations whose replies have rewards.

The rewards stand on the assistant's messages ("reward"), in a column `rewards` with one number for each of them, or in
a column `reward` with one number, which the last of them gets. An episode in Task.given is the list of messages, each
assistant's with its "reward".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeGuard

from burnish.core.messages import Message

REWARD = "reward"


def split_rewards(
    messages: Sequence[Message], row: Mapping[str, object], where: str
) -> tuple[tuple[Message, ...], list[Message] | None]:
    """The messages without their rewards, and the episode; None where the row has no rewards."""
    replies = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
    plain = tuple({key: value for key, value in m.items() if key != REWARD} for m in messages)
    given = {i: message[REWARD] for i, message in enumerate(messages) if REWARD in message}
    if others := given.keys() - set(replies):
        role = messages[min(others)]["role"]
        raise ValueError(f"{where}: a message with the role {role!r} has a reward; only the assistant's have one")
    rewards: list[float] | None = [given.get(i, 0.0) for i in replies] if given else _columns(row, len(replies), where)
    if rewards is None or not replies:
        return plain, None
    by_place = dict(zip(replies, rewards, strict=True))
    return plain, [{**m, REWARD: by_place[i]} if i in by_place else m for i, m in enumerate(plain)]


def _columns(row: Mapping[str, object], replies: int, where: str) -> list[float] | None:
    """The rewards of the replies from the columns of a row; None where they are not there."""
    each, last = row.get("rewards"), row.get(REWARD)
    if isinstance(each, list | tuple) and each and all(one is None or is_number(one) for one in each):
        if len(each) != replies:
            raise ValueError(
                f"{where}: 'rewards' has {len(each)} numbers, but the conversation has {replies} replies; give one for "
                "each reply, or rename the column"
            )
        return [0.0 if one is None else float(one) for one in each]
    return [*[0.0] * (replies - 1), float(last)] if is_number(last) else None


def is_number(value: object) -> TypeGuard[float]:
    """Whether it is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
