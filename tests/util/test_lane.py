"""Short calls share a thread; a long one does not hold up those behind it."""

from __future__ import annotations

import threading
import time

import pytest

from burnish.util.lane import LOOK, Lane


def test_short_calls_run_in_order_in_one_thread() -> None:
    lane, seen, done = Lane(), [], threading.Event()
    for k in range(200):
        lane.put(lambda k=k: seen.append((k, threading.get_ident())))  # type: ignore[misc]
    lane.put(done.set)
    assert done.wait(10)
    assert [k for k, _ in seen] == list(range(200))
    assert len({thread for _, thread in seen}) == 1


def test_calls_behind_one_that_hangs_get_threads_of_their_own() -> None:
    lane, never, done = Lane(), threading.Event(), threading.Semaphore(0)
    lane.put(never.wait)  # type: ignore[arg-type]
    for _ in range(20):
        lane.put(done.release)
    for _ in range(20):
        assert done.acquire(timeout=10)
    lane.put(never.wait)  # type: ignore[arg-type]
    lane.put(done.release)  # for a while every call has a thread
    assert done.acquire(timeout=10)
    never.set()


@pytest.mark.parametrize(("number", "seconds"), [(8, 6 * LOOK), (60, LOOK / 3)])
def test_slow_calls_run_beside_each_other(number: int, seconds: float) -> None:
    lane, done, lock = Lane(), threading.Semaphore(0), threading.Lock()
    now = most = 0

    def slow() -> None:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(seconds)
        with lock:
            now -= 1
        done.release()

    for _ in range(number):
        lane.put(slow)
    for _ in range(number):
        assert done.acquire(timeout=20)
    assert most >= 5  # those that waited for the first ones


def test_a_lane_that_was_left_alone_starts_again() -> None:
    lane, done = Lane(), threading.Event()
    lane.put(lambda: None)
    for _ in range(500):
        if not lane._serving:
            break
        time.sleep(0.01)
    assert not lane._serving
    lane.put(done.set)
    assert done.wait(10)
