"""Pictures in what a client sends: inline alone, since a server reads no files and fetches nothing for others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from burnish.core.messages import IMAGE
from burnish.media.decode import BadPicture
from burnish.media.inline import inline_reference

KINDS = (IMAGE, "image_url", "input_image")
INLINE = "pictures are sent inside a message, as data:image/png;base64,...; no file is read and no address is fetched"


def with_references(content: Any) -> Any:
    """The content of a message with references in place of inline pictures; ValueError for any other picture."""
    if not isinstance(content, list | tuple):
        return content
    return [_part(part) if isinstance(part, Mapping) and part.get("type") in KINDS else part for part in content]


def _part(part: Mapping[str, Any]) -> dict[str, str]:
    value = next((part[name] for name in (*KINDS, "url") if part.get(name) is not None), None)
    if isinstance(value, Mapping):
        value = value.get("url")
    try:
        reference = inline_reference(value) if isinstance(value, str) else None
    except BadPicture as error:
        raise ValueError(f"a picture {error}") from None
    if reference is None:
        raise ValueError(INLINE)
    return {"type": IMAGE, IMAGE: reference}
