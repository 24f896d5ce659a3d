"""Threads that are used again, and calls that never end."""

from __future__ import annotations

import sys
import threading

import pytest
from guards import guards

from burnish.util import threads
from burnish.util.threads import in_thread, quick_switches

pytestmark = guards("util")


def test_a_free_thread_is_used_again() -> None:
    names: list[int] = []

    def once() -> int:
        done = threading.Event()

        def call() -> None:
            names.append(threading.get_ident())
            done.set()

        in_thread(call)
        assert done.wait(10)
        while not threads._free:  # the thread frees itself after the call
            pass
        return names[-1]

    assert once() == once()


def test_calls_that_hang_do_not_stop_others() -> None:
    never, done = threading.Event(), threading.Semaphore(0)

    def hang() -> None:
        never.wait()

    for _ in range(threads.IDLE + 8):
        in_thread(hang)
    for _ in range(5):
        in_thread(done.release)
    for _ in range(5):
        assert done.acquire(timeout=10)
    never.set()
    for _ in range(10_000):
        if len(threads._free) == threads.IDLE:
            break
        threading.Event().wait(0.001)
    assert len(threads._free) == threads.IDLE


def test_free_threads_end_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "SECONDS", 0.05)
    done = threading.Event()
    in_thread(done.set)
    assert done.wait(10)
    for _ in range(1000):
        if all(worker.calls.empty() for worker in threads._free) and not _alive():
            return
        threading.Event().wait(0.02)
    pytest.fail("threads that nobody used did not end")


def test_switches_are_quick_inside_and_as_before_after_it() -> None:
    before = sys.getswitchinterval()
    with pytest.raises(RuntimeError, match="stop"), quick_switches():
        assert sys.getswitchinterval() == pytest.approx(min(before, threads.SWITCH))
        raise RuntimeError("stop")
    assert sys.getswitchinterval() == before


def _alive() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "environment"]
