"""The final answer of a reply, and its comparison with the right one."""

from __future__ import annotations

import importlib.util
import math
import re
from collections.abc import Callable
from fractions import Fraction

from burnish.core.task import Verdict

Comparison = Callable[[str, str], bool]

LONGEST = 20_000  # characters of a reply that are read, from its end
_DIGITS = r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+"
_NUMBER = re.compile(rf"(?:(?<![\w)])[-+])?\$?(?:{_DIGITS})(?:/[0-9]+)?%?")
_PLAIN = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[-+]?[0-9]{1,2})?(?:/[0-9]+)?", re.IGNORECASE)
_FRACTION = re.compile(r"\\[dt]?frac\{(\d+)\}\{(\d+)\}")
_ANSWER = re.compile(r"answer\s*:", re.IGNORECASE)
_EXPONENT = re.compile(  # the bracket that closes before it, if any, and the exponent: 2, n, {10}, (3/2), not 2^3
    r"([)}]?)\s*(?:\^|\*\*)\s*(?:[{(]\s*-?([0-9A-Za-z]{1,3})(?:/[0-9]{1,3})?\s*[})]|([0-9A-Za-z]{1,3})(?![0-9A-Za-z.]))"
    r"(?!\s*(?:\^|\*\*))"
)


def _boxed(text: str) -> str | None:
    """The contents of the last `\\boxed{...}` with balanced braces; None if there is none or it is never closed."""
    boxes = {match.end() for match in re.finditer(r"\\boxed\s*\{", text)}
    opened: list[int] = []
    last: tuple[int, int] | None = None
    for brace in re.finditer(r"[{}]", text) if boxes else ():
        if brace.group() == "{":
            opened.append(brace.end())
        elif opened and (start := opened.pop()) in boxes and (last is None or start > last[0]):
            last = start, brace.start()
    return None if last is None else text[slice(*last)]


def spoken(reply: str, tag: str = "answer") -> str:
    """What a reply says after its thinking.

    The text after the last `</think>`, and of that the contents of the last `<answer>...</answer>` (or other `tag`) if
    there is one; nothing where a `<think>` is never closed.
    """
    answer = reply.rpartition("</think>")[2]
    if "<think>" in answer:
        return ""
    return answer.rpartition(f"<{tag}>")[2].partition(f"</{tag}>")[0].strip()


def final_answer(reply: str, right: str = "") -> str:
    """The final answer of what a reply says after its thinking.

    The text after the last `####`; else in the last `\\boxed{}`; else after the last `answer:` on its line; else the
    last number if the right answer is a number; else the last line. If the right answer is a number and this text is
    more than a number ("72 clips"), its last number.
    """
    text = spoken(reply)[-LONGEST:].strip().replace("\u2212", "-")
    numeric = bool(right) and number(right) is not None
    marked = [*_ANSWER.finditer(text)]
    if "####" in text:
        answer = _first_line(text.rpartition("####")[2])
    elif (boxed := _boxed(text)) is not None:
        answer = boxed.strip()
    elif marked:
        answer = _first_line(text[marked[-1].end() :])
    else:
        return _last_number(text) if numeric else _first_line(text.rpartition("\n")[2])
    return _last_number(answer) if numeric and number(answer) is None else answer


def _first_line(text: str) -> str:
    """The first non-empty line, without bold and italic marks around it."""
    return (text.strip("*_ \t\r\n").splitlines() or [""])[0].strip("*_ \t")


def _last_number(text: str) -> str:
    numbers = _NUMBER.findall(text)
    return numbers[-1] if numbers else text


def number(text: str) -> Fraction | None:
    """Parse a number: decimals, fractions, thousands separators, and the signs $ and %; None if it is not a number."""
    text = re.sub(r"\\?[$%]", "", _FRACTION.sub(r"\1/\2", text)).strip().rstrip(".")
    text = re.sub(r"(?<=[0-9]),(?=[0-9]{3}(?![0-9]))", "", text)
    if len(text) > 100 or not _PLAIN.fullmatch(text):
        return None
    above, _, below = text.partition("/")
    return None if below and not int(below) else Fraction(above) / int(below or 1)


def _plain(text: str) -> str:
    """Normalised text: without case, extra spaces, quotes, dollar signs, a final full stop, \\text{}."""
    text = re.sub(r"\\text\s*\{([^{}]*)\}", r"\1", text)
    return " ".join(text.strip().strip("$\"'`*").rstrip(".").split()).casefold()


def same_answer(answer: str, right: str, mathematics: Comparison | None = None) -> bool:
    """Whether two final answers are equal: as numbers, as plain text, or as mathematics.

    mathematics: compares two texts as mathematics; by default in the sandbox, because it evaluates its input.

    If the right answer is a number, so must the answer be: `17+25` does not answer `17+25=?`. "10%" equals both 10 and
    0.1, unless both sides have the sign.
    """
    if _plain(answer) == _plain(right):
        return bool(_plain(right))
    said_number, right_number = number(answer), number(right)
    if right_number is not None:
        by_sign = Fraction(100) ** (("%" in answer) - ("%" in right))
        return said_number is not None and (said_number == right_number or said_number == right_number * by_sign)
    mathematical = re.search(r"[0-9\\^+*/=]", right) and not re.fullmatch(r"[0-9\s:./-]+", right)  # no dates, no times
    return bool(mathematical) and (mathematics or _in_the_sandbox)(answer, right)


def judge_answer(right: str, reply: str, mathematics: Comparison | None = None) -> Verdict:
    """Correct if the final answer of the reply equals the right one."""
    answer = final_answer(reply, right)
    if same_answer(answer, right, mathematics):
        return Verdict(1.0, True)
    return Verdict(0.0, False, f"the answer is {right[:40]!r}, not {answer[:40]!r}")


def _in_the_sandbox(answer: str, right: str) -> bool:
    """Equality as mathematics by math-verify, in the verifier process; False if it is not installed."""
    from burnish.verifiers.verifier import verifier

    if importlib.util.find_spec("math_verify") is None:
        return False
    return verifier("answers").judge({"kind": "mathematics"}, [right], [answer])[0].correct


def small_powers(text: str) -> bool:
    """Whether the powers in a text are cheap to evaluate: plain exponents, no towers, small powers of sums."""
    powers = [(bracket, int(a or b)) for bracket, a, b in _EXPONENT.findall(text) if (a or b).isdigit()]
    of_sums = math.prod(exponent for bracket, exponent in powers if bracket)
    return of_sums <= 20 and not re.search(r"\^|\*\*", _EXPONENT.sub("", text))
