"""Replies without content that judges take for right ones: they are scored as wrong before a judge is asked.

Zhao et al., "One Token to Fool LLM-as-a-Judge" (arXiv 2507.08794): a lone symbol or the opening of a solution ("Thought
process:", "Let's solve this problem step by step.") is called correct by judges of every size, up to 80% of the time.
"""

from __future__ import annotations

import re
import unicodedata

PUBLISHED = (  # the ten of the paper
    " ",
    ".",
    ",",
    ":",
    "Thought process:",
    "Let's solve this problem step by step.",
    "Solution",
    "解",
    "かいせつ",
    "Respuesta",
)
_OPENERS = {  # the published ones and close relatives, as `_plain` writes them
    *("thought process", "thoughts", "thinking process", "mental process", "thought experiment", "reasoning"),
    *("reasoning process", "analysis", "explanation", "step by step", "step by step solution", "answer", "the answer"),
    *("final answer", "the final answer is", "the answer is", "solution", "the solution", "solution process", "proof"),
    *("detailed solution", "solution steps", "certainly", "of course"),
    *(
        "解",
        "解答",
        "解析",
        "答",
        "答案",
        "解説",
        "かいせつ",
        "かいとう",
        "解决方案",
        "思考过程",
        "让我们一步一步地解决这个问题",
    ),
    *("respuesta", "solución", "la solución", "réponse", "la réponse", "lösung", "antwort", "risposta", "soluzione"),
    *("resposta", "solução", "решение", "ответ", "해설", "답", "풀이", "الحل", "समाधान", "उत्तर"),
}
_ANNOUNCES = re.compile(
    r"(?:ok(?:ay)?|sure|alright|now|first)?[,.!\s]*"
    r"(?:let's|lets|let us|let me|we will|we'll|i will|i'll|i am going to|to(?= solve))\s+"
    r"(?:think|solve|work|break|go|do|start|begin|analy[sz]e|tackle|approach|figure|reason|take)\b[^\d=]{0,80}"
)
LONGEST = 120  # characters of the longest reply that is looked at: a longer one has content


def is_master_key(reply: str) -> bool:
    """Whether a reply has no content: punctuation alone, or nothing but the opening of a solution."""
    if len(reply) > LONGEST * 8:
        return False
    plain = _plain(reply)
    if not plain:
        return True
    return len(plain) <= LONGEST and (plain in _OPENERS or _ANNOUNCES.fullmatch(plain) is not None)


def _plain(text: str) -> str:
    """In lower case, with one kind of apostrophe, without symbols at its ends; empty where nothing else is there."""
    text = unicodedata.normalize("NFKC", text).replace("\u2019", "'").casefold()
    text = "".join(" " if unicodedata.category(letter) in ("Cc", "Cf", "Zs", "Zl", "Zp") else letter for letter in text)
    if not any(_says(letter) for letter in text):
        return ""
    return " ".join(re.sub(r"^[\W_]+|[\W_]+$", "", text).split()) or text.strip()


def _says(letter: str) -> bool:
    """Whether a character can be an answer: letters, digits, and symbols beyond ASCII such as an infinity sign."""
    if letter.isascii():
        return letter.isalnum()
    return unicodedata.category(letter)[0] not in "PZC"
