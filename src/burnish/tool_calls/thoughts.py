"""Thoughts in a reply: what stands between <think> and </think>, or another pair of marks."""

from __future__ import annotations

THINK = ("<think>", "</think>")


def split_thoughts(text: str, marks: tuple[str, str] = THINK, opened: bool = False) -> tuple[str, str]:
    """The thoughts of a reply, and the rest. opened: the prompt ends inside of a thought, as some templates write it.

    A thought that is not closed goes on to the end. An end without a beginning closes one that the prompt opened.
    """
    start, end = marks
    first, last = text.find(start), text.find(end)
    inside = (opened and not text.lstrip().startswith(start)) or (last >= 0 and not 0 <= first < last)
    thoughts: list[str] = []
    rest: list[str] = []
    while text:
        piece, mark, text = text.partition(end if inside else start)
        (thoughts if inside else rest).append(piece)
        inside = not inside and bool(mark)
    return "\n".join(thought.strip() for thought in thoughts if thought.strip()), "".join(rest)
