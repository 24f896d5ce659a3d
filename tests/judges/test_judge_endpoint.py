"""The client of an OpenAI-compatible judge against a real server: retries, limits, cache, budget, time-outs, key."""

from __future__ import annotations

import json
import logging
import math
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from judge_server import completion, prompt_of, serving

from burnish.core.step import Settings, Step
from burnish.core.types import Clock
from burnish.judges.cache import AnswerCache, cache_key
from burnish.judges.endpoint import Endpoint, Refused, content_of
from burnish.judges.limits import Budget, BudgetSpent, Rate, backoff
from burnish.judges.question import Question
from burnish.score.judges import read_judge
from burnish.score.judges.of_endpoint import EndpointJudge

STEP = Step(Clock(0, 1), None, Settings())  # type: ignore[arg-type]  # an endpoint needs no models


def quick(url: str, **changed: Any) -> Endpoint:
    return Endpoint(url, **{"seconds": 2.0, "total": 5.0, "first_wait": 0.01, **changed})


def judge_at(url: str, folder: Path | None, **changed: Any) -> EndpointJudge:
    return EndpointJudge(quick(url, **changed), "m", AnswerCache(folder), temperature=0.7, max_tokens=9)


def test_a_question_is_sent_by_the_protocol_and_the_answer_read(tmp_path: Path) -> None:
    with serving(lambda body: f"heard {prompt_of(body)}") as server:
        judge = judge_at(server.url, tmp_path)
        answers = judge.ask([Question("t/1", "one"), Question("t/1", "two")], STEP, samples=2)
    assert [[a.text for a in own] for own in answers] == [["heard one"] * 2, ["heard two"] * 2]
    sent = server.requests[0]
    assert sent["path"] == "/v1/chat/completions" and sent["model"] == "m"
    assert (sent["temperature"], sent["top_p"], sent["max_tokens"]) == (0.7, 1.0, 9)
    assert len({body["seed"] for body in server.requests}) == 4, "each sample has a seed of its own"


def test_the_second_time_answers_come_from_the_disk(tmp_path: Path) -> None:
    with serving(lambda body: str(len(server.requests))) as server:
        first = judge_at(server.url, tmp_path).ask([Question("t/1", "a")], STEP, 2)
        again = judge_at(server.url, tmp_path).ask([Question("t/1", "a")], STEP, 2)
        assert first == again and len(server.requests) == 2
        judge_at(server.url, tmp_path).ask([Question("t/2", "a")], STEP)  # other words of the template
        judge_at(server.url, tmp_path).ask([Question("t/1", "a", number=1)], STEP)
        assert len(server.requests) == 4
    for file in tmp_path.rglob("*.json"):
        file.write_text("{broken")
    assert AnswerCache(tmp_path).get(cache_key("x")) is None


@pytest.mark.parametrize("fault", [429, 500, 503, "malformed", "list", "close"])
def test_a_passing_fault_is_retried(fault: Any) -> None:
    with serving(lambda body: "fine", faults=[fault, fault]) as server:
        (reply,) = quick(server.url).ask([{"messages": [{"content": "?"}]}])
        assert reply.response is not None and content_of(reply.response) == "fine"
        assert len(server.requests) == 3


def test_a_question_that_is_refused_is_a_failure_with_the_servers_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BURNISH_JUDGE_KEY", "sk-secret-1")
    with serving(lambda body: "fine", faults=[400]) as server:
        (reply,) = quick(server.url).ask([{"messages": []}])
        assert reply.response is None and "HTTP 400" in reply.why and "sk-secret-1" not in reply.why
        assert len(server.requests) == 1, "it is not repeated"


@pytest.mark.parametrize("fault", ["hang", "drip", "endless"])
def test_a_server_that_never_ends_costs_its_time_limit(fault: str) -> None:
    start = time.monotonic()
    with serving(lambda body: "fine", always=fault) as server:
        (reply,) = quick(server.url, seconds=0.3, total=0.8, attempts=2).ask([{"messages": []}])
    assert reply.response is None and reply.why
    assert time.monotonic() - start < 4


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_wrong_key_or_address_stops_at_once(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BURNISH_JUDGE_KEY", "sk-secret-2")
    with serving(lambda body: "fine", always=status) as server:
        with pytest.raises(Refused, match=rf"HTTP {status}.*BURNISH_JUDGE_KEY") as raised:
            quick(server.url, concurrency=1).ask([{"messages": []}] * 20)
        assert "sk-secret-2" not in str(raised.value) and len(server.requests) == 1


def test_the_key_is_sent_and_is_nowhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MY_KEY", "sk-secret-3")
    with caplog.at_level(logging.DEBUG), serving(lambda body: "fine", faults=[500]) as server:
        judge = judge_at(server.url, tmp_path, key="MY_KEY")
        judge.ask([Question("t/1", "a")], STEP)
        assert server.headers[0]["Authorization"] == "Bearer sk-secret-3"
    stored = "".join(file.read_text() for file in tmp_path.rglob("*.json"))
    shown = capfd.readouterr()
    assert stored and "sk-secret-3" not in stored + caplog.text + shown.out + shown.err + repr(judge) + judge.name
    monkeypatch.setenv("MY_KEY", "sk-\nsecret-3")
    with serving(lambda body: "fine") as server, pytest.raises(Refused, match="MY_KEY cannot be sent") as raised:
        quick(server.url, key="MY_KEY").ask([{"messages": []}])
    assert "secret-3" not in str(raised.value)


def test_a_budget_of_calls_stops_clearly_and_keeps_what_was_paid_for(tmp_path: Path) -> None:
    with serving(lambda body: "fine") as server:
        judge = judge_at(server.url, tmp_path, budget=Budget(calls=3), concurrency=1)
        asked = [Question("t/1", str(i)) for i in range(5)]
        with pytest.raises(BudgetSpent, match="budget of 3 calls is used up; raise calls= and use --resume"):
            judge.ask(asked, STEP)
        assert len(server.requests) == 3
        again = judge_at(server.url, tmp_path, budget=Budget(calls=2))
        assert [own[0].text for own in again.ask(asked, STEP)] == ["fine"] * 5, "three of the five cost nothing"


def test_a_budget_of_tokens_counts_what_the_server_reports() -> None:
    with serving(lambda body: completion("fine", tokens=40)) as server:
        endpoint = quick(server.url, budget=Budget(tokens=100), concurrency=1)
        with pytest.raises(BudgetSpent, match="100 tokens is used up .120 used"):
            endpoint.ask([{"messages": []}] * 5)
        assert len(server.requests) == 3


def test_questions_are_asked_concurrently_up_to_the_limit() -> None:
    with serving(lambda body: "fine") as server:
        server.latency = 0.1
        quick(server.url, concurrency=3).ask([{"messages": []}] * 6)
        assert server.most_at_once == 3


def test_a_rate_limit_spaces_the_calls() -> None:
    with serving(lambda body: "fine") as server:
        start = time.monotonic()
        quick(server.url, rate=Rate(20.0), concurrency=4).ask([{"messages": []}] * 5)
        assert time.monotonic() - start >= 4 / 20 - 0.01


def test_waits_double_up_to_a_limit_and_are_the_same_again() -> None:
    waits = [backoff(i, "k") for i in range(1, 12)]
    assert waits == [backoff(i, "k") for i in range(1, 12)]
    for i, wait in enumerate(waits):
        full = min(30.0, 0.5 * 2**i)
        assert full / 2 <= wait <= full


def test_all_questions_unanswered_is_an_error_that_names_the_judge(tmp_path: Path) -> None:
    with serving(lambda body: "fine", always=503) as server:
        judge = judge_at(server.url, tmp_path, attempts=2)
        with pytest.raises(ValueError, match=r"m at http://127.* answered none of 2 questions: .*HTTP 503"):
            judge.ask([Question("t/1", "a"), Question("t/1", "b")], STEP)


def test_one_unanswered_question_costs_itself(tmp_path: Path) -> None:
    def reply(body: dict[str, Any]) -> str | dict[str, Any]:
        return {"choices": []} if prompt_of(body) == "bad" else "fine"

    with serving(reply) as server:
        bad, good = judge_at(server.url, tmp_path).ask([Question("t/1", "bad"), Question("t/1", "good")], STEP)
    assert bad[0].failed and "no text" in bad[0].why and good[0].text == "fine"


@pytest.mark.slow  # the fast tests run in workers, where the signal reaches another thread
def test_an_interrupt_ends_the_calls_under_way() -> None:
    with serving(lambda body: "fine", always="hang") as server:
        endpoint = quick(server.url, seconds=30, total=60)
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        start = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            endpoint.ask([{"messages": []}] * 2)
        assert time.monotonic() - start < 5


def test_probabilities_of_the_first_token(tmp_path: Path) -> None:
    def reply(body: dict[str, Any]) -> dict[str, Any]:
        top = [("A", 0.6), (" A", 0.1), ("B", 0.2), ("C", 0.05)]
        listed = [{"token": token, "logprob": math.log(p)} for token, p in top]
        found = completion("A")
        if prompt_of(body) != "bare":
            found["choices"][0]["logprobs"] = {"content": [{"token": "A", "top_logprobs": listed}]}
        return found

    with serving(reply) as server:
        known, bare = judge_at(server.url, tmp_path).choose(
            [Question("t/1", "?"), Question("t/1", "bare")], ("A", "B"), STEP
        )
    assert known.logit == pytest.approx(math.log(0.7 / 0.2)) and not known.failed
    assert bare.failed and "gives no log-probs" in bare.why
    assert server.requests[0]["logprobs"] is True and server.requests[0]["max_tokens"] == 1


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://example.com/v1", "unencrypted; use https://"),
        ("ftp://127.0.0.1/v1", "is no URL"),
        ("https://user:pw@example.com/v1", "holds a password"),
        ("https://example.com/v1?key=1", "holds a password or a query"),
        ("http://127.0.0.1:x/v1", "no valid port"),
        ("http://127.0.0.1.example.com/v1", "unencrypted"),
    ],
)
def test_an_address_that_would_leak_is_refused(url: str, why: str) -> None:
    with pytest.raises(ValueError, match=why) as raised:
        Endpoint(url)
    assert ":pw" not in str(raised.value) and "key=1" not in str(raised.value)


def test_judges_are_read_from_words(tmp_path: Path) -> None:
    named = read_judge(f"endpoint(http://localhost:8000/v1, qwen, calls=5, temperature=0.5, cache={tmp_path})")
    assert isinstance(named, EndpointJudge) and named.name == "qwen at http://localhost:8000/v1"
    assert named.endpoint.budget.calls == 5 and named.cache.folder == tmp_path and named.temperature == 0.5
    assert read_judge("policy").models == {} and set(read_judge("tiny").models) == {"judge_tiny"}
    assert read_judge("model(tiny, temperature=1)").reads == frozenset(
        {"model:judge_tiny.generate", "model:judge_tiny.logp"}
    )
    for text, why in (
        ("https://host/v1", "is written endpoint"),
        ("endpoint(https://host/v1)", "its options are"),
        ("endpoint(https://host/v1, m, rate=0)", "must be above 0"),
        ("oracle(x)", "no kind of judge 'oracle'"),
        ("", "judge is empty"),
    ):
        with pytest.raises(ValueError, match=why):
            read_judge(text)


def test_a_lone_surrogate_in_an_answer_does_no_harm() -> None:
    found = json.loads('{"choices": [{"message": {"content": "a\\ud800b"}}]}')
    assert content_of(found) == "a?b"
