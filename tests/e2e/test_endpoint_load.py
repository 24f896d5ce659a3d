"""The endpoint under load: 64 clients with the key beside a flood of strangers. The model's answers are made up."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from burnish.serve import ChatServer
from burnish.serve.asked import Answered

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
from measure_endpoint import OWNERS, last_line, resident_mb, strangers  # noqa: E402

CLIENTS, REQUESTS = 64, 20_000


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="it reads the memory from /proc")
def test_64_clients_beside_a_flood_of_strangers_get_every_answer_with_flat_memory(tmp_path: Path) -> None:
    server = ChatServer()
    server.open(name="default")
    over, sizes, threads = threading.Event(), [], []
    said = Answered("ok", "stop", [1, 2], [-0.1, -0.2], [5, 6, 7], ["o", "k"])

    def work() -> None:
        answered = 0
        while not over.is_set():
            try:
                server.questions.get(timeout=0.2).answer.put(said)
            except queue.Empty:
                continue
            answered += 1
            if answered % 1000 == 0:
                sizes.append(resident_mb(os.getpid()))
                threads.append(threading.active_count())

    worker = threading.Thread(target=work)
    worker.start()
    port = server.url.rpartition(":")[2]
    words = [sys.executable, "-c", OWNERS, port, server.token, str(CLIENTS), str(REQUESTS)]
    log = tmp_path / "strangers"
    try:
        begun = time.monotonic()
        with strangers(int(port), log):
            told = subprocess.run(words, capture_output=True, text=True, timeout=280, check=True).stdout
        seconds = time.monotonic() - begun
    finally:
        over.set()
        worker.join()
        server.end()
    found, made = json.loads(told.splitlines()[-1]), int(last_line(log))
    print(f"{REQUESTS} requests in {seconds:.0f} s beside {made} connections of strangers; {found};")
    print(f"MiB: {sizes[0]:.1f}, {sizes[len(sizes) // 2]:.1f}, {sizes[-1]:.1f}; threads: at most {max(threads)}")
    assert found["failed"] == 0, found
    assert made > 1000
    assert sizes[-1] - sizes[len(sizes) // 4] < 4.0
    assert max(threads) <= CLIENTS + 8
