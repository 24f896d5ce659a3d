"""Conversations that end with a turn of the user, for methods that learn from replies: cut, or left out."""

from __future__ import annotations

from burnish.tasks.mixture import Mixture
from burnish.tasks.resolve import datasets_of
from burnish.tasks.source import Source
from burnish.tasks.task_set import MadeTasks, TaskSet


def cut_to_replies(source: Source) -> None:
    """Cut the conversations of a source after their last reply; those that have none are left out."""
    for dataset in datasets_of(source):
        dataset.cut_to_replies()
    _tell(source)


def _tell(source: Source) -> None:
    """What a source gives now, told to all around it."""
    if isinstance(source, Mixture):
        for one in source.ingredients:
            _tell(one.source)
        source.again()
    elif isinstance(source, TaskSet):
        _tell(source.source)
    elif isinstance(source, MadeTasks):
        _tell(source.source)
        source.gives |= source.source.gives


def left_out(source: Source) -> str:
    """How many conversations are cut or left out; empty where none are."""
    found = [dataset.replies_cut() for dataset in datasets_of(source)]
    cut, gone = sum(one[0] for one in found), sum(one[1] for one in found)
    if not cut + gone:
        return ""
    said = [f"{cut:,} {'is cut after its' if cut == 1 else 'are cut after their'} last reply"] if cut else []
    said += [f"{gone:,} {'has none and is' if gone == 1 else 'have none and are'} left out"] if gone else []
    first = next(place for _, _, place in found if place)
    return f"of the conversations that do not end with a reply, {', '.join(said)} (the first: {first})"
