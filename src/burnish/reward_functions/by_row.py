"""A reward whose verifier is chosen for each row, by the row's columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from burnish.core.call_syntax import Call
from burnish.reward_functions.call import Columns
from burnish.reward_functions.reward import Answer, Found, OneReward, combined
from burnish.reward_functions.sandboxed import row_of
from burnish.verifiers.table import Row, build_check


class RewardByRow(OneReward):
    """Scores each reply by the verifier of its row (verifiers/sources.py).

    make: the reward of a call such as f1(minimum=0.5)
    """

    def __init__(self, call: Call, name: str | None, make: Callable[[str], OneReward]) -> None:
        self.choose: Callable[[Row], str] = build_check(call)
        self.call, self.name, self.make = call, name or call.name, make
        self._made: dict[str, OneReward] = {}

    def another(self) -> RewardByRow:
        return RewardByRow(self.call, self.name, self.make)

    def answers(self, prompts: Sequence[object], replies: Sequence[str], columns: Columns) -> list[Answer]:
        chosen = [self.choose(row_of(prompt, columns, i)) for i, prompt in enumerate(prompts)]
        results: list[Answer] = [None] * len(replies)
        for text in dict.fromkeys(chosen):
            places = [i for i, one in enumerate(chosen) if one == text]
            if text not in self._made:
                self._made[text] = self.make(text)
            part = {name: [values[i] for i in places] for name, values in columns.items()}
            answers = self._made[text].answers([prompts[i] for i in places], [replies[i] for i in places], part)
            for i, answer in zip(places, answers, strict=True):
                results[i] = answer
        return results

    def ask(self, prompts: Sequence[object], replies: Sequence[str], columns: Columns) -> Found:
        return [combined({self.name: (1.0, answer)}) for answer in self.answers(prompts, replies, columns)]

    def scores(self, prompts: Sequence[object], replies: Sequence[str], columns: Columns) -> list[float | None]:
        """Not used: `answers` has verdicts with their reasons."""
        raise NotImplementedError
