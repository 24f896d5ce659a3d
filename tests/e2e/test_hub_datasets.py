"""Datasets of the Hugging Face hub by name, from a hub on this machine: revisions, configurations, the cache, no
network, no rights."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_hub import FakeHub, plain_environment, without_hub
from guards import guards

pytestmark = guards("tasks/data", "models/hub.py")

CARD = """---
configs:
- config_name: easy
  default: true
  data_files:
  - split: train
    path: easy/train-*
  - split: test
    path: easy/test-*
- config_name: hard
  data_files: hard/*.jsonl
---
# Sums
"""


def lines(path: Path, start: int, count: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = ({"question": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(start, start + count))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("hub")
    sums = root / "datasets" / "owner" / "sums"
    lines(sums / "easy" / "train-00000-of-00001.jsonl", 0, 30)
    lines(sums / "easy" / "test-00000-of-00001.jsonl", 100, 7)
    lines(sums / "hard" / "all.jsonl", 1000, 20)
    (sums / "README.md").write_text(CARD)
    lines(root / "datasets" / "owner" / "sums@v1" / "train.jsonl", 50, 12)
    scripted = root / "datasets" / "owner" / "scripted"
    scripted.mkdir()
    (scripted / "scripted.py").write_text("raise SystemExit('this code must not run')\n")
    return root


@pytest.fixture
def hub(root: Path) -> Iterator[FakeHub]:
    with FakeHub(root) as hub:
        yield hub


def burnish(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "burnish.cli", *words]
    return subprocess.run(
        command, env={**plain_environment(), **environment}, capture_output=True, text=True, timeout=120
    )


def test_a_name_is_downloaded_once_and_then_taken_from_the_cache(hub: FakeHub, tmp_path: Path) -> None:
    shown = burnish("tasks", "owner/sums", **hub.environment(tmp_path))
    assert "30 train, 7 heldout" in shown.stdout, shown.stderr
    assert "What is 0 + 1?" in shown.stdout
    fetched = [request for request in hub.requests if request.startswith("GET") and "/resolve/" in request]
    assert {request.rpartition("/")[2] for request in fetched} == {
        "README.md",
        "train-00000-of-00001.jsonl",
        "test-00000-of-00001.jsonl",
    }
    hub.requests.clear()
    assert "30 train, 7 heldout" in burnish("tasks", "owner/sums", **hub.environment(tmp_path)).stdout
    assert not [request for request in hub.requests if request.startswith("GET") and "/resolve/" in request]
    offline = {**hub.environment(tmp_path), "HF_HUB_OFFLINE": "1"}
    hub.requests.clear()
    assert "30 train, 7 heldout" in burnish("tasks", "owner/sums", **offline).stdout
    assert not hub.requests
    assert "30 train, 7 heldout" in burnish("tasks", "owner/sums", **without_hub(tmp_path)).stdout


def test_revisions_and_configurations(hub: FakeHub, tmp_path: Path) -> None:
    shown = burnish("tasks", "owner/sums@v1", **hub.environment(tmp_path)).stdout
    assert "What is 50 + 1?" in shown or "What is 51 + 1?" in shown
    assert "What is 100" in burnish("tasks", "owner/sums:hard", **hub.environment(tmp_path)).stdout
    wrong = burnish("tasks", "owner/sums:harder", **hub.environment(tmp_path)).stderr
    assert "dataset 'owner/sums' has no configuration 'harder'; it has easy, hard" in " ".join(wrong.split())
    wrong = burnish("tasks", "owner/sums@v9", **hub.environment(tmp_path)).stderr
    assert "dataset 'owner/sums' has no revision 'v9'; check the branch" in " ".join(wrong.split())


def test_a_run_keeps_the_commit_that_it_was_trained_on(hub: FakeHub, tmp_path: Path) -> None:
    words = ("train", "grpo", "--task", "owner/sums", "--steps", "1", "--prompts", "2", "--n", "2", "--eval-tasks", "0")
    out = tmp_path / "run"
    trained = burnish(*words, "--out", str(out), "--quiet", **hub.environment(tmp_path / "cache"))
    assert trained.returncode == 0, trained.stderr
    assert "task: owner/sums@" in (out / "config.yaml").read_text()
    offline = {**hub.environment(tmp_path / "cache"), "HF_HUB_OFFLINE": "1"}
    resumed = burnish("train", "--resume", str(out), "--steps", "2", "--quiet", **offline)
    assert resumed.returncode == 0, resumed.stderr


def test_no_network_is_one_sentence_within_seconds(tmp_path: Path) -> None:
    start = time.monotonic()
    done = burnish("tasks", "owner/sums", **without_hub(tmp_path))
    assert time.monotonic() - start < 20
    assert done.returncode != 0
    said = done.stderr.strip()
    assert "cannot load dataset 'owner/sums': the hub cannot be reached" in " ".join(said.split())
    assert "Traceback" not in said
    assert "Retry" not in said + done.stdout
    offline = burnish("tasks", "owner/sums", **{**without_hub(tmp_path), "HF_HUB_OFFLINE": "1"}).stderr
    assert "the hub is offline (HF_HUB_OFFLINE), and no copy is in its cache" in " ".join(offline.split())


def test_code_of_a_dataset_is_not_run(hub: FakeHub, tmp_path: Path) -> None:
    said = " ".join(burnish("tasks", "owner/scripted", **hub.environment(tmp_path)).stderr.split())
    assert "its loading script, which is code, is not run; owner/scripted@refs/convert/parquet" in said


def test_tokens_private_and_gated_datasets(root: Path, tmp_path: Path) -> None:
    with FakeHub(root, token="secret", gated=("owner/sums",)) as hub:
        hidden = " ".join(burnish("tasks", "owner/sums", **hub.environment(tmp_path)).stderr.split())
        assert "no dataset of that name on the hub that can be seen; check the name, or log in" in hidden
        token = {**hub.environment(tmp_path), "HF_TOKEN": "secret"}
        gated = " ".join(burnish("tasks", "owner/sums", **token).stderr.split())
        assert "dataset 'owner/sums' is gated: accept its terms on the hub" in gated
        hub.gated = ()
        assert "30 train" in burnish("tasks", "owner/sums", **token).stdout
