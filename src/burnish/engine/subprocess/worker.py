"""The other side: an engine in a process, and perhaps a Python, of its own. Run as a script; it imports nothing of
burnish.

It reads one JSON object a line from its standard input, and writes one a line to what was its standard output (whatever
prints there goes to standard error instead). It says that it is alive every half second, and how far its work has come.
When its input ends, its parent is gone: it removes the weights that were left for it, and ends.

    {"do": "sample", "requests": [...]}   a line {"sample": {...}} for each as it is finished, then {"done": ...}
    {"do": "load", "folder": ...}         the weights in a Hugging Face directory take the place of the present ones
    {"do": "score", "rows": [...]}        {"done": [...]}: the log-prob of every token of each row but its first
"""

from __future__ import annotations

import faulthandler
import importlib.util
import json
import os
import queue
import shutil
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from burnish.engine.subprocess.messages import Order, Sampled, Wanted

BEAT = 0.5  # seconds between two signs of life
STUCK = 60.0  # seconds without one after which the process ends itself, whichever thread holds the interpreter's lock


class Sampler(Protocol):
    """What the file of a sampler holds: Sampler(folder, settings, progress)."""

    def sample(self, requests: list[Wanted], send: Callable[[Sampled], None]) -> None: ...

    def load(self, folder: str) -> None: ...

    def score(self, rows: list[list[int]]) -> list[list[float]]: ...


class Worker:
    """The pipes, the beats, and the one thing that is done at a time."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.back = os.fdopen(os.dup(1), "w", buffering=1)
        os.dup2(2, 1)  # prints of libraries are not answers
        self.lock = threading.Lock()
        self.asked: queue.SimpleQueue[Order] = queue.SimpleQueue()
        self.steps = 0
        for task in (self._listen, self._beat):
            threading.Thread(target=task, daemon=True).start()

    def say(self, **line: object) -> None:
        text = json.dumps(line) + "\n"
        with self.lock:
            self.back.write(text)

    def progress(self) -> None:
        """To be called by the sampler whenever its work has come a little further."""
        self.steps += 1

    def serve(self, sampler: Sampler) -> None:
        """Do what is asked, one thing after the other, for ever."""
        while True:
            order = self.asked.get()
            try:
                if order["do"] == "sample":
                    sampler.sample(order["requests"], lambda sample: self.say(sample=sample))
                    done: object = len(order["requests"])
                elif order["do"] == "load":
                    sampler.load(order["folder"])
                    done = order["folder"]
                else:
                    done = sampler.score(order["rows"])
            except Exception as error:
                traceback.print_exc()
                self.say(error=f"{type(error).__name__}: {' '.join(str(error).split())[:500]}", number=order["number"])
            else:
                self.say(done=done, number=order["number"])

    def _listen(self) -> None:
        for line in sys.stdin:
            self.asked.put(json.loads(line))
        shutil.rmtree(self.place, ignore_errors=True)
        os._exit(0)

    def _beat(self) -> None:
        while True:
            faulthandler.dump_traceback_later(STUCK, exit=True)
            try:
                self.say(beat=self.steps)
            except OSError:  # the reader has gone
                os._exit(0)
            threading.Event().wait(BEAT)


def sampler_of(file: Path) -> Any:
    """The module in this file. Its folder is not put on the path: names of files there are common."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> None:
    file, place, settings = Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
    sys.path.pop(0)
    worker = Worker(place)
    sampler = sampler_of(file).Sampler(settings["folder"], settings, worker.progress)
    worker.say(done=sampler.about, number=0)
    worker.serve(sampler)


if __name__ == "__main__":
    main()
