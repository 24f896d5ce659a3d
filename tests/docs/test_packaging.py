"""What is shipped: the files of the wheel, extras that exist, containers and the development container."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import burnish
from burnish.commands.check import EXTRAS

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DOCKERFILES = sorted((ROOT / "docker").glob("Dockerfile.*"))
INSTRUCTIONS = {"FROM", "RUN", "WORKDIR", "COPY", "ENV", "USER", "EXPOSE", "ENTRYPOINT", "CMD"}


def test_extras_name_each_other_and_the_hints_of_check_name_them() -> None:
    extras = PROJECT["optional-dependencies"]
    named = {one for lines in extras.values() for line in lines for one in _inner(line)}
    assert named <= set(extras), named - set(extras)
    assert {extra for extra, _ in EXTRAS.values()} <= set(extras)
    said = {
        one for file in (ROOT / "src").rglob("*.py") for one in re.findall(r"burnish\[([\w-]+)\]", file.read_text())
    }
    assert said - {"all"} <= set(extras), said - set(extras)


def _inner(requirement: str) -> list[str]:
    match = re.match(r"burnish\[([^\]]+)\]", requirement)
    return match[1].split(",") if match else []


def instructions(file: Path) -> list[tuple[str, str]]:
    """The instructions of a Dockerfile, continued lines joined."""
    text = re.sub(r"\\\n\s*", " ", file.read_text())
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(line.partition(" ")[0], line.partition(" ")[2]) for line in lines]


@pytest.mark.parametrize("file", DOCKERFILES, ids=[file.name for file in DOCKERFILES])
def test_a_dockerfile_is_sound(file: Path) -> None:
    """A pinned base, no cache left in a layer, no root at run time, and only files that the build is given."""
    steps = instructions(file)
    assert {name for name, _ in steps} <= INSTRUCTIONS and steps[0][0] == "FROM"
    assert re.fullmatch(r"[\w./-]+:[\w.-]*\d[\w.-]*", steps[0][1]), "the base image has no version"
    given = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    for name, text in steps:
        if name == "RUN" and "apt-get install" in text:
            assert "--no-install-recommends" in text and "rm -rf /var/lib/apt/lists" in text
        if name == "RUN" and "pip install" in text:
            assert text.count("pip install --no-cache-dir") == text.count("pip install")
        if name == "COPY":
            assert set(text.split()[:-1]) <= given and all((ROOT / one).exists() for one in text.split()[:-1])
    users = [i for i, (name, _) in enumerate(steps) if name == "USER"]
    starts = [i for i, (name, _) in enumerate(steps) if name == "ENTRYPOINT"]
    assert users and starts and users[-1] < starts[0] and steps[users[-1]][1] != "root"
    extras = {one for _, text in steps for one in re.findall(r"\"\.\[([\w,-]+)\]\"", text)}
    assert extras <= set(PROJECT["optional-dependencies"])


def test_the_image_for_cpus_has_no_cuda() -> None:
    """PyPI's torch for Linux brings several gigabytes of CUDA; that of PyTorch's index for CPUs is taken first."""
    (text,) = [text for name, text in instructions(ROOT / "docker" / "Dockerfile.cpu") if "pip install" in text]
    first, *others = text.split("&&")
    assert "--index-url https://download.pytorch.org/whl/cpu torch" in first
    assert others and "--index-url" not in " ".join(others), "all else comes from PyPI"


def test_the_development_container_names_a_target_that_exists() -> None:
    told = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
    target = told["postCreateCommand"].removeprefix("make ").replace(".venv/", "$(VENV)/")
    assert f"{target}:" in (ROOT / "Makefile").read_text()


@pytest.mark.slow
def test_the_wheel_has_every_file_and_nothing_else(tmp_path: Path) -> None:
    """Every file of the package that git knows, and metadata; at most 12 MB."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        str(tmp_path),
    ]
    done = subprocess.run([*command, str(ROOT)], capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    wheel = next(tmp_path.glob("*.whl"))
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    listed = subprocess.run(["git", "ls-files", "src/burnish"], cwd=ROOT, capture_output=True, text=True, check=True)
    expected = {name.removeprefix("src/") for name in listed.stdout.splitlines()}
    assert names == expected, (sorted(expected - names)[:9], sorted(names - expected)[:9])
    assert wheel.stat().st_size < 12e6
    place = tmp_path / "installed"
    zipfile.ZipFile(wheel).extractall(place)
    run = [sys.executable, "-c", "import burnish, sys; print(burnish.__version__, burnish.__file__)"]
    said = subprocess.run(run, cwd=tmp_path, env={"PYTHONPATH": str(place)}, capture_output=True, text=True, check=True)
    assert said.stdout.split() == [burnish.__version__, str(place / "burnish" / "__init__.py")]
