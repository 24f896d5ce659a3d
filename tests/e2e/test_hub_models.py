"""Models of the Hugging Face hub, against a hub on this machine: names, revisions, the cache, and what goes wrong."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import make_model
from fake_hub import FakeHub, plain_environment, without_hub
from guards import guards

pytestmark = guards("models/hub.py", "models/load.py", "models/loader.py")

WEIGHTS = "model.safetensors"
OPTIONS = "task='sort', steps=1, prompts=2, max_new_tokens=4, eval_tasks=0, device='cpu'"
ERRORS = """
import json, sys
from burnish.models.known_models import resolve
said = {}
for name in sys.argv[1:]:
    try:
        said[name] = "loaded " + str(resolve(name))
    except ValueError as error:
        said[name] = str(error)
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Repositories: a model with another revision, one with pickled weights only, one that is gated."""
    models = tmp_path_factory.mktemp("hub") / "models" / "acme"
    make_model(models / "small")
    make_model(models / "small@v2", seed=1)
    make_model(models / "large", hidden_size=512, intermediate_size=1024)  # 19 MB
    (models / "small" / "original").mkdir()
    (models / "small" / "original" / "weights.safetensors").write_bytes(b"the same in another format")
    (models / "small" / "modeling_small.py").write_text("raise SystemExit('this code must not run')")
    (models / "pickled").mkdir()
    (models / "pickled" / "config.json").write_text("{}")
    (models / "pickled" / "pytorch_model.bin").write_bytes(b"pickle")
    make_model(models / "gated")
    return models.parent.parent


def python(code: str, environment: dict[str, str], *arguments: str, check: bool = True) -> Any:
    """What a fresh Python prints: the hub's settings are read when it is imported."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**plain_environment(), **environment},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert not check or done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]) if check else done


def test_a_run_takes_a_model_of_the_hub_and_resumes_with_its_commit(root: Path, tmp_path: Path) -> None:
    """The main branch moves on after the first step; the teacher and the LoRA adapters are named by their commits."""
    served = tmp_path / "served"
    shutil.copytree(root, served)
    code = f"""
import json, yaml, burnish
out = {str(tmp_path / "run")!r}
run = burnish.train("gkd", model="acme/small", teacher="acme/small@v2", lora=2, out=out, {OPTIONS})
told = yaml.safe_load((run.folder / "config.yaml").read_text())
adapters = json.loads((run.model / "adapter_config.json").read_text())
print(json.dumps([told["model"], told["teacher"], adapters["base_model_name_or_path"], adapters["revision"]]))
"""
    again = f"""
import json, burnish
from burnish.models.known_models import resolve
run = burnish.resume({str(tmp_path / "run")!r}, steps=2)
base = resolve("acme/small")
print(json.dumps([len(run.metrics), str(base)]))
"""
    cache = tmp_path / "cache"
    with FakeHub(served) as hub:
        model, teacher, base, revision = python(code, hub.environment(cache))
        name, _, commit = model.partition("@")
        assert name == base == "acme/small" and commit == revision and len(commit) == 40
        assert teacher.startswith("acme/small@") and teacher != model
        assert not [asked for asked in hub.requests if "original" in asked or asked.endswith(".py")]
        assert [asked for asked in hub.requests if asked.endswith(WEIGHTS)]
        make_model(served / "models" / "acme" / "small", seed=7)
        steps, newest = python(again, hub.environment(cache))
        assert steps == 2 and commit not in newest  # a new run takes the new commit, the resumed one its own
    kept = cache / "hub" / "models--acme--small" / "snapshots" / commit
    assert (kept / WEIGHTS).read_bytes() == (root / "models" / "acme" / "small" / WEIGHTS).read_bytes()
    offline = {**hub.environment(cache), "HF_HUB_OFFLINE": "1"}
    said = python(ERRORS, offline, model, "acme/small", "acme/small@v2", "acme/large")
    assert [said[n].startswith("loaded") for n in said] == [True, True, True, False]
    assert "HF_HUB_OFFLINE" in said["acme/large"]
    said = python(ERRORS, without_hub(cache), "acme/small", "acme/large")  # the cache serves where the network does not
    assert said["acme/small"] == f"loaded {newest}" and "cannot be reached" in said["acme/large"]


def test_what_goes_wrong_is_one_sentence(root: Path, tmp_path: Path) -> None:
    (tmp_path / "cwd" / "acme").mkdir(parents=True)
    shutil.copytree(root / "models" / "acme" / "small", tmp_path / "cwd" / "acme" / "small")
    names = ("acme/none", "acme/small@v9", "acme/pickled", "acme/gated", "acme/sm/all", "./acme/small")
    with FakeHub(root, gated=("acme/gated",)) as hub:
        said = python(ERRORS, hub.environment(tmp_path / "cache"), *names)
        local = f"import os; os.chdir({str(tmp_path / 'cwd')!r})\n" + ERRORS
        asked = len(hub.requests)
        assert python(local, hub.environment(tmp_path / "other"), "acme/small") == {"acme/small": "loaded acme/small"}
        assert len(hub.requests) == asked  # a local directory comes first
    assert all("\n" not in sentence for sentence in said.values())
    assert "neither a local directory nor a model at" in said["acme/none"] and "HF_TOKEN" in said["acme/none"]
    assert "has no revision 'v9'" in said["acme/small@v9"]
    assert "only pytorch_model.bin" in said["acme/pickled"] and "safetensors only" in said["acme/pickled"]
    assert "is gated: accept its terms" in said["acme/gated"]
    assert "(owner/name)" in said["acme/sm/all"] and "(owner/name)" in said["./acme/small"]


def test_a_token_opens_what_is_private(root: Path, tmp_path: Path) -> None:
    with FakeHub(root, token="hf_secret") as hub:
        environment = hub.environment(tmp_path / "cache")
        assert "HF_TOKEN" in python(ERRORS, environment, "acme/small")["acme/small"]
        said = python(ERRORS, {**environment, "HF_TOKEN": "hf_secret"}, "acme/small")
        assert said["acme/small"].startswith("loaded")
        shutil.rmtree(tmp_path / "cache")
        (tmp_path / "cache").mkdir()
        (tmp_path / "cache" / "token").write_text("hf_secret")  # where `hf auth login` writes it
        assert python(ERRORS, environment, "acme/small")["acme/small"].startswith("loaded")


def test_an_interrupted_download_continues(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that breaks in the middle of a file is continued there; a second command fetches what is missing."""
    import fake_hub

    weights = root / "models" / "acme" / "large" / WEIGHTS
    sent, kept_bytes, breaks = 12 << 20, 10 << 20, [100]  # the hub's client writes 10 MiB at a time
    ranges: list[str | None] = []
    whole = fake_hub._Handler._send

    def send(self: Any, status: int, content: bytes, headers: dict[str, str]) -> None:
        if self.command == "GET" and self.path.endswith(WEIGHTS):
            ranges.append(self.headers.get("Range"))
            if breaks[0]:
                breaks[0] -= 1
                content, length = content[:sent] if ranges[-1] is None else b"", len(content)
                headers = {"Content-Length": str(length), **headers}
                self.close_connection = True
        whole(self, status, content, headers)

    monkeypatch.setattr(fake_hub._Handler, "_send", send)
    with FakeHub(root) as hub:
        environment = hub.environment(tmp_path / "cache")
        said = python(ERRORS, environment, "acme/large")["acme/large"]
        assert "failed" in said and "not downloaded again" in said and "\n" not in said
        assert set(ranges[1:]) == {
            f"bytes={kept_bytes}-"
        }  # it was tried again several times, each time for the rest only
        breaks[0], ranges[:], hub.requests[:] = 1, [], []
        assert python(ERRORS, environment, "acme/large")["acme/large"].startswith("loaded")
        fetched = {asked.rpartition("/")[2] for asked in hub.requests if asked.startswith("GET /acme")}
        assert fetched == {WEIGHTS} and ranges == [None, f"bytes={kept_bytes}-"]
    kept = next((tmp_path / "cache" / "hub" / "models--acme--large" / "snapshots").iterdir())
    assert (kept / WEIGHTS).read_bytes() == weights.read_bytes()


def test_the_command_line_names_models_of_the_hub(root: Path, tmp_path: Path) -> None:
    with FakeHub(root) as hub:
        code = """
import json, sys
from burnish.cli import main
print(json.dumps([main(["models", "get", "acme/small@v2"]),
    main(["eval", "acme/small@v2", "--task", "sort", "--tasks", "2", "--k", "1", "--device", "cpu"])]))
"""
        assert python(code, hub.environment(tmp_path / "cache")) == [0, 0]
