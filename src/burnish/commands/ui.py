"""`burnish ui`: the dashboard, in a browser."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from burnish.commands.flags import read


@dataclass(frozen=True)
class UiOptions:
    """burnish ui [DIR]: the dashboard of the runs in a folder (runs/), live while they train.

    Learning curves, health, where the time goes, and every trace token by token. It listens on this machine alone;
    with --host ADDRESS others may look too, and then a token is needed, which is printed with the address."""

    port: int = 7007
    """The port to listen on; 0 takes any free one."""
    host: str = "127.0.0.1"
    """The address to listen on. Any other than the loopback needs the token."""
    token: str | None = None
    """The token to ask for, at least 16 characters; by default one is made where one is needed."""
    open: bool = True
    """Open it in a browser, where there is one."""


def main(words: list[str]) -> int:
    asked = read(UiOptions, "ui", words, plain=1)
    if asked is None:
        return 0
    plain, options = asked
    from burnish.report.api import Api
    from burnish.report.catalogue import RUNS
    from burnish.report.server import door_for, is_loopback, make_server

    root = Path(plain[0] if plain else RUNS)
    if plain and not root.is_dir():
        raise ValueError(f"there is no folder {plain[0]!r}; burnish ui [DIR] shows the runs of a folder")
    door = door_for(options.host, options.port, options.token)
    server = make_server(Api(root), door)
    console = Console(highlight=False)
    console.print(f"[bold]burnish[/] shows {root}/ at [cyan]{door.url()}[/]", soft_wrap=True)
    if not is_loopback(door.host):
        console.print(
            "Others can reach this address; they need the token in it, and what they see is not encrypted.",
            style="yellow",
        )
    console.print("Ctrl-C ends it.", style="dim")
    if options.open and console.is_terminal:
        import webbrowser

        webbrowser.open(door.url())
    try:
        server.serve_forever(poll_interval=0.2)
    except KeyboardInterrupt:
        console.print()
    finally:
        server.server_close()
    return 0
