"""The files of `burnish launch`: what a cluster's own parsers make of them, and that they run."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from burnish.cli import main
from burnish.distributed.rendered import CLUSTERS, Job, job_name

WORDS = ("run.yaml", "--lr", "3e-5", "--out", "it's $HOME `date`")
JOB = Job("run", WORDS, nodes=4, ranks=8, hosts=("a", "me@b", "c", "d"), folder=Path("/data/my runs"))


def checked(text: str, folder: Path) -> None:
    """Bash parses it."""
    file = folder / "script"
    file.write_text(text)
    done = subprocess.run(["bash", "-n", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("kind", ["slurm", "ssh", "ray"])
def test_scripts_are_bash(kind: str, tmp_path: Path) -> None:
    checked(CLUSTERS[kind](JOB).text, tmp_path)


def fake(folder: Path, name: str, text: str) -> None:
    """A program of this name, in place of the cluster's."""
    program = folder / name
    program.write_text(f"#!/bin/bash\n{text}\n")
    program.chmod(0o755)


def ran(kind: str, tmp_path: Path, **variables: str) -> list[list[str]]:
    """What every machine would run, word by word: the script runs, and the cluster's programs are stand-ins."""
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    fake(bin_folder, "burnish", f'printf "%s\\0" "$BURNISH_TOKEN" "$@" > {tmp_path}/ran-$$')
    fake(bin_folder, "scontrol", "printf 'n0\\nn1\\nn2\\nn3\\n'")
    fake(bin_folder, "srun", 'shift; for SLURM_NODEID in 0 1 2 3; do export SLURM_NODEID; "$@"; done')
    fake(bin_folder, "ssh", '[ "$1" = -o ] && shift 3; exec "$@"')
    fake(bin_folder, "ray", f'printf "%s\\0" "$BURNISH_TOKEN" "$@" > {tmp_path}/ran-$$')
    script = tmp_path / "script"
    job = Job("run", WORDS, nodes=4, ranks=8, hosts=JOB.hosts, folder=tmp_path)
    script.write_text(CLUSTERS[kind](job).text)
    path = f"{bin_folder}:{os.environ['PATH']}"
    subprocess.run(["bash", str(script)], env={"PATH": path, **variables}, check=True, timeout=30)
    found = [file.read_bytes().decode().split("\0")[:-1] for file in tmp_path.glob("ran-*")]
    return sorted(found, key=lambda words: words[words.index("--node") + 1] if "--node" in words else "")


@pytest.mark.parametrize(("kind", "first"), [("slurm", "n0"), ("ssh", "a")])
def test_every_machine_starts_its_ranks(kind: str, first: str, tmp_path: Path) -> None:
    """With one random token, the same words, and its own number; nothing in the words is expanded by a shell."""
    found = ran(kind, tmp_path, SLURM_JOB_NODELIST="n[0-3]")
    assert len({words[0] for words in found}) == 1 and len(found[0][0]) == 64
    for number, words in enumerate(found):
        own = ["launch", "node", "--nodes", "4", "--node", str(number), "--per-node", "8", "--meet", f"{first}:29500"]
        assert words[1:] == [*own, "--", *WORDS]


def test_a_run_on_ray_is_submitted(tmp_path: Path) -> None:
    (words,) = ran("ray", tmp_path)
    assert words[1:3] == ["job", "submit"]
    assert words[words.index("--") + 1 :] == ["burnish", "train", *WORDS, "--on", "ray"]


def test_slurm_gets_a_machine_for_every_task(tmp_path: Path) -> None:
    asked = dict(
        line.removeprefix("#SBATCH --").split("=")
        for line in CLUSTERS["slurm"](JOB).text.splitlines()
        if line.startswith("#SBATCH --") and "=" in line
    )
    assert asked["nodes"] == "4" and asked["ntasks-per-node"] == "1" and asked["gpus-per-node"] == "8"
    if shutil.which("sbatch"):
        file = tmp_path / "job"
        file.write_text(CLUSTERS["slurm"](JOB).text)
        subprocess.run(["sbatch", "--test-only", str(file)], check=True)


def test_kubernetes_gets_pods_that_find_the_first_one() -> None:
    """An indexed job, whose pods are named run-0 ... by the service's subdomain, and a token that only a secret has."""
    secret, service, job = yaml.safe_load_all(CLUSTERS["kubernetes"](JOB).text)
    assert (secret["kind"], service["kind"], job["kind"]) == ("Secret", "Service", "Job")
    assert len(secret["stringData"]["token"]) == 64 and job["apiVersion"] == "batch/v1"
    spec, pod = job["spec"], job["spec"]["template"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 4, 4)
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    assert pod["spec"]["subdomain"] == service["metadata"]["name"] == "run"
    container = pod["spec"]["containers"][0]
    assert '--meet "run-0.run:29500"' in container["command"][2] and "$JOB_COMPLETION_INDEX" in container["command"][2]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 8}
    reference = container["env"][0]["valueFrom"]["secretKeyRef"]
    assert reference == {"name": secret["metadata"]["name"], "key": "token"}
    assert secret["stringData"]["token"] not in yaml.safe_dump([service, job])
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["spec"]["volumes"]}


@pytest.mark.parametrize(
    ("text", "name"), [("run", "run"), ("My Run_3", "my-run-3"), ("7b", "run-7b"), ("---", "run"), ("x" * 99, "x" * 40)]
)
def test_names_are_those_that_clusters_accept(text: str, name: str) -> None:
    assert job_name(text) == name


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["slrum", "run.yaml"], "knows no 'slrum'; it is slurm, kubernetes, ray, ssh, or node"),
        (["ssh", "sft"], "needs the machines: --hosts"),
        (["ssh", "sft", "--hosts", "a,-oProxyCommand=x"], "names of machines with commas"),
        (["slurm", "--nodes", "2"], "say what to run"),
        (["slurm", "sft", "--nodes", "two"], "--nodes is 'two'; it is a whole number from 1 on"),
        (["slurm", "sft", "--nodes"], "--nodes has no value"),
        (["slurm", "sft", "--nodes", "2", "--lernrate", "1"], "lernrate"),
        (["node", "--nodes", "2", "--node", "2", "--meet", "a:1", "--", "sft"], "--node is 2, but --nodes is 2"),
        (["node", "--nodes", "2", "--meet", "a:1"], "needs --node"),
    ],
)
def test_mistakes_are_one_sentence(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["launch", *words]) == 2
    assert said in " ".join(capsys.readouterr().err.split())


def test_a_dry_run_prints_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["launch", "slurm", "sft", "--task", "sort", "--nodes", "2", "--dry-run", "--cpu"]) == 0
    made = capsys.readouterr().out
    assert made.startswith("#!/bin/bash") and "gpus-per-node" not in made and not list(tmp_path.iterdir())
    checked(made, tmp_path)


def test_help_of_the_command_is_asked_for_at_its_front(capsys: pytest.CaptureFixture[str]) -> None:
    """What stands behind belongs to `burnish train`."""
    for words in ([], ["help"], ["--help"], ["ssh", "--help"]):
        assert main(["launch", *words]) == 0 and "launch node" in capsys.readouterr().out
    assert main(["launch", "ssh", "grpo", "--help"]) == 2
    assert "needs the machines: --hosts" in capsys.readouterr().err
