"""Load on `burnish serve tiny`: many clients with the key beside a flood of strangers; answers, times and memory.

    python scripts/measure_endpoint.py              20,000 requests of 64 clients: benchmarks/results/endpoint.json
    python scripts/measure_endpoint.py --clients 8 --requests 200 --out /tmp/smoke.json

The server, the clients and the strangers are processes of their own. Each request is a chat of one message whose reply
is at most one token long, sampled by the model; a sixteenth of them come on new connections. Strangers are silent, send
half of a request, guess the key or write bytes that are no HTTP, and keep up to 400 connections open. The server's
resident memory is read five times a second. Exit 1 after a request without its answer, or growth above ALLOWED_MB from
the second tenth of the requests to the last.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULT = ROOT / "benchmarks" / "results" / "endpoint.json"
ALLOWED_MB = 8.0  # growth that counts as flat: what an allocator keeps
POINTS = 100  # of the stored curve

OWNERS = """
import http.client, json, sys, threading, time
port, key, clients, requests = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
body = json.dumps({"messages": [{"role": "user", "content": "hello"}], "max_tokens": 1})
wrong, took = [], []

def work(k):
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    for i in range(requests // clients + (k < requests % clients)):
        begun = time.monotonic()
        try:
            if i % 16 == 15:  # every sixteenth on a new connection, among the strangers
                line.close()
            line.request("POST", "/v1/chat/completions", body, {"Authorization": "Bearer " + key})
            answer = line.getresponse()
            said = answer.read()
            if answer.status != 200 or json.loads(said)["usage"]["completion_tokens"] < 1:
                wrong.append(answer.status)
        except Exception as error:
            wrong.append(repr(error))
            line.close()
        took.append(time.monotonic() - begun)
        if len(took) % 50 == 0:
            print(len(took), flush=True)

threads = [threading.Thread(target=work, args=(k,)) for k in range(clients)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
took.sort()
times = {"median_s": took[len(took) // 2], "p99_s": took[len(took) * 99 // 100], "longest_s": took[-1]}
print(json.dumps({"failed": len(wrong), "examples": wrong[:5], **times}))
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
print(0, flush=True)
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


def resident_mb(pid: int) -> float:
    """Resident memory of a process in MiB."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def last_line(log: Path) -> str:
    """The last whole line of a file that is being written."""
    return (log.read_text().rpartition("\n")[0].splitlines() or ["0"])[-1]


@contextmanager
def strangers(port: int, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Flood a port for as long as the block runs; the log's last line is the number of connections tried."""
    with log.open("w") as out:
        flood = subprocess.Popen([sys.executable, "-c", STRANGERS, str(port)], stdout=out)
    try:
        yield flood
    finally:
        flood.kill()
        flood.wait()


@contextmanager
def server(folder: Path) -> Iterator[tuple[int, int, str]]:
    """`burnish serve tiny` on a free port: its process, port and key."""
    log = folder / "server.txt"
    words = [sys.executable, "-m", "burnish", "serve", "tiny", "--port", "0", "--max-new-tokens", "1"]
    with log.open("w") as out:
        process = subprocess.Popen(words, stdout=out, stderr=out)
    try:
        end = time.monotonic() + 120
        while "API key:" not in log.read_text() or not log.read_text().endswith("\n"):
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"the server did not start: {log.read_text()}")
            time.sleep(0.1)
        said = {line.partition(":")[0]: line.partition(":")[2].strip() for line in log.read_text().splitlines()}
        yield process.pid, int(said["base URL"].split(":")[2].split("/")[0]), said["API key"]
        if process.poll() is not None:
            raise RuntimeError(f"the server ended: {log.read_text()[-2000:]}")
    finally:
        process.terminate()
        process.wait(30)


def measure(clients: int, requests: int, folder: Path) -> dict[str, Any]:
    """Ask while strangers come, and read the server's memory and threads meanwhile."""
    curve: list[list[float]] = []  # requests answered, MiB, threads
    with server(folder) as (pid, port, key), strangers(port, folder / "strangers"):
        begun = time.monotonic()
        asked = folder / "owners"
        words = [sys.executable, "-c", OWNERS, str(port), key, str(clients), str(requests)]
        with asked.open("w") as out:
            owners = subprocess.Popen(words, stdout=out)
        while owners.poll() is None:
            done = last_line(asked)
            threads = len(os.listdir(f"/proc/{pid}/task"))
            curve.append([int(done) if done.isdecimal() else requests, round(resident_mb(pid), 2), threads])
            if len(curve) % 150 == 0:
                print(f"{curve[-1][0]} requests, {curve[-1][1]:.1f} MiB, {threads} threads", flush=True)
            time.sleep(0.2)
        seconds = time.monotonic() - begun
        made = int(last_line(folder / "strangers"))
    tenth = max(1, len(curve) // 10)  # of the time, which is that of the requests where they come evenly
    parts = (curve[tenth : 2 * tenth + 1], curve[-tenth:])
    early, late = (statistics.median(mb for _, mb, _ in part) for part in parts)
    every = max(1, len(curve) // POINTS)
    return {
        "clients": clients,
        "requests": requests,
        "seconds": round(seconds, 1),
        **json.loads(last_line(asked)),
        "connections_of_strangers": made,
        "mb_second_tenth": early,
        "mb_last_tenth": late,
        "most_threads": max(threads for _, _, threads in curve),
        "curve": curve[::every],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--out", type=Path, default=RESULT)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(asked.clients, asked.requests, Path(folder))
    about = {"date": time.strftime("%Y-%m-%d"), "cores": len(os.sched_getaffinity(0)), "cpu": platform.machine()}
    asked.out.write_text(json.dumps(about | {"load": [round(x, 1) for x in os.getloadavg()]} | found) + "\n")
    print({name: value for name, value in found.items() if name != "curve"})
    return 1 if found["failed"] or found["mb_last_tenth"] - found["mb_second_tenth"] > ALLOWED_MB else 0


if __name__ == "__main__":
    sys.exit(main())
