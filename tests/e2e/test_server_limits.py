"""Limits of the dashboard's server on requests, connections and wrong tokens; each has a test that fails without it."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from guards import guards
from serving import Browser, answer, served

from burnish.cli import main
from burnish.report.api import Api
from burnish.report.endpoint import endpoint_for, is_loopback
from burnish.report.server import BODY_BYTES, make_server
from burnish.util.http_connections import Connection, Connections, State
from burnish.util.http_limits import DELAYS, FORGET_SECONDS, HEAD_BYTES, PATH_CHARACTERS, Guesses, Limits

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
        browser.server.guesses = Recorded()
        yield browser


class Recorded(Guesses):
    """Guesses that are answered at once; waited: the seconds that each would have waited."""

    def __init__(self) -> None:
        super().__init__()
        self.waited: list[float] = []

    def wrong(self, client: str) -> float:
        self.waited.append(super().wrong(client))
        return 0.0


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
    guesses = guarded.server.guesses = Recorded()
    waited = guesses.waited
    for _ in range(len(DELAYS) + 2):
        assert guarded.ask("/api/runs?token=wrong-wrong-wrong")[0] == 401
    assert waited == [*DELAYS, DELAYS[-1], DELAYS[-1]] and DELAYS[-1] >= 1
    assert guarded.ask(f"/api/runs?token={TOKEN}")[0] == 200 and guarded.ask("/api/runs")[0] == 401
    assert len(waited) == len(DELAYS) + 2, "neither the right token nor none is a guess"
    assert guarded.ask("/api/runs", Cookie="burnish-token=wrong")[0] == 401
    assert waited[-1] == DELAYS[-1], "the right token in between does not make guessing cheap again"


def test_guesses_are_counted_by_client_and_forgotten() -> None:
    now = [0.0]
    guesses = Guesses(delays=(0.0, 1.0), clock=lambda: now[0])
    waited = [guesses.wrong("a"), guesses.wrong("a"), guesses.wrong("b")]
    now[0] = FORGET_SECONDS + 1
    assert [*waited, guesses.wrong("a")] == [0.0, 1.0, 0.0, 0.0]


def test_a_wrong_token_waits_and_beyond_a_few_it_is_not_answered(tmp_path: Path) -> None:
    """Clients that hang up hold their places, so that they cannot guess faster. The right token is answered at once."""
    for browser in served(tmp_path, endpoint_for("127.0.0.1", 0, TOKEN)):
        few(browser, guesses=2)
        browser.server.guesses = Guesses(delays=(1.0,))
        begun, sent = time.monotonic(), b"GET /api/runs?token=wrong HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n"
        lines = []
        for _ in range(2):
            lines.append(browser.connect())
            lines[-1].sendall(sent % browser.endpoint.port)
        lines.pop().close()
        server = browser.server
        _soon(lambda server=server: server._delayed == 2)
        with browser.connect() as third:
            third.sendall(sent % browser.endpoint.port)
            assert third.recv(1) == b""
        assert browser.ask(f"/api/runs?token={TOKEN}")[0] == 200 and time.monotonic() < begun + 1.0
        assert answer(lines[0])[0] == 401 and time.monotonic() >= begun + 1.0
        _soon(lambda server=server: server._delayed == 0)


# --------------------------------------------------------------------------------------------------------- requests


def test_an_address_has_a_limit(browser: Browser) -> None:
    path = "/api/runs?x="
    assert browser.ask(path + "x" * (PATH_CHARACTERS - len(path)))[0] == 200
    assert browser.ask(path + "x" * (PATH_CHARACTERS - len(path) + 1))[0] == 414


def test_headers_have_a_limit(browser: Browser) -> None:
    start, end = b"GET /api/runs HTTP/1.1\r\nHOST\r\nConnection: close\r\n", b"\r\n\r\n"
    room = (
        HEAD_BYTES - len(start.replace(b"HOST", b"Host: 127.0.0.1:%d" % browser.endpoint.port)) - len(b"X: ") - len(end)
    )
    assert browser.raw(start + b"X: " + b"y" * room + end)[0] == 200
    assert browser.raw(start + b"X: " + b"y" * (room + 1) + end)[0] == 431
    assert browser.raw(start + b"X: y\r\n" * (HEAD_BYTES // 5) + end)[0] == 431


def few(browser: Browser, **limits: Any) -> None:
    """Give a server other limits."""
    changed = replace(browser.server.limits, **limits)
    browser.server.limits = browser.server.connections.limits = changed


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
    "a line end alone": b"GET / HTTP/1.1\nHost: x\r\n\r\n",
    "a folded header": b"GET / HTTP/1.1\r\nHOST\r\nX: a\r\n b\r\n\r\n",
    "a name with a blank": b"GET / HTTP/1.1\r\nHOST\r\nContent-Length : 5\r\n\r\n",
    "an order in chunks": b"POST / HTTP/1.1\r\nHOST\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n",
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
    few(browser, head_seconds=1.0)
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
    _soon(lambda: len(browser.server.connections) == 0)


def test_a_body_that_does_not_come_has_a_deadline(browser: Browser) -> None:
    few(browser, body_seconds=0.3)
    status, found = order(browser, b"{", b"100")
    assert status == 408 and "in time" in found["error"]


def test_connections_that_say_nothing_do_not_keep_others_out_and_hold_no_thread(browser: Browser) -> None:
    """More of them than there may be, half a request in each: the next client is answered."""
    before, most = threading.active_count(), browser.server.limits.connections
    lines = []
    try:
        for _ in range(3 * most):
            lines.append(browser.connect())
            lines[-1].sendall(b"GET / HTTP/1.1\r\nX: y")
        assert browser.ask("/api/runs")[0] == 200
        _soon(lambda: len(browser.server.connections) <= most)
        _soon(lambda: threading.active_count() == before)
    finally:
        for line in lines:
            line.close()


def connection(client: str = "a") -> Connection:
    return Connection(socket.socket(), client, 0.0)


def test_the_longest_idle_connection_makes_room_and_one_that_is_answered_does_not() -> None:
    table = Connections(Limits(1, 1.0, connections=3, strangers=9, per_client=2, working=9))
    first, second, owner = connection(), connection(), connection("b")
    for one in (first, second, owner):
        assert table.room(one.client) == (True, [])
        table.add(one)
    table.enter(first, State.WORK)
    assert table.room("a") == (True, [second]), "a client has two at most"
    owner.known = True
    table.enter(owner, State.HEAD)
    assert table.room("c") == (True, [second]), "the owner's goes last"
    table.remove(second)
    table.add(third := connection("c"))
    assert table.room("d") == (True, [third])
    table.enter(third, State.BODY)
    assert table.room("d") == (True, [owner])
    table.enter(owner, State.DELAY)
    assert table.room("d") == (False, []) and len(table) == 3
    table.remove(owner)
    assert table.room("d") == (True, [])
    for one in (first, second, third, owner):
        one.socket.close()


def test_strangers_have_a_limit_of_their_own() -> None:
    """They make room for each other, not the connections of the owner for them."""
    table = Connections(Limits(1, 1.0, connections=9, strangers=2, per_client=9, working=9))
    owner, first, second = connection(), connection(), connection()
    owner.known = True
    for one in (owner, first, second):
        table.add(one)
    assert table.room("a") == (True, [first])
    first.known = True  # it has sent the token
    table.enter(first, State.HEAD)
    assert table.room("a") == (True, [])
    for one in (first, second, owner):
        one.socket.close()


def test_a_full_server_says_so(browser: Browser) -> None:
    few(browser, connections=0)
    status, found = browser.raw(b"")
    assert status == 503 and "no connection left" in found["error"]


def test_beyond_the_loopback_one_client_cannot_take_every_connection(tmp_path: Path) -> None:
    found = {row[4][0] for row in socket.getaddrinfo(socket.gethostname(), 0, socket.AF_INET, socket.SOCK_STREAM)}
    away = [address for address in found if not is_loopback(str(address))]
    if not away:
        pytest.skip("this machine has the loopback alone")
    for browser in served(tmp_path, endpoint_for(str(away[0]), 0, None)):
        assert browser.server.limits.per_client <= browser.server.limits.connections // 4
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


def test_a_line_without_end_is_not_kept(browser: Browser) -> None:
    """It is refused at the limit of bytes, long before the deadline."""
    with browser.connect() as line:
        line.sendall(b"x" * (HEAD_BYTES + 1))
        assert answer(line)[0] == 431


def test_requests_that_arrive_together_are_answered_one_after_the_other(browser: Browser) -> None:
    sent = b"GET /api/runs HTTP/1.1\r\nHOST\r\n\r\n" * 3 + b"GET /api/runs HTTP/1.1\r\nHost: evil.example\r\n\r\n"
    with browser.connect() as line:
        line.sendall(sent.replace(b"HOST", b"Host: 127.0.0.1:%d" % browser.endpoint.port))
        got = b""
        while more := line.recv(65536):
            got += more
    assert got.count(b"HTTP/1.1 200") == 3 and got.count(b"HTTP/1.1 421") == 1
