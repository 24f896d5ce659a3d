"""`burnish ui`: serve the dashboard."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from burnish.config.flags import read
from burnish.util.terminal import stdout_console


@dataclass(frozen=True)
class UiOptions:
    """burnish ui [DIR]: the dashboard of the runs in a folder (runs/), live while they train.

    Learning curves, health checks, timings, and every trace token by token. Runs are started, queued, stopped, resumed,
    copied and filed from the page; --read-only switches that off. It listens on the loopback address only;
    with --host ADDRESS other machines can connect, with the access token that is printed with the address."""

    port: int = 7007
    """The port to listen on; 0 takes any free one."""
    host: str = "127.0.0.1"
    """The address to listen on: the loopback (127.0.0.1, ::1), or another address of this machine, with a token."""
    token: str | None = None
    """The access token, 16 to 200 letters, digits or . _ ~ -; by default a random one if --host needs it."""
    read_only: bool = False
    """Show runs only: nothing can be started, stopped, changed or deleted from the page."""
    open: bool = True
    """Open the dashboard in a browser, if there is one."""


def main(words: list[str]) -> int:
    asked = read(UiOptions, "ui", words, plain=1)
    if asked is None:
        return 0
    plain, options = asked
    from burnish.report.api import Api
    from burnish.report.catalogue import RUNS
    from burnish.report.endpoint import endpoint_for
    from burnish.report.server import make_server

    root = Path(plain[0] if plain else RUNS)
    if plain and not os.path.isdir(root):
        raise ValueError(f"there is no folder {plain[0]!r}; burnish ui [DIR] shows the runs of a folder")
    endpoint = endpoint_for(options.host, options.port, options.token)
    server = make_server(Api(root, read_only=options.read_only), endpoint)
    console = stdout_console()
    console.print(f"[bold]burnish[/] shows {root}/ at [cyan]{endpoint.url()}[/]", soft_wrap=True)
    if not endpoint.loopback:
        console.print(
            "Other machines can reach this address; they need the token in it, and the connection is not encrypted.",
            style="yellow",
        )
    console.print("Press Ctrl-C to stop.", style="dim")
    if options.open and console.is_terminal:
        import webbrowser

        webbrowser.open(endpoint.url())
    try:
        server.serve_forever(poll_interval=0.2)
    except KeyboardInterrupt:
        console.print()
    finally:
        server.server_close()
    return 0
