"""Comparisons in a row: two replies after a common prompt, ranked replies, steps with labels."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from burnish.core.messages import Message, as_messages, text_of
from burnish.tasks.data.episodes import is_number
from burnish.tasks.data.messages import conversation, reply_of
from burnish.tasks.data.rows import Row

_REPLY = ("response", "content", "text", "completion", "output")  # of a reply that is an object
_SCORE = ("fine-grained_score", "overall_score", "score", "rating")  # UltraFeedback's overall_score has 10 for some 1


class NoPreference(ValueError):
    """A row whose replies are equal, or equally good: it says nothing about which is better, and is left out."""


def fork(chosen: Any, rejected: Any, where: str) -> tuple[tuple[Message, ...] | str, str, str]:
    """The common prompt of two conversations (or texts), and the replies where they differ."""
    one, other = conversation(chosen, where), conversation(rejected, where)
    if one is None or other is None:
        return _fork_texts(chosen, rejected, where)
    shared = 0
    while shared < min(len(one), len(other)) - 1 and one[shared] == other[shared]:
        shared += 1
    if not shared or one[shared]["role"] != "assistant" or other[shared]["role"] != "assistant":
        raise ValueError(f"{where}: 'chosen' and 'rejected' do not share a prompt; add a column 'prompt'")
    return one[:shared], text_of(one[shared]), text_of(other[shared])


def after_prompt(
    prompt: tuple[Message, ...] | str, chosen: object, rejected: object, where: str
) -> tuple[tuple[Message, ...] | str, str, str]:
    """The prompt of two replies, and the replies. Conversations of several turns after the prompt lengthen it by those
    that they share: their last replies are compared.
    """
    asked = as_messages(prompt)
    one, other = (_to_reply(_beyond(asked, conversation(value, where))) for value in (chosen, rejected))
    if not any(sum(m["role"] == "assistant" for m in said) > 1 for said in (one, other)):
        return prompt, reply_of(chosen, where), reply_of(rejected, where)
    if one[:-1] != other[:-1] or one[0]["role"] != "assistant" or one[-1]["role"] != "assistant":
        raise ValueError(
            f"{where}: 'chosen' and 'rejected' go on for several turns after the prompt, and not in the same ones up "
            "to their last replies; remove the turns after the first reply, or the column 'prompt'"
        )
    return (*asked, *one[:-1]), text_of(one[-1]), text_of(other[-1])


def _to_reply(said: tuple[Message, ...]) -> tuple[Message, ...]:
    """A conversation up to its last reply."""
    while said and said[-1]["role"] != "assistant":
        said = said[:-1]
    return said


def _beyond(asked: tuple[Message, ...], said: tuple[Message, ...] | None) -> tuple[Message, ...]:
    """The messages of a conversation after a prompt, which it may repeat."""
    heard, repeated = ([(m["role"], text_of(m).strip()) for m in some] for some in (asked, said or ()))
    return (said or ())[len(asked) :] if repeated[: len(heard)] == heard else said or ()


def _fork_texts(chosen: object, rejected: object, where: str) -> tuple[str, str, str]:
    """The words with which two texts begin, and how each goes on."""
    if not isinstance(chosen, str) or not isinstance(rejected, str):
        raise ValueError(f"{where}: a reply is not text but {type(chosen).__name__}; make it text or chat messages")
    if chosen == rejected:
        raise NoPreference(f"{where}: 'chosen' and 'rejected' are the same")
    ends = min(len(chosen), len(rejected))  # of the shorter text, which may be the beginning of the other
    shared = next((i for i, (a, b) in enumerate(zip(chosen, rejected, strict=False)) if a != b), ends)
    shared = max(chosen.rfind(" ", 0, shared), chosen.rfind("\n", 0, shared))  # a reply begins with its space
    if shared <= 0:
        raise ValueError(
            f"{where}: needs column 'prompt', or 'chosen' and 'rejected' that begin with the same words; "
            "name one with --columns prompt=NAME"
        )
    return chosen[:shared], chosen[shared:], rejected[shared:]


def ranked(parts: Mapping[str, Any], where: str) -> Row:
    """Ranked replies: "responses" best first with their "ranks" (1 is the best) and "scores", and the best and the
    worst as "chosen" and "rejected". Labelled steps: "steps" and "labels". Nothing for a list without an order.
    """
    listed = parts["responses"]
    if not isinstance(listed, list | tuple) or not listed:
        return {}
    if "labels" in parts and len(parts["labels"]) == len(listed) and not {"ranks", "scores", "ranking"} & set(parts):
        return {"steps": [str(step) for step in listed], "labels": [_label(label, where) for label in parts["labels"]]}
    worth = _worths(listed, parts, where)
    if worth is None:
        return {}
    if len(set(worth)) < 2:
        raise NoPreference(f"{where}: all replies are ranked the same")
    order = sorted(range(len(listed)), key=lambda i: (-worth[i], i))
    texts = [_text(listed[i], where) for i in order]
    levels = sorted(set(worth), reverse=True)
    found: Row = {"responses": texts, "ranks": [levels.index(worth[i]) + 1 for i in order]}
    if "ranks" not in parts and "ranking" not in parts:
        found["scores"] = [worth[i] for i in order]
    return found | {"chosen": texts[0], "rejected": texts[-1]}


def _label(given: object, where: str) -> bool | float | None:
    """The label of a step: true or false (also as 1 and 0), another number as it is, None for a step without one."""
    if given is None or isinstance(given, bool):
        return given
    if not isinstance(given, int | float):
        raise ValueError(f"{where}: the label {given!r:.40} of a step is no boolean and no number; make it one")
    return bool(given) if given in (0, 1) else float(given)


def _worths(listed: Sequence[Any], parts: Mapping[str, Any], where: str) -> list[float] | None:
    """How good each reply is, higher is better; None where nothing says so."""
    if "scores" in parts:
        return _numbers(parts["scores"], len(listed), "scores", where)
    if "ranks" in parts:
        return [-rank for rank in _numbers(parts["ranks"], len(listed), "ranks", where)]
    if "ranking" in parts:
        places = [int(number) for number in _numbers(parts["ranking"], len(listed), "ranking", where)]
        first = min(places)
        if sorted(places) != list(range(first, first + len(listed))) or first not in (0, 1):
            raise ValueError(f"{where}: 'ranking' is not the numbers of the replies, best first, but {places}")
        return [-float(places.index(i + first)) for i in range(len(listed))]
    if not all(isinstance(one, Mapping) for one in listed):
        return None
    for own in ([_rated(one) for one in listed], *([one.get(key) for one in listed] for key in _SCORE)):
        if all(map(is_number, own)):
            return [float(score) for score in own]
    return None


def _rated(reply: Mapping[str, Any]) -> float | None:
    """The mean of a reply's ratings by aspect, of those that are numbers, as in UltraFeedback."""
    aspects = reply.get("annotations")
    given = [one.get("Rating") for one in aspects.values() if isinstance(one, Mapping)] if aspects else []
    ratings = [float(str(rating)) for rating in given if re.fullmatch(r"[0-9]+(\.[0-9]+)?", str(rating).strip())]
    return sum(ratings) / len(ratings) if ratings else None


def _numbers(value: object, count: int, name: str, where: str) -> list[float]:
    if not isinstance(value, list | tuple) or len(value) != count:
        raise ValueError(
            f"{where}: {name!r} needs one number for each of the {count} replies, but is {str(value)[:80]}"
        )
    try:
        numbers = [float(number) for number in value]
    except (TypeError, ValueError):
        raise ValueError(f"{where}: {name!r} holds something else than numbers: {str(value)[:80]}") from None
    if not all(map(math.isfinite, numbers)):
        raise ValueError(f"{where}: {name!r} holds a number that is not finite, and has no order: {str(value)[:80]}")
    return numbers


def _text(reply: Any, where: str) -> str:
    if isinstance(reply, Mapping) and "role" not in reply:
        reply = next((reply[key] for key in _REPLY if reply.get(key) is not None), None)
    return reply_of([reply] if isinstance(reply, Mapping) else reply, where)
