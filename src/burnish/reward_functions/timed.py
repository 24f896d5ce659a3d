"""A reward function with a time limit: it runs in a separate process, which is killed after the limit.

A failure is not an error of the run: the reply gets a verdict with the time waited and the function's current line.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from burnish.core.rejected import NotFinite
from burnish.reward_functions.call import Columns, WrongShape
from burnish.reward_functions.reward import Failed, OneReward
from burnish.sandbox.process import Process

SECONDS = 60.0  # default time limit of one call
START = 60.0  # time limit for starting the process and loading the function


class TimedReward(OneReward):
    """Scores batches of replies with a function `path/to/file.py:name`, each call within `seconds`."""

    def __init__(self, spec: str, seconds: float, name: str | None = None) -> None:
        if seconds <= 0:
            raise ValueError(f"a time limit of {seconds:g} s is too short for any call; pass --reward-timeout 10")
        self.spec, self.seconds, self.name = spec, seconds, name or spec.rpartition(":")[2]
        self._process: Process | None = None
        self._started()  # raises ValueError now if the function cannot be loaded

    def another(self) -> TimedReward:
        return TimedReward(self.spec, self.seconds, self.name)

    def scores(self, prompts: Sequence[object], replies: Sequence[str], columns: Columns) -> list[float | None]:
        process = self._started()
        try:
            process.post({"prompts": prompts, "completions": replies, "columns": columns})
            answer = process.receive(self.seconds)
        except TimeoutError:
            where = process.where()
            self._end()
            raise Failed(
                f"the reward function {self.spec} had not answered after {self.seconds:g} s{where}; its process was "
                "killed",
                hung=True,
            ) from None
        except EOFError:
            self._end()
            raise Failed(f"the process of the reward function {self.spec} died during a call") from None
        if "not_finite" in answer:
            raise NotFinite(answer["not_finite"])
        if "wrong_shape" in answer:
            raise WrongShape(answer["wrong_shape"])  # not retried one by one, where it might seem right
        if "error" in answer:
            raise Failed(answer["error"])
        scores: list[float | None] = answer["scores"]
        return scores

    def _started(self) -> Process:
        """The process, started again if it was killed."""
        if self._process is None:
            process = Process("burnish.reward_functions.grader_process", self.spec, environment=os.environ)
            try:
                answer = process.receive(START)
            except EOFError:
                ended = process.obituary()
                process.end()
                raise ValueError(
                    f"the process of the reward function {self.spec} {ended} while it was loaded; does loading it end "
                    "Python?"
                ) from None
            except TimeoutError:
                process.end()
                raise ValueError(
                    f"the process of the reward function {self.spec} did not start within {START:g} s; does loading it "
                    "wait for something?"
                ) from None
            if "error" in answer:
                process.end()
                raise ValueError(answer["error"])
            self._process = process
        return self._process

    def _end(self) -> None:
        if self._process is not None:
            self._process.end()
        self._process = None
