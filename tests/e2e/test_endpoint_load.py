"""The endpoint under load: 64 clients with the key beside a flood of strangers. The model's answers are made up."""

from __future__ import annotations

import queue
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from burnish.serve import ChatServer
from burnish.serve.asked import Answered

CLIENTS, REQUESTS = 64, 20_000
OWNERS = """
import http.client, json, sys, threading
port, key, clients, requests = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
body = json.dumps({"messages": [{"role": "user", "content": "hello"}]})
wrong = []

def work(k):
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    for i in range(requests // clients + (k < requests % clients)):
        try:
            if i % 16 == 15:  # every sixteenth on a new connection, among the strangers
                line.close()
            line.request("POST", "/v1/chat/completions", body, {"Authorization": "Bearer " + key})
            answer = line.getresponse()
            if answer.status != 200 or not answer.read():
                wrong.append(answer.status)
        except Exception as error:
            wrong.append(repr(error))
            line.close()

threads = [threading.Thread(target=work, args=(k,)) for k in range(clients)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(len(wrong), wrong[:5])
"""
STRANGERS = """
import socket, sys, time
port = int(sys.argv[1])
heads = [  # silence, half of a head, a wrong key with a body that never comes, a wrong key, garbage
    b"", b"POST /v1/chat/completions HTTP/1.1\\r\\nX: ",
    b"POST / HTTP/1.1\\r\\nHost: 127.0.0.1:%d\\r\\nAuthorization: Bearer x\\r\\nContent-Length: 9\\r\\n\\r\\n{" % port,
    b"GET /v1/models HTTP/1.1\\r\\nHost: 127.0.0.1:%d\\r\\nAuthorization: Bearer guess\\r\\n\\r\\n" % port,
    b"\\x16\\x03\\x01\\r\\n\\r\\n",
]
lines, made = [], 0
print("begun", flush=True)
while True:
    try:
        line = socket.create_connection(("127.0.0.1", port), timeout=1)
        line.sendall(heads[made % len(heads)])
        lines.append(line)
    except OSError:
        pass
    made += 1
    if len(lines) > 400:
        lines.pop(0).close()
    if made % 20 == 0:
        print(made, flush=True)
    time.sleep(0.002)
"""


def resident() -> float:
    """MiB of memory that this process has now."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


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
                sizes.append(resident())
                threads.append(threading.active_count())

    worker = threading.Thread(target=work)
    worker.start()
    port = server.url.rpartition(":")[2]
    log = (tmp_path / "strangers").open("w+")
    flood = subprocess.Popen([sys.executable, "-c", STRANGERS, port], stdout=log)
    try:
        begun = time.monotonic()
        words = [sys.executable, "-c", OWNERS, port, server.token, str(CLIENTS), str(REQUESTS)]
        found = subprocess.run(words, capture_output=True, text=True, timeout=280, check=True).stdout
        seconds = time.monotonic() - begun
    finally:
        flood.kill()
        flood.wait()
        over.set()
        worker.join()
        server.end()
    log.seek(0)
    made = log.read().splitlines()[-1]
    print(f"{REQUESTS} requests in {seconds:.0f} s beside {made} connections of strangers; failed: {found.strip()};")
    print(f"MiB: {sizes[0]:.1f}, {sizes[len(sizes) // 2]:.1f}, {sizes[-1]:.1f}; threads: at most {max(threads)}")
    assert found.split()[0] == "0", found
    assert int(made) > 1000
    assert sizes[-1] - sizes[len(sizes) // 4] < 4.0
    assert max(threads) <= CLIENTS + 8
