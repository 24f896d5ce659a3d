"""The dashboard's address and access control: the host is resolved once; other than loopback needs a token."""

from __future__ import annotations

import hmac
import ipaddress
import re
import secrets
import socket
from dataclasses import dataclass, field
from typing import Any

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
TOKEN = re.compile(r"[A-Za-z0-9._~-]{16,200}")  # characters that need no escaping in a URL or in a cookie


@dataclass
class Endpoint:
    """Where the server listens, and what requests must contain.

    host    as the user wrote it, for the URL and the Host header
    where   the address that `host` resolved to, in the form of `socket.bind`; port 0 means any free port
    token   access token of every request; empty on the loopback address, unless the user set one
    secret  CSRF token of orders (POST requests), which the dashboard's own page contains
    """

    host: str
    where: tuple[str, int] | tuple[str, int, int, int]
    token: str = ""
    secret: str = field(default_factory=lambda: secrets.token_urlsafe(24))

    @property
    def port(self) -> int:
        return self.where[1]

    @property
    def family(self) -> socket.AddressFamily:
        return socket.AF_INET if len(self.where) == 2 else socket.AF_INET6

    @property
    def loopback(self) -> bool:
        """Whether only this machine can connect."""
        return is_loopback(self.where[0])

    def hosts(self) -> set[str]:
        """The accepted values of the Host header: with the port, which browsers leave out where it is 80."""
        names = {_bracketed(self.host), _bracketed(self.where[0]), *(LOOPBACK_NAMES if self.loopback else ())}
        named = {f"{name.lower()}:{self.port}" for name in names}
        return named | {name.lower() for name in names} if self.port == 80 else named

    def url(self) -> str:
        return f"http://{_bracketed(self.host)}:{self.port}/" + (f"?token={self.token}" if self.token else "")

    def is_token(self, text: str) -> bool:
        """Whether this is the access token, compared in constant time."""
        return hmac.compare_digest(text.encode("utf-8", "replace"), self.token.encode())

    def is_secret(self, text: str) -> bool:
        """Whether this is the page's secret, compared in constant time."""
        return hmac.compare_digest(text.encode("utf-8", "replace"), self.secret.encode())


def is_loopback(address: str) -> bool:
    """Whether an address, in any spelling that `ipaddress` parses, is a loopback address."""
    try:
        return _plain(address).is_loopback
    except ValueError:
        return False


def endpoint_for(host: str, port: int, token: str | None) -> Endpoint:
    """Resolve the host and build the endpoint; without loopback, it always has a token.

    Raises ValueError for every spelling of "all addresses" (::, *, an empty host, ...).
    """
    if not 0 <= port <= 65535:
        raise ValueError(f"--port {port} is not a port; use 1 to 65535, or 0 for any free one")
    if token is not None and not TOKEN.fullmatch(token):
        raise ValueError(
            "--token must have 16 to 200 letters, digits or . _ ~ - (shorter ones can be guessed, others do not fit "
            "into a URL); leave it out to generate one"
        )
    host = host.removeprefix("[").removesuffix("]")
    where = _resolved(host, port)
    if token is None and not is_loopback(where[0]):
        token = secrets.token_urlsafe(24)
    return Endpoint(host, where, token or "")


def require_one_address(host: str, address: str) -> None:
    """Raise ValueError for an address that means all networks of this machine, multicast or broadcast."""
    ip = _plain(address)
    if ip.is_unspecified:
        raise ValueError(
            f"--host {host or '(empty)'} opens the dashboard on every network at once; "
            "name the one address it should have"
        )
    if ip.is_multicast or ip == ipaddress.IPv4Address(0xFFFFFFFF):
        raise ValueError(f"--host {host} is not the address of one machine; name the one address it should have")


def _resolved(host: str, port: int) -> tuple[str, int] | tuple[str, int, int, int]:
    """The address to bind: IPv4 if the host has one; IPv4-mapped IPv6 addresses become IPv4."""
    if host in ("", "*"):
        require_one_address(host, "::")
    try:
        rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, ValueError) as error:  # unknown names; NUL characters and labels that are too long
        why = error.strerror if isinstance(error, OSError) else "it is not a host name"
        raise ValueError(
            f"--host {host[:100]!r} has no address ({why}); use 127.0.0.1 or an address of this machine"
        ) from None
    addresses: list[tuple[str, int] | tuple[str, int, int, int]] = []
    for family, *_, name in rows:
        if family not in (socket.AF_INET, socket.AF_INET6):
            continue
        where: list[Any] = list(name)  # (address, port) or (address, port, flow, scope)
        address = str(where[0])
        require_one_address(host, address)
        plain = _plain(address)
        if plain.version == 4:
            addresses.append((str(plain), port))
        else:
            addresses.append((address, port, where[2], where[3]))
    if not addresses:
        raise ValueError(f"--host {host!r} has no internet address; use 127.0.0.1 or an address of this machine")
    return min(addresses, key=len)  # IPv4 first: (address, port) is shorter than (address, port, flow, scope)


def _plain(address: str) -> Address:
    """The parsed address; an IPv4-mapped address (::ffff:1.2.3.4) becomes IPv4."""
    ip = ipaddress.ip_address(address)
    return ip.ipv4_mapped or ip if isinstance(ip, ipaddress.IPv6Address) else ip


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
