"""A hub on this machine to which repositories can be uploaded: the writing half of FakeHub's interface.

It takes small files inside the commit and large ones through git-LFS, checks the hash of each, and lays the repository
down as a folder, from which FakeHub then serves it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from fake_hub import FakeHub, Repository, _Handler

_COMMIT = re.compile(r"/api/models/([^/]+/[^/]+)/(preupload|commit|branch)/([^/]+)")
_BATCH = re.compile(r"/([^/]+/[^/]+)\.git/info/lfs/objects/batch")
LARGE = (".safetensors", ".gguf")


class WritableHub(FakeHub):
    """`created` are the repositories with what was asked of them, `messages` those of the commits."""

    def __init__(self, root: Path, *, token: str | None = None) -> None:
        super().__init__(root, token=token)
        self.created: dict[str, dict[str, Any]] = {}
        self.messages: list[str] = []
        self.objects: dict[str, bytes] = {}
        self._server.RequestHandlerClass = type("Writer", (_Writer,), {"hub": self})


class _Writer(_Handler):
    hub: WritableHub

    def do_PUT(self) -> None:
        self._answer(self.rfile.read(int(self.headers.get("Content-Length") or 0)))

    def _answer(self, body: bytes = b"") -> None:
        path = unquote(urlsplit(self.path).path)
        if self.command in ("GET", "HEAD"):
            super()._answer(body)
            return
        self.hub.requests.append(f"{self.command} {path}")
        is_object = path.startswith("/objects/")
        if not is_object and self.hub.token and self.headers.get("Authorization") != f"Bearer {self.hub.token}":
            self._refuse(401, "RepoNotFound")
        elif path == "/api/repos/create":
            self._create(json.loads(body))
        elif path == "/api/validate-yaml":
            self._json({"errors": [], "warnings": []})
        elif match := _BATCH.fullmatch(path):
            self._batch(json.loads(body))
        elif is_object:
            found = hashlib.sha256(body).hexdigest()
            self.hub.objects[found] = body
            self._json({}) if found == path.removeprefix("/objects/") else self._refuse(400, "WrongHash")
        elif match := _COMMIT.fullmatch(path):
            getattr(self, f"_{match[2]}")(match[1], match[3], body)
        else:
            self._refuse(404, "EntryNotFound")

    def _create(self, asked: dict[str, Any]) -> None:
        name = f"{asked['organization']}/{asked['name']}"
        if name in self.hub.created:
            self._refuse(409, "RepoExists")
            return
        self.hub.created[name] = asked
        (self.hub.root / "models" / name).mkdir(parents=True)
        self._json({"url": f"{self.hub.endpoint}/{name}", "id": name})

    def _branch(self, name: str, branch: str, body: bytes) -> None:
        (self.hub.root / "models" / f"{name}@{branch}").mkdir()
        self._json({})

    def _preupload(self, name: str, branch: str, body: bytes) -> None:
        files = [file["path"] for file in json.loads(body)["files"]]
        modes = ["lfs" if path.endswith(LARGE) else "regular" for path in files]
        told = [
            {"path": path, "uploadMode": mode, "shouldIgnore": False} for path, mode in zip(files, modes, strict=True)
        ]
        self._json({"files": told})

    def _batch(self, asked: dict[str, Any]) -> None:
        told = [
            {**one, "actions": {"upload": {"href": f"{self.hub.endpoint}/objects/{one['oid']}"}}}
            for one in asked["objects"]
        ]
        self._json({"transfer": "basic", "objects": told})

    def _commit(self, name: str, branch: str, body: bytes) -> None:
        folder = self.hub.root / "models" / (name if branch == "main" else f"{name}@{branch}")
        for line in body.splitlines():
            entry = json.loads(line)
            value = entry["value"]
            if entry["key"] == "header":
                self.hub.messages.append(value["summary"])
                continue
            content = base64.b64decode(value["content"]) if entry["key"] == "file" else self.hub.objects[value["oid"]]
            (folder / value["path"]).parent.mkdir(parents=True, exist_ok=True)
            (folder / value["path"]).write_bytes(content)
        oid = Repository(folder, name).commit
        self._json({"success": True, "commitOid": oid, "commitUrl": f"{self.hub.endpoint}/{name}/commit/{oid}"})

    def _json(self, told: object) -> None:
        self._send(200, json.dumps(told).encode(), {"Content-Type": "application/json"})
