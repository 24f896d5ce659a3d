"""The tutorials run on tiny, and the site builds without a warning."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
from notebook import execute

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "docs" / "tutorials").glob("*.ipynb"))


@pytest.mark.slow
@pytest.mark.parametrize("file", NOTEBOOKS, ids=[file.stem for file in NOTEBOOKS])
def test_a_tutorial_runs_from_its_first_cell_to_its_last(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = json.loads(file.read_text())
    execute(page)
    assert [cell["execution_count"] for cell in page["cells"] if cell["cell_type"] == "code"]


def test_tutorials_are_numbered_and_name_commands_that_exist() -> None:
    assert [file.name[:2] for file in NOTEBOOKS] == [f"{n:02d}" for n in range(1, 14)]
    for file in NOTEBOOKS:
        cells = json.loads(file.read_text())["cells"]
        title = "".join(cells[0]["source"]).splitlines()[0]
        assert title.startswith(f"# {int(file.name[:2])}. ")
        for cell in cells:
            text = "".join(cell["source"])
            assert all(len(line) <= 130 or line.startswith("|") for line in text.splitlines())
            if cell["cell_type"] == "code":
                compile(text, file.name, "exec")
            for target in text.split("](")[1:] if cell["cell_type"] == "markdown" else ():
                name = target.partition(")")[0].partition("#")[0]
                assert "://" in name or (file.parent / name).exists(), (file.name, name)


@pytest.mark.extras
def test_the_site_builds_strictly(tmp_path: Path) -> None:
    """Warnings are errors: links, anchors, names in the reference. The search index is in the site."""
    if importlib.util.find_spec("mkdocs") is None:
        pytest.skip("mkdocs is not installed")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "site" / "search" / "search_index.js").is_file() and (tmp_path / "site" / "index.html").is_file()
