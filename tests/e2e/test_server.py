"""The dashboard's server: its API, and the requests that it rejects."""

from __future__ import annotations

import functools
import http.client
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from runs import COIN, function, go
from serving import Browser, served

from burnish.report.api import MOST, Api
from burnish.report.endpoint import endpoint_for, is_loopback
from burnish.report.server import make_server
from burnish.store.reader import open_store
from burnish.store.schema import FILE, connect

UI = Path(__file__).parents[2] / "src" / "burnish" / "report" / "ui"


@pytest.fixture(scope="module")
def root(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("served")
    reward = function(place / "r.py", COIN, "coin")
    for seed in (0, 1):
        go("grpo", small_model, place / "runs" / f"grpo {seed}+é", reward=reward, seed=seed, n=4, eval_tasks=4, steps=3)
    (place / "secret.txt").write_text("not for the web")
    return place / "runs"


@pytest.fixture(scope="module")
def browser(root: Path) -> Iterator[Browser]:
    yield from served(root, endpoint_for("127.0.0.1", 0, None))


@pytest.fixture(scope="module")
def guarded(root: Path) -> Iterator[Browser]:
    """A server with a token."""
    yield from served(root, endpoint_for("127.0.0.1", 0, "a-token-of-some-length"))


RUN = "grpo%200%2B%C3%A9"  # "grpo 0+é"


def test_the_api_answers_from_the_store(browser: Browser, root: Path) -> None:
    _, runs, _ = browser.ask("/api/runs")
    assert {run["name"] for run in runs} == {"grpo 0+é", "grpo 1+é"} and len({run["same"] for run in runs}) == 1
    assert runs[0]["state"] == "finished" and len(runs[0]["spark"]) == 3
    with open_store(root / "grpo 0+é") as store:
        metrics, count, first = store.metrics(), store.count(), store.trace(1)
    _, found, _ = browser.ask(f"/api/metrics?run={RUN}")
    assert found["metrics"]["series"]["reward"] == [m["reward"] for m in metrics] and found["config"]["n"] == 4
    assert (
        found["metrics"]["steps"] == [1, 2, 3]
        and "total" in found["timings"]["series"]
        and found["evaluation"]["after"]
    )
    _, later, _ = browser.ask(f"/api/metrics?run={RUN}&after=2")
    assert later["metrics"]["steps"] == [3]
    _, page, _ = browser.ask(f"/api/traces?run={RUN}&limit=10&order=oldest")
    assert len(page["rows"]) == 10 and page["more"] and page["rows"][0]["text"] == first["text"]
    _, rest, _ = browser.ask(f"/api/traces?run={RUN}&limit=200&offset=10&order=oldest")
    assert len(rest["rows"]) == count - 10 and not rest["more"]
    _, chosen, _ = browser.ask(f"/api/traces?run={RUN}&step=1&least=0.5&correct=1")
    assert chosen["rows"] and all(row["step"] == 1 and row["reward"] >= 0.5 for row in chosen["rows"])
    _, one, _ = browser.ask(f"/api/trace?run={RUN}&id=1")
    assert one["tokens"] == first["tokens"] and len(one["siblings"]) == 4
    _, groups, _ = browser.ask(f"/api/groups?run={RUN}&step=2")
    assert len(groups["rows"]) == 2 and len(groups["rows"][0]["traces"]) == 4
    _, elsewhere, _ = browser.ask(f"/api/prompt?run={RUN}&task={first['task'].replace(' ', '%20')}")
    assert {row["run"] for row in elsewhere} == {"grpo 0+é", "grpo 1+é"} or elsewhere[0]["run"] == "grpo 0+é"
    assert browser.ask(f"/api/steps?run={RUN}")[1] == {
        "steps": [1, 2, 3],
        "phases": ["main"],
        "state": "finished",
    }
    assert any(one["name"] == "reward" for one in browser.ask("/api/definitions")[1])


def test_every_file_of_the_page_is_served_and_shipped(browser: Browser) -> None:
    status, page, headers = browser.ask("/")
    assert status == 200 and browser.endpoint.secret in page and "{{" not in page
    assert "script-src 'self'" in headers["Content-Security-Policy"] and headers["X-Frame-Options"] == "DENY"
    for file in UI.iterdir():
        if file.suffix in (".js", ".css", ".svg"):
            assert browser.ask(f"/{file.name}")[:2] == (200, file.read_text())
    text = "".join(file.read_text() for file in UI.iterdir() if file.suffix in (".js", ".css", ".html"))
    assert "innerHTML" not in text and "http://" not in text.replace("http://www.w3.org", "") and "https://" not in text


@pytest.mark.parametrize(
    "path",
    [
        "/../secret.txt",
        "/..%2fsecret.txt",
        "/%2e%2e/secret.txt",
        "/api.py",
        "/__init__.py",
        "/.hidden",
        "/ui/index.html",
        "/api/nothing",
        "/api/__class__",
        "/C:\\boot.ini",
        "/../ui/app.js",
        "/./app.js",
        "/../ui/../ui/app.js",
        "/.app.js",
        "/app.js/",
        "/%61pp.js",
    ],
)
def test_nothing_else_is_served(path: str, browser: Browser) -> None:
    assert browser.ask(path)[0] == 404


@pytest.mark.parametrize(
    "query", ["run=../runs/grpo", "run=", "run=nothing", f"run={RUN}&after=x", f"run={RUN}&order=;drop"]
)
def test_what_makes_no_sense_is_refused_in_words(query: str, browser: Browser) -> None:
    for what in (
        ("metrics", "traces")
        if "after" not in query and "order" not in query
        else ("metrics",)
        if "after" in query
        else ("traces",)
    ):
        status, found, _ = browser.ask(f"/api/{what}?{query}")
        assert status == 400 and found["error"]


@pytest.mark.parametrize("name", ["limit", "offset", "step", "group", "least", "most"])
@pytest.mark.parametrize("value", ["9" * 19, "9" * 5000, "1_0", "0x1", "%D9%A3", "1e400", "nan", "%2B1", "x"])
def test_odd_numbers_are_refused_in_words(name: str, value: str, browser: Browser) -> None:
    fine = name in ("least", "most") and value in (
        "9" * 19,
        "%D9%A3",
        "1_0",
        "%2B1",
    )  # as numbers go, Python reads these
    status, found, _ = browser.ask(f"/api/traces?run={RUN}&{name}={value}")
    assert status == (200 if fine else 414 if len(value) > 4000 else 400) and (fine or found["error"])


def test_a_page_of_traces_has_a_limit(browser: Browser) -> None:
    for what in ("traces", "groups"):
        for limit in ("-1", "0", "-9"):
            assert len(browser.ask(f"/api/{what}?run={RUN}&limit={limit}")[1]["rows"]) == 1
    assert MOST == 200


@pytest.mark.parametrize(
    "search", ['"', "'", "*", "(", "a AND", "NEAR(", "%25", "\\", "%FF", "-", "^a", "a:b", " ", "%E3%80%80"]
)
def test_any_text_may_be_searched_for(search: str, browser: Browser) -> None:
    assert browser.ask(f"/api/traces?run={RUN}&search={search.replace(' ', '%20')}")[0] == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.evil.example", ""]
)
def test_a_foreign_name_that_points_here_is_not_answered(host: str, browser: Browser) -> None:
    """DNS rebinding: the page of evil.example asks 127.0.0.1 under its own name."""
    for path in ("/", "/api/runs"):
        status, found, headers = browser.ask(path, Host=host)
        assert status == 421 and "does not name this server" in found["error"]
        assert "Access-Control-Allow-Origin" not in headers


def test_the_names_of_the_loopback_are_answered(browser: Browser) -> None:
    for host in ("localhost", "127.0.0.1", "[::1]"):
        assert browser.ask("/api/runs", Host=f"{host}:{browser.endpoint.port}")[0] == 200
        assert browser.ask("/api/runs", Host=host)[0] == browser.ask("/api/runs", Host=f"{host}:80")[0] == 421


DEEP = "[" * 200_000 + "]" * 200_000
ODD_STORES = {
    "limits that are none": """UPDATE info SET value = '{"nope": 1}' WHERE name = 'limits'""",
    "no time": "UPDATE info SET value = 'null' WHERE name = 'created'",
    "an infinite seed": """UPDATE info SET value = '{"seed": 1e999}' WHERE name = 'config'""",
    "deep JSON": f"UPDATE info SET value = '{DEEP}' WHERE name = 'environment'",
    "metrics that are words": "UPDATE metrics SET value = 'x'",
    "metrics that are infinite": "UPDATE metrics SET value = 9e999",
    "names that are bytes": "UPDATE metrics SET name = x'00ff'",
    "timings that are bytes": "UPDATE timings SET seconds = x'00'",
    "texts that are bytes": "UPDATE traces SET text = x'ff00'",
    "turns that are a number": "UPDATE traces SET turns = '5'",
    "rewards that are bytes": "UPDATE traces SET reward = x'00'",
    "prompts that are not UTF-8": "UPDATE groups SET prompt = CAST(x'ff' AS TEXT)",
    "tokens that are words": "UPDATE tokens SET ids = 'abc'",
    "names of streams that are a number": "UPDATE tokens SET names = '5'",
    "pieces that are bytes": "UPDATE vocabulary SET piece = x'ff'",
    "no table": "DROP TABLE groups",
}


@pytest.mark.parametrize("kind", ODD_STORES)
def test_an_odd_store_is_answered_in_a_sentence(kind: str, root: Path, tmp_path: Path) -> None:
    """It was 500 without words. The list of runs, and the run beside it, are as ever."""
    import shutil
    import sqlite3

    for name in ("odd", "sound"):
        shutil.copytree(root / "grpo 0+é", tmp_path / name)
    with sqlite3.connect(tmp_path / "odd" / FILE) as db:
        db.execute(ODD_STORES[kind])
        task = str(sqlite3.connect(tmp_path / "sound" / FILE).execute("SELECT task FROM groups").fetchone()[0])
    db.close()
    api, told = Api(tmp_path), []
    for name, query in {"metrics": {}, "traces": {}, "groups": {}, "trace": {"id": "1"}, "tree": {"group": "1"},
                        "steps": {}, "prompt": {"task": task}}.items():  # fmt: skip
        try:
            found = api.ask(name, {"run": "odd", **query})
            assert found is not None and b"NaN" not in found and b"Infinity" not in found
        except ValueError as error:
            told.append(str(error))
        assert api.ask(name, {"run": "sound", **query})
    assert all("odd" in sentence or "store" in sentence for sentence in told)
    assert told or kind == "metrics that are infinite"
    assert {run["name"] for run in json.loads(api.ask("runs", {}) or b"")} == {"odd", "sound"}


def test_an_order_needs_our_own_page(browser: Browser, root: Path) -> None:
    body = json.dumps({"run": "grpo 0+é", "action": "stop"})
    secret, here = browser.endpoint.secret, f"http://127.0.0.1:{browser.endpoint.port}"
    assert browser.ask("/api/order", "POST", body)[0] == 403
    assert browser.ask("/api/order", "POST", body, X_Burnish_Secret="guess")[0] == 403
    assert browser.ask("/api/order", "POST", body, X_Burnish_Secret=secret, Origin="http://evil.example")[0] == 403
    assert browser.ask("/api/order", "POST", body, X_Burnish_Secret=secret, Origin="null")[0] == 403
    assert browser.ask("/api/order", "POST", body, X_Burnish_Secret=secret, Host="evil.example")[0] == 421
    status, found, _ = browser.ask("/api/order", "POST", body, X_Burnish_Secret=secret, Origin=here)
    assert status == 400 and "this run is finished" in found["error"]
    assert browser.ask("/api/order", "POST", "[1", X_Burnish_Secret=secret, Origin=here)[0] == 400
    with open_store(root / "grpo 0+é") as store:
        assert store.sql("SELECT * FROM orders") == []


def test_an_order_reaches_a_running_run(browser: Browser, root: Path) -> None:
    from burnish.store.environment import process

    folder = root / "alive"
    folder.mkdir()
    db = connect(folder / FILE)
    facts = {"state": "running", "process": process(), "config": {}, "created": 1.0}
    db.executemany("INSERT INTO info VALUES (?, ?)", [(name, json.dumps(value)) for name, value in facts.items()])
    body = json.dumps({"run": "alive", "action": "pause"})
    status, found, _ = browser.ask("/api/order", "POST", body, X_Burnish_Secret=browser.endpoint.secret)
    assert (status, found) == (200, {"ordered": "pause"})
    assert db.execute("SELECT action FROM orders").fetchall() == [("pause",)]
    wrong = json.dumps({"run": "alive", "action": "explode"})
    assert browser.ask("/api/order", "POST", wrong, X_Burnish_Secret=browser.endpoint.secret)[0] == 400
    db.close()


def test_a_token_is_asked_of_everybody(guarded: Browser) -> None:
    token = guarded.endpoint.token
    for path in ("/", "/app.js", "/api/runs"):
        assert guarded.ask(path)[0] == 401
        assert guarded.ask(path, Cookie="burnish-token=wrong")[0] == 401
    assert guarded.ask("/api/runs?token=wrong")[0] == 401
    assert guarded.ask(f"/api/runs?token={token}")[0] == 200
    connection = http.client.HTTPConnection("127.0.0.1", guarded.endpoint.port, timeout=10)
    connection.request("GET", f"/?token={token}")
    answer = connection.getresponse()
    cookie = answer.headers["Set-Cookie"]
    assert (
        answer.status == 303
        and answer.headers["Location"] == "/"
        and "HttpOnly" in cookie
        and "SameSite=Strict" in cookie
    )
    connection.close()
    assert guarded.ask("/api/runs", Cookie=cookie.split(";")[0])[0] == 200
    assert guarded.ask("/api/order", "POST", "{}", X_Burnish_Secret=guarded.endpoint.secret)[0] == 401


def test_beyond_the_loopback_there_is_always_a_token_and_never_everywhere() -> None:
    assert endpoint_for("127.0.0.1", 1, None).token == "" and endpoint_for("localhost", 1, None).token == ""
    assert (
        len(endpoint_for("192.168.7.7", 1, None).token) >= 24
        and "?token=" in endpoint_for("192.168.7.7", 1, None).url()
    )
    assert endpoint_for("::1", 7, None).url() == "http://[::1]:7/" and "[::1]:7" in endpoint_for("::1", 7, None).hosts()
    assert endpoint_for("10.0.0.2", 7, None).hosts() == {"10.0.0.2:7"}
    for host in ("0.0." + "0.0", "::", "", "*"):
        with pytest.raises(ValueError, match="on every network at once"):
            endpoint_for(host, 1, "a-token-of-some-length")
    assert endpoint_for("10.0.0.2", 80, None).hosts() == {"10.0.0.2", "10.0.0.2:80"}  # browsers leave it out
    assert is_loopback("127.1.2.3") and not is_loopback("example.org")


def test_the_command_serves_until_ctrl_c(root: Path) -> None:
    import re
    import signal

    words = [sys.executable, "-m", "burnish.cli", "ui", str(root), "--port", "0"]
    heard = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # tests in the background inherit deaf ears
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, preexec_fn=heard)
    assert process.stdout is not None
    first = process.stdout.readline()
    found = re.search(r"http://127\.0\.0\.1:(\d+)/", first)
    assert found, first
    line = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=10)
    line.request("GET", "/api/runs")
    assert line.getresponse().status == 200
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=20) == 0


def test_a_port_that_is_taken_is_said(browser: Browser, root: Path) -> None:
    with pytest.raises(
        ValueError, match=rf"cannot listen on 127.0.0.1:{browser.endpoint.port}: .*; choose another --port"
    ):
        make_server(Api(root), endpoint_for("127.0.0.1", browser.endpoint.port, None))
