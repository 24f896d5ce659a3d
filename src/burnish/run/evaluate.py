"""Held-out evaluation: pass@1, pass@k, majority@k, with intervals that resample tasks."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from burnish import randomness
from burnish.cast.stage import Cast
from burnish.nouns import Clock, Group, Task
from burnish.rollout.play import play
from burnish.rollout.sample import sample
from burnish.score.verify import judge, reply_text, require_verifier
from burnish.step import Settings, Step
from burnish.tasks.rewards import final_answer
from burnish.tasks.source import NoVerifier, Source

RESAMPLES = 1000
AT_ONCE = 512  # replies sampled between two notes of progress


@dataclass(frozen=True)
class Interval:
    """An estimate with its 95% bootstrap interval over tasks."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:.1%} [{self.low:.1%}, {self.high:.1%}]"


@dataclass(frozen=True)
class Shown:
    """One sampled answer, for people to read."""

    prompt: str
    reply: str
    correct: bool


@dataclass(frozen=True)
class Evaluation:
    """k replies to each of some held-out tasks: correct[i][j], the answers given, and a few to look at."""

    correct: tuple[tuple[bool, ...], ...]
    answers: tuple[tuple[str, ...], ...]
    rewards: tuple[tuple[float, ...], ...]
    shown: tuple[Shown, ...]
    length: float

    def pass_at(self, k: int) -> Interval:
        """The chance that at least one of k replies is right: the unbiased estimate 1 - C(n-c, k)/C(n, k) for each task."""
        return interval([pass_at_k(len(row), sum(row), k) for row in self.correct])

    def majority_at(self, k: int) -> Interval:
        """The share of tasks whose most common answer among the first k replies is right (ties: the earliest)."""
        return interval(
            [
                _majority_right(answers[:k], correct[:k])
                for answers, correct in zip(self.answers, self.correct, strict=True)
            ]
        )

    def reward(self) -> Interval:
        return interval([statistics.fmean(row) for row in self.rewards])


def evaluate(
    cast: Cast,
    source: Source,
    settings: Settings,
    *,
    tasks: int,
    k: int = 1,
    seed: int = 0,
    temperature: float = 1.0,
    who: str = "policy",
    heard: Callable[[int], None] = lambda answered: None,
) -> Evaluation:
    """Sample k replies to each of the first held-out tasks and judge them. The same seed asks and samples the same.

    heard: told how many tasks are answered, a wave of replies at a time.
    """
    size = source.size("heldout")
    asked = [source.task("heldout", i) for i in range(tasks if size is None else min(tasks, size))]
    if not asked:
        raise ValueError(f"task {source.name!r} has no held-out rows to evaluate on; give it more rows")
    step = Step(Clock(0, 1, randomness.key_of("evaluate", seed)), cast, settings)
    rollout = (
        play(k, temperature=temperature)
        if "env" in source.gives
        else sample(k, temperature=temperature, tag="evaluate")
    )
    groups: list[Group] = []
    wave = max(1, AT_ONCE // k)  # noise is keyed by task and sample: waves cannot change a reply
    for start in range(0, len(asked), wave):
        groups += rollout.call(asked[start : start + wave], step)
        heard(len(groups))
    chat = cast[who].chat
    replies = [[reply_text(trace, chat) for trace in group.traces] for group in groups]
    rewards, correct = _judged(source, groups, replies)
    shown = [
        Shown(_prompt(group.task), texts[0], right[0])
        for group, texts, right in zip(groups[:64], replies, correct, strict=False)
    ]
    lengths = [len(turn) for group in groups for trace in group.traces for turn in trace.turns if turn.author == who]
    answers = tuple(tuple(final_answer(text) for text in texts) for texts in replies)
    return Evaluation(correct, answers, rewards, tuple(shown), statistics.fmean(lengths))


def can_evaluate(source: Source) -> bool:
    """Whether held-out replies can be judged at all."""
    if "env" in source.gives:
        return True
    try:
        require_verifier(source, "heldout")
    except NoVerifier:
        return False
    return True


def pass_at_k(n: int, c: int, k: int) -> float:
    """1 - C(n-c, k) / C(n, k): the chance that k of n replies, c of them right, hold a right one (arXiv 2107.03374)."""
    if k > n:
        raise ValueError(f"pass@{k} needs at least {k} replies for each task, but there are {n}; sample more")
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)


def _judged(source: Source, groups: list[Group], replies: list[list[str]]) -> tuple[tuple, tuple]:
    if "env" in source.gives:
        rewards = tuple(tuple(trace.scores["reward"] for trace in group.traces) for group in groups)
        return rewards, tuple(tuple(r > 0.5 for r in row) for row in rewards)
    flat = judge(
        source,
        [group.task for group, texts in zip(groups, replies, strict=True) for _ in texts],
        [t for texts in replies for t in texts],
    )
    found = iter(flat)
    rows = [[next(found) for _ in texts] for texts in replies]
    return tuple(tuple(v.score for v in row) for row in rows), tuple(tuple(v.correct for v in row) for row in rows)


def _majority_right(answers: tuple[str, ...], correct: tuple[bool, ...]) -> float:
    winner = Counter(answers).most_common(1)[0][0]
    return float(correct[answers.index(winner)])


def interval(values: list[float]) -> Interval:
    """The mean and its 95% interval, from resampling the values (one a task)."""
    mean = statistics.fmean(values)
    rng = randomness.rng("bootstrap", len(values))
    means = sorted(statistics.fmean(rng.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return Interval(mean, means[int(0.025 * RESAMPLES)], means[int(0.975 * RESAMPLES) - 1])


def _prompt(task: Task) -> str:
    return task.prompt if isinstance(task.prompt, str) else task.prompt[-1]["content"]
