"""Files with which a cluster starts a run on several machines: Slurm, Kubernetes, Ray, or ssh.

Each starts `burnish launch node` on every machine, which starts that machine's ranks. The ranks meet at a port of the
first machine and know each other by a token (distributed/meeting.py), which is made when the job starts, or lies in a
secret of the cluster: it is in no file that is written here but Kubernetes' secret.
"""

from __future__ import annotations

import re
import secrets
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import yaml

PORT = 29500
WAIT = 600  # seconds that machines have to start: containers are fetched, and queues are not fair
IMAGE = "burnish:latest"


@dataclass(frozen=True)
class Job:
    """A run on several machines.

    words: of `burnish train`;  ranks: on each machine;  gpus: whether each rank has a GPU
    hosts: of the machines, for ssh;  image: of the container, for Kubernetes;  address: of the Ray cluster
    """

    name: str
    words: tuple[str, ...]
    nodes: int
    ranks: int
    gpus: bool = True
    port: int = PORT
    hosts: tuple[str, ...] = ()
    image: str = IMAGE
    address: str = "auto"
    folder: Path = field(default_factory=Path.cwd)

    def node(self, number: str, host: str) -> str:
        """The command for one machine. number, host: its number and the first machine, as the shell writes them."""
        return (
            f"burnish launch node --nodes {self.nodes} --node {number} --per-node {self.ranks} "
            f'--meet "{host}:{self.port}" -- {shlex.join(self.words)}'
        )


@dataclass(frozen=True)
class Rendered:
    """A file, and the command that hands it to the cluster. program: what has to be installed for that."""

    text: str
    file: str
    command: tuple[str, ...]

    @property
    def program(self) -> str:
        return self.command[0]


def job_name(text: str) -> str:
    """A name that clusters accept: lower-case letters, digits and dashes."""
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:40].strip("-")
    return plain if plain and plain[0].isalpha() else f"run-{plain}".strip("-")


def slurm(job: Job) -> Rendered:
    """A batch script: one task a machine, which starts that machine's ranks."""
    gpus = f"#SBATCH --gpus-per-node={job.ranks}\n" if job.gpus else ""
    text = f"""#!/bin/bash
#SBATCH --job-name={job.name}
#SBATCH --nodes={job.nodes}
#SBATCH --ntasks-per-node=1
{gpus}#SBATCH --exclusive
#SBATCH --output={job.name}-%j.log
#SBATCH --signal=TERM@120
# Ranks meet at port {job.port} of the first machine. The token is made here; the others get it in srun's environment.
set -euo pipefail
umask 077
cd {shlex.quote(str(job.folder))}
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p)  # reads all: a pipe that breaks ends the job
export first
BURNISH_TOKEN=$(head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \\n')
export BURNISH_TOKEN
export BURNISH_WAIT_FOR_RANKS={WAIT}
srun --kill-on-bad-exit=1 bash -c {shlex.quote("exec " + job.node("$SLURM_NODEID", "$first"))}
"""
    file = f"{job.name}.sbatch"
    return Rendered(text, file, ("sbatch", file))


def ssh(job: Job) -> Rendered:
    """A script that starts each machine by ssh. The token goes through ssh's standard input: no list of processes shows
    it."""
    text = f"""#!/bin/bash
# Ranks meet at port {job.port} of the first machine.
set -euo pipefail
hosts=({shlex.join(job.hosts)})
first=${{hosts[0]#*@}}
token=$(head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \\n')
started=()
trap 'kill "${{started[@]}}" 2>/dev/null || true' INT TERM
for number in "${{!hosts[@]}}"; do
    {{
        printf 'export BURNISH_TOKEN=%q number=%q first=%q\n' "$token" "$number" "$first"
        cat <<'END'
set -euo pipefail
cd {shlex.quote(str(job.folder))}
export BURNISH_WAIT_FOR_RANKS={WAIT}
exec {job.node("$number", "$first")} </dev/null
END
    }} | ssh -o BatchMode=yes "${{hosts[$number]}}" bash -s &
    started+=("$!")
done
code=0
for one in "${{started[@]}}"; do
    wait "$one" || code=$?
done
exit "$code"
"""
    file = f"{job.name}.sh"
    return Rendered(text, file, ("bash", file))


def ray(job: Job) -> Rendered:
    """A script that submits the run to a Ray cluster, where its actors have the machines (`--on ray`)."""
    words = [*job.words] if "--on" in job.words else [*job.words, "--on", "ray"]
    text = f"""#!/bin/bash
# The cluster is there already: `ray start --head` on one machine, `ray start --address` on the other {job.nodes - 1}.
set -euo pipefail
ray job submit --address {shlex.quote(job.address)} --submission-id {job.name}-"$(date +%s)" \\
    --working-dir {shlex.quote(str(job.folder))} --entrypoint-num-cpus 1 \\
    -- burnish train {shlex.join(words)}
"""
    file = f"{job.name}-ray.sh"
    return Rendered(text, file, ("bash", file))


def kubernetes(job: Job) -> Rendered:
    """A secret with the token, a service by which pods find the first one, and an indexed job with a pod a machine."""
    secret = _kind("v1", "Secret", f"{job.name}-token", stringData={"token": secrets.token_hex(32)})
    service = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,  # pods meet before any of them is ready
        "selector": {"burnish-run": job.name},
        "ports": [{"port": job.port, "name": "meet"}],
    }
    indexed = {
        "completionMode": "Indexed",
        "completions": job.nodes,
        "parallelism": job.nodes,
        "backoffLimit": 0,
        "template": _pod(job),
    }
    whole = [
        secret,
        _kind("v1", "Service", job.name, spec=service),
        _kind("batch/v1", "Job", job.name, spec=indexed),
    ]
    file = f"{job.name}.yaml"
    return Rendered(yaml.safe_dump_all(whole, sort_keys=False), file, ("kubectl", "apply", "-f", file))


def _kind(version: str, kind: str, name: str, **rest: object) -> dict[str, object]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **rest}


def _pod(job: Job) -> dict[str, object]:
    """One machine: its ranks, a volume that all share, and room for what ranks of a machine share in memory."""
    limits: dict[str, object] = {"nvidia.com/gpu": job.ranks} if job.gpus else {"cpu": str(job.ranks)}
    variables: list[dict[str, object]] = [
        {"name": "BURNISH_TOKEN", "valueFrom": {"secretKeyRef": {"name": f"{job.name}-token", "key": "token"}}},
        {"name": "BURNISH_WAIT_FOR_RANKS", "value": str(WAIT)},
    ]
    container = {
        "name": "burnish",
        "image": job.image,
        "workingDir": str(job.folder),
        "command": ["bash", "-c", "exec " + job.node("$JOB_COMPLETION_INDEX", f"{job.name}-0.{job.name}")],
        "env": variables,
        "ports": [{"containerPort": job.port}],
        "resources": {"limits": limits},
        "volumeMounts": [
            {"name": "shared", "mountPath": str(job.folder)},
            {"name": "memory", "mountPath": "/dev/shm"},
        ],
    }
    volumes = [
        {"name": "shared", "persistentVolumeClaim": {"claimName": f"{job.name}-shared"}},
        {"name": "memory", "emptyDir": {"medium": "Memory"}},
    ]
    pod = {
        "subdomain": job.name,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 120,
        "containers": [container],
        "volumes": volumes,
    }
    return {"metadata": {"labels": {"burnish-run": job.name}}, "spec": pod}


CLUSTERS: dict[str, Callable[[Job], Rendered]] = {"slurm": slurm, "kubernetes": kubernetes, "ray": ray, "ssh": ssh}
