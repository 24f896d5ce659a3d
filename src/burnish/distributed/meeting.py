"""How the ranks of several machines meet: at an address of the first one's, with a token, and only as equals.

Rank 0 listens at the address that `burnish launch` was given (a key-value store of torch), on that interface alone.
Every rank writes down who it is: its versions, what it was asked to do, and a proof that it knows the token. Each reads
what the others wrote. So a machine that cannot be reached, a port that is taken, another token, another version or
another command is one sentence on every rank, after PATIENCE seconds at most, before anything is computed. The token
itself is not sent. What ranks exchange later is not encrypted: the network between them must be private.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import json
import os
import platform
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

from burnish import __version__
from burnish.models.ranks import Ranks

ADDRESS, TOKEN, SAME = "BURNISH_MEET", "BURNISH_TOKEN", "BURNISH_WORDS"  # variables that `burnish launch` sets
WAIT = "BURNISH_WAIT_FOR_RANKS"  # seconds that ranks wait for each other at the start
PATIENCE = 30.0  # where this variable does not say otherwise
PARTING = 3.0  # seconds that rank 0 stays for ranks that have not read yet what all others are
HELLO, READ = "burnish/hello/", "burnish/read/"
FIXES = {
    "token": "start all machines with the same BURNISH_TOKEN",
    "burnish": "install one version everywhere",
    "torch": "install one version everywhere",
    "python": "use one version everywhere",
    "ranks": "start all machines with the same --nodes and --per-node",
    "command": "start all machines with the same file and flags",
}


@dataclass(frozen=True)
class Address:
    """Where ranks meet."""

    host: str
    port: int

    @classmethod
    def read(cls, text: str) -> Address:
        """From HOST:PORT; ValueError for anything else."""
        host, _, port = text.rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise ValueError(
                f"--meet is {text!r}; it is HOST:PORT, an address of the first machine: --meet node0:29500"
            )
        return cls(host.strip("[]"), int(port))

    @property
    def local(self) -> bool:
        """Whether no other machine can reach it."""
        try:
            return ipaddress.ip_address(socket.gethostbyname(self.host)).is_loopback
        except (OSError, ValueError):
            return False

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def seconds_to_wait() -> float:
    """How long ranks wait for each other at the start."""
    text = os.environ.get(WAIT, str(PATIENCE))
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{WAIT} is {text!r}; it is a number of seconds") from None


def meet(own: Ranks, address: Address, token: str) -> dist.Store:
    """The store of a run whose ranks have all come and are equals; ValueError for anything else."""
    if not token and not address.local:
        raise ValueError(
            f"ranks would meet at {address}, which other machines can reach, and there is no token; set BURNISH_TOKEN "
            "to a long random text, the same on all machines (burnish launch does)"
        )
    seconds = seconds_to_wait()
    began = time.monotonic()
    store = _opened(own, address, seconds)
    store.set(f"{HELLO}{own.rank}", json.dumps(_hello(own, token)))
    hellos: list[dict[str, str]] = []
    for rank in range(own.world):
        if not _there(store, f"{HELLO}{rank}", seconds - (time.monotonic() - began)):
            raise ValueError(
                f"rank {rank} did not come to {address} within {seconds:g} s, as rank {own.rank} did: its machine has "
                f"not started it, or cannot reach {address}; look at its messages, or wait longer with {WAIT}"
            )
        hellos.append(json.loads(store.get(f"{HELLO}{rank}")))
    store.set(f"{READ}{own.rank}", "")
    if not own.rank:  # the store ends with this process: the others read first
        for rank in range(own.world):
            _there(store, f"{READ}{rank}", PARTING)
    for rank, hello in enumerate(hellos):
        _require_equal(rank, hello, hellos[0] if rank else None, own, token)
    return store


def _there(store: dist.Store, key: str, seconds: float) -> bool:
    """Whether a rank writes a key within so many seconds."""
    try:
        store.wait([key], timedelta(seconds=max(1.0, seconds)))
    except (RuntimeError, ValueError):
        return False
    return True


def _opened(own: Ranks, address: Address, seconds: float) -> dist.Store:
    """The store: rank 0 makes it, on the address's own interface, and the others connect to it."""
    if own.rank:
        try:
            return dist.TCPStore(address.host, address.port, is_master=False, timeout=timedelta(seconds=seconds))
        except (RuntimeError, OSError, ValueError):
            raise ValueError(
                f"rank {own.rank} cannot reach {address} within {seconds:g} s: rank 0 is not there, or the port is "
                f"closed to this machine ({platform.node()}); check --meet and the firewall"
            ) from None
    try:
        family = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.create_server((address.host, address.port), family=family, backlog=1024)
    except socket.gaierror:
        raise ValueError(f"the name of {address} is not known to this machine; --meet takes an address of it") from None
    except OSError as error:
        raise ValueError(
            f"rank 0 cannot listen at {address} ({os.strerror(error.errno or 0)}); --meet takes an address of the "
            "first machine and a port that is free there"
        ) from None
    return dist.TCPStore(
        address.host,
        address.port,
        is_master=True,
        wait_for_workers=False,
        timeout=timedelta(seconds=seconds),
        master_listen_fd=listening.detach(),
    )


def _hello(own: Ranks, token: str) -> dict[str, str]:
    return {
        "token": _proof(token, own.rank),
        "burnish": __version__,
        "torch": torch.__version__,
        "python": platform.python_version().rpartition(".")[0],
        "ranks": str(own.world),
        "command": os.environ.get(SAME, ""),
    }


def _proof(token: str, rank: int) -> str:
    """What a rank can only write if it knows the token."""
    return hmac.new(token.encode(), f"rank {rank}".encode(), hashlib.sha256).hexdigest()


def _require_equal(
    rank: int, hello: Mapping[str, str], first: Mapping[str, str] | None, own: Ranks, token: str
) -> None:
    """Raise ValueError for a rank with another token, or with something else than rank 0 has."""
    if not hmac.compare_digest(str(hello.get("token", "")), _proof(token, rank)):
        raise ValueError(
            f"rank {rank} has another token than rank {own.rank}, so they are not of one run; {FIXES['token']}"
        )
    for what, value in (first or {}).items():
        if what != "token" and hello.get(what) != value:
            raise ValueError(
                f"rank {rank} has {what} {_short(hello.get(what))} and rank 0 has {_short(value)}; {FIXES[what]}"
            )


def _short(value: object) -> str:
    return str(value)[:60] or "none"


def own_interface(address: Address) -> str | None:
    """The name of the network interface by which this machine reaches the address; None where it cannot be known."""
    try:
        import fcntl

        family, kind, _, _, place = socket.getaddrinfo(address.host, address.port, socket.AF_INET, socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as link:
            link.connect(place)
            mine = socket.inet_aton(link.getsockname()[0])
            for _, name in socket.if_nameindex():
                try:
                    answer = fcntl.ioctl(link.fileno(), 0x8915, name.encode()[:15].ljust(256, b"\0"))  # SIOCGIFADDR
                except OSError:  # an interface without an address
                    continue
                if answer[20:24] == mine:
                    return name
    except (OSError, ImportError):
        return None
    return None
