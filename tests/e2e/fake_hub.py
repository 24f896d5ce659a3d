"""A Hugging Face hub on this machine: the part of its HTTP interface through which repositories are found and
downloaded.

    with FakeHub(root) as hub:
        subprocess.run([...], env={**os.environ, **hub.environment(tmp_path / "cache")})

`root/models/owner/name/*` and `root/datasets/owner/name/*` are repositories; a folder `name@tag` beside one is its
revision `tag`. A commit is the hash of the files of a folder. `hub.requests` lists what was asked ("HEAD /path").
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Any
from urllib.parse import unquote, urlsplit

_API = re.compile(r"/api/(models|datasets)/([^/]+/[^/]+)(?:/(revision|tree|paths-info)/([^/]+)(?:/(.*))?)?")
_FILE = re.compile(r"(?:/(datasets))?/([^/]+/[^/]+)/resolve/([^/]+)/(.+)")


class FakeHub:
    """Serves `root` on a free port of 127.0.0.1 while the context lasts.

    token  the only token that is let in, where one is given; requests without it see no repository, as on the hub
    gated  "owner/name" of repositories whose files are refused to everyone
    """

    def __init__(self, root: Path, *, token: str | None = None, gated: tuple[str, ...] = ()) -> None:
        self.root, self.token, self.gated = root, token, gated
        self.requests: list[str] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": self}))
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def environment(self, cache: Path) -> dict[str, str]:
        """The environment variables of a process that uses this hub, with a cache of its own."""
        return {
            "HF_ENDPOINT": self.endpoint,
            "HF_HOME": str(cache),
            "HF_HUB_OFFLINE": "0",
            "HF_HUB_DISABLE_TELEMETRY": "1",
        }

    def __enter__(self) -> FakeHub:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)


class Repository:
    """The files of one folder as the hub describes them."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name

    @cached_property
    def files(self) -> dict[str, Path]:
        paths = sorted(path for path in self.folder.rglob("*") if path.is_file())
        return {path.relative_to(self.folder).as_posix(): path for path in paths}

    @cached_property
    def commit(self) -> str:
        content = "".join(f"{name} {etag(path)}\n" for name, path in self.files.items())
        return hashlib.sha1(f"{self.name}\n{content}".encode()).hexdigest()

    def info(self) -> dict[str, Any]:
        return {
            "_id": self.commit[:24],
            "id": self.name,
            "sha": self.commit,
            "private": False,
            "gated": False,
            "disabled": False,
            "tags": [],
            "downloads": 0,
            "likes": 0,
            "siblings": [{"rfilename": name} for name in self.files],
        }

    def tree(self, below: str, *, deep: bool) -> list[dict[str, Any]]:
        """The files and folders below a path; deep: those inside of the folders too."""
        base = PurePosixPath(below)
        folders = {str(folder) for name in self.files for folder in PurePosixPath(name).parents} - {"."}
        return [
            self.entry(name)
            for name in sorted({*self.files, *folders})
            if base in PurePosixPath(name).parents and (deep or PurePosixPath(name).parent == base)
        ]

    def entry(self, name: str) -> dict[str, Any]:
        if name not in self.files:
            return {"type": "directory", "oid": hashlib.sha1(name.encode()).hexdigest(), "size": 0, "path": name}
        path = self.files[name]
        return {"type": "file", "oid": etag(path), "size": path.stat().st_size, "path": name}


def etag(path: Path) -> str:
    """The git id of a file."""
    content = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    hub: FakeHub
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers.get("Content-Length") or 0)))

    def log_message(self, format: str, *arguments: Any) -> None:
        """Tests read `hub.requests` instead."""

    def _answer(self, body: bytes = b"") -> None:
        path = urlsplit(self.path).path
        self.hub.requests.append(f"{self.command} {unquote(path)}")
        if match := _API.fullmatch(path):
            self._api([unquote(part or "") for part in match.groups()], body)
        elif match := _FILE.fullmatch(path):
            kind, name, revision, file = (unquote(part or "") for part in match.groups())
            self._file(kind or "models", name, revision, file)
        else:
            self._refuse(404, "EntryNotFound")

    def _repository(self, kind: str, name: str, revision: str) -> Repository | None:
        """The repository at a revision: a tag, main, or a commit; None after answering that there is none."""
        base = self.hub.root / kind / name
        if not base.is_dir() or (self.hub.token and self.headers.get("Authorization") != f"Bearer {self.hub.token}"):
            self._refuse(401, "RepoNotFound")
            return None
        folders = {"main": base, **{p.name.partition("@")[2]: p for p in base.parent.glob(f"{base.name}@*")}}
        for tag, folder in folders.items():
            repository = Repository(folder, name)
            if revision in ("", tag, repository.commit) and (revision or tag == "main"):
                return repository
        self._refuse(404, "RevisionNotFound")
        return None

    def _api(self, asked: list[str], body: bytes) -> None:
        kind, name, what, revision, below = asked
        repository = self._repository(kind, name, revision)
        if repository is None:
            return
        found: Any = repository.info()
        if what == "tree":
            found = repository.tree(below, deep="recursive=true" in self.path.lower())
        elif what == "paths-info":
            found = [repository.entry(path) for path in json.loads(body)["paths"] if path in repository.files]
        self._send(200, json.dumps(found).encode(), {"Content-Type": "application/json"})

    def _file(self, kind: str, name: str, revision: str, file: str) -> None:
        repository = self._repository(kind, name, revision)
        if repository is None:
            return
        if name in self.hub.gated:
            self._refuse(403, "GatedRepo")
            return
        if file not in repository.files:
            self._refuse(404, "EntryNotFound", {"X-Repo-Commit": repository.commit})
            return
        path = repository.files[file]
        content, known = path.read_bytes(), {"ETag": f'"{etag(path)}"', "X-Repo-Commit": repository.commit}
        known["Accept-Ranges"] = "bytes"
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if wanted is None:
            self._send(200, content, known)
            return
        first, last = int(wanted[1]), min(int(wanted[2] or len(content) - 1), len(content) - 1)
        known["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
        self._send(206, content[first : last + 1], known)

    def _refuse(self, status: int, code: str, more: dict[str, str] | None = None) -> None:
        self._send(status, b"{}", {"X-Error-Code": code, **(more or {})})

    def _send(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


def without_hub(cache: Path) -> dict[str, str]:
    """The environment variables of a process whose hub cannot be reached: nothing listens at its address."""
    return {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(cache), "HF_HUB_OFFLINE": "0"}


def plain_environment() -> dict[str, str]:
    """This process's environment without tokens and settings of the hub."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING"))}
