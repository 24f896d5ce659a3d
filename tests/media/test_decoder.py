"""The decoding process: its limits hold, it has no files and no network, and a picture that ends it harms nothing."""

from __future__ import annotations

import io
import os
import resource
import struct
import time
import zlib
from collections.abc import Iterator

import numpy as np
import pytest
from PIL import Image

from burnish.media.decode import BadPicture, decoded
from burnish.media.decoder import DECODER, REQUEST, Decoder
from burnish.media.drawing import as_file


def _file(kind: str, size: tuple[int, int] = (5, 3), **how: object) -> bytes:
    file = io.BytesIO()
    dice = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(dice).save(file, kind, **how)  # type: ignore[arg-type]
    return file.getvalue()


@pytest.fixture
def small() -> Iterator[Decoder]:
    decoder = Decoder(seconds=10, memory=600 << 20)
    yield decoder
    decoder.close()


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM"])
def test_every_format_is_decoded_behind_the_limits(kind: str) -> None:
    """Its plugin was imported before the files were gone."""
    raw = _file(kind)
    wanted = np.asarray(Image.open(io.BytesIO(raw)).convert("RGB"))
    assert np.array_equal(np.asarray(decoded(raw)), wanted)
    assert DECODER.size(raw) == (5, 3)


def _status(decoder: Decoder) -> dict[str, str]:
    assert decoder._process is not None
    with open(f"/proc/{decoder._process.pid}/status") as file:
        return dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)


def test_it_is_held(small: Decoder) -> None:
    """The kernel says so: a filter of system calls, the limits; it knows no file that is open but its pipes."""
    small.size(_file("PNG"))
    assert small._process is not None
    pid = small._process.pid
    assert _status(small)["Seccomp"].strip() == "2"
    assert resource.prlimit(pid, resource.RLIMIT_AS) == (600 << 20, 600 << 20)
    assert resource.prlimit(pid, resource.RLIMIT_FSIZE) == (0, 0)
    assert resource.prlimit(pid, resource.RLIMIT_CPU)[0] < 60
    opened = {os.readlink(f"/proc/{pid}/fd/{number}").partition(":")[0] for number in os.listdir(f"/proc/{pid}/fd")}
    assert opened <= {"pipe", "/dev/null", "anon_inode"}


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "GIF", "WEBP", "BMP", "JPEG"])
def test_a_picture_that_needs_more_memory_ends_its_decoder_alone(kind: str, small: Decoder) -> None:
    """49 million pixels are allowed by their number, and need more than this decoder has."""
    file = io.BytesIO()
    Image.new("L" if kind != "WEBP" else "RGB", (7000, 7000)).save(file, kind)
    with pytest.raises(BadPicture, match="ended its decoder, which has 400 MiB|cannot be decoded"):
        Decoder.pixels(tight := Decoder(seconds=10, memory=400 << 20), file.getvalue())
    tight.close()
    assert small.size(_file("PNG")) == (5, 3)


def test_a_picture_that_takes_too_long_is_given_up(small: Decoder) -> None:
    """A decoder that is stopped answers nothing; the next picture gets another one."""
    import signal

    small.seconds = 0.3
    raw = _file("PNG")
    small.seconds = 10
    small.size(raw)
    assert small._process is not None
    first = small._process.pid
    os.kill(first, signal.SIGSTOP)
    small.seconds, start = 0.3, time.monotonic()
    with pytest.raises(BadPicture, match="takes more than 0.3 s"):
        small.pixels(raw)
    assert time.monotonic() - start < 5
    small.seconds = 10
    assert small.size(raw) == (5, 3) and small._process.pid != first


def test_a_bomb_inside_metadata_is_no_picture(small: Decoder) -> None:
    """A PNG whose compressed text unpacks to a gigabyte."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    packer = zlib.compressobj(9)
    body = b"".join(packer.compress(bytes(1 << 20)) for _ in range(256)) + packer.flush()
    plain = _file("PNG")
    raw = plain[:33] + chunk(b"zTXt", b"Comment\0\0" + body) + plain[33:]
    with pytest.raises(BadPicture):
        small.pixels(raw)
    assert small.size(plain) == (5, 3)


def test_what_tasks_draw_needs_no_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pixels of a plain PPM file stand in it as they are; one that is cut off goes to the decoder."""
    monkeypatch.setattr(Decoder, "pixels", lambda self, raw: (_ for _ in ()).throw(BadPicture("went there")))
    pixels = np.random.default_rng(2).integers(0, 256, (4, 6, 3), dtype=np.uint8)
    assert np.array_equal(np.asarray(decoded(as_file(pixels))), pixels)
    with pytest.raises(BadPicture, match="went there"):
        decoded(as_file(pixels)[:-1])


def test_it_ends_with_its_run(small: Decoder) -> None:
    small.size(_file("PNG"))
    process = small._process
    assert process is not None and process.poll() is None
    small.close()
    assert process.poll() is not None and REQUEST.size == 9
