"""Record a command as docs/demo.svg, whose lines appear one after the other: python scripts/record_demo.py [WORDS ...]

Without words it records `burnish train`. A file of lines (--from FILE) is drawn without running anything.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme

ROOT = Path(__file__).parents[1]
WIDTH = 136  # columns
SECONDS = 0.42  # between two lines
STYLE = (
    "text{animation:appear .12s linear both}@keyframes appear{from{opacity:0}to{opacity:1}}"
    "@media (prefers-reduced-motion:reduce){text{animation:none}}"
)
THEME = TerminalTheme(
    (41, 41, 41), (197, 200, 198), [(75, 78, 85), (204, 85, 90), (152, 168, 75)] + [(197, 200, 198)] * 5
)


def drawn(command: str, lines: list[str]) -> str:
    """The terminal as an SVG whose lines appear after one another; those who ask for less motion see them at once."""
    console = Console(record=True, width=WIDTH, file=open("/dev/null", "w"), highlight=False)  # noqa: SIM115
    console.print(f"[bold green]$ {command}[/]")
    for line in lines:
        console.print(line if len(line) <= WIDTH else line[: WIDTH - 1] + "…", markup=False, no_wrap=True)
    svg = console.export_svg(title="burnish", theme=THEME, unique_id="terminal-demo")
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)  # the fonts of the reader's machine, none fetched
    svg = svg.replace("Fira Code, monospace", "ui-monospace, 'DejaVu Sans Mono', monospace")
    svg = svg.replace("<style>", f"<style>{STYLE}", 1)
    return re.sub(r'<text class="(terminal-demo-r\d+)" x="([\d.]+)" y="([\d.]+)"', _delayed, svg)


def _delayed(found: re.Match[str]) -> str:
    kind, x, y = found.groups()
    line = round((float(y) - 20) / 24.4)
    return f'<text style="animation-delay:{0.3 + SECONDS * line:.2f}s" class="{kind}" x="{x}" y="{y}"'


def main() -> None:
    """Run the command, and write what it says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--from", dest="source", type=Path, help="lines that were printed before")
    parser.add_argument("words", nargs="*", default=[])
    given = parser.parse_args()
    words = given.words or ["train"]
    if given.source:
        text = given.source.read_text()
    else:
        text = subprocess.run(
            [sys.executable, "-m", "burnish", *words], stdout=subprocess.PIPE, text=True, check=True
        ).stdout
    lines = [line for line in text.splitlines() if line.strip()]
    (ROOT / "docs/demo.svg").write_text(drawn(" ".join(["burnish", *words]), lines))


if __name__ == "__main__":
    main()
