"""Which options of several GPUs fit a run and are fast, predicted (`burnish plan --cluster 8xH100`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from burnish.core.roles import Role
from burnish.models.decoder_shape import DecoderShape
from burnish.models.lora import Lora
from burnish.run.memory_plan import Batch, Choices, parts_of
from burnish.run.step_time import Cluster, StepTime, Work, step_time

USED = 0.9  # of a GPU's memory: the rest is for the allocator's fragments and CUDA graphs
ACTIVATIONS = ("off", "recompute")
CONTEXTS = (1, 2, 4, 8)


@dataclass(frozen=True)
class Candidate:
    """One way to run: the choices, how many ranks divide a pass, bytes on a GPU by what they are for, and seconds."""

    how: Choices
    context: int
    parts: Mapping[str, float]
    time: StepTime

    @property
    def memory(self) -> float:
        return sum(self.parts.values())

    def fits(self, cluster: Cluster) -> bool:
        return self.memory <= USED * cluster.gpu.memory

    def flags(self, cluster: Cluster) -> str:
        """The flags of `burnish train`, or of `burnish launch` for several machines."""
        words = [f"--ranks {cluster.ranks}"] if cluster.nodes == 1 else []
        words += [f"--shard {self.how.shard}"] if self.how.shard != "off" else []
        words += [f"--context-ranks {self.context}"] if self.context > 1 else []
        words += ["--checkpoint-activations recompute"] if self.how.activations == "recompute" else []
        return " ".join([*words, f"--token-budget {self.how.token_budget}"])


def candidates(
    shapes: Mapping[str, DecoderShape],
    roles: Mapping[str, Role],
    product: str,
    lora: Lora | None,
    batch: Batch,
    work: Work,
    start: Choices,
    cluster: Cluster,
) -> list[Candidate]:
    """All ways to run: those that fit first, the fastest first. --shard full, whose layers do not compute in burnish's
    kernels, comes after the others that fit."""
    made: list[Candidate] = []
    for shard in _shards(lora, start, cluster):
        for activations in ACTIVATIONS:
            for context in _contexts(shapes, shard, start, cluster, work):
                how = replace(start, shard=shard, activations=activations, ranks=cluster.ranks)
                parts = dict(parts_of(shapes, roles, lora, batch, how))
                parts["activations"] /= context
                time = step_time(shapes, roles, product, lora, work, how, cluster, context)
                made.append(Candidate(how, context, parts, time))
    return sorted(made, key=lambda one: (not one.fits(cluster), one.how.shard == "full", round(one.time.total, 4)))


def _shards(lora: Lora | None, start: Choices, cluster: Cluster) -> list[str]:
    if cluster.ranks == 1:
        return ["off"]
    divisible = start.master_weights == "float32" and start.optimiser != "adamw8bit" and not start.quantised
    return ["off", "optimiser"] + (["states"] if lora is None else []) + (["full"] if divisible else [])


def _contexts(
    shapes: Mapping[str, DecoderShape], shard: str, start: Choices, cluster: Cluster, work: Work
) -> list[int]:
    """Ranks that may divide a pass: only where a single row fills one, and heads and ranks can be divided."""
    if shard != "full" or work.prompt + work.reply <= start.token_budget:
        return [1]
    heads = [shape.heads for shape in shapes.values()]
    return [n for n in CONTEXTS if cluster.per_node % n == 0 and all(count % n == 0 for count in heads)]
