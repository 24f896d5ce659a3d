"""kernels.json: resuming with other CPU kernels gives a warning, or an error with --exact."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from guards import guards
from runs import contents, go

from burnish.api.train import resume
from burnish.kernels.cpu import build, kernel_cache
from burnish.run.train import Observer
from burnish.store.reader import open_store

pytestmark = guards("run/kernels.py", "kernels")

needs_kernels = pytest.mark.skipif(build.kernels() is None, reason=f"no kernels here: {build.why_not()}")
SAID = "from step 2 on the run uses other CPU kernels (before: "


class Heard(Observer):
    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warned(self, said: str) -> None:
        if "nothing was learned" not in said:  # two steps of equal rewards: another warning
            self.warnings.append(said)


@pytest.fixture(scope="module")
def halted(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Path]:
    """Runs that stopped after their first step of two: plain, and with --exact."""
    found = {}
    for exact in (False, True):
        found[exact] = tmp_path_factory.mktemp("halted") / "run"
        go("grpo", "tiny", found[exact], exact=exact)
        shutil.rmtree(found[exact] / "checkpoints" / "step-000002")
        shutil.rmtree(found[exact] / "model")
    return found


@pytest.fixture
def run(halted: dict[bool, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(halted[False], tmp_path / "run"))


@pytest.fixture
def exact_run(halted: dict[bool, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(halted[True], tmp_path / "run"))


def resumed_elsewhere(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """`burnish train --resume` in a process of its own."""
    command = [sys.executable, "-m", "burnish.cli", "train", "--resume", str(folder), "--quiet"]
    changed = {**os.environ, **environment}
    return subprocess.run(command, env=changed, capture_output=True, text=True, timeout=120)


def steps(folder: Path) -> list[tuple[int, str]]:
    """After how many steps which library computed."""
    stored = json.loads((folder / "kernels.json").read_text())
    return [(one["after"], one.get("sha256", one.get("none"))) for one in stored]


def ours() -> str:
    made = build.made_by()
    assert isinstance(made, kernel_cache.Library)
    return made.sha256


@needs_kernels
def test_a_run_records_its_kernels(run: Path) -> None:
    (found,) = json.loads((run / "kernels.json").read_text())
    assert found["after"] == 0 and found["sha256"] == ours()
    assert found["version"] and "-march=native" in found["flags"] and found["features"]
    with open_store(run) as store:
        assert store.info()["kernels"]["sha256"] == ours()


@needs_kernels
def test_a_resume_with_the_same_kernels_says_nothing(run: Path) -> None:
    heard = Heard()
    resume(run, observer=heard)
    assert not heard.warnings and steps(run) == [(0, ours())]


@needs_kernels
def test_a_resume_without_kernels_says_so(run: Path) -> None:
    done = resumed_elsewhere(run, BURNISH_COMPILE="0")
    assert done.returncode == 0, done.stdout + done.stderr
    (line,) = [line for line in done.stdout.splitlines() if SAID in line]
    assert "now: none, $BURNISH_COMPILE is 0" in line
    assert steps(run) == [(0, ours()), (1, "$BURNISH_COMPILE is 0")]


@needs_kernels
def test_a_resume_without_kernels_is_refused_under_exact(exact_run: Path) -> None:
    before = contents(exact_run)
    done = resumed_elsewhere(exact_run, BURNISH_COMPILE="0")
    said = (done.stdout + done.stderr).strip()
    assert done.returncode == 2 and "Traceback" not in said and len(said.splitlines()) == 1
    assert "was made with --exact by other CPU kernels" in said and "now: none, $BURNISH_COMPILE is 0" in said
    assert contents(exact_run) == before
    resume(exact_run)  # with its own kernels it resumes


@needs_kernels
def test_kernels_that_computed_nothing_that_is_left_are_forgotten(run: Path) -> None:
    """Others began after step 1 and saved nothing, in a file of the older form: the steps before are ours."""
    stored = json.loads((run / "kernels.json").read_text())
    (run / "kernels.json").write_text(json.dumps([*stored, {"step": 1, "none": "another machine"}]))
    heard = Heard()
    resume(run, observer=heard)
    assert not heard.warnings and steps(run) == [(0, ours())]


@needs_kernels
@pytest.mark.parametrize("text", ["", "{", "7", '[{"no step": 1}]', "[1]"])
def test_a_damaged_record_counts_as_other_kernels(text: str, exact_run: Path) -> None:
    (exact_run / "kernels.json").write_text(text)
    with pytest.raises(ValueError, match=r"by other CPU kernels \(before: unknown, kernels.json cannot be read"):
        resume(exact_run)


@needs_kernels
def test_a_run_of_an_earlier_version_has_no_record_and_gets_one(run: Path) -> None:
    (run / "kernels.json").unlink()
    heard = Heard()
    resume(run, observer=heard)
    assert not heard.warnings and steps(run) == [(1, ours())]
