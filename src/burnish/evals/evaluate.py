"""Held-out evaluation: pass@1, pass@k, majority@k, with bootstrap intervals over tasks."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

from burnish.core import randomness
from burnish.core.messages import shown
from burnish.core.scorer import is_failed
from burnish.core.step import Settings, Step
from burnish.core.task import NoVerifier
from burnish.core.types import Clock, Group, Task
from burnish.engine.mixture import Blend
from burnish.models.build import Models
from burnish.rollout.episodes import episodes, rewarded_while_played
from burnish.rollout.sample import sample
from burnish.score.judge import judge, reply_text, require_verifier
from burnish.score.model import reward_model as scored_by_model
from burnish.tasks.source import Source
from burnish.verifiers.final_answer import final_answer

RESAMPLES = 1000
SUBSETS = 100  # of the replies to a task, over which majority@k is averaged
Z = 1.959964  # 95% of a normal distribution lie within so many standard deviations
SHOWN = 64  # tasks whose first reply is kept for the report
AT_ONCE = 512  # replies sampled between two progress reports


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
    """One sampled reply, for the report."""

    prompt: str
    reply: str
    correct: bool


@dataclass(frozen=True)
class Evaluation:
    """k replies to each held-out task: correct[i][j], answers[i][j] and rewards[i][j] of task i and reply j.

    shown   the first reply to each of the first tasks
    length  mean reply length in tokens
    keys    of the tasks: a task that was drawn twice counts once in the width of an interval; empty: all differ
    failed  why episodes failed (they scored what they had until then), one reason for each
    cut     the share of replies that ran into max_new_tokens
    """

    correct: tuple[tuple[bool, ...], ...]
    answers: tuple[tuple[str, ...], ...]
    rewards: tuple[tuple[float, ...], ...]
    shown: tuple[Shown, ...]
    length: float
    keys: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    cut: float = 0.0

    @property
    def graded(self) -> bool:
        """Whether rewards say more than right or wrong: one of them is neither 0 nor 1."""
        return any(reward not in (0.0, 1.0) for row in self.rewards for reward in row)

    @property
    def different(self) -> int:
        """The number of different tasks."""
        return len(set(self.keys)) if self.keys else len(self.rewards)

    def pass_at(self, k: int) -> Interval:
        """pass@k: probability that one of k replies is correct, by the unbiased estimate 1 - C(n-c, k)/C(n, k) per
        task.
        """
        return share([pass_at_k(len(row), sum(row), k) for row in self.correct], self.keys)

    def majority_at(self, k: int) -> Interval:
        """majority@k: the chance that the most common answer among k replies is correct (ties: the earliest).

        The mean over the subsets of k of the n replies, or over 100 of them; with k = 1 it is pass@1.
        """
        rows = zip(self.answers, self.correct, strict=True)
        return share([majority_at_k(answers, correct, k) for answers, correct in rows], self.keys)

    def best_of(self, k: int) -> Interval:
        """The mean over tasks of the highest reward among k replies: the expectation over k of the replies drawn."""
        return interval([best_of_k(row, k) for row in self.rewards], self.keys)

    def reward(self) -> Interval:
        """The mean reward, averaged over the replies to a task first."""
        return interval([statistics.fmean(row) for row in self.rewards], self.keys)

    def wins_against(self, other: Evaluation) -> Interval:
        """The win rate: the chance that a reply scores more than one of the other model to the same task.

        Each of the replies is compared with each of the other's; a tie counts one half.
        """
        pairs = zip(self.rewards, other.rewards, strict=True)
        wins = [statistics.fmean((a > b) + 0.5 * (a == b) for a in own for b in its) for own, its in pairs]
        return share(wins, self.keys)


def evaluate(
    models: Models,
    source: Source,
    settings: Settings,
    *,
    tasks: int,
    k: int = 1,
    seed: int = 0,
    temperature: float = 1.0,
    who: str = "policy",
    reward_model: bool = False,
    on_progress: Callable[[int], None] = lambda answered: None,
    blend: Blend | None = None,
) -> Evaluation:
    """Sample k replies to each of the first `tasks` held-out tasks and score them. Repeatable for a given seed.

    temperature: 0 is greedy
    reward_model: replies are scored by the model `rm`, not by the source
    on_progress: called with the number of tasks answered so far, after each batch of replies.
    blend: other models that are mixed into every token
    Several ranks divide the tasks.
    """
    step = Step(Clock(0, 1, randomness.key_of("evaluate", seed)), models, settings)
    played = episodes(source, k, who, one_trace=True, blend=blend, temperature=temperature)
    rollout = played or sample(k, temperature=temperature, who=who, tag="evaluate", blend=blend)
    heldout_tasks, ranks = held_out_tasks(source, tasks), models.ranks
    with ranks.apart():
        groups: list[Group] = []
        mine, batch = ranks.portion(heldout_tasks), max(1, AT_ONCE // k)  # noise is keyed by task: any batch will do
        for start in range(0, len(mine), batch):
            groups += rollout.call(mine[start : start + batch], step)
            on_progress(len(groups))
        own = _answers(groups, step, source, who, reward_model)
    answers = [_Answers(**head) for head, _ in ranks.gather_values(asdict(own))]
    return _together(answers, tuple(task.key for task in heldout_tasks))


@dataclass
class _Answers:
    """What one rank found: the fields of an Evaluation of its portion of the tasks, and all lengths."""

    correct: list[list[bool]]
    answers: list[list[str]]
    rewards: list[list[float]]
    shown: list[dict[str, Any]]
    lengths: list[int]
    failed: list[str]
    cut: list[bool]


def _answers(groups: list[Group], step: Step, source: Source, who: str, reward_model: bool) -> _Answers:
    """The replies in these groups, scored."""
    chat = step.models[who].chat
    replies = [[reply_text(trace, chat) for trace in group.traces] for group in groups]
    rewards, correct = _scored(groups, step) if reward_model else _judged(source, groups, replies)
    shown = [
        asdict(Shown(_prompt(group.task), texts[0], right[0]))
        for group, texts, right in zip(groups[:SHOWN], replies, correct, strict=False)
    ]
    lengths = [len(turn) for group in groups for trace in group.traces for turn in trace.turns if turn.author == who]
    answers = [[final_answer(text) for text in texts] for texts in replies]
    failed = [trace.note["why"] for group in groups for trace in group.traces if is_failed(trace)]
    cut = [trace.note.get("stopped") == "length" for group in groups for trace in group.traces]
    return _Answers(correct, answers, rewards, shown, lengths, failed, cut)


def _together(found: Sequence[_Answers], keys: tuple[str, ...]) -> Evaluation:
    """The answers of all ranks as one evaluation."""

    def rows(name: str) -> tuple[Any, ...]:
        return tuple(tuple(row) for one in found for row in getattr(one, name))

    shown = tuple(Shown(**one) for answers in found for one in answers.shown)[:SHOWN]
    lengths = [length for one in found for length in one.lengths]
    failed, mean = tuple(why for one in found for why in one.failed), statistics.fmean(lengths or [0])
    cut = statistics.fmean([was for one in found for was in one.cut] or [0])
    return Evaluation(rows("correct"), rows("answers"), rows("rewards"), shown, mean, keys, failed, cut)


def can_evaluate(source: Source) -> bool:
    """Whether held-out replies can be scored: by an environment or a verifier."""
    if rewarded_while_played(source):
        return True
    try:
        require_verifier(source, "heldout")
    except NoVerifier:
        return False
    return True


def pass_at_k(n: int, c: int, k: int) -> float:
    """1 - C(n-c, k) / C(n, k): probability that k of n replies, c of them correct, include a correct one (arXiv
    2107.03374).
    """
    if k > n:
        raise ValueError(f"pass@{k} needs at least {k} replies for each task, but there are {n}; sample more")
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)


def best_of_k(rewards: Sequence[float], k: int) -> float:
    """The expected highest of k rewards drawn without replacement from n: sum over i of r_(i) C(i-1, k-1) / C(n, k),
    r_(1) <= ... <= r_(n).
    """
    n = len(rewards)
    if k > n:
        raise ValueError(f"the best of {k} needs at least {k} replies for each task, but there are {n}; sample more")
    total = math.comb(n, k)
    return sum(r * math.comb(i, k - 1) / total for i, r in enumerate(sorted(rewards)))


def held_out_tasks(source: Source, tasks: int) -> list[Task]:
    """The first held-out tasks of a source."""
    size = source.size("heldout")
    drawn = [source.task("heldout", i) for i in range(tasks if size is None else min(tasks, size))]
    if not drawn:
        raise ValueError(f"task {source.name!r} has no held-out rows to evaluate on; give it more rows")
    return drawn


def _scored(groups: list[Group], step: Step) -> tuple[list[list[float]], list[list[bool]]]:
    """Scores of the reward model; none of the replies counts as correct."""
    for group in scored_by_model().call(groups, step):
        assert group.traces
    rewards = [[trace.scores["reward"] for trace in group.traces] for group in groups]
    return rewards, [[False for _ in row] for row in rewards]


def _judged(
    source: Source, groups: list[Group], replies: list[list[str]]
) -> tuple[list[list[float]], list[list[bool]]]:
    if rewarded_while_played(source):
        rewards = [[trace.scores["reward"] for trace in group.traces] for group in groups]
        return rewards, [[r > 0.5 for r in row] for row in rewards]
    flat = judge(
        source,
        [group.task for group, texts in zip(groups, replies, strict=True) for _ in texts],
        [t for texts in replies for t in texts],
    )
    verdicts = iter(flat)
    rows = [[next(verdicts) for _ in texts] for texts in replies]
    return [[v.score for v in row] for row in rows], [[v.correct for v in row] for row in rows]


def majority_at_k(answers: Sequence[str], correct: Sequence[bool], k: int) -> float:
    """The share of subsets of k of the replies whose most common answer is correct."""
    n = len(answers)
    if math.comb(n, k) <= SUBSETS:
        subsets: Iterable[Sequence[int]] = combinations(range(n), k)
    else:
        rng = randomness.rng("majority", n, k)
        subsets = (sorted(rng.sample(range(n), k)) for _ in range(SUBSETS))
    return statistics.fmean(_majority_right([answers[i] for i in some], [correct[i] for i in some]) for some in subsets)


def _majority_right(answers: Sequence[str], correct: Sequence[bool]) -> float:
    winner = Counter(answers).most_common(1)[0][0]
    return float(correct[answers.index(winner)])


def interval(values: Sequence[float], keys: Sequence[str] = ()) -> Interval:
    """The mean with its 95% bootstrap interval; one value per task. Tasks with the same key are drawn together."""
    return ratio([(sum(row), len(row)) for row in _by_key(values, keys)])


def ratio(tasks: Sequence[tuple[float, float]]) -> Interval:
    """sum of totals / sum of sizes, with its 95% bootstrap interval; (total, size) of each task."""
    rng = randomness.rng("bootstrap", len(tasks))
    means = []
    for _ in range(RESAMPLES):
        drawn = rng.choices(tasks, k=len(tasks))
        means.append(math.fsum(total for total, _ in drawn) / max(1e-300, math.fsum(size for _, size in drawn)))
    means.sort()
    mean = math.fsum(total for total, _ in tasks) / math.fsum(size for _, size in tasks)
    return Interval(mean, means[int(0.025 * RESAMPLES)], means[int(0.975 * RESAMPLES) - 1])


def share(values: Sequence[float], keys: Sequence[str] = ()) -> Interval:
    """The mean of chances between 0 and 1, with its interval.

    Where all are 0 or all are 1 the bootstrap finds no width; then the end is Wilson's: n / (n + z^2) for n times 1.
    """
    return widened(interval(values, keys), len(_by_key(values, keys)))


def widened(found: Interval, n: int) -> Interval:
    """The interval of a share of n tasks; Wilson's where all are 0 or all are 1."""
    width = Z * Z / (n + Z * Z)
    if found.mean == 1:
        return Interval(1.0, 1 - width, 1.0)
    return Interval(0.0, 0.0, width) if found.mean == 0 else found


def _by_key(values: Sequence[float], keys: Sequence[str]) -> list[list[float]]:
    """The values of each task; every value alone where there are no keys."""
    if not keys:
        return [[value] for value in values]
    by_key: dict[str, list[float]] = {}
    for key, value in zip(keys, values, strict=True):
        by_key.setdefault(key, []).append(value)
    return list(by_key.values())


def _prompt(task: Task) -> str:
    return task.prompt if isinstance(task.prompt, str) else shown(task.prompt[-1])
