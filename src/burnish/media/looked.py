"""Messages with pictures that are drawn: what tasks and environments show."""

from __future__ import annotations

from burnish.core.messages import IMAGE, Message
from burnish.media.drawing import Pixels, as_file
from burnish.media.store import STORE

Content = list[dict[str, str]]


def content(pictures: list[Pixels], text: str) -> Content:
    """Pictures and then a text, as the parts of a message."""
    kept = [STORE.keep(as_file(pixels)) for pixels in pictures]
    return [*({"type": IMAGE, IMAGE: one} for one in kept), {"type": "text", "text": text}]


def looked(pixels: Pixels, text: str) -> tuple[Message, ...]:
    """What an environment shows and says."""
    return ({"role": "user", "content": content([pixels], text)},)
