"""Make what studies start from (trained corpora, teachers, pairs), several studies beside each other.

    python scripts/prepare_studies.py --out build/studies --at-once 8 --limit-seconds 150 echo-chamber okapi

Stages of `prepare` are small trainings, which a GPU makes in seconds. What is done is not done again; a study that is
not ready in time is left as it is, and `burnish study run` goes on with it.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from burnish.studies.claim_file import names, read_study


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("studies", nargs="*", help="by default all in the box that prepare something")
    flags.add_argument("--out", type=Path, default=Path("build/studies"))
    flags.add_argument("--at-once", type=int, default=os.cpu_count() or 1, help="studies beside each other")
    flags.add_argument("--limit-seconds", type=float, default=600)
    asked = flags.parse_args()
    waiting = [name for name in asked.studies or names() if read_study(name).prepare]
    asked.out.mkdir(parents=True, exist_ok=True)
    began, late = time.monotonic(), False
    running: dict[str, subprocess.Popen[bytes]] = {}
    while waiting or running:
        spent = time.monotonic() - began
        while waiting and len(running) < asked.at_once and spent < asked.limit_seconds:
            name = waiting.pop(0)
            words = [sys.executable, "-m", "burnish", "study", "run", name, "--prepare", "--quiet"]
            words += ["--out", str(asked.out / name)]
            with (asked.out / f"{name}-prepare.log").open("w") as log:
                running[name] = subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT)
        for name, process in list(running.items()):
            if process.poll() is not None:
                del running[name]
                print(f"{spent:.0f} s: {name} prepared (code {process.returncode})", flush=True)
        if spent > asked.limit_seconds and not late:
            late = True
            waiting.clear()
            for process in running.values():
                process.send_signal(signal.SIGINT)  # it saves, and the same command continues
        time.sleep(0.5)


if __name__ == "__main__":
    main()
