"""The result of a call in another thread."""

from __future__ import annotations

import threading

import pytest

from burnish.util.pending import Pending


def test_a_result_is_waited_for() -> None:
    pending, seen = Pending(), []
    pending.then(lambda: seen.append("then"))
    threading.Timer(0.02, lambda: pending.finish(3)).start()
    assert not pending.done
    assert pending.result(10) == 3 and pending.done
    pending.then(lambda: seen.append("now"))
    assert seen == ["then", "now"]
    assert pending.result(0) == 3


def test_errors_and_time_limits_are_raised() -> None:
    pending = Pending()
    with pytest.raises(TimeoutError):
        pending.result(0.01)
    pending.finish(error=ValueError("broken"))
    with pytest.raises(ValueError, match="broken"):
        pending.result(0)


def test_what_follows_is_called_once_whoever_is_first() -> None:
    for _ in range(300):
        pending, seen = Pending(), []
        finisher = threading.Thread(target=pending.finish)
        finisher.start()
        pending.then(lambda seen=seen: seen.append(1))  # type: ignore[misc]
        finisher.join()
        assert seen == [1]
