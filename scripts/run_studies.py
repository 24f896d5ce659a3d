"""Run several studies beside each other, for machines with many cores; the same command resumes.

    python scripts/run_studies.py --cores 16 --limit-seconds 540 --out build/studies
    python scripts/run_studies.py --quick --cores 2 noisy-rewards-rpr 1-shot-rlvr

Each study has its own folder and worker processes. Studies start in the given order as cores become free, so that the
last runs of one and the preparations of another do not leave cores idle.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from burnish.studies.claim_file import names

ORDER = (  # the most telling first
    "noisy-rewards-rpr",
    "1-shot-rlvr",
    "on-policy-negative-gradient-study",
    "kl-rl-as-bayesian-inference",
    "fine-tuning-vs-cot-faithfulness",
    "teaching-llms-to-reason-with-rl",
    "gradient-entanglement",
    "likelihood-over-optimisation",
    "dpo-survey",
    "objective-mismatch",
    "dpo-variants-evaluation",
)


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("studies", nargs="*", help="by default all in the box")
    flags.add_argument("--cores", type=int, default=os.cpu_count() or 1)
    flags.add_argument("--each", type=int, default=4, help="worker processes of one study")
    flags.add_argument("--limit-seconds", type=float, help="stop politely after so many seconds")
    flags.add_argument("--out", type=Path, default=Path("build/studies"))
    flags.add_argument("--quick", action="store_true")
    asked = flags.parse_args()
    waiting = [*(asked.studies or [*ORDER, *(name for name in names() if name not in ORDER)])]
    deadline = time.monotonic() + asked.limit_seconds if asked.limit_seconds else None
    each = max(1, min(asked.each, asked.cores))
    running: dict[str, subprocess.Popen[bytes]] = {}
    asked.out.mkdir(parents=True, exist_ok=True)
    try:
        while waiting or running:
            late = deadline is not None and time.monotonic() > deadline - 20
            while waiting and not late and len(running) < max(1, asked.cores // each):
                name = waiting.pop(0)
                running[name] = start(name, each, asked, deadline)
            if late:
                waiting.clear()
            for name, process in list(running.items()):
                if process.poll() is not None:
                    del running[name]
                    print(f"{name}: {last_line(asked.out / f'{name}.log')} (code {process.returncode})", flush=True)
            time.sleep(0.5)
    except KeyboardInterrupt:
        for process in running.values():
            process.send_signal(signal.SIGINT)
        for process in running.values():
            process.wait()


def start(name: str, workers: int, asked: argparse.Namespace, deadline: float | None) -> subprocess.Popen[bytes]:
    """One study in a process of its own."""
    folder = asked.out / (f"{name}-quick" if asked.quick else name)
    words = [sys.executable, "-m", "burnish", "study", "run", name, "--quiet", "--device", "cpu"]
    words += ["--workers", str(workers), "--out", str(folder), *(["--quick"] if asked.quick else [])]
    if deadline is not None:
        words += ["--limit-seconds", str(max(5, round(deadline - time.monotonic() - 15)))]
    with (asked.out / f"{name}.log").open("w") as log:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        return subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT, env=environment)


def last_line(file: Path) -> str:
    lines = file.read_text().splitlines()
    return lines[-1].strip()[:100] if lines else ""


if __name__ == "__main__":
    main()
