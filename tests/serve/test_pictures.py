"""Pictures that clients send: inline, and nothing else."""

from __future__ import annotations

import base64
import io
from typing import Any

import pytest
from vlms import picture

from burnish.core.messages import pictures_of, text_of
from burnish.media.decode import decoded
from burnish.media.store import STORE
from burnish.serve.protocol import BadRequest, read_message


def _message(part: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": [part, {"type": "text", "text": "What is it?"}]}


def test_an_inline_picture_is_kept() -> None:
    file = io.BytesIO()
    picture(3).save(file, "PNG")
    url = "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
    message = read_message(_message({"type": "image_url", "image_url": {"url": url}}))
    (reference,) = pictures_of([message])
    assert decoded(STORE.raw(reference)).tobytes() == picture(3).tobytes() and text_of(message) == "What is it?"


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image", "image": "/etc/passwd"},
        {"type": "image_url", "image_url": {"url": "http://169.254.169.254/latest"}},
        {"type": "image_url", "image_url": {"url": "file:///etc/passwd"}},
        {"type": "image"},
    ],
)
def test_no_file_is_read_and_nothing_fetched_for_a_client(part: dict[str, Any]) -> None:
    with pytest.raises(BadRequest, match="no file is read and no address is fetched"):
        read_message(_message(part))


def test_a_broken_picture_is_one_sentence() -> None:
    with pytest.raises(BadRequest, match="a picture is no picture in a format that is read"):
        read_message(_message({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}))
