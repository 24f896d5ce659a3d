"""Rewards of a batch of replies: by one function, or by several with weights.

A failure is not an error of the run: the reply gets a verdict with the reason, unless every reply fails.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from burnish.core.task import CANARY_PASSED, Verdict
from burnish.reward_functions.call import Columns, RewardCall, RewardRaised
from burnish.reward_functions.load import RewardFunction

MAX_HUNG_REPLIES = 3  # consecutive replies that hang, after which the rest of the batch is not scored
MAX_FAILED_BATCHES = 3  # consecutive batches without any reward, after which the run stops


class Failed(Exception):
    """The function gave no result: it took too long (`hung`), raised, or its process died."""

    def __init__(self, why: str, *, hung: bool = False) -> None:
        super().__init__(why)
        self.hung = hung


Found = list[Verdict | Failed]
Answer = float | Verdict | None | Failed  # None: the reward does not apply to the row


class Reward(ABC):
    """Scores batches of replies."""

    _silent = 0  # consecutive batches without any reward

    @abstractmethod
    def ask(self, prompts: Sequence[object], replies: Sequence[str], columns: Columns) -> Found:
        """A verdict for each reply, or the failure."""

    @abstractmethod
    def another(self) -> Reward:
        """The same for a second thread: with processes of its own, if it has some."""

    def __call__(self, prompts: Sequence[object], replies: Sequence[str], columns: Columns) -> list[Verdict]:
        """A verdict for each reply."""
        return self.heard(self.ask(prompts, replies, columns))

    def heard(self, results: Found) -> list[Verdict]:
        """The verdicts of a whole batch, which may have taken several calls.

        Raises ValueError if every call raised, or after MAX_FAILED_BATCHES batches without any reward.
        """
        failures = [result for result in results if isinstance(result, Failed)]
        if len(results) > 1 and len(failures) == len(results) and not any(failure.hung for failure in failures):
            raise ValueError(str(failures[0]))
        verdicts = [
            Verdict(0.0, False, str(result), failed=True) if isinstance(result, Failed) else result
            for result in results
        ]
        self._silent = self._silent + 1 if verdicts and len(failures) == len(verdicts) else 0
        if self._silent >= MAX_FAILED_BATCHES:
            raise ValueError(
                f"the reward function gave no reward in {MAX_FAILED_BATCHES} batches in a row: {verdicts[-1].reason}; "
                "fix it, or raise --reward-timeout, and use --resume"
            )
        return verdicts


class OneReward(Reward):
    """The reward of one function. name: under which it appears in the metrics, as reward/NAME.

    A batch is scored in one call. If that fails, its replies are scored one by one, so that only those that cause the
    failure have no reward.
    """

    name: str

    @abstractmethod
    def scores(self, prompts: Sequence[object], replies: Sequence[str], columns: Columns) -> list[float | None]:
        """One call of the function; raises Failed."""

    def ask(self, prompts: Sequence[object], replies: Sequence[str], columns: Columns) -> Found:
        return [combined({self.name: (1.0, answer)}) for answer in self.answers(prompts, replies, columns)]

    def answers(self, prompts: Sequence[object], replies: Sequence[str], columns: Columns) -> list[Answer]:
        """A number for each reply, None where the reward does not apply, or the failure."""
        try:
            return list(self.scores(prompts, replies, columns))
        except Failed as failure:
            return [failure] if len(replies) == 1 else self._one_by_one(prompts, replies, columns)

    def _one_by_one(self, prompts: Sequence[object], replies: Sequence[str], columns: Columns) -> list[Answer]:
        results: list[Answer] = []
        hung = 0
        for i, reply in enumerate(replies):
            if hung >= MAX_HUNG_REPLIES:
                results.append(Failed(f"not scored: the {MAX_HUNG_REPLIES} replies before it hung", hung=True))
                continue
            try:
                alone = {name: [values[i]] for name, values in columns.items()}
                results += self.scores([prompts[i]], [reply], alone)
                hung = 0
            except Failed as failure:
                hung = hung + 1 if failure.hung else 0
                results.append(failure)
        return results


class LocalReward(OneReward):
    """A function that was passed as a Python object. It runs in this process, without a time limit."""

    def __init__(self, function: RewardFunction, name: str | None = None) -> None:
        self.call = RewardCall(function)
        self.name = name or self.call.name

    def scores(self, prompts: Sequence[object], replies: Sequence[str], columns: Columns) -> list[float | None]:
        try:
            return self.call(prompts, replies, columns)
        except RewardRaised as error:
            raise Failed(str(error)) from error

    def another(self) -> LocalReward:
        return self


class SeveralRewards(Reward):
    """The weighted sum of several rewards, over those that apply to a row."""

    def __init__(self, rewards: Sequence[OneReward], weights: Sequence[float]) -> None:
        self.rewards, self.weights = tuple(rewards), tuple(weights)

    def ask(self, prompts: Sequence[object], replies: Sequence[str], columns: Columns) -> Found:
        answers = [reward.answers(prompts, replies, columns) for reward in self.rewards]
        named = [
            {r.name: (w, a) for r, w, a in zip(self.rewards, self.weights, one, strict=True)}
            for one in zip(*answers, strict=True)
        ]
        return [combined(parts) for parts in named]

    def another(self) -> SeveralRewards:
        return SeveralRewards([reward.another() for reward in self.rewards], self.weights)  # type: ignore[misc]


def combined(parts: dict[str, tuple[float, Answer]]) -> Verdict | Failed:
    """The verdict of a reply from (weight, answer) of each reward by name.

    The score is the weighted sum over the rewards that apply. It counts as correct above half of their positive
    weights; a single verdict keeps its own. A reply without a reward that applies, or with one that failed, has none.
    """
    for _, answer in parts.values():
        if isinstance(answer, Failed):
            return answer
    answered = {name: (w, a) for name, (w, a) in parts.items() if a is not None and not isinstance(a, Failed)}
    if not answered:
        return Failed(f"no reward applies to this row: {', '.join(parts)} returned None; return a number for some")
    numbers = {name: a.score if isinstance(a, Verdict) else a for name, (_, a) in answered.items()}
    why = "; ".join(a.reason for _, a in answered.values() if isinstance(a, Verdict) and a.reason)
    score = sum(weight * numbers[name] for name, (weight, _) in answered.items())
    most = sum(max(0.0, weight) for weight, _ in answered.values())
    alone = next(iter(answered.values()))[1] if len(answered) == 1 else None
    correct = alone.correct if isinstance(alone, Verdict) else score > 0.5 * most
    verdicts = [answer for _, answer in answered.values() if isinstance(answer, Verdict)]
    alarms = [verdict.parts[CANARY_PASSED] for verdict in verdicts if CANARY_PASSED in verdict.parts]
    return Verdict(score, correct, why, parts={**numbers, CANARY_PASSED: max(alarms)} if alarms else numbers)
