"""Pictures that are URLs: refused, or fetched once where the run says so, within limits."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from burnish.config.options import Config, Options
from burnish.media import fetched, png
from burnish.media.fetched import FETCHING
from burnish.methods.table import find
from burnish.run.plan import compose
from burnish.tasks.data.pictures import reference

PICTURE = png.written(np.full((4, 4, 3), 7, dtype=np.uint8))


class Web(ThreadingHTTPServer):
    asked: list[str]


class Answer(BaseHTTPRequestHandler):
    server: Web

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        places = {"/moved": "/a.png", "/out": "ftp://127.0.0.1/a.png"}
        self.send_response(302 if self.path in places else 404 if self.path == "/none" else 200)
        if self.path in places:
            self.send_header("Location", places[self.path])
        self.end_headers()
        self.wfile.write(PICTURE * (100 if self.path == "/long" else 1))

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def web(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    monkeypatch.setenv("BURNISH_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(FETCHING, "allowed", True)
    server = Web(("127.0.0.1", 0), Answer)
    server.asked = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def at(web: Web, path: str) -> str:
    return f"http://127.0.0.1:{web.server_port}{path}"


def test_a_picture_is_fetched_once(web: Web) -> None:
    first, again = (reference(at(web, "/a.png"), "row 1") for _ in range(2))
    assert first == again and Path(first).read_bytes() == PICTURE and web.asked == ["/a.png"]
    moved = reference({"url": at(web, "/moved")}, "row 1")
    assert Path(moved).read_bytes() == PICTURE and web.asked[1:] == ["/moved", "/a.png"]


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/none", "row 3: the picture .* cannot be fetched .the server says 404.; correct it"),
        ("/out", "another scheme"),
        ("/long", "more than 0 MiB"),
    ],
)
def test_what_cannot_be_had_is_said_with_the_row(
    path: str, words: str, web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetched, "MOST_BYTES", 1000)
    with pytest.raises(ValueError, match=words):
        reference(at(web, path), "row 3")


def test_other_schemes_and_silent_servers_are_refused(web: Web) -> None:
    with pytest.raises(ValueError, match="only http and https"):
        reference("ftp://127.0.0.1/a.png", "row 1")
    with pytest.raises(ValueError, match="cannot be fetched .*refused"):
        reference("http://127.0.0.1:9/a.png", "row 1")


def test_the_option_reaches_the_rows(web: Web, tmp_path: Path) -> None:
    """Off by default, and off again for the next run of a process."""
    data = tmp_path / "data.jsonl"
    row = json.dumps({"prompt": "<image>?", "images": [at(web, "/a.png")], "answer": "7"})
    data.write_text(f"{row}\n" * 3)
    source, _ = compose(find("grpo"), Config("grpo", Options(task=str(data), allow_urls=True)))
    part = source.task("train", 0).prompt[0]["content"][0]  # type: ignore[index]
    assert Path(part["image"]).read_bytes() == PICTURE
    with pytest.raises(ValueError, match="or pass --allow-urls"):
        compose(find("grpo"), Config("grpo", Options(task=str(data))))
