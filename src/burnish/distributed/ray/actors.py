"""Ray actors: a sampler or a grader is a Worker in its own actor.

Every actor answers `ping` (a heartbeat with its current activity) in a separate concurrency group, so it answers while
it works. Tensors are sent as bytes with their shape, never pickled by torch.
"""

from __future__ import annotations

import contextlib
import os
import signal
from typing import TYPE_CHECKING, Any, Protocol, TypedDict

import numpy
import torch
from torch import Tensor

from burnish.core.pending_step import PartialStep
from burnish.distributed.ray.units import Unit
from burnish.distributed.ray.worker import Activity, Spec, Worker

if TYPE_CHECKING:
    from ray import ObjectRef

    from burnish.distributed.ray.worker import Arrays

LIFE = "life"  # the concurrency group of heartbeats
FETCH_SECONDS = 120.0  # time limit for fetching weights


class Where(TypedDict):
    """A process and its node."""

    pid: int
    node: str


class RemoteMethod(Protocol):
    """A method of an actor, which answers with a reference."""

    def remote(self, *arguments: object) -> ObjectRef[Any]: ...

    def options(self, *, concurrency_group: str) -> RemoteMethod: ...


class Handle(Protocol):
    """An actor of another process: a trainer (ready, train, news, ping) or a worker (ready, rollout, score, ping)."""

    ready: RemoteMethod
    ping: RemoteMethod
    rollout: RemoteMethod
    score: RemoteMethod
    train: RemoteMethod
    news: RemoteMethod


class WorkerActor:
    """The actor around a Worker. Loading happens in `ready`, not in the constructor, so that it can be monitored."""

    def __init__(self, name: str, role: str, spec: Spec) -> None:
        self.name, self.role, self.spec = name, role, spec
        self.worker: Worker | None = None
        self.doing = Activity()
        tensors_as_bytes()

    def ready(self) -> Where:
        """Build the method and load the models, once; return the process and node."""
        if self.worker is None:
            self.worker = Worker(self.spec, self.role, _fetch, self.doing)
        return whereabouts()

    def rollout(self, unit: Unit) -> tuple[PartialStep, dict[str, list[list[float]]]]:
        assert self.worker is not None
        return self.worker.rollout(unit)

    def score(self, unit: Unit, made: PartialStep) -> tuple[PartialStep, dict[str, list[list[float]]]]:
        assert self.worker is not None
        return self.worker.score(unit, made)

    def ping(self) -> tuple[str, float]:
        """Heartbeat: the current activity, and for how many seconds."""
        return self.doing.current()


def as_actor(kind: type, cpus: float = 1.0) -> Any:
    """The class as a Ray actor. Ray does not restart it: the supervisor does, which knows units and checkpoints."""
    import ray

    remote: Any = ray.remote
    return remote(num_cpus=cpus, max_restarts=0, max_task_retries=0, concurrency_groups={LIFE: 1})(kind)


def ping(handle: Handle) -> ObjectRef[tuple[str, float]]:
    """Request a heartbeat from an actor; return a reference to its answer."""
    return handle.ping.options(concurrency_group=LIFE).remote()


def end(handle: Handle, where: Where | None) -> None:
    """Kill an actor. On this node with SIGKILL, because Ray needs seconds to end a stopped process."""
    import ray

    if where and where["node"] == whereabouts()["node"]:
        kill(where["pid"])
    actor: Any = handle
    ray.kill(actor)


def kill(pid: int) -> None:
    """Send SIGKILL; ignore a process that is gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def whereabouts() -> Where:
    """This process and its node."""
    import ray

    return {"pid": os.getpid(), "node": ray.get_runtime_context().get_node_id()}


def _fetch(ref: ObjectRef[Arrays]) -> Arrays:
    import ray

    return ray.get(ref, timeout=FETCH_SECONDS)


def tensors_as_bytes() -> None:
    """Make Ray serialise tensors as bytes. To be called in every process that sends tensors."""
    import ray

    ray.util.register_serializer(Tensor, serializer=_encode, deserializer=_decode)


def _encode(t: Tensor) -> tuple[str, tuple[int, ...], bytes]:
    flat = t.detach().cpu().contiguous()
    return (
        str(flat.dtype).removeprefix("torch."),
        tuple(flat.shape),
        flat.reshape(-1).view(torch.uint8).numpy().tobytes(),
    )


def _decode(encoded: tuple[str, tuple[int, ...], bytes]) -> Tensor:
    kind, shape, data = encoded
    flat = torch.from_numpy(numpy.frombuffer(data, dtype=numpy.uint8).copy())
    return flat.view(getattr(torch, kind)).reshape(shape)
