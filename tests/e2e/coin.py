"""A reward for tests: a fair coin, tossed by the text itself, that takes its time."""

from __future__ import annotations

import hashlib
import time


def coin(completions: list[str]) -> list[float]:
    time.sleep(0.05)
    return [float(hashlib.md5(text.encode()).digest()[0] % 2) for text in completions]
