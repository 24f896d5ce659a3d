"""The run store: round trip, queries, full-text search, killed and resumed runs, write errors, sinks and orders."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import recorded
from guards import guards
from runs import COIN, function, go
from transformers import AutoTokenizer

from burnish.core.loop import Report
from burnish.core.step import Dropped
from burnish.core.types import Clock, Group, Task, Trace, Turn
from burnish.store import recorder as recorders
from burnish.store.control import Orders, order
from burnish.store.reader import find_runs, open_store
from burnish.store.recorder import RunRecorder, cut
from burnish.store.rows import Pieces
from burnish.store.schema import FILE, connect

pytestmark = guards("store")


@pytest.fixture(scope="module")
def tokenizer(small_model: Path) -> Any:
    return AutoTokenizer.from_pretrained(str(small_model))


def trace(tokenizer: Any, text: str, reward: float = 0.0, **more: Any) -> Trace:
    asked = Turn(torch.tensor(tokenizer.encode("what?")), "task")
    ids = torch.tensor(tokenizer.encode(text))
    versions = torch.full((len(ids),), 7).index_fill(0, torch.tensor([len(ids) - 1]), 8)
    said = Turn(ids, "policy", -torch.arange(1.0, 1 + len(ids)), versions, asked)
    adv = torch.full((len(asked) + len(said),), float("nan"))
    adv[len(asked) :] = reward - 0.5
    return Trace(
        (asked, said), scores={"reward": reward, "style": 2.0}, streams={"adv": adv}, note={"stopped": "stop"}, **more
    )


def report(step: int, groups: list[Group], dropped: tuple[Dropped, ...] = (), **metrics: float) -> Report:
    return Report(
        Clock(step, 9),
        {"step": step, **metrics},
        {"learn": 0.25, "step": 0.5},
        {"main": groups},
        {"main": list(dropped)},
    )


def task(key: str = "k", prompt: str = "what?") -> Task:
    return Task("question", ({"role": "user", "content": prompt},), {"answer": "42", "make": print}, key)


def test_recorded_data_is_read_back(tokenizer: Any, tmp_path: Path) -> None:
    best, worst = trace(tokenizer, "it is 42", 1.0, tags=frozenset({"sample"})), trace(tokenizer, "no idea", 0.0)
    gone = trace(tokenizer, "silence", 0.5)
    written = RunRecorder(tmp_path, tokenizer, traces=10)
    written.info(config={"method": "grpo"}, state="finished")
    group = Group(task(), [best, worst], pairs=[(0, 1)])
    written.step(
        report(0, [group], (Dropped(group.task, gone, "above(0.5)"),), reward=0.5, odd=float("nan"), count=3),
        {"heldout/accuracy": 0.25},
    )
    written.event("saved", "a checkpoint", step=0)
    written.close()
    with open_store(tmp_path) as store:
        assert store.metrics() == [{"step": 1, "reward": 0.5, "odd": None, "count": 3, "heldout/accuracy": 0.25}]
        assert store.timings() == [{"step": 1, "learn": 0.25, "total": 0.5}]
        assert store.config() == {"method": "grpo"} and store.state() == "finished"
        assert [(e["kind"], e["text"]) for e in store.events() if e["level"] == "info"] == [("saved", "a checkpoint")]
        first, second, third = store.traces()
        assert [t["text"] for t in (first, second, third)] == ["it is 42", "no idea", "silence"]
        assert [t["dropped"] for t in (first, second, third)] == [None, None, "above(0.5)"]
        assert first["prompt"] == "what?" and first["given"] == {"answer": "42"} and first["tags"] == ["sample"]
        assert first["scores"] == {"reward": 1.0, "style": 2.0} and first["advantage"] == 0.5
        runs = [[7, len(best.turns[1]) - 1], [8, 1]]
        assert [(turn["author"], turn["versions"]) for turn in first["turns"]] == [("task", []), ("policy", runs)]
        tokens = store.trace(first["id"])["tokens"]
        assert tokens["ids"] == best.tokens.tolist() and "".join(tokens["pieces"]) == "what?it is 42"
        prompt = len(best.turns[0])
        assert tokens["logp"][:prompt] == [None] * prompt and tokens["logp"][prompt:][:2] == [-1.0, -2.0]
        assert tokens["streams"]["adv"][:prompt] == [None] * prompt and set(tokens["streams"]["adv"][prompt:]) == {0.5}
        assert store.groups()[0]["traces"][0]["reward"] == 1.0


def test_numbers_that_are_not_finite_are_null_in_what_rows_and_parts_gave(tokenizer: Any, tmp_path: Path) -> None:
    """JSON has no NaN: a browser and SQLite refuse the whole text."""
    odd = replace(task(), given={"answer": "42", "score": float("nan"), "deep": [{"x": float("inf")}, 1.5]})
    said = trace(tokenizer, "it is 42", 1.0)
    said.note["odd"] = {"y": float("-inf")}
    written = RunRecorder(tmp_path, tokenizer, traces=10)
    written.step(report(0, [Group(odd, [said])]), {})
    written.close()
    with open_store(tmp_path) as store:
        (found,) = store.traces()
        assert found["given"] == {"answer": "42", "score": None, "deep": [{"x": None}, 1.5]}
        assert found["note"] == {"stopped": "stop", "odd": {"y": None}}
        ((answer,),) = [tuple(row.values()) for row in store.sql("SELECT json_extract(given, '$.answer') FROM groups")]
        assert answer == "42"


def test_traces_are_filtered_and_sorted(tokenizer: Any, tmp_path: Path) -> None:
    written = RunRecorder(tmp_path, tokenizer, traces=99)
    for step in range(3):
        made = [
            trace(tokenizer, f"{word} {step}", i / 2) for i, word in enumerate(("apple", "banana", '100% "cherry"'))
        ]
        written.step(report(step, [Group(task(f"task {step}", f"prompt number{step}"), made)]), {})
    written.close()
    with open_store(tmp_path) as store:
        assert [t["text"] for t in store.traces(search="banana")] == ["banana 0", "banana 1", "banana 2"]
        assert [t["text"] for t in store.traces(search="banan", order="newest", limit=2)] == ["banana 2", "banana 1"]
        assert len(store.traces(search="prompt number1")) == 3 and not store.traces(search="durian")
        for odd in ('"', "'", '"cherry"', "a* OR b", "NEAR(", "col:x", "--", "%"):
            store.traces(search=odd)
        assert len(store.traces(search='"cherry"')) == 3
        assert [t["reward"] for t in store.traces(step=1, order="best")] == [1.0, 0.5, 0.0]
        assert {t["reward"] for t in store.traces(least=0.4, most=0.6)} == {0.5}
        assert len(store.traces(task="task 2")) == 3 and store.traces(dropped=True) == []
        assert [t["id"] for t in store.traces(limit=2, offset=4)] == [5, 6]
        assert store.count() == 9


def test_search_without_fts5_gives_the_same_results(
    tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("burnish.store.schema.SEARCH", "CREATE VIRTUAL TABLE search USING no_such_module (x)")
    written = RunRecorder(tmp_path, tokenizer, traces=9)
    written.step(report(0, [Group(task(), [trace(tokenizer, "100% sure"), trace(tokenizer, "100 per cent")])]), {})
    written.close()
    with open_store(tmp_path) as store:
        assert [t["text"] for t in store.traces(search="100%")] == ["100% sure"]
        assert len(store.traces(search="what")) == 2


def test_recorded_tokens_are_limited(tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("burnish.store.rows.MOST_TOKENS", 30)
    written = RunRecorder(tmp_path, tokenizer, traces=99)
    written.step(report(0, [Group(task(str(i)), [trace(tokenizer, "x" * 15)]) for i in range(5)]), {})
    written.close()
    with open_store(tmp_path) as store:
        assert [t["task"] for t in store.traces()] == ["0", "1"]


def test_recorded_traces_are_limited_to_whole_groups(tokenizer: Any, tmp_path: Path) -> None:
    written = RunRecorder(tmp_path, tokenizer, traces=3)
    written.step(report(0, [Group(task(str(i)), [trace(tokenizer, "a"), trace(tokenizer, "b")]) for i in range(5)]), {})
    written.close()
    with open_store(tmp_path) as store:
        assert [t["task"] for t in store.traces()] == ["0", "0", "1", "1"]


def test_a_later_step_cannot_change_recorded_traces(tokenizer: Any, tmp_path: Path) -> None:
    """Replayed traces get new scores and streams in later steps, possibly before the writer thread reads them."""
    held = trace(tokenizer, "held", 0.25)
    written = RunRecorder(tmp_path, tokenizer, traces=9)
    written.step(report(0, [Group(task(), [held])]), {})
    held.scores["reward"], held.streams["adv"], held.note["stopped"] = 9.0, torch.zeros(len(held)), "no"
    written.close()
    with open_store(tmp_path) as store:
        (found,) = store.traces()
        assert found["reward"] == 0.25 and found["note"] == {"stopped": "stop"} and found["advantage"] == -0.25


def test_characters_split_over_tokens_are_decoded(tokenizer: Any) -> None:
    pieces, ids = Pieces(tokenizer), tokenizer.encode("naïve ☃ 雪")
    pieces.learn(ids)
    assert pieces.text(ids) == "naïve ☃ 雪"
    assert [piece for _, piece in pieces.new] and len(pieces.new) == len(set(ids))


def test_cut_deletes_later_steps_and_their_search_entries(tokenizer: Any, tmp_path: Path) -> None:
    for last in (3, 2):
        written = RunRecorder(tmp_path, tokenizer, traces=9)
        start = 0 if last == 3 else 1
        for step in range(start, last):
            written.step(report(step, [Group(task(), [trace(tokenizer, f"word{step}")])], reward=step), {})
        written.close()
        if last == 3:
            cut(tmp_path, 1)
            with open_store(tmp_path) as store:
                assert [m["step"] for m in store.metrics()] == [1] and store.count() == 1
                assert not store.traces(search="word2") and store.traces(search="word0")
    with open_store(tmp_path) as store:
        assert [t["id"] for t in store.traces()] == [1, 2] and [m["reward"] for m in store.metrics()] == [0, 1]
        assert len(store.traces(search="word1")) == 1
        store.sql("SELECT 1")
    db = connect(tmp_path / FILE)
    db.execute(
        "INSERT INTO search (search) VALUES ('integrity-check')"
    )  # raises if the full-text index is inconsistent
    db.close()


def test_a_write_error_is_raised_at_the_next_step(
    tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Any, db: Any, step: Any) -> None:
        raise OSError(28, "No space left on device")

    written = RunRecorder(tmp_path, tokenizer, traces=9)
    written.flush()
    monkeypatch.setattr(recorders.RunRecorder, "_write_step", full)
    written.step(report(0, []), {})
    with pytest.raises(
        ValueError, match=r"could not write .*store.sqlite: .*No space left.*; free some disk space and use --resume"
    ):
        written.flush()
    with pytest.raises(ValueError, match="could not write"):
        written.step(report(1, []), {})
    with pytest.raises(ValueError, match="could not write"):
        written.close()


def test_a_failing_sink_is_disabled_with_a_warning(tokenizer: Any, tmp_path: Path) -> None:
    class Broken:
        name, heard = "broken", 0

        def log(self, step: int, numbers: dict[str, float]) -> None:
            self.heard += 1
            raise ConnectionError("nobody there")

        def close(self) -> None: ...

    sink = Broken()
    written = RunRecorder(tmp_path, tokenizer, traces=9, sinks=[sink])
    for step in range(3):
        written.step(report(step, [], reward=0.5), {})
    written.close()
    with open_store(tmp_path) as store:
        assert len(store.metrics()) == 3 and sink.heard == 1
        assert [e["text"] for e in store.events()] == [
            "broken failed and is disabled for the rest of this run: ConnectionError: nobody there"
        ]


def test_orders_are_received_once(tmp_path: Path) -> None:
    connect(tmp_path / FILE).close()
    order(tmp_path, "stop")  # from before the run: not for this one
    orders = Orders(tmp_path)
    assert orders.poll() == []
    order(tmp_path, "pause")
    order(tmp_path, "resume")
    assert orders.poll() == ["pause", "resume"] and orders.poll() == []
    orders.close()
    with pytest.raises(ValueError, match="no order 'explode'; the orders are pause, resume, checkpoint, stop"):
        order(tmp_path, "explode")
    with pytest.raises(ValueError, match="not the folder of a run"):
        order(tmp_path / "nowhere", "stop")


def test_find_runs_yields_only_run_folders(tmp_path: Path) -> None:
    for name in ("a", "b/c", ".hidden/d", "plain"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("a", "b/c", ".hidden/d"):
        connect(tmp_path / name / FILE).close()
    assert [str(path.relative_to(tmp_path)) for path in find_runs(tmp_path)] == ["a", "b/c"]
    assert list(find_runs(tmp_path / "a")) == [tmp_path / "a"]
    with pytest.raises(ValueError, match=r"has no store.sqlite: it is not the folder of a run"):
        open_store(tmp_path / "plain")
    (tmp_path / "plain" / FILE).write_bytes(b"not a database, but long enough to look at" * 50)
    with pytest.raises(ValueError, match="cannot be read"):
        open_store(tmp_path / "plain")


@pytest.mark.parametrize("refills", [0, 2])
def test_why_a_group_was_dropped_is_recorded(refills: int, small_model: Path, tmp_path: Path) -> None:
    """DAPO drops groups with zero variance, also among the refilled ones; each is recorded once."""
    reward = function(tmp_path / "r.py", COIN, "coin")
    go("dapo", small_model, tmp_path / "run", reward=reward, n=2, prompts=6, refills=refills)
    with open_store(tmp_path / "run") as store:
        dropped, metrics = store.traces(dropped=True, limit=None), store.metrics()
        assert {trace["dropped"] for trace in dropped} == {"mixed"} and store.traces(dropped=False)
        for group in store.groups(limit=None):
            same = len({trace["reward"] for trace in group["traces"]}) == 1
            assert all((trace["dropped"] == "mixed") == same for trace in group["traces"])
        assert store.count() == 2 * (2 * 6 + sum(step.get("refilled", 0) for step in metrics))


def test_why_a_trace_was_dropped_is_recorded(small_model: Path, tmp_path: Path) -> None:
    """RAFT trains on the best trace of each group; the store has the others too, with the part that dropped them."""
    reward = function(tmp_path / "r.py", COIN, "coin")
    go("raft", small_model, tmp_path / "run", reward=reward, n=3, prompts=4)
    with open_store(tmp_path / "run") as store:
        for group in store.groups(limit=None):
            assert [trace["dropped"] for trace in group["traces"]] == [None, "keep_best(1)", "keep_best(1)"]
            assert group["traces"][0]["reward"] == max(trace["reward"] for trace in group["traces"])


KILLED = """
import sys, time, burnish
from pathlib import Path
from burnish.run.train import Observer

class Watching(Observer):
    def stepped(self, report, heldout, seconds):
        print(report.clock.step, flush=True)
        if report.clock.step == 7:
            time.sleep(600)  # it is killed while it waits here, or before

burnish.train("sft", model=sys.argv[1], out=sys.argv[2], steps=400, prompts=2, max_new_tokens=6, eval_tasks=0,
              save_every=3, lr=1e-3,
              task="sort", device="cpu", observer=Watching())
"""


def test_a_killed_run_leaves_whole_steps_and_resumes_exactly(small_model: Path, tmp_path: Path) -> None:
    from burnish.api.train import resume

    straight, killed = tmp_path / "straight", tmp_path / "killed"
    words = [sys.executable, "-c", KILLED, str(small_model), str(killed)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if int(line) == 7:
            break
    os.kill(process.pid, signal.SIGKILL)
    process.wait(timeout=30)
    with open_store(killed) as store:
        assert store.state() == "failed"  # recorded as running, but the process is dead
        steps = [m["step"] for m in store.metrics()]
        assert (
            steps == list(range(1, len(steps) + 1)) and len(steps) >= 6
        )  # nothing before the last checkpoint is missing
        assert {t["step"] for t in store.traces(limit=None)} == set(steps)
        assert store.sql("PRAGMA integrity_check")[0]["integrity_check"] == "ok"
    resume(killed, steps=9)
    options: dict[str, Any] = {"steps": 9, "save_every": 3, "keep": 2}
    go("sft", small_model, straight, **options)
    assert recorded(killed) == recorded(straight)


def test_facts_about_a_run_are_recorded(small_model: Path, tmp_path: Path) -> None:
    go("sft", small_model, tmp_path / "run")
    with open_store(tmp_path / "run") as store:
        info = store.info()
    assert info["config"]["method"] == "sft" and info["config"]["steps"] == 2
    assert {"python", "torch", "burnish", "platform", "cores", "command"} <= info["environment"].keys()
    assert info["state"] == "finished" and time.time() - info["created"] < 600
    assert info["git"] is None or len(info["git"]["commit"]) == 40
    json.dumps(info)


@pytest.mark.parametrize("token_budget", [8192, 24])
def test_token_entropies_are_recorded(token_budget: int, small_model: Path, tmp_path: Path) -> None:
    """The entropies that the update computed anyway: those of the weights that sampled, on reply tokens alone.

    Checked against a forward pass of the untrained model, however the batch is cut into passes.
    """
    from transformers import AutoModelForCausalLM

    reward = function(tmp_path / "r.py", COIN, "coin")
    go("grpo", small_model, tmp_path / "run", reward=reward, n=4, steps=1, token_budget=token_budget)
    model = AutoModelForCausalLM.from_pretrained(str(small_model), dtype=torch.float32)
    with open_store(tmp_path / "run") as store:
        traces = [store.trace(row["id"]) for row in store.traces(limit=None)]
        mean = store.metrics()[0]["pg/entropy"]
    means = []
    for found in traces:
        entropy, prompt = found["tokens"]["streams"]["entropy"], found["turns"][0]["tokens"]
        logs = model(torch.tensor([found["tokens"]["ids"]])).logits[0].log_softmax(-1)
        by_hand = (-(logs.exp() * logs).sum(-1))[prompt - 1 : -1].tolist()
        assert entropy[:prompt] == [None] * prompt
        assert entropy[prompt:] == pytest.approx(by_hand, abs=1e-4)
        means.append(sum(by_hand) / len(by_hand))
    assert sum(means) / len(means) == pytest.approx(mean, abs=1e-4)


def test_find_runs_skips_unreadable_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """os.listdir is patched to fail, because root can read every folder."""
    (tmp_path / "open").mkdir()
    (tmp_path / "open" / FILE).write_text("")
    (tmp_path / "shut").mkdir()
    listed = os.listdir

    def listdir(path: Any) -> list[str]:
        if Path(path).name == "shut":
            raise PermissionError(13, "Permission denied")
        return listed(path)

    monkeypatch.setattr(os, "listdir", listdir)
    assert list(find_runs(tmp_path)) == [tmp_path / "open"]
    assert list(find_runs("x" * 5000)) == []
