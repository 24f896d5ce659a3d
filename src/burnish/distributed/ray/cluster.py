"""The Ray cluster of a run: a private one on the loopback address, with a token; or an existing one to join."""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr
from functools import cache
from io import StringIO
from types import ModuleType

from burnish.distributed.ray.watchdog import watched

LOOPBACK = "127.0.0.1"
_NEAR = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}  # makes Ray use one node, with every port on the loopback address
STORE_MIB = 512  # shared memory of the object store: weights, units


@cache
def local_environment() -> dict[str, str]:
    """Environment variables of a private cluster. One token per process, because Ray caches the first."""
    return {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_USAGE_STATS_ENABLED": "0",
        **_NEAR,
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        "RAY_DEDUP_LOGS_SKIP_REGEX": "A worker died or was killed",  # burnish reports lost actors itself
    }


@contextmanager
def cluster(address: str | None, cpus: int) -> Iterator[ModuleType]:
    """Ray, connected. Without an address, a cluster for `cpus` actors is started and stopped at the end.

    A started cluster ends with this process, even if that is killed. A Ray that this process is already connected to is
    used as it is and left running.
    """
    before = dict(os.environ)
    changed = local_environment() if address is None else _joining(address)
    os.environ.update(changed)
    import ray

    if ray.is_initialized():
        yield ray
        return
    try:
        with watched(os.path.dirname(ray.__file__)) if address is None else nullcontext():
            try:
                _join(address) if address is not None else _start(cpus)
                yield ray
            finally:
                ray.shutdown()
    finally:
        for name in changed:
            os.environ.pop(name, None)
            os.environ.update({name: before[name]} if name in before else {})


def _joining(address: str) -> dict[str, str]:
    """Environment variables of a process that joins: one attempt of about 40 s instead of twenty."""
    near = _NEAR if address.startswith((LOOPBACK, "localhost")) else {}
    return {"RAY_gcs_server_port_wait_time_s": "1", **near}


def _start(cpus: int) -> None:
    import ray
    from ray._private import ray_constants
    from ray._raylet import Config  # type: ignore[attr-defined]

    # If Ray was imported before the environment was set, it must read the environment again.
    ray_constants.ENABLE_RAY_CLUSTER = False
    Config.initialize("")
    ray.init(
        address="local",
        num_cpus=cpus,
        include_dashboard=False,
        dashboard_host=LOOPBACK,
        log_to_driver=False,
        logging_level=logging.ERROR,
        object_store_memory=STORE_MIB << 20,
    )
    if ray.util.get_node_ip_address() != LOOPBACK:
        ray.shutdown()
        raise ValueError("Ray would listen beyond this machine; start one yourself and pass --ray-address")


def _join(address: str) -> None:
    import ray

    captured = StringIO()
    try:
        with redirect_stderr(captured):
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
        why = str(error).strip().partition("\n")[0]
        raise ValueError(
            f"cannot join a Ray at {address!r}: {why}; check the address and RAY_AUTH_TOKEN, or leave out --ray-address"
        ) from None
