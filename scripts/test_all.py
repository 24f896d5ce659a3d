"""Run every test, the slow ones too, in shards; each shard's result is kept, so that an interrupted run resumes.

    python scripts/test_all.py         all shards that have not yet passed with the present sources
    python scripts/test_all.py 3       shard 3 alone
    python scripts/test_all.py status  what has passed, and when

A shard is a share of the tests by the hash of file and parameter: tests which share a fixture stay together.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
KEPT = ROOT / ".stamps" / "test-all"
SHARDS = 6


def tree() -> str:
    """What the tests depend on: a hash of the commit's files, and of what is not committed."""
    paths = ["src", "tests", "examples", "docs", "scripts", "benchmarks", "pyproject.toml"]
    tracked = subprocess.run(["git", "ls-tree", "HEAD", *paths], cwd=ROOT, capture_output=True, check=True).stdout
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
    command = [sys.executable, "-m", "pytest", "-n", "2", "-m", "not extras", "--shard", f"{shard}/{SHARDS}"]
    print(f"shard {shard} of {SHARDS}: {' '.join(command[1:])}", flush=True)
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    last = ""
    for line in process.stdout:
        print(line, end="", flush=True)
        last = line.strip() or last
    passed = process.wait() == 0
    KEPT.mkdir(parents=True, exist_ok=True)
    told = {"tree": now, "passed": passed, "result": last, "date": time.strftime("%Y-%m-%d")}
    file.write_text(json.dumps({**told, "seconds": round(time.monotonic() - begun)}, indent=1))
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
