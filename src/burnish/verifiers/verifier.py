"""Scoring of batches of replies in the sandbox: one persistent worker process per run, one round trip per batch.

A reply on which the worker takes too long, dies or runs out of memory scores 0 with the reason; the worker is replaced.
After the first that takes too long the rest of the batch goes to one worker per core: others often hang as well, and
their time limits are then not paid one after the other.
"""

from __future__ import annotations

import json
import math
import os
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from burnish.core.task import Verdict
from burnish.sandbox.codec import encode
from burnish.sandbox.process import Process

SECONDS = 10.0  # default time limit of one reply
MOST_WORKERS = 16  # that share the rest of a batch in which a reply hung
START = 120.0  # time limit for starting the process, with its imports
_KEPT = (  # environment variables that the worker inherits
    *("PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PYTHONHASHSEED", "PYTHONHOME", "TMPDIR", "MPLCONFIGDIR"),
    *("XDG_CACHE_HOME", "XDG_CONFIG_HOME"),
)
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class Verifier:
    """A worker process and its scorers. Thread-safe; one call at a time is processed.

    workers: processes that share the rest of a batch in which a reply took too long; 1: its own alone
    """

    def __init__(self, workers: int | None = None) -> None:
        self.workers = workers or min(os.cpu_count() or 1, MOST_WORKERS)
        self._process: Process | None = None
        self._ready: set[str] = set()  # scorers that the worker has built
        self._starting: list[str] = []  # requested scorers whose answers are not read yet
        self._lock = threading.RLock()
        self.isolation: dict[str, str] = {}

    def prepare(self, spec: Mapping[str, object]) -> None:
        """Start the worker and let it build a scorer, without waiting."""
        with self._lock:
            name = json.dumps(encode(dict(spec)), sort_keys=True)
            if self._process is None:
                environment = {key: os.environ[key] for key in _KEPT if key in os.environ} | _ONE_THREAD
                self._process = Process("burnish.verifiers.worker", environment=environment, quiet=True)
                self._starting = [""]  # the first line is its process id
            if name not in self._ready and name not in self._starting:
                self._process.post({"spec": encode(dict(spec))})
                self._starting.append(name)

    def judge(
        self, spec: Mapping[str, object], facts: Sequence[object], replies: Sequence[str], seconds: float = SECONDS
    ) -> list[Verdict]:
        """A verdict for each reply, by the facts of its task."""
        with self._lock:
            places: dict[int, int] = {}
            for fact in facts:
                places.setdefault(id(fact), len(places))
            # tasks have several replies
            unique = [encode(fact) for fact in {id(fact): fact for fact in facts}.values()]
            items = [(places[id(fact)], reply) for fact, reply in zip(facts, replies, strict=True)]
            verdicts: list[Verdict] = []
            died = -1  # the last reply on which a worker died
            while len(verdicts) < len(items):
                try:
                    self._ask(spec, unique, items[len(verdicts) :], seconds, verdicts)
                except TimeoutError:
                    where = self._process.where() if self._process else ""
                    why = f"the verifier had not answered after {seconds:g} s{where}; its process was killed"
                    verdicts.append(Verdict(0.0, False, why, failed=True))
                    self.end()
                    if (left := len(items) - len(verdicts)) > 1 and self.workers > 1:
                        return verdicts + self._shared(spec, facts[-left:], replies[-left:], seconds)
                except EOFError:
                    self.end()
                    if died == len(verdicts):  # it died twice on the same reply, so the reply is the cause
                        verdicts.append(
                            Verdict(0.0, False, "the process of the verifier died on this reply", failed=True)
                        )
                    else:
                        died = len(verdicts)
            return verdicts

    def _shared(
        self, spec: Mapping[str, object], facts: Sequence[object], replies: Sequence[str], seconds: float
    ) -> list[Verdict]:
        """The verdicts of several workers, each of which takes the next reply when it is done with one."""
        verdicts: list[Verdict | None] = [None] * len(replies)
        numbers = iter(range(len(replies)))

        def work() -> None:
            worker = Verifier(workers=1)
            try:
                for number in iter(lambda: next(numbers, None), None):
                    verdicts[number] = worker.judge(spec, [facts[number]], [replies[number]], seconds)[0]
            finally:
                worker.end()

        count = min(self.workers, len(replies))
        with ThreadPoolExecutor(count, thread_name_prefix="burnish-verifier") as pool:
            for done in [pool.submit(work) for _ in range(count)]:
                done.result()
        return [verdict for verdict in verdicts if verdict is not None]

    def end(self) -> None:
        """End the worker; the next call starts another."""
        with self._lock:
            if self._process is not None:
                self._process.end()
            self._process, self._ready, self._starting = None, set(), []

    def _ask(
        self,
        spec: Mapping[str, object],
        facts: Sequence[object],
        items: list[tuple[int, str]],
        seconds: float,
        verdicts: list[Verdict],
    ) -> None:
        """Append a verdict for each item; raise TimeoutError or EOFError at the first without one."""
        process = self._started(spec)
        process.post({"spec": encode(dict(spec)), "facts": facts, "items": items, "seconds": seconds})
        for number in range(len(items)):
            answer = process.receive(seconds)
            if answer.get("number") != number:
                raise EOFError
            if "bad_row" in answer:
                self.end()  # the answers to the other items of this request are not read
                raise ValueError(answer["bad_row"])
            verdicts.append(_verdict(answer))
            if answer.get("failed"):
                self.end()  # it is out of memory, so another worker scores the rest
                return

    def _started(self, spec: Mapping[str, object]) -> Process:
        """The worker, after it has built the scorer."""
        self.prepare(spec)
        process = self._process
        assert process is not None
        while self._starting:
            try:
                answer = process.receive(START)
            except (TimeoutError, EOFError) as error:
                late = isinstance(error, TimeoutError)
                why = f"did not start within {START:g} s" if late else f"{process.obituary()} while it started"
                self.end()
                raise ValueError(
                    f"the verifier process {why}; check for a limit on memory or processes that keeps Python from "
                    "starting"
                ) from None
            name = self._starting.pop(0)
            if "error" in answer:
                raise ValueError(f"the verifier could not be built in its process: {answer['error']}")
            if name:
                self._ready.add(name)
                self.isolation = dict(answer.get("isolation", {}))
        return process


def _verdict(answer: dict[str, object]) -> Verdict:
    if "failed" in answer:
        return Verdict(0.0, False, f"the verifier failed: {answer['failed']}", failed=True)
    if "raised" in answer:
        return Verdict(0.0, False, f"the verifier raised {answer['raised']}")
    score = answer.get("score")
    if not isinstance(score, float) or not math.isfinite(score):
        raise EOFError
    return Verdict(score, bool(answer.get("correct")), str(answer.get("reason", "")))


_OF_THIS_PROCESS: dict[tuple[int, str], Verifier] = {}


def verifier(kind: str) -> Verifier:
    """This process's verifier for scorers of one kind, which share imports. A forked child gets its own."""
    return _OF_THIS_PROCESS.setdefault((os.getpid(), kind), Verifier())
