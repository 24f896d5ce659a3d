"""The process that decodes pictures: what its files do to it does not happen beside the weights.

It has limits on memory and on time, and after its imports no files, no network and no processes (sandbox/isolation.py).
It is started with the first picture, and again after one that ended it. A request is a kind and the bytes of a file, an
answer a size and pixels or a sentence.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import struct
import subprocess
import sys
import threading
import time

from burnish.media.decode import BadPicture

MEMORY = 2 << 30  # bytes of address space, of which Python with Pillow takes a part
SECONDS = 20.0  # for one picture
REQUEST = struct.Struct(">cQ")  # b"p" for pixels or b"s" for the size; how many bytes follow
ANSWER = struct.Struct(">cQQ")  # b"o" with width and height, or b"e" with the length of a sentence
PIECE = 1 << 20


class Decoder:
    """One decoding process, for all threads of this process."""

    def __init__(self, seconds: float = SECONDS, memory: int = MEMORY) -> None:
        self.seconds, self.memory = seconds, memory
        self._lock = threading.RLock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0

    def pixels(self, raw: bytes) -> tuple[tuple[int, int], bytes]:
        """Width and height, and the pixels row by row, three bytes each."""
        return self._asked(b"p", raw)

    def size(self, raw: bytes) -> tuple[int, int]:
        """Width and height, by the header."""
        return self._asked(b"s", raw)[0]

    def close(self) -> None:
        """End the process; the next picture starts another."""
        with self._lock:
            process, self._process = self._process, None
        if process is None or self._owner != os.getpid():
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError, AttributeError):
                pipe.close()  # type: ignore[union-attr]  # AttributeError of None is suppressed

    def _asked(self, kind: bytes, raw: bytes) -> tuple[tuple[int, int], bytes]:
        with self._lock:
            deadline = time.monotonic() + self.seconds
            try:
                return self._exchanged(self._running(), kind, raw, deadline)
            except TimeoutError:
                self.close()
                raise BadPicture(f"takes more than {self.seconds:g} s to decode; write it again") from None
            except (EOFError, BrokenPipeError):
                self.close()
                raise BadPicture(
                    f"ended its decoder, which has {self.memory >> 20} MiB of memory; write it again, or smaller"
                ) from None

    def _running(self) -> subprocess.Popen[bytes]:
        """The process; a fork of the run does not use its parent's."""
        if self._process is None or self._owner != os.getpid() or self._process.poll() is not None:
            self._owner = os.getpid()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "burnish.media.decoder_process", str(self.memory), str(self.seconds)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # so that Ctrl-C does not reach it
                env={**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)},
            )
            assert self._process.stdin is not None
            os.set_blocking(self._process.stdin.fileno(), False)
        return self._process

    def _exchanged(
        self, process: subprocess.Popen[bytes], kind: bytes, raw: bytes, deadline: float
    ) -> tuple[tuple[int, int], bytes]:
        assert process.stdin is not None and process.stdout is not None
        to, back = process.stdin.fileno(), process.stdout.fileno()
        _sent(to, REQUEST.pack(kind, len(raw)) + raw, deadline)
        answer, one, other = ANSWER.unpack(_received(back, ANSWER.size, deadline))
        if answer == b"e":
            raise BadPicture(_received(back, one, deadline).decode())
        return (one, other), _received(back, 3 * one * other, deadline) if kind == b"p" else b""


def _sent(pipe: int, what: bytes, deadline: float) -> None:
    left = memoryview(what)
    while left:
        if not select.select([], [pipe], [], max(0.0, deadline - time.monotonic()))[1]:
            raise TimeoutError
        left = left[os.write(pipe, left[:PIECE]) :]


def _received(pipe: int, size: int, deadline: float) -> bytes:
    parts, left = [], size
    while left:
        if not select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))[0]:
            raise TimeoutError
        part = os.read(pipe, min(left, PIECE))
        if not part:
            raise EOFError
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


DECODER = Decoder()
atexit.register(DECODER.close)
