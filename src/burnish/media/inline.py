"""Pictures that stand inside a text, as OpenAI's messages have them: data:image/png;base64,..."""

from __future__ import annotations

import base64
import binascii
import re

from burnish.media.decode import BadPicture, size_of
from burnish.media.store import STORE

_BASE64 = re.compile(r"data:image/[\w.+-]+;base64,(.*)", re.DOTALL)


def inline_reference(text: str) -> str | None:
    """The reference of the picture that a text is; None where it is no such text. BadPicture for a wrong one."""
    match = _BASE64.match(text)
    if match is None:
        return None
    try:
        raw = base64.b64decode(match[1], validate=True)
    except binascii.Error:
        raise BadPicture("is not valid base64; write it again") from None
    size_of(raw)
    return STORE.keep(raw)
