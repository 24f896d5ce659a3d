"""`burnish launch`: run on several machines, by what starts programs there."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from burnish.commands.train import read_run
from burnish.distributed.launch import Node, launch
from burnish.distributed.meeting import Address
from burnish.distributed.rendered import CLUSTERS, IMAGE, PORT, Job, job_name
from burnish.util.terminal import stdout_console

USAGE = """\
[bold]burnish launch[/] slurm | kubernetes | ray | ssh  [run.yaml | METHOD] [flags of burnish train] --nodes N [...]
[bold]burnish launch node[/] --nodes N --node K --meet HOST:PORT [--per-node R] -- [run.yaml | METHOD] [flags]

  burnish launch slurm run.yaml --nodes 4 --per-node 8             writes run.sbatch and submits it
  burnish launch slurm run.yaml --nodes 4 --per-node 8 --dry-run   prints it
  burnish launch ssh run.yaml --hosts node0,node1                  one machine after the other, by ssh
  burnish launch kubernetes run.yaml --nodes 2 --image me/burnish  a Secret, a Service and an indexed Job

  --nodes N      machines                    --per-node R   ranks on each (default: its GPUs, or 1)
  --hosts A,B    for ssh; sets --nodes       --image NAME   of the container, for kubernetes
  --port P       of the first machine        --address A    of the Ray cluster
  --cpu          ranks have no GPU           --dry-run      print the file and start nothing

`launch node` is what each machine runs: it starts that machine's ranks, which meet at HOST:PORT. BURNISH_TOKEN is the
same on all of them.
"""
VALUED = ("nodes", "per-node", "hosts", "port", "image", "address", "node", "meet")
SWITCHES = ("dry-run", "cpu")


def main(words: list[str]) -> int:
    if not words or words[0] == "help" or {"--help", "-h"} & set(words[:2]):
        stdout_console().print(USAGE)
        return 0
    kind, *rest = words
    if kind == "node":
        return _node(rest)
    if kind not in CLUSTERS:
        raise ValueError(f"burnish launch knows no {kind!r}; it is {', '.join(CLUSTERS)}, or node")
    own, train = _split(rest)
    if not train:
        raise ValueError(f"say what to run: burnish launch {kind} run.yaml --nodes 2, with the flags of burnish train")
    made = CLUSTERS[kind](_job(kind, own, train))
    if "dry-run" in own:
        print(made.text, end="")
        return 0
    if shutil.which(made.program) is None:
        raise ValueError(
            f"{made.program!r} is not installed on this machine, so the run cannot be started from here; burnish "
            f"launch {kind} ... --dry-run > {made.file} writes the file for: {' '.join(made.command)}"
        )
    Path(made.file).write_text(made.text)
    os.chmod(made.file, 0o600)
    print(f"{made.file}: {' '.join(made.command)}", flush=True)
    return subprocess.run(made.command, check=False).returncode


def _node(words: list[str]) -> int:
    """Start this machine's ranks."""
    own, train = _split(words)
    for name in ("nodes", "node", "meet"):
        if name not in own:
            raise ValueError(f"burnish launch node needs --{name}; burnish launch --help shows all of it")
    count, number = _count(own, "nodes"), _count(own, "node", least=0)
    if number >= count:
        raise ValueError(f"--node is {number}, but --nodes is {count}: machines are counted from 0")
    return launch(train, _per_node(own), Node(number, count, Address.read(own["meet"])))


def _job(kind: str, own: dict[str, str], train: list[str]) -> Job:
    """The job that flags ask for; what it runs is checked here, before it waits in a queue."""
    hosts = tuple(host for host in own.get("hosts", "").split(",") if host)
    if kind == "ssh" and not hosts:
        raise ValueError("burnish launch ssh needs the machines: --hosts node0,node1")
    if any(host.startswith("-") or not host.isascii() or not host.isprintable() or " " in host for host in hosts):
        raise ValueError(
            f"--hosts is {own['hosts']!r}; it is names of machines with commas between them: node0,me@node1"
        )
    if "--resume" not in train:
        read_run(train)
    name = job_name(Path(train[0]).stem if not train[0].startswith("-") else "burnish")
    return Job(
        name,
        tuple(train),
        len(hosts) or _count(own, "nodes"),
        _count(own, "per-node") if "per-node" in own else 1,
        gpus="cpu" not in own,
        port=_count(own, "port") if "port" in own else PORT,
        hosts=hosts,
        image=own.get("image", IMAGE),
        address=own.get("address", "auto"),
    )


def _per_node(own: dict[str, str]) -> int:
    if "per-node" in own:
        return _count(own, "per-node")
    import torch

    return max(1, torch.cuda.device_count())


def _count(own: dict[str, str], name: str, least: int = 1) -> int:
    text = own.get(name, "1")
    if not text.isdigit() or int(text) < least:
        raise ValueError(f"--{name} is {text!r}; it is a whole number from {least} on")
    return int(text)


def _split(words: list[str]) -> tuple[dict[str, str], list[str]]:
    """The flags of this command, wherever they stand before `--`, and the words of burnish train."""
    own: dict[str, str] = {}
    train: list[str] = []
    left = iter(words)
    for word in left:
        if word == "--":
            return own, [*train, *left]
        name, sign, value = word.removeprefix("--").partition("=")
        if not word.startswith("--") or name not in (*VALUED, *SWITCHES):
            train.append(word)
        elif name in SWITCHES:
            own[name] = "on"
        else:
            given = value if sign else next(left, None)
            if given is None:
                raise ValueError(f"--{name} has no value; burnish launch --help shows what it takes")
            own[name] = given
    return own, train
