"""Pictures of a row: found in its columns and messages, put where their markers stand, as references (media/store.py).

    {"prompt": "What is in <image>?", "images": ["a.png"]}
    {"messages": [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "?"}]}], "images": [...]}
    {"prompt": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,.."}}]}]}

A picture is a path (from the folder of the data file, or the working directory), bytes, base64 text, a Pillow image, an
array, or the {"bytes", "path"} of a `datasets` column. A row without any of these stays as it is.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from burnish.core.messages import IMAGE
from burnish.media.decode import BadPicture, require_pillow, size_of
from burnish.media.fetched import FETCHING, fetched
from burnish.media.inline import inline_reference
from burnish.media.processor import MARKER
from burnish.media.store import KEPT, STORE
from burnish.tasks.data.messages import said_messages, without_nulls
from burnish.tasks.data.rows import Row

PICTURE_PARTS = (IMAGE, "image_url", "input_image")
_URL = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)


def with_pictures(row: Row, parts: Mapping[str, str], where: str, folder: Path | None) -> Row:
    """The row with its pictures in its messages as references; itself where it has none.

    parts   the columns by the names of their parts (tasks/data/columns.py)
    folder  of the data file, from which paths are read first
    """
    column = parts.get("images")
    given = [] if column is None else _listed(row[column])
    asked = next((parts[name] for name in ("messages", "prompt", "chosen") if name in parts), None)
    if asked is None or not (given or _shown_in(row[asked])):
        return row
    pictures = [reference(one, where, folder) for one in given]
    placed = _Placed(pictures, where, folder)
    said = said_messages(row[asked])
    changed: Row = {}
    if asked == "instruction" and isinstance(said, str) and row.get("input"):
        said, changed = f"{said}\n\n{row['input']}", {"input": None}
    changed[asked] = placed.messages(said)
    if asked == parts.get("chosen") and "rejected" in parts:
        changed[parts["rejected"]] = _Placed(pictures, where, folder).messages(said_messages(row[parts["rejected"]]))
    if column is None or not given:
        return {**row, **changed}
    return {**row, **changed, column: pictures}


def reference(value: Any, where: str, folder: Path | None = None) -> str:
    """The reference of one picture, as data files and `datasets` columns have them."""
    if isinstance(value, Mapping):
        value = next((value[name] for name in ("bytes", "path", IMAGE, "url") if value.get(name) is not None), None)
    if isinstance(value, Path):
        value = str(value)
    if isinstance(value, bytes | bytearray):
        return _kept(bytes(value), where)
    if isinstance(value, str):
        return _of_text(value, where, folder)
    if isinstance(value, np.ndarray) or hasattr(value, "__array_interface__") or hasattr(value, "save"):
        return _kept(_as_png(value, where), where)
    raise ValueError(f"{where}: a picture is {type(value).__name__}; give the path of a file, bytes, or a Pillow image")


def _of_text(value: str, where: str, folder: Path | None) -> str:
    if value.startswith(KEPT):
        return value
    try:
        inline = inline_reference(value)
    except BadPicture as error:
        raise ValueError(f"{where}: the picture that came inside the row {error}") from None
    if inline is not None:
        return inline
    value = value.removeprefix("file://")
    if _URL.match(value) and FETCHING.allowed:
        try:
            return str(fetched(value))
        except ValueError as error:
            raise ValueError(f"{where}: the picture {value[:80]} {error}; correct it, or leave the row out") from None
    if _URL.match(value) or value.startswith("data:"):
        raise ValueError(
            f"{where}: the picture {value[:80]} is not a file, and nothing is fetched from the network; download it "
            "and give its path, or pass --allow-urls"
        )
    if Path(value).suffix.lower() == ".svg":
        raise ValueError(f"{where}: the picture {value} is an SVG drawing, which is not rendered; export it as PNG")
    places = [Path(value)] if folder is None else [folder / value, Path(value)]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        raise ValueError(
            f"{where}: there is no picture {value}; correct the path, which is read from {places[0].parent}"
        )
    return str(found.absolute())


def _kept(raw: bytes, where: str) -> str:
    try:
        size_of(raw)
    except BadPicture as error:
        raise ValueError(f"{where}: the picture that came inside the row {error}") from None
    return STORE.keep(raw)


def _as_png(value: Any, where: str) -> bytes:
    """A Pillow image or an array as a file: what a reference names is always a file's content."""
    require_pillow()
    from PIL import Image

    try:
        picture = value if hasattr(value, "save") else Image.fromarray(np.asarray(value))
        file = io.BytesIO()
        picture.save(file, "TIFF" if picture.mode in ("CMYK", "F", "LAB", "HSV", "YCbCr") else "PNG")
    except (TypeError, ValueError, OSError) as error:
        raise ValueError(f"{where}: a picture cannot be read ({str(error)[:100]})") from None
    return file.getvalue()


def _listed(value: Any) -> list[Any]:
    """The pictures of a cell: one, several, or none."""
    value = said_messages(value)
    if value is None:
        return []
    if isinstance(value, list | tuple):
        return [one for one in value if one is not None]
    return [value]


def _shown_in(said: Any) -> bool:
    """Whether messages have a part that is a picture."""
    return any(part.get("type") in PICTURE_PARTS for part in _parts(said))


def _parts(said: Any) -> Iterator[Mapping[str, Any]]:
    for message in said if isinstance(said, list | tuple) else ():
        content = message.get("content", message.get("value")) if isinstance(message, Mapping) else None
        yield from (part for part in content if isinstance(part, Mapping)) if isinstance(content, list) else ()


class _Placed:
    """Puts pictures where a row's markers and empty parts stand, in order."""

    def __init__(self, pictures: Sequence[str], where: str, folder: Path | None) -> None:
        self.pictures, self.where, self.folder = list(pictures), where, folder
        self.used = 0

    def messages(self, said: Any) -> Any:
        """Messages, or a text as a message of the user, with every picture in its place."""
        listed = [{"role": "user", "content": said}] if isinstance(said, str) else said
        if not isinstance(listed, list | tuple):
            return said  # what is no conversation is refused where messages are read
        marks = self._marks(listed)
        if not marks and self.pictures:
            listed = self._before(listed)
        placed = [self._message(message) for message in listed]
        if self.used != len(self.pictures):
            raise ValueError(
                f"{self.where}: has {len(self.pictures)} pictures and {self.used} markers ({MARKER}) or parts for "
                "them; give each picture one"
            )
        return placed

    def _marks(self, listed: Sequence[Any]) -> int:
        """How many places of the messages wait for a picture of the column."""
        texts = [m.get("content", m.get("value")) for m in listed if isinstance(m, Mapping)]
        texts += [part.get("text") for part in _parts(listed)]
        marks = sum(text.count(MARKER) for text in texts if isinstance(text, str))
        return marks + sum(part.get("type") in PICTURE_PARTS and _value(part) is None for part in _parts(listed))

    def _before(self, listed: Sequence[Any]) -> list[Any]:
        """Pictures without markers stand at the beginning of the user's first message."""
        roles = [str(m.get("role", m.get("from"))) if isinstance(m, Mapping) else "" for m in listed]
        first = next((i for i, role in enumerate(roles) if role in ("user", "human")), len(roles) - 1)
        message = dict(listed[first])
        key = "content" if "content" in message else "value"
        content = message[key]
        text = [{"type": "text", "text": content}] if isinstance(content, str) else list(content or ())
        message[key] = [*({"type": IMAGE} for _ in self.pictures), *text]
        return [*listed[:first], message, *listed[first + 1 :]]

    def _message(self, message: Any) -> Any:
        if not isinstance(message, Mapping):
            return message
        key = "content" if "content" in message or "value" not in message else "value"
        content = message.get(key)
        if isinstance(content, str):
            return {**message, key: self._text(content)} if MARKER in content and self.pictures else message
        if not isinstance(content, list | tuple):
            return message
        parts: list[Any] = []
        for given in content:
            part: Any = without_nulls(given)
            kind = part.get("type") if isinstance(part, Mapping) else None
            if kind in PICTURE_PARTS:
                parts.append(self._picture(part))
            elif kind == "text" and isinstance(part.get("text"), str) and MARKER in part["text"] and self.pictures:
                parts += self._text(part["text"])
            else:
                parts.append(part)
        return {**message, key: parts}

    def _text(self, text: str) -> list[dict[str, Any]]:
        """A text cut at its markers, with a picture for each."""
        pieces = text.split(MARKER)
        parts: list[dict[str, Any]] = []
        for i, piece in enumerate(pieces):
            parts += [self._next()] if i else []
            parts += [{"type": "text", "text": piece}] if piece else []
        return parts

    def _picture(self, part: Mapping[str, Any]) -> dict[str, Any]:
        value = _value(part)
        if value is None:
            return self._next()
        return {"type": IMAGE, IMAGE: reference(value, self.where, self.folder)}

    def _next(self) -> dict[str, Any]:
        if self.used >= len(self.pictures):
            raise ValueError(
                f"{self.where}: has more markers ({MARKER}) or parts for pictures than its {len(self.pictures)} "
                "pictures; give each one a picture, or take it out"
            )
        self.used += 1
        return {"type": IMAGE, IMAGE: self.pictures[self.used - 1]}


def _value(part: Mapping[str, Any]) -> Any:
    """What a part says its picture is; None where it waits for one of the row's column."""
    for name in (IMAGE, "image_url", "path", "url", "base64", "bytes", "data"):
        value = part.get(name)
        if value is None:
            continue
        if isinstance(value, Mapping) and "url" in value:
            value = value["url"]
        return f"data:image/png;base64,{value}" if name in ("base64", "data") and isinstance(value, str) else value
    return None
