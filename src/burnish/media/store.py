"""Where pictures are kept: the bytes of those that came without a file, and what processors made of all of them.

A reference to a picture is a text: the path of a file, or `media:` and a hash for bytes that came inside a row. Both
can stand in a message, in JSON and in a stored record. What a processor makes of a picture is kept by its key
(media/ids.py) up to a limit of memory, and made again from the reference after that.
"""

from __future__ import annotations

import atexit
import hashlib
import shutil
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from burnish.media.ids import KEYS

if TYPE_CHECKING:
    from torch import Tensor

KEPT = "media:"  # begins the reference of bytes that the store keeps
RAW_BYTES = 256 << 20  # of pictures without a file, in memory; more are written to a temporary folder
READY_BYTES = 1 << 30  # of processed pictures, in memory; more are processed again when they are needed

TEXT_ONLY = (
    "a prompt has a picture, but the model reads text alone; take a model that sees (docs/pictures.md), or leave the "
    "pictures out"
)


class ChangedPicture(ValueError):
    """A file that is no longer the picture that was read before."""


@dataclass(frozen=True, eq=False)
class Ready:
    """A picture as a model reads it.

    key     names it (media/ids.py)
    tokens  what stands for it in a row: media ids, and the text around and between them
    count   how many of them are media ids
    inputs  what the model's tower reads, by the names of its arguments
    reader  which processor made it
    size    the width and height of the picture itself
    """

    key: int
    tokens: tuple[int, ...]
    count: int
    inputs: Mapping[str, Tensor]
    reader: str
    size: tuple[int, int]

    @property
    def nbytes(self) -> int:
        return sum(x.numel() * x.element_size() for x in self.inputs.values())


def digest(raw: bytes) -> str:
    """A name for the content of a file."""
    return hashlib.blake2b(raw, digest_size=16).hexdigest()


def key_for(content: str, reader: str) -> int:
    """The key of a picture as one processor reads it."""
    told = hashlib.blake2b(f"{content} {reader}".encode(), digest_size=8).digest()
    return int.from_bytes(told, "little") % KEYS


class Store:
    """The pictures of a process. Everything in it is named by its content, so who put it there does not matter."""

    def __init__(self, raw_bytes: int = RAW_BYTES, ready_bytes: int = READY_BYTES) -> None:
        self._raw_limit, self._ready_limit = raw_bytes, ready_bytes
        self._raw: OrderedDict[str, bytes] = OrderedDict()
        self._ready: OrderedDict[int, Ready] = OrderedDict()
        self._made: dict[int, tuple[str, Callable[[], Ready]]] = {}  # by key: its content, and how it is made again
        self._raw_bytes = self._ready_bytes = 0
        self._folder: Path | None = None
        self._lock, self._naming = threading.RLock(), threading.local()

    # ---------------------------------------------------------------------------------------- bytes without a file

    @contextmanager
    def naming(self) -> Iterator[None]:
        """Inside, in this thread, pictures are named and not kept: for a pass over all rows of a dataset."""
        self._naming.on = True
        try:
            yield
        finally:
            self._naming.on = False

    def keep(self, raw: bytes) -> str:
        """Keep the bytes of a picture; their reference."""
        name = digest(raw)
        if getattr(self._naming, "on", False):
            return KEPT + name
        with self._lock:
            if name not in self._raw and not self._spilt(name).is_file():
                self._raw[name] = raw
                self._raw_bytes += len(raw)
            while self._raw_bytes > self._raw_limit and len(self._raw) > 1:
                old, content = self._raw.popitem(last=False)
                self._spilt(old).write_bytes(content)
                self._raw_bytes -= len(content)
        return KEPT + name

    def raw(self, reference: str) -> bytes:
        """The bytes behind a reference."""
        if not reference.startswith(KEPT):
            return Path(reference).read_bytes()
        name = reference.removeprefix(KEPT)
        with self._lock:
            known = self._raw.get(name)
            if known is not None:
                return known
            file = self._spilt(name)
        if not file.is_file():
            raise ValueError(f"the picture {reference} came inside a row that this process has not read; draw it again")
        return file.read_bytes()

    def _spilt(self, name: str) -> Path:
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="burnish-media-"))
            atexit.register(shutil.rmtree, self._folder, ignore_errors=True)
        return self._folder / name

    # ---------------------------------------------------------------------------------------- processed pictures

    def ready(self, content: str, reader: str, make: Callable[[], Ready]) -> Ready:
        """What `reader` makes of a picture with this content: once, however often it is asked for."""
        key = key_for(content, reader)
        with self._lock:
            whose = f"{content} {reader}"
            known = self._made.get(key)
            if known is not None and known[0] != whose:
                raise ValueError("two pictures have one key, which happens once in 2^49 pairs; leave one of them out")
            self._made[key] = whose, make
        return self.of(key)

    def of(self, key: int) -> Ready:
        """The picture with this key."""
        with self._lock:
            known = self._ready.get(key)
            if known is not None:
                self._ready.move_to_end(key)
                return known
            if key not in self._made:
                raise ValueError(
                    "a row has a picture that this process has not read; its task must be drawn again before it is used"
                )
            make = self._made[key][1]
        made = make()
        assert made.key == key, "a picture was processed under another key"
        with self._lock:
            self._ready[key] = made
            self._ready_bytes += made.nbytes
            while self._ready_bytes > self._ready_limit and len(self._ready) > 1:
                self._ready_bytes -= self._ready.popitem(last=False)[1].nbytes
        return made

    def known(self, key: int) -> bool:
        """Whether a picture with this key was ever read."""
        return key in self._made

    def __deepcopy__(self, memo: dict[int, object]) -> Store:
        return self


STORE = Store()
