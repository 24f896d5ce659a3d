"""Seconds of the phases of a step, from sizes and data sheets, with a few rates that are measured or fitted."""

from __future__ import annotations

from dataclasses import dataclass

from burnish.run.step_time import Gpu
from burnish.simulator.shapes import Costs

FORWARD, TRAIN = 2.0, 6.0  # floating-point operations per token and weight: forward; forward and backward


@dataclass(frozen=True)
class Rates:
    """What a system reaches of its hardware; all are fitted (calibrate.py) or given.

    training    share of the peak in training (MFU), of dense models;  expert_training: of mixtures of experts
    decoding    share of the memory bandwidth in a decode step
    launch      seconds that a decode step takes per layer whatever it reads: kernel launches, all-reduces
    crossing    what each doubling of tensor parallelism beyond the domain of fast links adds to it, as a share
    sending     share of the link's bandwidth at which new weights reach the samplers
    fixed       seconds of a step that depend on nothing: preparing batches, switching between phases
    """

    training: float = 0.4
    expert_training: float = 0.12
    decoding: float = 0.6
    launch: float = 60e-6
    crossing: float = 1.0
    sending: float = 0.25
    fixed: float = 1.0


@dataclass(frozen=True)
class Parallel:
    """Degrees of the trainer: tensor, context, pipeline; what is left of its GPUs divides the data."""

    tensor: int = 1
    context: int = 1
    pipeline: int = 1

    def data(self, gpus: int) -> int:
        """How many groups of GPUs divide the batch."""
        return max(1, gpus // (self.tensor * self.context * self.pipeline))


@dataclass(frozen=True)
class Work:
    """What one step learns from. row: the longest row in tokens, which is what a micro-batch of a pipeline holds;
    passes: forward passes beside training (log-probs of the policy and of a reference)."""

    replies: int
    tokens: float
    row: float
    updates: int = 1
    passes: float = 1.0


def decode_seconds(model: Costs, gpu: Gpu, rates: Rates, tensor: int, batch: float, context: float) -> float:
    """One decode step of `batch` replies that attend to `context` tokens altogether, on `tensor` GPUs.

    t = layers x launch + max(bytes / (tensor x bandwidth x decoding), 2 x active x batch / (tensor x flops x 0.6))
    with bytes = 2 x touched weights + context x bytes of keys and values of a token.
    """
    read = 2 * model.touched(batch) + context * model.kv_bytes
    moved = read / (tensor * gpu.bandwidth * rates.decoding)
    computed = FORWARD * model.active * batch / (tensor * gpu.peak * 0.6)
    latency = rates.launch
    beyond = tensor / gpu.domain
    while beyond > 1:
        latency += rates.launch * rates.crossing
        beyond /= 2
    return model.layers * latency + max(moved, computed)


def prefill_seconds(model: Costs, gpu: Gpu, tensor: int, tokens: float) -> float:
    """Prefilling so many tokens of prompts on `tensor` GPUs, bound by matmuls."""
    return FORWARD * model.active * tokens / (tensor * gpu.peak * 0.5)


def learn_seconds(model: Costs, gpu: Gpu, rates: Rates, gpus: int, parallel: Parallel, work: Work) -> float:
    """Log-probs and updates of one step: operations / (GPUs x peak x MFU), stretched by the pipeline's bubble.

    The bubble of p stages over m micro-batches is (m + p - 1) / m (GPipe, 1F1B).
    """
    share = rates.expert_training if model.experts else rates.training
    operations = (TRAIN + FORWARD * work.passes) * model.active * work.tokens
    micro = max(1.0, work.tokens / work.updates / parallel.data(gpus) / work.row)
    bubble = (micro + parallel.pipeline - 1) / micro
    return operations / (gpus * gpu.peak * share) * bubble


def publish_seconds(model: Costs, gpu: Gpu, rates: Rates, apart: bool) -> float:
    """New weights reach the samplers: resharded over fast links where they share GPUs, over the network otherwise. The
    GPUs of one replica send at once, so that each one's share is what counts; at least a domain has a copy."""
    link = gpu.network if apart else gpu.link
    return 2 * model.weights / (gpu.domain * link * rates.sending)


def decode_slots(model: Costs, gpu: Gpu, tensor: int, length: float, held: float = 0.0, most: int = 1024) -> int:
    """How many replies of a length an engine holds at once; 0 if not even the weights fit.

    held: bytes that something else keeps on each of its GPUs, such as a trainer's gradients and moments
    """
    free = (0.85 * gpu.memory - held) * tensor - 2 * model.weights
    return max(0, min(most, int(free / (model.kv_bytes * max(1.0, length)))))
