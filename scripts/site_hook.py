"""What mkdocs does not do by itself (mkdocs.yml): notebooks as pages, the pages beside docs/, and links to the source.

Notebooks become Markdown with the outputs that are stored in them. CONTRIBUTING.md and CHANGELOG.md become pages.
Links out of docs/ to files of the repository become their names: the site has no copy of the source.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files, InclusionLevel

ROOT = Path(__file__).parents[1]
BESIDE = {"contributing.md": "CONTRIBUTING.md", "changes.md": "CHANGELOG.md"}
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the generated pages, and turn notebooks into pages."""
    for page, source in BESIDE.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    for file in [one for one in files if one.src_uri.endswith(".ipynb")]:
        files.remove(file)
        text = markdown_of(json.loads(Path(file.abs_src_path).read_text(encoding="utf-8")))
        page = File.generated(config, file.src_uri.replace(".ipynb", ".md"), content=text)
        page.inclusion = InclusionLevel.INCLUDED
        files.append(page)
    return files


def on_config(config: Any) -> Any:
    """The nav names notebooks as they are called; their pages end in .md."""
    config["nav"] = _renamed(config["nav"])
    return config


def _renamed(nav: Any) -> Any:
    if isinstance(nav, list):
        return [_renamed(one) for one in nav]
    if isinstance(nav, dict):
        return {title: _renamed(one) for title, one in nav.items()}
    return nav.replace(".ipynb", ".md")


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Links as the site has them."""
    folder = (ROOT / "docs" / page.file.src_uri).parent
    if page.file.src_uri in BESIDE:
        folder = ROOT
    return _LINK.sub(lambda match: _link(match, folder, page.file.src_uri), markdown)


def on_post_page(output: str, page: Any, config: Any) -> str:
    """No requests to other servers: the shim is for searching pages that are opened from a disk without a server."""
    return re.sub(r'<script src="https://[^"]*iframe-worker[^"]*"></script>', "", output)


def _link(match: re.Match[str], folder: Path, at: str) -> str:
    picture, text, target = match.groups()
    name, mark, anchor = target.partition("#")
    if not name or "://" in name or name.startswith("mailto:"):
        return match[0]
    place = (folder / name).resolve()
    up = "../" * at.count("/")
    for page, source in BESIDE.items():
        if place == ROOT / source:
            return f"{picture}[{text}]({up}{page}{mark}{anchor})"
    if place == ROOT / "README.md":
        return f"{picture}[{text}]({up}index.md)"
    if place.is_relative_to(ROOT / "docs"):
        inside = place.relative_to(ROOT / "docs").as_posix().replace(".ipynb", ".md")
        return f"{picture}[{text}]({up}{inside}{mark}{anchor})" if place.is_file() else match[0]
    if place.exists() and place.is_relative_to(ROOT):
        return f"{text} (`{place.relative_to(ROOT)}`)"
    return match[0]


def markdown_of(notebook: dict[str, Any]) -> str:
    """A notebook as Markdown: texts, code, and what the code printed."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
        elif cell["cell_type"] == "code":
            parts.append(f"```python\n{source}\n```")
            printed = "".join(_printed(output) for output in cell.get("outputs", ()))
            if printed.strip():
                parts.append(f"```text\n{printed.rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


def _printed(output: dict[str, Any]) -> str:
    if output["output_type"] == "stream":
        return "".join(output["text"])
    return "".join(output.get("data", {}).get("text/plain", "")) + "\n"
