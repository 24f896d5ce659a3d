"""Run every test, the slow ones too, in shards. What has passed is kept, test by test: a run that was stopped resumes.

    python scripts/test_all.py         all shards that have not yet passed with the present sources
    python scripts/test_all.py 3       shard 3 alone
    python scripts/test_all.py status  what has passed, and when

A test that failed runs again, one that passed does not, until something changes.

A shard is a share of the tests by the hash of file and parameter: tests which share a fixture stay together.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
KEPT = ROOT / ".stamps" / "test-all"
SHARDS = 6
WORKERS = os.environ.get("WORKERS", "2")
NO_TESTS = 5  # pytest's exit status where all of a shard had passed before


def tree() -> str:
    """What the tests depend on: a hash of the commit's files, and of what is not committed."""
    paths = ["src", "tests", "examples", "docs", "scripts", "benchmarks", "pyproject.toml"]
    paths += [":!tests/verified.json"]  # `make test` writes it
    tracked = subprocess.run(["git", "ls-files", "--stage", *paths], cwd=ROOT, capture_output=True, check=True).stdout
    changed = subprocess.run(["git", "diff", "HEAD", "--", *paths], cwd=ROOT, capture_output=True, check=True).stdout
    stdin = subprocess.run(
        ["git", "hash-object", "--stdin"], input=tracked + changed, cwd=ROOT, capture_output=True, check=True
    )
    return stdin.stdout.decode().strip()


def run(shard: int) -> bool:
    file = KEPT / f"{shard}.json"
    now = tree()
    known = json.loads(file.read_text()) if file.exists() else {}
    if known.get("tree") == now and known.get("passed"):
        print(f"shard {shard} of {SHARDS}: passed on {known['date']}: {known['result']}")
        return True
    begun = time.monotonic()
    KEPT.mkdir(parents=True, exist_ok=True)
    passed_file = KEPT / f"{shard}-{now[:12]}.txt"
    for older in KEPT.glob(f"{shard}-*.txt"):
        if older != passed_file:
            older.unlink()
    command = [sys.executable, "-m", "pytest", "-n", WORKERS, "-m", "not extras"]
    command += ["--shard", f"{shard}/{SHARDS}", "--passed", str(passed_file)]
    print(f"shard {shard} of {SHARDS}: {' '.join(command[1:])}", flush=True)
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    last = ""
    for line in process.stdout:
        print(line, end="", flush=True)
        last = line.strip() or last
    passed = process.wait() in (0, NO_TESTS)
    seconds = round(time.monotonic() - begun) + (known.get("seconds", 0) if known.get("tree") == now else 0)
    told = {"tree": now, "passed": passed, "result": last, "date": time.strftime("%Y-%m-%d"), "seconds": seconds}
    file.write_text(json.dumps(told, indent=1))
    return passed


def main(words: list[str]) -> int:
    if words == ["status"]:
        for shard in range(1, SHARDS + 1):
            file = KEPT / f"{shard}.json"
            print(shard, file.read_text() if file.exists() else "has not run")
        return 0
    shards = [int(word) for word in words] or list(range(1, SHARDS + 1))
    failed = [shard for shard in shards if not run(shard)]
    print(f"failed: shards {', '.join(map(str, failed))}" if failed else "all passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
