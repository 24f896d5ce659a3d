"""How a trained model writes: the share of each style of working, and how often it tries again."""

from __future__ import annotations

from burnish.evals.probed import Asked, Measures, replies_of
from burnish.score.judge import reply_text
from burnish.tasks.rewritten import style_of, tries_of

STYLES = ("plain", "bare", "checked", "spoken")


def written(asked: Asked, *, k: int = 4, tasks: int = 100) -> Measures:
    """Over k sampled replies to each of some held-out tasks (tasks/rewritten.py names the styles):

    share_plain, share_bare, share_checked, share_spoken   the share of replies in each style, an item for each task
    share_largest                                          the largest of these shares, over all replies
    tries                                                  tries given up a reply, as `countdown` writes them
    letters                                                the length of a reply in letters
    """
    chat = asked.models[asked.who].chat
    rows = [[reply_text(trace, chat) for trace in group.traces] for group, _ in replies_of(asked, k, tasks)]
    styles = [[style_of(text) for text in texts] for texts in rows]
    measures: Measures = {f"share_{one}": tuple(row.count(one) / k for row in styles) for one in STYLES}
    measures["share_largest"] = (max(sum(measures[f"share_{one}"]) / len(rows) for one in STYLES),)
    measures["tries"] = tuple(sum(map(tries_of, texts)) / k for texts in rows)
    measures["letters"] = tuple(sum(map(len, texts)) / k for texts in rows)
    return measures
