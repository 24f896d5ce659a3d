"""Whether a reward can be trusted: accuracy on pairs, calibration, consistency, and what best-of-n makes of it.

Anything that scores replies is measured in the same way: a reward model, or any scorer by name (`ensemble(a, b)`).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from burnish.core.messages import prompt_shown
from burnish.core.scorer import DENSE, MEASURED, Named, is_failed
from burnish.core.step import Settings, Step
from burnish.core.types import Clock, Group, Task, Trace
from burnish.evals.evaluate import Interval, held_out_tasks, interval, share
from burnish.evals.measures import as_pair
from burnish.models.build import Models
from burnish.models.chat import Chat
from burnish.rollout.given import given_trace
from burnish.score.judge import reply_text
from burnish.score.judges.kept import Said
from burnish.score.maths.calibration import Bin, binned
from burnish.tasks.source import Source

BINS = 10
ANY_LENGTH = 1 << 30  # tokens


class RewardScorer:
    """A scorer with its models: numbers for groups of traces.

    A scorer that reads texts (a judge, an endpoint, an encoder) has a model "policy" beside its own, which encodes them
    for it: whole, however long.
    """

    def __init__(self, named: Named, models: Models, settings: Settings) -> None:
        self.named, self.models, self.settings = named, models, settings
        self.texts = "policy" in models.by_name
        self.reader = models["policy" if self.texts else next(iter(named.scorer.models))]

    def scores(self, groups: list[Group]) -> list[list[float]]:
        """The score of every trace of every group; NaN where it cannot be scored."""
        step = Step(Clock(0, 1), self.models, self.settings)
        for group in self.named.scorer.part.call(groups, step):
            assert group.traces
        return [[self._of(trace) for trace in group.traces] for group in groups]

    def _of(self, trace: Trace) -> float:
        if is_failed(trace):
            return math.nan
        if self.named.scorer.dense:
            return float(torch.nansum(trace.streams[DENSE + self.named.name]))
        return trace.scores[MEASURED + self.named.name]

    def read_again(self, groups: list[Group], chat: Chat) -> list[Group]:
        """Replies in another model's tokens as this scorer's model reads them: the same, where the tokenizers are."""
        if chat.identity == self.reader.chat.identity:
            return groups
        return [
            Group(one.task, [self.trace(one.task, reply_text(trace, chat), trace.index) for trace in one.traces])
            for one in groups
        ]

    def trace(self, task: Task, text: str, index: int = 0) -> Trace:
        """A reply to a task, as the scorer's model reads it."""
        context = ANY_LENGTH if self.texts else self.reader.context
        limit = min(context, self.settings.max_length or context)
        asked = replace(task, given={"reply": text})
        return given_trace(asked, "reply", "policy", self.reader.chat, limit, index, True)


# ----------------------------------------------------------------------------------------------------------- pairs


@dataclass(frozen=True)
class Pair:
    """A held-out pair: the scores of both replies, their lengths in tokens, the prompt's, and the row's columns.

    asked: the prompt as a judge is shown it
    """

    chosen: float
    rejected: float
    lengths: tuple[int, int]
    prompt: int
    given: dict[str, Any]
    asked: str = ""

    @property
    def margin(self) -> float:
        return self.chosen - self.rejected

    @property
    def right(self) -> float:
        """1 in the right order, 1/2 for a tie."""
        return 1.0 if self.margin > 0 else 0.5 if self.margin == 0 else 0.0


def scored_pairs(scorer: RewardScorer, source: Source, tasks: int) -> list[Pair]:
    """The first `tasks` held-out pairs with their scores; pairs that could not be scored are left out."""
    asked = [as_pair(task) for task in held_out_tasks(source, tasks)]
    groups = [
        Group(task, [scorer.trace(task, str(task.given[side]), i) for i, side in enumerate(("chosen", "rejected"))])
        for task in asked
    ]
    rows = []
    for group, (chosen, rejected) in zip(groups, scorer.scores(groups), strict=True):
        sizes = [len(trace.turns[-1]) for trace in group.traces]
        if math.isfinite(chosen) and math.isfinite(rejected):
            prompt = len(group.traces[0].turns[0])
            rows.append(
                Pair(
                    chosen,
                    rejected,
                    (sizes[0], sizes[1]),
                    prompt,
                    dict(group.task.given),
                    prompt_shown(group.task.prompt),
                )
            )
    if not rows:
        raise ValueError("none of the pairs could be scored; look at the reasons with burnish train --reward and a run")
    return rows


def right_verdicts(said: Sequence[Said], pairs: Sequence[Pair]) -> list[Said]:
    """What judges said about pairs whose preferred reply got the higher score (rejection sampling of verdicts)."""
    right = {
        (pair.asked.strip(), str(pair.given[side]).strip())
        for pair in pairs
        for side in ("chosen", "rejected")
        if pair.right == 1
    }

    def is_right(one: Said) -> bool:
        request, *replies = (text.strip() for text in one.question.texts)
        return any((request, reply) in right for reply in replies)

    return [one for one in said if one.question.texts and is_right(one)]


def accuracy(pairs: Sequence[Pair]) -> Interval:
    """The share of pairs in the right order, a tie one half; bootstrap interval over pairs."""
    return share([pair.right for pair in pairs])


def slices(pairs: Sequence[Pair], columns: Sequence[str] = ()) -> dict[str, list[Pair]]:
    """Pairs by which reply is longer, by the length of the prompt (thirds), and by the values of columns."""
    by_kind: dict[str, list[Pair]] = {}
    cuts = statistics.quantiles([p.prompt for p in pairs], n=3, method="inclusive") if len(pairs) > 1 else [0, 0]
    for pair in pairs:
        gap = pair.lengths[0] - pair.lengths[1]
        side = "chosen is longer" if gap > 0 else "rejected is longer" if gap < 0 else "both as long"
        third = "short" if pair.prompt <= cuts[0] else "long" if pair.prompt >= cuts[1] else "middle"
        names = [f"length: {side}", f"prompt: {third}"]
        names += [f"{column}: {pair.given[column]}" for column in columns if column in pair.given]
        for name in names:
            by_kind.setdefault(name, []).append(pair)
    return dict(sorted(by_kind.items()))


def length_baseline(pairs: Sequence[Pair]) -> Interval:
    """The accuracy of preferring the longer reply: what a reward model must beat."""
    gaps = [pair.lengths[0] - pair.lengths[1] for pair in pairs]
    return share([1.0 if gap > 0 else 0.5 if gap == 0 else 0.0 for gap in gaps])


def reliability(margins: Sequence[float], bins: int = BINS) -> list[Bin]:
    """The reliability curve of sigmoid(|margin|), the model's confidence in its own order, over [1/2, 1]."""
    stated = []
    for margin in margins:
        confidence = 1 / (1 + math.exp(-min(700.0, abs(margin))))
        stated.append((confidence, 1.0 if margin > 0 else 0.5 if margin == 0 else 0.0))
    return binned(stated, bins, low=0.5)


# ------------------------------------------------------------------------------------------ contrast instructions


@dataclass(frozen=True)
class Consistency:
    """How often a reply is scored higher for its own instruction than for a similar one, and the other way round."""

    pairs: int
    response: Interval
    instruction: Interval
    similarity: float


def consistency(scorer: RewardScorer, source: Source, tasks: int) -> Consistency | None:
    """Contrast instructions (arXiv 2309.16155): each task with the most similar other one, by shared words.

    response: for the instruction, its own reply scores more than the other's; instruction: for the reply, its own
    instruction scores more than the other. A tie is one half. None where no two tasks have different replies.
    """
    asked = [as_answered(task) for task in held_out_tasks(source, tasks)]
    couples = nearest([task for task, _ in asked], [text for _, text in asked])
    if not couples:
        return None
    groups = []
    for i, j, _ in couples:
        (task, own), (other, theirs) = asked[i], asked[j]
        read = [(task, own), (task, theirs), (other, own)]
        groups += [Group(one, [scorer.trace(one, text)]) for one, text in read]
    flat = [row[0] for row in scorer.scores(groups)]
    response, instruction = [], []
    for k in range(0, len(flat), 3):
        response.append(_won(flat[k], flat[k + 1]))
        instruction.append(_won(flat[k], flat[k + 2]))
    similarity = statistics.fmean(shared for _, _, shared in couples)
    return Consistency(len(couples), interval(response), interval(instruction), similarity)


def as_answered(task: Task) -> tuple[Task, str]:
    """A task and its right reply."""
    column = next((name for name in ("chosen", "demo", "answer") if task.given.get(name) is not None), None)
    if column is None:
        raise ValueError(f"task {task.key[:60]!r} has no right reply (a column chosen, completion or answer)")
    return task, str(task.given[column])


def nearest(tasks: Sequence[Task], replies: Sequence[str]) -> list[tuple[int, int, float]]:
    """For each task the other one with the largest share of common words whose reply differs: (i, j, share)."""
    words = [set(str(task.prompt).lower().split()) for task in tasks]
    rows = []
    for i, mine in enumerate(words):
        shares = [
            (len(mine & other) / max(1, len(mine | other)), -j)
            for j, other in enumerate(words)
            if j != i and replies[j] != replies[i]
        ]
        if shares:
            share, place = max(shares)
            rows.append((i, -place, share))
    return rows


def _won(own: float, other: float) -> float:
    return 1.0 if own > other else 0.5 if own == other else 0.0


# --------------------------------------------------------------------------------------------------------- best of n


@dataclass(frozen=True)
class BestOfN:
    """What the best of n replies by the proxy is worth: by the proxy itself and by the gold standard.

    kl: of the best-of-n policy from the one that was sampled, log n - (n - 1) / n at most
    """

    n: int
    kl: float
    proxy: Interval
    gold: Interval


def expected_gold(proxy: Sequence[float], gold: Sequence[float], k: int) -> float:
    """The expected gold score of the reply that the proxy likes best among k of the n, drawn without replacement.

    sum over i of gold_(i) C(i - 1, k - 1) / C(n, k), ordered by the proxy; replies with equal proxy scores share their
    gold scores' mean.
    """
    n = len(proxy)
    if k > n:
        raise ValueError(f"the best of {k} needs at least {k} replies for each task, but there are {n}; sample more")
    level: dict[float, list[float]] = {}
    for score, value in zip(proxy, gold, strict=True):
        level.setdefault(score, []).append(value)
    means = {score: statistics.fmean(values) for score, values in level.items()}
    total = math.comb(n, k)
    return sum(means[score] * math.comb(i, k - 1) / total for i, score in enumerate(sorted(proxy)))


def best_of_curve(proxy: Sequence[Sequence[float]], gold: Sequence[Sequence[float]]) -> list[BestOfN]:
    """The over-optimisation curve: n = 1, 2, 4, ... up to the number of replies to each task."""
    most = min(len(row) for row in proxy)
    sizes = [2**i for i in range(most.bit_length()) if 2**i < most] + [most]
    curve = []
    for n in sizes:
        own = [expected_gold(row, row, n) for row in proxy]
        true = [expected_gold(row, values, n) for row, values in zip(proxy, gold, strict=True)]
        curve.append(BestOfN(n, math.log(n) - (n - 1) / n, interval(own), interval(true)))
    return curve


def sampled_scores(
    scorer: RewardScorer,
    gold: Callable[[list[Group]], list[list[float]]],
    groups: list[Group],
    chat: Chat,
) -> tuple[list[list[float]], list[list[float]]]:
    """Proxy and gold scores of sampled replies; replies that the proxy cannot score count as its worst."""
    proxy = scorer.scores(scorer.read_again(groups, chat))
    known = [x for row in proxy for x in row if math.isfinite(x)]
    worst = min(known, default=0.0)
    return [[x if math.isfinite(x) else worst for x in row] for row in proxy], gold(groups)
