"""One call of a reward function: what it is given, by its signature, and what it may return.

    f(prompts, completions, **columns) -> list     a whole batch: one entry a completion; columns are lists
    f(prompt, completion, **columns) -> number     one reply: columns are values of its row
    compute_score(data_source, solution_str, ground_truth, extra_info) -> number or {"score": ...}     verl's

A function names what it wants of these; `**anything` takes all columns. It may be `async`. Completions are texts. A
function that cannot work with texts (TRL's convention for conversations) gets lists of messages: if its annotation says
so, or where its first call indexes texts like messages. None means that the reward does not apply to the row.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import threading
import traceback
from collections.abc import Awaitable, Mapping, Sequence
from functools import cache
from numbers import Real
from pathlib import Path
from typing import Any

from burnish.core.rejected import NotFinite
from burnish.reward_functions.load import RewardFunction
from burnish.util.failures import said, shown

ALIASES = {
    "solution": "demo",
    "response": "demo",
    "ground_truth": "answer",
    "target": "answer",
}  # as datasets call them
Columns = Mapping[str, Sequence[object]]


class WrongShape(ValueError):
    """A reward function returned no list, or one of another length: an error independent of the replies."""


class RewardRaised(ValueError):
    """A reward function raised: only some of the replies may be the reason."""


class RewardCall:
    """A reward function that is called in its own convention. messages: whether it wants messages; None: not known."""

    def __init__(self, function: RewardFunction) -> None:
        self.function = function
        self.name = getattr(function, "__name__", type(function).__name__)
        if self.name == "<lambda>":
            self.name = "reward"
        self.parameters = inspect.signature(function).parameters
        self.one_by_one = "solution_str" in self.parameters or (
            "completion" in self.parameters and "completions" not in self.parameters
        )
        self.messages = _annotated(self.parameters.get("completions"))

    def __call__(self, prompts: Sequence[object], completions: Sequence[str], columns: Columns) -> list[float | None]:
        """One number for each completion, or None where the reward does not apply.

        Raises ValueError: NotFinite for NaN or infinity, WrongShape if there is no list with one entry a completion,
        RewardRaised with the file, the line and the row if the function raises.
        """
        if self.one_by_one:
            results = self._each(prompts, completions, columns)
        else:
            results = self._batch(prompts, completions, columns)
        return self._checked(results, completions)

    # ------------------------------------------------------------------------------------------------------- a batch

    def _batch(self, prompts: Sequence[object], completions: Sequence[str], columns: Columns) -> list[object]:
        if self.messages is not True:
            try:
                scores = self._called(prompts, completions, columns)
                self.messages = False
                return scores
            except RewardRaised as error:
                if self.messages is not None or not _wants_messages(error.__cause__):
                    raise
                try:
                    scores = self._called(*_as_messages(prompts, completions), columns)
                except ValueError:
                    raise error from error.__cause__  # messages are no better: the first error is the one to see
                self.messages = True
                return scores
        return self._called(*_as_messages(prompts, completions), columns)

    def _called(self, prompts: Sequence[object], completions: Sequence[object], columns: Columns) -> list[object]:
        taken = self._taken({**columns, "prompts": prompts, "completions": completions})
        try:
            result = _awaited(self.function(**taken))
        except KeyboardInterrupt:
            raise  # Ctrl-C
        except BaseException as error:
            raise self._raised(error, prompts, completions, columns) from error
        if type(result).__name__ in ("Tensor", "ndarray"):
            array: Any = result
            result = array.tolist()
        if not isinstance(result, list | tuple):
            raise WrongShape(
                f"reward {self.name} returned {type(result).__name__}; return a list with one number a completion"
            )
        return list(result)

    # ----------------------------------------------------------------------------------------------- reply by reply

    def _each(self, prompts: Sequence[object], completions: Sequence[str], columns: Columns) -> list[object]:
        results: list[object] = []
        for i, (prompt, completion) in enumerate(zip(prompts, completions, strict=True)):
            row = {name: values[i] for name, values in columns.items()}
            offered = _verl(row, completion) if "solution_str" in self.parameters else row
            taken = self._taken({**offered, "prompt": prompt, "completion": completion})
            try:
                results.append(self.function(**taken))
            except KeyboardInterrupt:
                raise  # Ctrl-C
            except BaseException as error:
                raise self._raised(error, [prompt], [completion], {n: [v] for n, v in row.items()}) from error
        try:
            results = _awaited_all(results)
        except KeyboardInterrupt:
            raise  # Ctrl-C
        except BaseException as error:
            raise self._raised(error, prompts, completions, columns) from error
        return [result.get("score") if isinstance(result, Mapping) else result for result in results]

    # ---------------------------------------------------------------------------------------------- before and after

    def _taken(self, offered: dict[str, object]) -> dict[str, object]:
        """The offered keywords that the function takes; raise ValueError for a required one that is not offered."""
        if any(p.kind is p.VAR_KEYWORD for p in self.parameters.values()):
            taken = dict(offered)
        else:
            taken = {key: value for key, value in offered.items() if key in self.parameters}
        for name, p in self.parameters.items():
            if name not in taken and ALIASES.get(name) in offered:
                taken[name] = offered[ALIASES[name]]
            needed = p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
            if needed and (name not in taken or p.kind is p.POSITIONAL_ONLY):
                raise ValueError(
                    f"reward {self.name}: takes {name!r}, which is not offered; "
                    f"the keywords offered are {', '.join(offered)}"
                )
        return taken

    def _checked(self, values: list[object], completions: Sequence[str]) -> list[float | None]:
        if len(values) != len(completions):
            raise WrongShape(
                f"reward {self.name} returned {len(values)} numbers for {len(completions)} completions; return one for "
                "each"
            )
        numbers: list[Any] = values
        for index, (value, completion) in enumerate(zip(values, completions, strict=True)):
            if value is not None and not _is_finite(value):
                raise (NotFinite if isinstance(value, Real) else ValueError)(
                    f"reward {self.name} returned {shown(value)} at index {index}, for the completion beginning "
                    f"{str(completion)[:60]!r}; return a finite number, or None where the reward does not apply"
                )
        return [None if value is None else float(value) for value in numbers]

    def _raised(
        self, error: BaseException, prompts: Sequence[object], completions: Sequence[object], columns: Columns
    ) -> RewardRaised:
        """The error in one sentence: what, where, and for which row, if it was one."""
        what = f"raised {type(error).__name__}: {said(error)}"
        if isinstance(error, SystemExit):
            what = f"called sys.exit({shown(error.code)})"
        row = ""
        if len(completions) == 1:
            messages: Any = prompts[0]
            question = messages if isinstance(messages, str) else messages[-1].get("content")
            given = f", answer={shown(columns['answer'][0])}" if "answer" in columns else ""
            row = f", for the row with prompt={shown(question)}{given} and the completion {shown(completions[0])}"
        line = " ".join(what.split())
        return RewardRaised(f"reward {self.name} {line}{self._place(error)}{row}; fix the function")

    def _place(self, error: BaseException) -> str:
        """The last line of the function's own file that was executed, as " at file.py, line 12"."""
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename != __file__]
        code = getattr(inspect.unwrap(self.function), "__code__", None)
        own = [frame for frame in frames if code is not None and frame.filename == code.co_filename]
        for frame in reversed(own or frames):
            return f" at {Path(frame.filename).name}, line {frame.lineno}"
        return ""


def call_reward(
    function: RewardFunction, prompts: Sequence[object], completions: Sequence[str], columns: Columns
) -> list[float | None]:
    """Call a reward function once, in its own convention (`RewardCall`)."""
    return RewardCall(function)(prompts, completions, columns)


def _annotated(parameter: inspect.Parameter | None) -> bool | None:
    """Whether an annotation of `completions` names messages (True) or texts (False); None if it says neither."""
    text = "" if parameter is None or parameter.annotation is parameter.empty else str(parameter.annotation)
    return True if "dict" in text or "Mapping" in text or "Message" in text else False if "str" in text else None


def _wants_messages(error: BaseException | None) -> bool:
    """Whether an error is that of `completion[0]["content"]` or `completion.get("content")` of a text."""
    if error is None:
        return False
    text = said(error)
    return (isinstance(error, TypeError) and text.startswith("string indices must be integers")) or (
        isinstance(error, AttributeError) and text.startswith("'str' object has no attribute")
    )


def _as_messages(prompts: Sequence[Any], completions: Sequence[str]) -> tuple[Sequence[object], Sequence[object]]:
    """Prompts and completions as TRL gives them in conversations: lists of messages."""
    conversations = [[{"role": "user", "content": p}] if isinstance(p, str) else list(p) for p in prompts]
    return conversations, [[{"role": "assistant", "content": text}] for text in completions]


def _verl(row: Mapping[str, object], completion: str) -> dict[str, object]:
    """The arguments of verl's compute_score, from a row of its datasets or of any other."""
    told = row.get("reward_model")
    truth = told.get("ground_truth") if isinstance(told, Mapping) else None
    extra = row.get("extra_info")
    extra = dict(row) if extra is None else extra
    arguments = {"data_source": row.get("data_source", ""), "solution_str": completion, "extra_info": extra}
    for value in (truth, row.get("ground_truth"), row.get("answer")):
        if value is not None:
            return {**row, **arguments, "ground_truth": value}
    return {**row, **arguments}


def _is_finite(value: object) -> bool:
    """Whether it is a number that a float can hold: 10**400 is none."""
    try:
        return isinstance(value, Real) and math.isfinite(float(value))
    except (OverflowError, TypeError, ValueError):
        return False


# -------------------------------------------------------------------------------------------------- async functions


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """One event loop in a thread of its own: a notebook's own is running already, and clients keep to one loop."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="burnish-async-reward", daemon=True).start()
    return loop


def _awaited(result: object) -> object:
    """A result, waited for if it is that of an async function."""
    if not inspect.isawaitable(result):
        return result
    return asyncio.run_coroutine_threadsafe(_wait(result), _loop()).result()


def _awaited_all(results: list[object]) -> list[object]:
    """The same for several, which run concurrently."""
    if not any(inspect.isawaitable(result) for result in results):
        return results
    return asyncio.run_coroutine_threadsafe(_gather(results), _loop()).result()


async def _wait(result: Awaitable[object]) -> object:
    return await result


async def _gather(results: list[object]) -> list[object]:
    return list(await asyncio.gather(*(r if inspect.isawaitable(r) else _value(r) for r in results)))


async def _value(result: object) -> object:
    return result
