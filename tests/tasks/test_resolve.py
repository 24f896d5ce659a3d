"""Task names: levels, options, files, and the errors for unknown names."""

from __future__ import annotations

from pathlib import Path

import pytest

from burnish.cli import main
from burnish.tasks.data.spec import read_spec
from burnish.tasks.resolve import pin, resolve_task


def test_options_after_commas_reach_the_source(tmp_path: Path) -> None:
    assert resolve_task("sort:3").level == resolve_task("sort,level=3").level == 3  # type: ignore[attr-defined]
    gym = resolve_task("gym:chain_sum,min_terms=2,max_terms=2,min_digits=1,max_digits=1")
    assert gym.task("train", 0).given["problem"]["metadata"]["difficulty"]["num_terms"] == (2, 2)
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"words": "one?", "truth": "1"}\n{"words": "two?", "truth": "2"}\n')
    assert resolve_task(f"{rows},prompt=words,answer=truth").task("train", 0).prompt in ("one?", "two?")


def test_bad_names_are_refused_in_a_sentence() -> None:
    with pytest.raises(ValueError, match="there is no task 'sorted': did you mean sort"):
        resolve_task("sorted")
    with pytest.raises(ValueError, match="there is no task '3'.* each comma begins another task, or"):
        resolve_task("sort,3")


def test_weights_of_files_and_folders(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    for file in ("a.jsonl", "b/rows.jsonl"):
        (tmp_path / file).write_text('{"prompt": "one?", "answer": "1"}\n')
    a, b = tmp_path / "a.jsonl", tmp_path / "b"
    found = [(spec.name, spec.weight) for spec in read_spec(f"{a}*0.7,{b}/*3e-1")]
    assert found == [(str(a), 0.7), (f"{b}/", 0.3)]
    for wrong, shown in (("*x", "'x'"), ("*-1", "'-1'"), ("*0", "0")):
        with pytest.raises(ValueError, match=f"the weight of .*a.jsonl' is {shown}; give it a positive number"):
            read_spec(f"{a}{wrong},{b}/*0.3")


def test_an_environment_in_a_folder_is_no_dataset_of_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("burnish.tasks.data.hub.pinned", lambda *_: pytest.fail("the hub was asked"))
    assert pin("games/mine.py:Env") == "games/mine.py:Env"


def test_tasks_of_an_installed_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A package as pip leaves it: a module, and a .dist-info folder with its entry points."""
    (tmp_path / "some_games.py").write_text(
        "class Hall:\n"
        "    def __init__(self, size=3):\n        self.size = size\n"
        "    def reset(self, seed):\n        return f'{self.size} steps'\n"
        "    def step(self, action):\n        return 'end', 1.0, True\n"
    )
    info = tmp_path / "some_games-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: some-games\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text("[burnish.tasks]\nhall = some_games:Hall\nruin = some_games:Ruin\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "4 steps" in str(resolve_task("hall,size=4").task("train", 0).prompt)
    with pytest.raises(ValueError, match=r"some_games:Ruin, which cannot be loaded \(AttributeError"):
        resolve_task("ruin")
    with pytest.raises(ValueError, match=r"did you mean hall\?.* your own environment is file\.py:Class"):
        resolve_task("hal")
    assert main(["tasks"]) == 0 and "of an installed package, some_games:Hall" in capsys.readouterr().out


def test_a_python_file_without_a_class_says_how_to_name_one(tmp_path: Path) -> None:
    (tmp_path / "envs.py").write_text("")
    with pytest.raises(ValueError, match=r"an environment in it is .*envs\.py:CLASS"):
        resolve_task(str(tmp_path / "envs.py")).size("train")
