"""Branches of episodes, several at a time: an environment without fork() is played again up to the state of each, and
those replays wait for their environments side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from burnish.rollout.episode import Episode

MOST = 64  # replays at the same time: each has a thread, and another for the call that it waits for


def branched(asked: Sequence[tuple[Episode, int, int | None]]) -> list[Episode]:
    """`Episode.branch` of each (episode, index, k), in order; replays of environments run at the same time."""
    found: list[Episode | None] = [
        episode.branch(index, k) if episode.env.copies(episode.replies if k is None else k) else None
        for episode, index, k in asked
    ]
    replayed = [i for i, branch in enumerate(found) if branch is None]
    if len(replayed) == 1:
        episode, index, k = asked[replayed[0]]
        found[replayed[0]] = episode.branch(index, k)
    elif replayed:
        with ThreadPoolExecutor(min(MOST, len(replayed)), "replay") as pool:
            episodes = pool.map(lambda i: asked[i][0].branch(*asked[i][1:]), replayed)
            for i, episode in zip(replayed, episodes, strict=True):
                found[i] = episode
    return [branch for branch in found if branch is not None]
