"""A pytest plugin that runs tests in a random order: `pytest -p shuffled`, with the seed in SHUFFLED."""

from __future__ import annotations

import os
import random

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    random.Random(int(os.environ.get("SHUFFLED", "0"))).shuffle(items)
