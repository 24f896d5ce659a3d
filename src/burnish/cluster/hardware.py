"""GPUs and clusters: the figures of their data sheets that decide how long a step takes."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Gpu:
    """One kind of GPU.

    flops      dense bf16 matmuls, per second;  bandwidth: of its memory, bytes a second;  memory: bytes
    link       to a GPU of the same domain (NVLink, PCIe), bytes a second in one direction
    network    to a GPU of another domain, bytes a second
    domain     GPUs that share fast links
    """

    name: str
    flops: float
    bandwidth: float
    memory: float
    link: float
    network: float
    domain: int = 8


# From the makers' data sheets; network: one 400 Gbit/s card for each GPU, where systems are sold so.
GPUS = {
    gpu.name.lower(): gpu
    for gpu in (
        Gpu("A100", 312e12, 2.04e12, 80e9, 300e9, 25e9),
        Gpu("H100", 989e12, 3.35e12, 80e9, 450e9, 50e9),
        Gpu("H800", 989e12, 3.35e12, 80e9, 200e9, 50e9),
        Gpu("H200", 989e12, 4.8e12, 141e9, 450e9, 50e9),
        Gpu("H20", 148e12, 4.0e12, 96e9, 450e9, 50e9),
        Gpu("B200", 2250e12, 8.0e12, 180e9, 900e9, 50e9),
        Gpu("GB200", 2450e12, 8.0e12, 186e9, 900e9, 50e9, 64),
        Gpu("L40S", 362e12, 0.864e12, 48e9, 32e9, 25e9),
        Gpu("4090", 165e12, 1.01e12, 24e9, 32e9, 3e9),
    )
}


@dataclass(frozen=True)
class Cluster:
    """So many GPUs of one kind."""

    gpu: Gpu
    gpus: int

    def __str__(self) -> str:
        return f"{self.gpus}x{self.gpu.name}"


def read_cluster(text: str, nodes: int = 1) -> Cluster:
    """A cluster from 8xH100 (the GPUs of one node), or 4x8xH100 (nodes, GPUs of each); ValueError for another text."""
    match = re.fullmatch(r"\s*(?:(\d+)\s*x\s*)?(\d+)\s*x\s*([A-Za-z0-9]+)\s*", text)
    if match is None:
        raise ValueError(f"--cluster is {text!r}; it is the GPUs of a node and their kind, such as 8xH100")
    outer, inner, kind = int(match[1] or 1), int(match[2]), match[3].lower()
    if kind not in GPUS:
        raise ValueError(f"--cluster names the GPU {match[3]!r}; known are {', '.join(g.name for g in GPUS.values())}")
    if outer * inner * nodes < 1:
        raise ValueError(f"--cluster {text!r} has no GPU; it is a size such as 8xH100")
    return Cluster(GPUS[kind], outer * inner * nodes)
