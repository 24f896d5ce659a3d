"""`python -m burnish.media.decoder_process MEMORY SECONDS`, started by media/decoder.py: decodes pictures from standard
input until that ends.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import resource
import sys
import tempfile

from burnish.media.decode import FORMATS, BadPicture, decoded_here, size_here
from burnish.media.decoder import ANSWER, REQUEST
from burnish.sandbox import isolation

PLUGINS = {"WEBP": "WebP"}  # formats whose plugin is not spelled like them


def main(memory: int, seconds: float) -> None:
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    _load_formats()
    scratch = tempfile.mkdtemp(prefix="burnish-pictures-")
    isolation.enter(scratch)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    while header := sys.stdin.buffer.read(REQUEST.size):
        kind, length = REQUEST.unpack(header)
        raw = sys.stdin.buffer.read(length)
        isolation.limit_cpu(seconds)
        try:
            picture = None if kind == b"s" else decoded_here(raw)
            size, pixels = (size_here(raw), b"") if picture is None else (picture.size, picture.tobytes())
        except BadPicture as error:
            why = str(error).encode()
            answers.write(ANSWER.pack(b"e", len(why), 0) + why)
        except MemoryError:
            os._exit(1)  # the next picture gets a fresh process
        else:
            answers.write(ANSWER.pack(b"o", *size))
            answers.write(pixels)
        answers.flush()


def _load_formats() -> None:
    """Pillow's plugins, which it would import when it needs them: there are no files then."""
    plugins = [f"{PLUGINS.get(name, name.capitalize())}ImagePlugin" for name in FORMATS]
    for name in (*plugins, "MpoImagePlugin", "ImageOps", "ImageChops", "ImagePalette", "ExifTags", "TiffTags"):
        importlib.import_module(f"PIL.{name}")
    importlib.import_module("numpy")


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
