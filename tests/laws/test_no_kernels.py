"""The kernels are optional: no other code imports them but through one lookup, and without them
everything else works.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from guards import guards

import burnish

pytestmark = guards("forward", "kernels", "engine")

SRC = Path(burnish.__file__).parent
ROOT = SRC.parent.parent
PACKAGE = "burnish.kernels"
HOURS = 2  # that the suite without kernels may take: every law on every method, in plain torch
WITHOUT = """
import sys
from pathlib import Path
import burnish
from burnish.forward.accelerate import kernels

assert Path(burnish.__file__).is_relative_to(Path(sys.argv[1])) and kernels() is None
small = {"steps": 2, "prompts": 2, "n": 2, "max_new_tokens": 6, "eval_tasks": 0}
result = burnish.train("grpo", task="sort", out=sys.argv[1] + "/run", **small)
assert not [name for name in sys.modules if name.startswith("burnish.kernels")]
"""
BROKEN = """
from burnish.forward.accelerate import kernels

try:
    kernels()
except ModuleNotFoundError as error:
    assert error.name == "nothing_of_this_name", error.name
else:
    raise AssertionError("a broken package of kernels was taken for an absent one")
"""
# Tests that use kernels where there are some; all other files outside laws and e2e that name no kernel are added.
BOTH = (
    "tests/engine/test_engine.py",
    "tests/engine/test_scheduling.py",
    "tests/forward/test_architectures.py",
    "tests/learn/test_learn.py",
    "tests/models/test_models.py",
    "tests/forward/test_cpu_attention.py",
    "tests/forward/test_prefix_tree.py",
    "tests/models/test_mixed_precision.py",
    "tests/engine/test_transformers_engine.py",
    "tests/forward/test_path_check.py",
    "tests/zoo/test_trpo.py",
    "tests/engine/test_subprocess_engine.py",
    "tests/golden",
    "tests/laws/test_laws.py",
)


def imported(file: Path) -> list[str]:
    """The names of all modules that a file imports, anywhere in it."""
    found = []
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return found


def test_nothing_outside_imports_the_kernels() -> None:
    files = [file for file in SRC.rglob("*.py") if "kernels" not in file.relative_to(SRC).parts]
    assert files
    wrong = [str(file.relative_to(SRC)) for file in files for name in imported(file) if name.startswith(PACKAGE)]
    assert not wrong, f"ask forward/accelerate.kernels() instead: {wrong}"


@pytest.mark.parametrize(
    ("package", "above"),
    [("util", ("forward", "engine", "models")), ("forward", ("engine", "models")), ("engine", ("models",))],
)
def test_lower_packages_import_nothing_of_higher_ones(package: str, above: tuple[str, ...]) -> None:
    wrong = [
        f"{file.relative_to(SRC)}: {name}"
        for file in (SRC / package).rglob("*.py")
        for name in imported(file)
        if name.startswith(tuple(f"burnish.{higher}" for higher in above))
    ]
    assert not wrong, "\n".join(wrong)


def run_in(folder: Path, *command: str, seconds: float = 280.0) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(folder / "src"), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *command], cwd=folder, env=env, capture_output=True, text=True, timeout=seconds
    )


@pytest.fixture
def without(tmp_path: Path) -> Path:
    """A copy of the sources without the kernels."""
    shutil.copytree(SRC, tmp_path / "src" / "burnish", ignore=shutil.ignore_patterns("kernels", "__pycache__"))
    assert not (tmp_path / "src" / "burnish" / "kernels").exists()
    return tmp_path


def test_a_run_needs_no_kernels(without: Path) -> None:
    done = run_in(without, "-c", WITHOUT, str(without))
    assert done.returncode == 0, done.stderr[-3000:]


def test_kernels_that_cannot_be_imported_are_not_taken_for_absent(without: Path) -> None:
    broken = without / "src" / "burnish" / "kernels"
    broken.mkdir()
    (broken / "__init__.py").touch()
    (broken / "registry.py").write_text("import nothing_of_this_name\n")
    done = run_in(without, "-c", BROKEN)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.slow
@pytest.mark.timeout(HOURS * 3600)
def test_the_suite_is_green_without_kernels(without: Path) -> None:
    for name in ("tests", "docs", "examples", "benchmarks", "scripts"):
        shutil.copytree(ROOT / name, without / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", without)
    files = sorted((without / "tests").glob("*/test_*.py"))
    parts = [file for file in files if file.parent.name not in ("laws", "e2e", "golden", "kernels")]
    plain = [str(file.relative_to(without)) for file in parts if "kernels." not in file.read_text()]
    assert len(plain) > 150
    done = run_in(
        without,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-q",
        *dict.fromkeys((*BOTH, *plain)),
        seconds=HOURS * 3600 - 60,
    )
    assert done.returncode == 0, done.stdout[-5000:]
