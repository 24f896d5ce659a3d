"""Pictures of the web: fetched where the run says so (--allow-urls), once, and kept in BURNISH_HOME.

Clients of `burnish serve` never have anything fetched, whatever the run says: only rows of data are read here.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

from burnish.media.decode import MOST_BYTES
from burnish.util.paths import home

SECONDS = 30.0  # for one picture, between two pieces of it
SCHEMES = ("http", "https")
PIECE = 1 << 20


class Fetching:
    """Whether pictures of the web are fetched in this process."""

    allowed = False


FETCHING = Fetching()


def fetched(url: str) -> Path:
    """The file that a URL was kept as. ValueError, without the URL, where it cannot be had."""
    scheme = url.partition("://")[0].lower()
    if scheme not in SCHEMES:
        raise ValueError(f"is at {scheme}://, and only http and https are fetched")
    place = home() / "pictures" / hashlib.sha256(url.encode()).hexdigest()
    if place.is_file():
        return place
    try:
        raw = _read(url)
    except urllib.error.HTTPError as error:
        raise ValueError(f"cannot be fetched (the server says {error.code})") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        why = str(getattr(error, "reason", error)) or type(error).__name__
        raise ValueError(f"cannot be fetched ({why[:100]})") from None
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=place.parent, delete=False) as file:
        file.write(raw)
    os.replace(file.name, place)
    return place


def _read(url: str) -> bytes:
    opener = urllib.request.build_opener(_OnlyTheWeb())
    with opener.open(urllib.request.Request(url, headers={"User-Agent": "burnish"}), timeout=SECONDS) as answer:
        parts, size = [], 0
        while part := answer.read(PIECE):
            parts.append(part)
            size += len(part)
            if size > MOST_BYTES:
                raise ValueError(f"it has more than {MOST_BYTES >> 20} MiB")
    return b"".join(parts)


class _OnlyTheWeb(urllib.request.HTTPRedirectHandler):
    """A server may send us on, but not to files or other schemes."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: object,
        code: int,
        msg: str,
        headers: object,
        newurl: str,
    ) -> urllib.request.Request | None:
        if newurl.partition("://")[0].lower() not in SCHEMES:
            raise ValueError("it sends on to another scheme")
        return super().redirect_request(req, fp, code, msg, headers, newurl)  # type: ignore[arg-type]
