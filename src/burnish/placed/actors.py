"""Processes of a run, as Ray runs them: a sampler or a grader is a Stagehand in an actor of its own.

Every actor answers `ping` in a concurrency group of its own, so that it can say that it lives, and what it does, while it
works. Tensors travel as bytes with their shape, never through torch's pickling.
"""

from __future__ import annotations

import contextlib
import os
import signal
from typing import Any

import numpy
import torch
from torch import Tensor

from burnish.placed.stagehand import Doing, Spec, Stagehand
from burnish.placed.units import Unit
from burnish.run.pipeline import Ahead

LIFE = "life"  # the concurrency group of signs of life
FETCH_SECONDS = 120.0  # that weights may take to arrive


class Hand:
    """The actor around a Stagehand. It is made at once, and gets ready when it is asked to, so that it can be watched."""

    def __init__(self, name: str, role: str, spec: Spec) -> None:
        self.name, self.role, self.spec = name, role, spec
        self.hand: Stagehand | None = None
        self.doing = Doing()
        tensors_as_bytes()

    def ready(self) -> dict[str, Any]:
        """Build the method and load the models, once; where this process is."""
        if self.hand is None:
            self.hand = Stagehand(self.spec, self.role, _fetch, self.doing)
        return whereabouts()

    def rollout(self, unit: Unit) -> tuple[Ahead, dict[str, list[list[float]]]]:
        assert self.hand is not None
        return self.hand.rollout(unit)

    def score(self, unit: Unit, made: Ahead) -> tuple[Ahead, dict[str, list[list[float]]]]:
        assert self.hand is not None
        return self.hand.score(unit, made)

    def ping(self) -> tuple[str, float]:
        """A sign of life: what it does, and for how many seconds."""
        return self.doing.told()


def placed(kind: type, cpus: float = 1.0) -> Any:
    """The class as a Ray actor: not restarted by Ray, whose restarts would know nothing of units and checkpoints."""
    import ray

    remote: Any = ray.remote
    return remote(num_cpus=cpus, max_restarts=0, max_task_retries=0, concurrency_groups={LIFE: 1})(kind)


def ping(handle: Any) -> Any:
    """Ask an actor for a sign of life; a reference to its answer."""
    return handle.ping.options(concurrency_group=LIFE).remote()


def end(handle: Any, where: dict[str, Any] | None) -> None:
    """End an actor for good. One that is stopped would not hear of it from Ray for seconds: on this node it is killed."""
    import ray

    if where and where["node"] == whereabouts()["node"]:
        kill(where["pid"])
    ray.kill(handle)


def kill(pid: int) -> None:
    """SIGKILL; nothing where the process is gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def whereabouts() -> dict[str, Any]:
    """This process and its node."""
    import ray

    return {"pid": os.getpid(), "node": ray.get_runtime_context().get_node_id()}


def _fetch(ref: Any) -> dict[str, list[Any]]:
    import ray

    return ray.get(ref, timeout=FETCH_SECONDS)


def tensors_as_bytes() -> None:
    """Have Ray carry tensors as bytes. Once in every process that sends some."""
    import ray

    ray.util.register_serializer(Tensor, serializer=_written, deserializer=_read)


def _written(t: Tensor) -> tuple[str, tuple[int, ...], bytes]:
    flat = t.detach().cpu().contiguous()
    return (
        str(flat.dtype).removeprefix("torch."),
        tuple(flat.shape),
        flat.reshape(-1).view(torch.uint8).numpy().tobytes(),
    )


def _read(said: tuple[str, tuple[int, ...], bytes]) -> Tensor:
    kind, shape, data = said
    flat = torch.from_numpy(numpy.frombuffer(data, dtype=numpy.uint8).copy())
    return flat.view(getattr(torch, kind)).reshape(shape)
