"""The git state of a run, also in a repository whose configuration names programs to run."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from burnish.store.gitstate import git_state

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main")
    return subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """One commit with two files."""
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q")
    for name in ("a.txt", "b.txt"):
        (folder / name).write_text(f"{name}\n")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "first")
    return folder


def test_commit_branch_and_changed_files(repository: Path) -> None:
    commit = git(repository, "rev-parse", "HEAD")
    assert git_state(repository) == {"commit": commit, "branch": "main", "changed": []}
    (repository / "a.txt").write_text("other\n")
    (repository / "untracked.txt").write_text("new\n")
    os.utime(repository / "b.txt", (1, 1))  # touched, and the same
    (repository / "below").mkdir()
    assert git_state(repository / "below") == {"commit": commit, "branch": "main", "changed": ["M a.txt"]}
    git(repository, "rm", "-q", "b.txt")
    found = git_state(repository)
    assert found is not None and found["changed"] == ["M a.txt", "D b.txt"]


def test_outside_of_git_the_state_is_none(tmp_path: Path) -> None:
    assert git_state(tmp_path) is None


HOSTILE = {
    "fsmonitor": {"core.fsmonitor": "PROGRAM"},
    "hooks": {"core.hooksPath": "HOOKS"},
    "clean filter": {"filter.evil.clean": "PROGRAM"},
    "filter process": {"filter.evil.process": "PROGRAM", "filter.evil.required": "true"},
    "filter with = in its name": {"filter.e=vil.clean": "PROGRAM"},
    "external diff": {"diff.external": "PROGRAM"},
    "textconv": {"diff.evil.textconv": "PROGRAM", "diff.evil.command": "PROGRAM"},
    "pager": {"core.pager": "PROGRAM", "pager.diff-index": "PROGRAM", "pager.rev-parse": "PROGRAM"},
    "alias": {"alias.rev-parse": "!PROGRAM", "alias.diff-index": "!PROGRAM"},
    "missing object": {
        "extensions.partialClone": "evil",
        "remote.evil.url": ".",
        "remote.evil.promisor": "true",
        "remote.evil.uploadpack": "PROGRAM",
    },
}


@pytest.mark.parametrize("how", HOSTILE)
def test_a_hostile_configuration_runs_nothing(how: str, repository: Path, tmp_path: Path) -> None:
    """Each of these names a program that leaves a file behind when it runs."""
    touched, program, hooks = tmp_path / "touched", tmp_path / "program", tmp_path / "hooks"
    program.write_text(f"#!/bin/sh\ntouch {touched}\ncat\n")
    program.chmod(0o755)
    hooks.mkdir()
    for hook in ("post-index-change", "fsmonitor-watchman", "pre-commit"):
        shutil.copy(program, hooks / hook)
    for name, value in HOSTILE[how].items():
        git(repository, "config", name, value.replace("PROGRAM", str(program)).replace("HOOKS", str(hooks)))
    (repository / ".gitattributes").write_text("*.txt filter=evil diff=evil\nb.txt filter=e=vil\n")
    for name in ("a.txt", "b.txt"):
        (repository / name).write_text(f"changed {name}\n")
    if how == "missing object":
        tree = git(repository, "rev-parse", "HEAD^{tree}")
        (repository / ".git" / "objects" / tree[:2] / tree[2:]).unlink()
    found = git_state(repository)
    assert not touched.exists()
    if how != "missing object":
        assert found is not None and found["changed"] == ["M a.txt", "M b.txt"]


def test_the_hostile_configuration_is_one(repository: Path, tmp_path: Path) -> None:
    """Plain `git status` runs the program: the test above would notice it."""
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path / 'touched'}\n")
    program.chmod(0o755)
    git(repository, "config", "core.fsmonitor", str(program))
    subprocess.run(["git", "status"], cwd=repository, capture_output=True, check=False)
    assert (tmp_path / "touched").exists()


def test_git_environment_variables_are_ignored(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", "false")
    assert git_state(repository) is not None
