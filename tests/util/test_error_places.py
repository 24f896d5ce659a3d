"""Where a user's error was raised, as environments and agents say it."""

from __future__ import annotations

import json
import re

from burnish.util.failures import place_of


def test_a_users_error_has_its_place() -> None:
    """The last line of a file of theirs, below which Python's own library and burnish may have been called."""
    try:
        json.loads("{")
    except ValueError as error:
        assert re.fullmatch(r" at test_error_places.py, line \d+", place_of(error))
    assert place_of(ValueError("never raised")) == ""
