"""Read the git commit and changed files of a folder without running programs that its .git/config names.

The .git/config of an untrusted repository can name programs: core.fsmonitor, hooks, filters, external diffs, an
upload-pack for missing objects. `git status` would run several of them. So this module uses only commands that apply no
filter to work tree files (rev-parse, diff-index --raw), disables hooks, fsmonitor, submodules and lazy fetching, and
removes GIT_* from the environment. Files that git lists as changed only by their time stamp are hashed here.
"""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
from pathlib import Path

from burnish.store.records import GitState

TIMEOUT_SECONDS = 5.0
LARGEST = 64 << 20  # bytes; a larger file with a new time stamp is not hashed and counts as changed
_SAFE = ("core.fsmonitor=", "core.hooksPath=/dev/null", "core.untrackedCache=false", "core.pager=cat", "diff.external=")


def git_state(folder: Path) -> GitState | None:
    """Commit, branch and changed files of a folder; None if it is not in a git repository."""
    commit = _git(folder, "rev-parse", "--verify", "HEAD").strip()
    top = _git(folder, "rev-parse", "--show-toplevel").rstrip("\n")
    if not commit:
        return None
    return {
        "commit": commit,
        "branch": _git(folder, "rev-parse", "--abbrev-ref", "HEAD").strip(),
        "changed": _changed(Path(top)) if top else [],
    }


def _changed(top: Path) -> list[str]:
    """The tracked files that differ from HEAD, each with a letter: "M src/a.py"."""
    options = (
        "--raw",
        "-z",
        "--no-renames",
        "--no-abbrev",
        "--ignore-submodules=all",
        "--no-ext-diff",
        "--no-textconv",
    )
    fields = _git(top, "diff-index", *options, "HEAD", "--").split("\0")
    changed = []
    for header, name in zip(fields[::2], fields[1::2], strict=False):
        # ":mode mode hash hash letter"; the second hash is all zeros if only the work tree differs
        parts = header.split()
        if len(parts) == 5 and not (parts[4] == "M" and not parts[3].strip("0") and _same(top / name, parts)):
            changed.append(f"{parts[4]} {name}")
    return changed


def _same(file: Path, parts: list[str]) -> bool:
    """Whether a file's bytes equal the blob of HEAD, so that only its time stamp changed. No filter is applied."""
    old, new, wanted = parts[0].lstrip(":"), parts[1], parts[2]
    try:
        status = os.lstat(file)
        if old != new or not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST:
            return False
        content = file.read_bytes()
    except OSError:
        return False
    kind = hashlib.sha256 if len(wanted) == 64 else hashlib.sha1
    return kind(b"blob %d\0" % len(content) + content).hexdigest() == wanted


def _git(folder: Path, *words: str) -> str:
    """Standard output of a git command; empty if it fails."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    on = ("GIT_CONFIG_NOSYSTEM", "GIT_NO_LAZY_FETCH", "GIT_NO_REPLACE_OBJECTS")
    off = ("GIT_OPTIONAL_LOCKS", "GIT_TERMINAL_PROMPT")
    environment |= {"GIT_ALLOW_PROTOCOL": "", **dict.fromkeys(on, "1"), **dict.fromkeys(off, "0")}
    settings = [word for setting in _SAFE for word in ("-c", setting)]
    try:
        done = subprocess.run(
            ["git", "--no-pager", *settings, "-C", str(folder), *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
            env=environment,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else ""
