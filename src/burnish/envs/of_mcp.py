"""`--tools mcp:COMMAND`: the tools of an MCP server, which is started as a process and spoken to over stdio.

One server serves all episodes of a run, so its tools should keep no state of an episode. A call that the server answers
with an error, or does not answer in time, is an observation that says so: the model may try again.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import re
import shlex
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from types import ModuleType
from typing import Any

from burnish.envs.tools import Tool
from burnish.util.failures import said

PASSED = (  # variables that a server inherits: keys and tokens of the user are not among them
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "LC_ALL", "TMPDIR", "TZ", "PYTHONPATH", "PYTHONHOME"),
    *("VIRTUAL_ENV", "LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"),
)
_SET = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)  # NAME=VALUE before the command
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")  # of a tool: what templates and calls can write
SECONDS = 30.0  # for the start of a server, and for one call


def library() -> ModuleType:
    """The package; ValueError where it is not installed."""
    try:
        return importlib.import_module("mcp")
    except ImportError:
        raise ValueError("MCP tools need mcp; install it with: pip install 'burnish[mcp]'") from None


def mcp_tools(command: str, seconds: float = SECONDS) -> list[Tool]:
    """The tools of the server that a command starts. The server runs until this process ends."""
    server = McpServer(command, seconds)
    found = [_tool(server, described) for described in server.listed]
    if not found:
        raise ValueError(f"the MCP server {command!r} offers no tools")
    return found


class McpServer:
    """A connection to one server, in an event loop of its own thread. listed: what it offers."""

    def __init__(self, command: str, seconds: float = SECONDS) -> None:
        self.command, self.seconds = command, seconds
        words, environment = read_command(command)
        self._parameters = library().StdioServerParameters(command=words[0], args=words[1:], env=environment)
        self._session: Any = None
        self._ended: asyncio.Event | None = None
        self._loop = asyncio.new_event_loop()
        self._ready: Future[list[Any]] = Future()
        threading.Thread(target=self._run, daemon=True, name="MCP").start()
        try:
            self.listed = self._ready.result(seconds)
        except TimeoutError:
            raise ValueError(f"the MCP server {command!r} had not answered after {seconds:g} s") from None
        except Exception as error:
            raise ValueError(f"the MCP server {command!r} could not be started: {_reason(error)}") from error

    def call(self, name: str, arguments: dict[str, Any]) -> str:
        """The text of a tool's answer; RuntimeError with the reason where there is none."""
        if not self._loop.is_running():
            raise RuntimeError(f"the MCP server {self.command!r} has ended")
        asked = asyncio.run_coroutine_threadsafe(self._session.call_tool(name, arguments), self._loop)
        try:
            found = asked.result(self.seconds)
        except TimeoutError:
            asked.cancel()
            raise RuntimeError(f"{name} had not answered after {self.seconds:g} s") from None
        except Exception as error:
            raise RuntimeError(f"the MCP server did not answer: {_reason(error)}") from error
        pieces = [getattr(block, "text", f"[{getattr(block, 'type', 'content')}]") for block in found.content]
        if getattr(found, "is_error", getattr(found, "isError", False)):
            raise RuntimeError("\n".join(pieces)[:1000])
        return "\n".join(pieces)

    def close(self) -> None:
        """End the server."""
        if self._ended is not None and self._loop.is_running():
            self._loop.call_soon_threadsafe(self._ended.set)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        except BaseException as error:  # noqa: BLE001 - the thread's last error goes to the caller that waits
            if not self._ready.done():
                self._ready.set_exception(error if isinstance(error, Exception) else RuntimeError(repr(error)))

    async def _serve(self) -> None:
        mcp = library()
        self._ended = asyncio.Event()
        async with (
            mcp.stdio_client(self._parameters, sys.__stderr__ or sys.stderr) as (read, write),
            mcp.ClientSession(read, write) as session,
        ):
            await session.initialize()
            self._session = session
            self._ready.set_result(list((await session.list_tools()).tools))
            await self._ended.wait()


def read_command(command: str) -> tuple[list[str], dict[str, str]]:
    """The words of a command, and the environment of its process: PASSED, and what stands before it.

    `API_KEY=$API_KEY python server.py` passes one more variable.
    """
    environment = {name: os.environ[name] for name in PASSED if name in os.environ}
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ValueError(f"mcp:{command} cannot be read ({error}); close its quotation marks") from None
    while words and (given := _SET.fullmatch(words[0])):
        environment[given[1]] = os.path.expandvars(given[2])
        words = words[1:]
    if not words:
        raise ValueError("mcp: names no command; write --tools 'mcp:python my_server.py'")
    return words, environment


def _tool(server: McpServer, described: Any) -> Tool:
    """A tool from what the server says of it."""
    if not _NAME.fullmatch(described.name):
        raise ValueError(
            f"the MCP server {server.command!r} calls a tool {described.name[:80]!r}; names are letters, digits, _, . "
            "and -, at most 64"
        )
    schema = dict(getattr(described, "input_schema", None) or getattr(described, "inputSchema", None) or {})
    parameters = {"type": "object", **schema}
    parameters.setdefault("properties", {})
    parameters.setdefault("required", [])
    function: Callable[..., Any] = lambda **arguments: server.call(described.name, arguments)  # noqa: E731
    about = {"name": described.name, "description": described.description or described.name, "parameters": parameters}
    return Tool(described.name, function, {"type": "function", "function": about})


def _reason(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return f"{type(error).__name__}: {said(error)[:200]}".rstrip(": ")
