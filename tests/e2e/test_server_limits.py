"""Limits of the dashboard's server on requests, connections and wrong tokens; each has a test that fails without it."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from guards import guards
from serving import Browser, answer, served

from burnish.cli import main
from burnish.report.api import Api
from burnish.report.endpoint import endpoint_for, is_loopback
from burnish.report.limits import (
    BODY_BYTES,
    DELAYS,
    FORGET_SECONDS,
    HEAD_BYTES,
    Guesses,
    RequestReader,
    Slots,
    TooLarge,
)
from burnish.report.server import LONGEST_PATH, make_server

pytestmark = guards("report", "serve")

TOKEN = "a-token-of-some-length"
ALL = "0.0." + "0.0"  # the lint forbids the address in one piece


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    yield from served(tmp_path, endpoint_for("127.0.0.1", 0, None))


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Browser]:
    """A server with a token, whose delays are recorded and not waited for."""
    for browser in served(tmp_path, endpoint_for("127.0.0.1", 0, TOKEN)):
        browser.server.guesses = Guesses(sleep=lambda seconds: None)
        yield browser


# ------------------------------------------------------------------------------------------------------- addresses


@pytest.mark.parametrize(
    "host",
    [
        "0",
        "0x0",
        "00",
        "0.0",
        "0.0.0",
        ALL,
        "000.000.000.000",
        "0x0.0x0.0x0.0x0",
        "0x00000000",
        f"::ffff:{ALL}",
        "::ffff:0:0",
        "::",
        "::0",
        "0::0",
        "0:0:0:0:0:0:0:0",
        "[::]",
        f"::{ALL}",
        "",
        "*",
    ],
)
def test_every_spelling_of_everywhere_is_refused(host: str) -> None:
    for token in (None, TOKEN):
        with pytest.raises(ValueError, match="on every network at once"):
            endpoint_for(host, 0, token)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1", "0x7f000001", "2130706433", "0177.0.0.1", "::ffff:127.0.0.1"])
def test_every_spelling_of_the_loopback_listens_on_it(host: str, tmp_path: Path) -> None:
    endpoint = endpoint_for(host, 0, None)
    assert endpoint.loopback and not endpoint.token
    server = make_server(Api(tmp_path), endpoint)
    assert server.socket.getsockname()[0] == "127.0.0.1" and server.socket.family == socket.AF_INET
    server.server_close()


def test_the_ipv6_loopback_listens_and_answers(tmp_path: Path) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    for host in ("::1", "[::1]", "0:0:0:0:0:0:0:1"):
        endpoint = endpoint_for(host, 0, None)
        for browser in served(tmp_path, endpoint):
            assert browser.server.socket.getsockname()[0] == "::1"
            assert browser.ask("/api/runs")[:2] == (200, [])
            assert endpoint.url() == f"http://[{host.strip('[]')}]:{endpoint.port}/"


def test_loopback_is_decided_by_the_address() -> None:
    assert all(is_loopback(one) for one in ("127.0.0.1", "127.255.255.254", "::1", "::ffff:127.0.0.1"))
    assert not any(
        is_loopback(one) for one in ("128.0.0.1", "126.0.0.1", "::2", "::ffff:10.0.0.1", "localhost.evil", ALL, "::")
    )
    assert endpoint_for("::ffff:10.0.0.2", 7, None).token and endpoint_for("::ffff:10.0.0.2", 7, None).where == (
        "10.0.0.2",
        7,
    )


@pytest.mark.parametrize("host", ["224.0.0.1", "255.255.255.255", "ff02::1", "a\0b", "x" * 300, "two words"])
def test_what_is_no_address_of_one_machine_is_refused(host: str) -> None:
    with pytest.raises(ValueError, match=r"^--host .*(address)"):
        endpoint_for(host, 0, None)


@pytest.mark.parametrize("port", [-1, 65536, 10**30])
def test_ports_that_do_not_exist_are_refused(port: int) -> None:
    with pytest.raises(ValueError, match=r"is not a port; use 1 to 65535"):
        endpoint_for("127.0.0.1", port, None)


@pytest.mark.parametrize(
    "token", ["", "short", "x" * 15, "x" * 201, "sixteen characte;", "new\nline" * 3, "ümlaut" * 4]
)
def test_tokens_that_do_not_fit_are_refused(token: str) -> None:
    with pytest.raises(ValueError, match="--token must have 16 to 200 letters"):
        endpoint_for("127.0.0.1", 0, token)


# ----------------------------------------------------------------------------------------------------------- token


@pytest.mark.parametrize("size", range(len(TOKEN)))
def test_no_part_of_the_token_is_accepted(size: int, guarded: Browser) -> None:
    for guess in {
        TOKEN[:size],
        TOKEN[len(TOKEN) - size :],
        TOKEN + TOKEN[: size + 1],
        TOKEN[:size] + "X" + TOKEN[size + 1 :],
    }:
        assert guarded.ask(f"/api/runs?token={guess}")[0] == 401
        assert guarded.ask("/api/runs", Cookie=f"burnish-token={guess}")[0] == 401


def test_the_token_is_compared_as_it_is(guarded: Browser) -> None:
    for guess in (TOKEN.upper(), f"{TOKEN}%20", f"%20{TOKEN}", f"{TOKEN}%C3%A9", "*", "%25"):
        assert guarded.ask(f"/api/runs?token={guess}")[0] == 401
    assert guarded.ask(f"/api/runs?token={TOKEN}")[0] == 200
    assert guarded.ask("/api/runs", Cookie=f"other=1; burnish-token={TOKEN}; more")[0] == 200


def test_wrong_tokens_are_answered_later_and_later_and_the_owner_is_not(guarded: Browser) -> None:
    waited: list[float] = []
    guarded.server.guesses = Guesses(sleep=waited.append)
    for _ in range(len(DELAYS) + 2):
        assert guarded.ask("/api/runs?token=wrong-wrong-wrong")[0] == 401
    assert waited == [*DELAYS, DELAYS[-1], DELAYS[-1]] and DELAYS[-1] >= 1
    assert guarded.ask(f"/api/runs?token={TOKEN}")[0] == 200 and guarded.ask("/api/runs")[0] == 401
    assert len(waited) == len(DELAYS) + 2, "neither the right token nor none is a guess"
    assert guarded.ask("/api/runs", Cookie="burnish-token=wrong")[0] == 401
    assert waited[-1] == DELAYS[-1], "the right token in between does not make guessing cheap again"


def test_guesses_are_counted_by_client_and_forgotten() -> None:
    now, waited = [0.0], []
    guesses = Guesses(delays=(0.0, 1.0), sleep=waited.append, clock=lambda: now[0])
    guesses.wrong("a"), guesses.wrong("a"), guesses.wrong("b")
    now[0] = FORGET_SECONDS + 1
    guesses.wrong("a")
    assert waited == [0.0, 1.0, 0.0, 0.0]


# --------------------------------------------------------------------------------------------------------- requests


def test_an_address_has_a_limit(browser: Browser) -> None:
    path = "/api/runs?x="
    assert browser.ask(path + "x" * (LONGEST_PATH - len(path)))[0] == 200
    assert browser.ask(path + "x" * (LONGEST_PATH - len(path) + 1))[0] == 414


def test_headers_have_a_limit(browser: Browser) -> None:
    start, end = b"GET /api/runs HTTP/1.1\r\nHOST\r\nConnection: close\r\n", b"\r\n\r\n"
    room = (
        HEAD_BYTES - len(start.replace(b"HOST", b"Host: 127.0.0.1:%d" % browser.endpoint.port)) - len(b"X: ") - len(end)
    )
    assert browser.raw(start + b"X: " + b"y" * room + end)[0] == 200
    assert browser.raw(start + b"X: " + b"y" * (room + 1) + end)[0] == 431
    assert browser.raw(start + b"X: y\r\n" * (HEAD_BYTES // 5) + end)[0] == 431


def order(browser: Browser, body: bytes, length: bytes | None = None) -> tuple[int, Any]:
    head = (
        b"POST /api/order HTTP/1.1\r\nHOST\r\nConnection: close\r\nX-Burnish-Secret: "
        + browser.endpoint.secret.encode()
    )
    return browser.raw(head + b"\r\nContent-Length: " + (length or b"%d" % len(body)) + b"\r\n\r\n" + body)


def test_an_order_has_a_limit(browser: Browser) -> None:
    body = json.dumps({"run": "none"}).encode()
    status, found = order(browser, body.ljust(BODY_BYTES))
    assert status == 400 and "there is no run 'none'" in found["error"]
    status, found = order(browser, body.ljust(BODY_BYTES + 1), b"%d" % (BODY_BYTES + 1))
    assert status == 413 and "10000 bytes" in found["error"]


@pytest.mark.parametrize(
    "length", [b"-1", b"+5", b"1_0", b"0x10", b"1e3", b"\xd9\xa3", b"9" * 5000, b"5, 5", b" ", b"nan"]
)
def test_lengths_that_are_no_numbers(length: bytes, browser: Browser) -> None:
    assert order(browser, b"{}", length)[0] == 400


@pytest.mark.parametrize(
    "body", [b"[" * 9000, b'{"a":' * 1900, b"1", b"null", b'{"run": 1}', b'{"run": {}}', b"\xff\xfe", b""]
)
def test_orders_that_are_no_orders(body: bytes, browser: Browser) -> None:
    status, found = order(browser, body)
    assert status == 400 and "JSON object" in found["error"]


ODD = {
    "a NUL in the path": b"GET /\0 HTTP/1.1\r\nHOST\r\n\r\n",
    "a NUL in the query": b"GET /api/runs?a=%00 HTTP/1.1\r\nHOST\r\n\r\n",
    "a NUL in a header": b"GET /api/runs HTTP/1.1\r\nHOST\r\nX: a\0b\r\n\r\n",
    "an address that is none": b"GET http://[ HTTP/1.1\r\nHOST\r\n\r\n",
    "a version that is none": b"GET / HTTP/x\r\nHOST\r\n\r\n",
    "a huge version": b"GET / HTTP/1." + b"9" * 5000 + b"\r\nHOST\r\n\r\n",
    "no version": b"POST /\r\n\r\n",
    "garbage": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    "many words": b"a b c d e\r\n\r\n",
    "two Hosts": b"GET / HTTP/1.1\r\nHOST\r\nHost: evil.example\r\n\r\n",
    "two lengths": b"POST /api/order HTTP/1.1\r\nHOST\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    "a GET with a body": b"GET / HTTP/1.1\r\nHOST\r\nContent-Length: 5\r\n\r\nGET /",
    "a GET in chunks": b"GET / HTTP/1.1\r\nHOST\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "many fields": b"GET /api/runs?" + b"a=1&" * 100 + b" HTTP/1.1\r\nHOST\r\n\r\n",
}


@pytest.mark.parametrize("kind", ODD)
def test_odd_requests_are_answered_in_a_sentence(kind: str, browser: Browser) -> None:
    status, found = browser.raw(ODD[kind])
    assert status == 400 and found["error"], found
    assert browser.ask("/api/runs")[0] == 200


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "TRACE", "FOO"])
def test_other_methods_are_answered_in_a_sentence(method: str, browser: Browser) -> None:
    status, found, _ = browser.ask("/", method)
    assert status == 501 and found["error"]


@pytest.mark.parametrize(
    "cookie",
    [
        b"\0",
        b"=",
        b";;;",
        b"\xff\xfe=\xff",
        b"a,b=c",
        b"burnish-token",
        b"burnish-token=\xe9",
        b'burnish-token="\\777"',
        b"$Version=1; [x]=y",
        b"burnish-token=" + b"x" * 5000,
    ],
)
def test_odd_cookies_do_not_drop_the_connection(cookie: bytes, guarded: Browser) -> None:
    status, found = guarded.raw(b"GET /api/runs HTTP/1.1\r\nHOST\r\nCookie: " + cookie + b"\r\n\r\n")
    assert status in (400, 401) and found["error"]


# -------------------------------------------------------------------------------------------- time and connections


def test_a_head_that_drips_has_a_deadline_for_all_of_it(browser: Browser) -> None:
    """Each byte arrives soon after the previous one, but the request never ends."""
    browser.server.head_seconds = 1.0
    with browser.connect() as line:
        stop = threading.Event()

        def drip() -> None:
            line.sendall(b"GET / HTTP/1.1\r\nX: ")
            while not stop.wait(0.05):
                try:
                    line.sendall(b"y")
                except OSError:
                    return

        thread = threading.Thread(target=drip)
        thread.start()
        try:
            status = answer(line)[0]
        except ConnectionResetError:  # the bytes after the answer met a closed connection
            status = 408
        finally:
            stop.set()
            thread.join()
    assert status == 408
    _soon(lambda: len(browser.server.slots) == 0)


def test_a_body_that_does_not_come_has_a_deadline(browser: Browser) -> None:
    browser.server.body_seconds = 0.3
    status, found = order(browser, b"{", b"100")
    assert status == 408 and "in time" in found["error"]


def test_connections_that_say_nothing_do_not_keep_others_out(browser: Browser) -> None:
    """More of them than there are slots, half a request in each: the next client is answered, threads stay bounded."""
    before = threading.active_count()
    lines = []
    try:
        for _ in range(3 * browser.server.slots.total):
            lines.append(browser.connect())
            lines[-1].sendall(b"GET / HTTP/1.1\r\nX: y")
        assert browser.ask("/api/runs")[0] == 200
        _soon(lambda: len(browser.server.slots) <= browser.server.slots.total)
        _soon(lambda: threading.active_count() <= before + browser.server.slots.total + 1)
    finally:
        for line in lines:
            line.close()


class Line:
    """Stands for a socket in tests of `Slots`."""

    closed = False

    def recv(self, size: int, /) -> bytes:
        return b""

    def settimeout(self, seconds: float, /) -> None: ...

    def shutdown(self, how: int, /) -> None:
        self.closed = True


def test_the_longest_waiting_connection_makes_room_and_one_that_is_answered_does_not() -> None:
    slots, lines = Slots(total=3, per_client=2), [Line() for _ in range(6)]
    first, second = slots.enter("a", lines[0]), slots.enter("a", lines[1])
    assert first and second
    slots.wait(first, False)
    assert slots.enter("a", lines[2]) and lines[1].closed and not lines[0].closed, "a client has two at most"
    owner = slots.enter("b", lines[3])
    assert owner and len(slots) == 3
    owner.trusted, owner.since = True, 0.0
    assert slots.enter("c", lines[4]) and lines[2].closed and not lines[3].closed, "the owner's goes last"
    for slot in list(slots._open):
        slots.wait(slot, False)
    assert slots.enter("d", lines[5]) is None and len(slots) == 3
    slots.leave(owner)
    assert slots.enter("d", lines[5])


def test_a_full_server_says_so(browser: Browser) -> None:
    browser.server.slots = Slots(total=0, per_client=0)
    assert browser.raw(b"")[0] == 503


def test_beyond_the_loopback_one_client_cannot_take_every_connection(tmp_path: Path) -> None:
    found = {row[4][0] for row in socket.getaddrinfo(socket.gethostname(), 0, socket.AF_INET, socket.SOCK_STREAM)}
    away = [address for address in found if not is_loopback(str(address))]
    if not away:
        pytest.skip("this machine has the loopback alone")
    for browser in served(tmp_path, endpoint_for(str(away[0]), 0, None)):
        assert browser.server.slots.per_client <= browser.server.slots.total // 4
        assert browser.ask("/api/runs")[0] == 401 and browser.ask(f"/api/runs?token={browser.endpoint.token}")[0] == 200


@pytest.mark.parametrize(
    "words", [["--host", "0"], ["--host=0x0"], ["--host", "::"], ["--port", "70000"], ["--token=short"]]
)
def test_the_command_refuses_in_a_sentence(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ui", str(tmp_path), *words]) == 2
    said = capsys.readouterr().err
    assert words[0].partition("=")[0] in said and "Traceback" not in said


def _soon(done: Any) -> None:
    deadline = time.monotonic() + 20
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.02)


class Endless:
    """A client that sends letters for ever, and no end of a line."""

    sent = 0

    def recv(self, size: int, /) -> bytes:
        self.sent += size
        return b"x" * size

    def settimeout(self, seconds: float, /) -> None: ...
    def shutdown(self, how: int, /) -> None: ...


def test_a_line_without_end_is_not_kept() -> None:
    """It is refused at the limit of bytes, long before the deadline."""
    client = Endless()
    reader = RequestReader(client)
    reader.expect(HEAD_BYTES, seconds=20)
    with pytest.raises(TooLarge):
        reader.readline()
    assert client.sent <= HEAD_BYTES + 2 * 8192
