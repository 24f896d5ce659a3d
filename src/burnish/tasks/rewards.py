"""What a reply is worth: the comparison of final answers, and reward functions of the user's own.

The first half finds the answer a reply ends on and compares it with the right one. The second half loads
`file.py:function` and calls it as `f(completions, **columns) -> list[float]`, trusting nothing it returns.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import logging
import math
import re
import sys
import zlib
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from numbers import Real
from pathlib import Path
from types import ModuleType
from typing import Any

from burnish.refusal import NotFinite

RewardFunction = Callable[..., Any]

# ---------------------------------------------------------------------------------------------------- final answers

LONGEST = 20_000  # characters of a reply that are read, from its end
_DIGITS = r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+"
_NUMBER = re.compile(rf"(?:(?<![\w)])[-+])?\$?(?:{_DIGITS})(?:/[0-9]+)?%?")
_PLAIN = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[-+]?[0-9]{1,2})?(?:/[0-9]+)?", re.IGNORECASE)
_FRACTION = re.compile(r"\\[dt]?frac\{(\d+)\}\{(\d+)\}")
_ANSWER = re.compile(r"answer\s*:", re.IGNORECASE)
_EXPONENT = re.compile(  # of what (a bracket closes before it), and the exponent: 2, n, {10}, (3/2), not 2^3
    r"([)}]?)\s*(?:\^|\*\*)\s*(?:[{(]\s*-?([0-9A-Za-z]{1,3})(?:/[0-9]{1,3})?\s*[})]|([0-9A-Za-z]{1,3})(?![0-9A-Za-z.]))"
    r"(?!\s*(?:\^|\*\*))"
)


def _boxed(text: str) -> str | None:
    """What the last `\\boxed{...}` holds, its braces balanced; None where there is none or it is never closed."""
    for start in reversed([match.end() for match in re.finditer(r"\\boxed\s*\{", text)]):
        depth = 1
        for end in range(start, len(text)):
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            if not depth:
                return text[start:end]
    return None


def final_answer(reply: str, right: str = "") -> str:
    """The answer a reply ends on.

    After the last `####`; else in the last `\\boxed{}`; else after the last `answer:` on its line; else the last number
    when the right answer is a number; else the last line. Where a number is wanted and the answer found says more
    than a number ("72 clips"), its last number is meant.
    """
    text = reply[-LONGEST:].strip().replace("\u2212", "-")
    numeric = bool(right) and number(right) is not None
    marked = [*_ANSWER.finditer(text)]
    if "####" in text:
        found = _first_line(text.rpartition("####")[2])
    elif (boxed := _boxed(text)) is not None:
        found = boxed.strip()
    elif marked:
        found = _first_line(text[marked[-1].end() :])
    else:
        return _last_number(text) if numeric else _first_line(text.rpartition("\n")[2])
    return _last_number(found) if numeric and number(found) is None else found


def _first_line(text: str) -> str:
    """The first line that says anything, without the marks of bold and italics around it."""
    return (text.strip("*_ \t\r\n").splitlines() or [""])[0].strip("*_ \t")


def _last_number(text: str) -> str:
    found = _NUMBER.findall(text)
    return found[-1] if found else text


def number(text: str) -> Fraction | None:
    """The number a text is: decimals, fractions, thousands' commas, and the signs $ and %; None if it is none."""
    text = re.sub(r"\\?[$%]", "", _FRACTION.sub(r"\1/\2", text)).strip().rstrip(".")
    text = re.sub(r"(?<=[0-9]),(?=[0-9]{3}(?![0-9]))", "", text)
    if len(text) > 100 or not _PLAIN.fullmatch(text):
        return None
    above, _, below = text.partition("/")
    return None if below and not int(below) else Fraction(above) / int(below or 1)


def _plain(text: str) -> str:
    """A text without what does not matter: case, spacing, quotes, dollar signs, a final full stop, \\text{}."""
    text = re.sub(r"\\text\s*\{([^{}]*)\}", r"\1", text)
    return " ".join(text.strip().strip("$\"'`*").rstrip(".").split()).casefold()


def same_answer(said: str, right: str) -> bool:
    """Whether two final answers are the same: as numbers, as plain text, or as mathematics.

    A right answer that is a number wants a number: `17+25` is not an answer to `17+25=?`. "10%" is both 10 and 0.1,
    unless both sides carry the sign.
    """
    if _plain(said) == _plain(right):
        return bool(_plain(right))
    one, other = number(said), number(right)
    if other is not None:
        by_sign = Fraction(100) ** (("%" in said) - ("%" in right))
        return one is not None and (one == other or one == other * by_sign)
    mathematical = re.search(r"[0-9\\^+*/=]", right) and not re.fullmatch(r"[0-9\s:./-]+", right)  # no dates, no times
    return bool(mathematical) and _same_mathematics(said, right)


def small_powers(text: str) -> bool:
    """Whether evaluating a text is quick as far as its powers go: plain exponents, no towers, small powers of sums."""
    found = [(bracket, int(a or b)) for bracket, a, b in _EXPONENT.findall(text) if (a or b).isdigit()]
    of_sums = math.prod(exponent for bracket, exponent in found if bracket)
    return of_sums <= 20 and not re.search(r"\^|\*\*", _EXPONENT.sub("", text))


def _tame(text: str) -> bool:
    """Whether it is safe to let a computer algebra system work on a text without a time limit."""
    return len(text) <= 200 and small_powers(text) and not re.search(r"!|[0-9]{30}|\\(?:sum|prod|int|lim|binom)", text)


def _same_mathematics(said: str, right: str) -> bool:
    """Equality by math-verify, where it is installed and both are tame. Its own time limits need signals, so are off."""
    try:
        from math_verify import parse, verify
    except ImportError:
        return False
    if not _tame(said) or not _tame(right):
        return False
    for module in ("parser", "grader"):
        logging.getLogger(f"math_verify.{module}").setLevel(logging.ERROR)  # they warn that the time limit is off
    try:
        gold, told = (parse(f"${text.strip().strip('$')}$", parsing_timeout=None) for text in (right, said))
        return bool(verify(gold, told, timeout_seconds=None))
    except Exception:  # noqa: BLE001 - whatever odd text does to a parser, what cannot be compared is not right
        return False


# ------------------------------------------------------------------------------------------- the user's own functions


def _module(place: str, spec: str) -> ModuleType:
    """The module at a path that ends in .py, or of a dotted name."""
    if not place.endswith(".py"):
        try:
            return importlib.import_module(place)
        except Exception as error:
            raise ValueError(
                f"reward {spec!r}: importing {place!r} failed ({type(error).__name__}: {error}); "
                "check the name, or write path/to/file.py:function"
            ) from error
    path = Path(place).expanduser().resolve()
    if not path.is_file():
        raise ValueError(f"reward {spec!r}: no file {place!r}; check the path (it is looked up from {Path.cwd()})")
    name = f"burnish_reward_{path.stem}_{zlib.crc32(str(path).encode()):08x}"
    found = importlib.util.spec_from_file_location(name, path)
    assert found is not None and found.loader is not None, path
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module  # dataclasses and the like look their own module up
    try:
        found.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise ValueError(
            f"reward {spec!r}: running {place} failed ({type(error).__name__}: {error}); fix it"
        ) from error
    return module


def load_function(spec: str) -> RewardFunction:
    """The function of `path/to/file.py:function` or `package.module:function`."""
    place, colon, name = spec.rpartition(":")
    if not colon or not place or not name:
        raise ValueError(
            f"reward {spec!r} names no function; write path/to/file.py:function or package.module:function"
        )
    module = _module(place, spec)
    function = vars(module).get(name)
    if not callable(function):
        here = [n for n, v in vars(module).items() if inspect.isfunction(v) and v.__module__ == module.__name__]
        raise ValueError(f"reward {spec!r}: {place} has no function {name!r}; it has {', '.join(here) or 'none'}")
    return function


def _arguments(function: RewardFunction, name: str, offered: dict[str, Any]) -> dict[str, Any]:
    """Of what is offered, the keywords the function takes; one it needs and nobody offers is refused by name."""
    parameters = inspect.signature(function).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        taken = offered
    else:
        taken = {key: value for key, value in offered.items() if key in parameters}
    for parameter in parameters.values():
        needed = parameter.default is parameter.empty and parameter.kind not in (
            parameter.VAR_KEYWORD,
            parameter.VAR_POSITIONAL,
        )
        if needed and (parameter.name not in taken or parameter.kind is parameter.POSITIONAL_ONLY):
            raise ValueError(
                f"reward {name}: takes {parameter.name!r}, which nobody offers; "
                f"the keywords offered are {', '.join(offered)}"
            )
    return taken


def call_reward(
    function: RewardFunction, prompts: Sequence[Any], completions: Sequence[str], columns: Mapping[str, Sequence[Any]]
) -> list[float]:
    """Call `f(completions=..., prompts=..., **columns)`, with only the keywords it takes, and check what comes back.

    columns  name -> one value per completion. The result is one finite number per completion, or a ValueError
    (a NotFinite where a number is NaN or infinite).
    """
    name = getattr(function, "__qualname__", repr(function))
    offered = {**columns, "prompts": prompts, "completions": completions}
    taken = _arguments(function, name, offered)
    try:
        result = function(**taken)
    except Exception as error:
        raise ValueError(f"reward {name} raised {type(error).__name__}: {error}; fix the function") from error
    values = result.tolist() if type(result).__name__ in ("Tensor", "ndarray") else result
    if not isinstance(values, list | tuple):
        raise ValueError(f"reward {name} returned {type(result).__name__}; return a list with one number a completion")
    if len(values) != len(completions):
        raise ValueError(
            f"reward {name} returned {len(values)} numbers for {len(completions)} completions; return one for each"
        )
    for index, (value, completion) in enumerate(zip(values, completions, strict=True)):
        if not isinstance(value, Real) or not math.isfinite(value):
            raise (NotFinite if isinstance(value, Real) else ValueError)(
                f"reward {name} returned {value!r} at index {index}, for the completion beginning "
                f"{str(completion)[:60]!r}; return a finite number"
            )
    return [float(value) for value in values]
