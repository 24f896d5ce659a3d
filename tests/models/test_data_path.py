"""Texts are encoded once, and steps are drawn ahead: with the same result as without."""

from __future__ import annotations

import json
import os
import stat
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import SMALL, make_model

from burnish import draw, rollout
from burnish.core.loop import loop
from burnish.core.prefetch import DEPTH, Prefetcher
from burnish.core.step import Settings, Step
from burnish.core.task import Task
from burnish.core.types import Clock, Group
from burnish.methods.table import METHODS
from burnish.models import text_cache
from burnish.models.build import Models, build
from burnish.models.chat import Chat
from burnish.models.load import load_chat
from burnish.models.text_cache import Piece, TextCache, text_key
from burnish.run.encoded import remember_texts
from burnish.run.lengths import Needs, fit
from burnish.tasks.data import Dataset
from burnish.tasks.table import source
from burnish.util import private_cache

DEMOS = [{"prompt": f"What is {n}?", "completion": f"It is {n}, <|end|> or {n + 1}."} for n in range(40)]
PAIRS = [{"prompt": f"Say {n}", "chosen": f"{n}!", "rejected": "no " * (n % 7)} for n in range(40)]
TALKS: list[dict[str, Any]] = [
    {
        "messages": [
            {"role": "user", "content": f"Hello {n}"},
            {"role": "assistant", "content": f"Hi {n}", "weight": 0.5},
            {"role": "user", "content": "And?"},
            {"role": "assistant", "content": "Bye"},
        ]
    }
    for n in range(40)
]
TEXTS = [{"text": f"Once upon a time {n} birds sang."} for n in range(40)]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BURNISH_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model"))


def written(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def tokens(groups: list[Group]) -> list[tuple[str, list[int], Any]]:
    traces = [(trace.note, turn) for group in groups for trace in group.traces for turn in trace.turns]
    return [(turn.author, turn.tokens.tolist(), note) for note, turn in traces]


class Read:
    """The given replies of one step, by a tokenizer."""

    def __init__(self, data: Dataset, rolls: Any, chat: Chat, prompts: int = 40) -> None:
        self.step = Step(Clock(0, 1), {"policy": _Reader(chat)}, replace(SMALL, prompts=prompts))  # type: ignore[arg-type]
        self.data, self.rolls = data, rolls

    def __call__(self) -> list[tuple[str, list[int], Any]]:
        return tokens(self.rolls.call(draw.prompts(self.data, "demo").call(self.step), self.step))


class _Reader:
    context = 256

    def __init__(self, chat: Chat) -> None:
        self.chat = chat


@pytest.mark.parametrize("rows", [DEMOS, TALKS, TEXTS], ids=["demos", "conversations", "texts"])
def test_texts_from_memory_and_from_disk_are_those_of_the_tokenizer(
    rows: list[dict[str, Any]], model: Path, home: Path, tmp_path: Path
) -> None:
    data, chat = Dataset(written(tmp_path / "rows.jsonl", rows), heldout=0), load_chat(model, None)
    read = Read(data, rollout.demonstrated(), chat)
    fresh = read()
    remember_texts(data, chat)
    assert chat.texts is not None
    first, again = read(), read()
    encoded = chat.texts.encoded
    chat.texts.save(worth=0.0)
    assert [file.name for file in (home / "texts").iterdir()] == [f"{chat.texts.name}-0.safetensors"]
    remember_texts(data, chat)
    assert read() == again == first == fresh
    assert encoded >= 40 and chat.texts.encoded == 0


def test_a_row_that_changes_is_encoded_again(model: Path, home: Path) -> None:
    chat = load_chat(model, None)
    chat.texts = TextCache("name")
    old = chat.prompt(Task("question", "one", {}, "k"))
    chat.texts.save(worth=0.0)
    chat.texts = TextCache("name")
    new = chat.prompt(Task("question", "two", {}, "k"))
    assert chat.texts.encoded == 1 and not torch.equal(old, new)
    assert torch.equal(new, load_chat(model, None).prompt(Task("question", "two", {}, "k")))
    chat.prompt(Task("question", "one", {"tools": [{"name": "a"}]}, "k"))  # other tools, another prompt
    assert chat.texts.encoded == 2


def test_files_are_filled_one_after_the_other_and_memory_is_limited(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_cache, "IN_MEMORY", 8)
    cache = TextCache("name")

    def entry(n: int) -> list[list[Piece]]:
        made = [[Piece(torch.arange(n), 0.5), Piece(torch.zeros(0, dtype=torch.long), 0.0)], [Piece(torch.ones(1), 1)]]
        return made if n else []

    for n in (4, 3, 0, 5, 2):
        cache.samples(text_key(n), lambda n=n: entry(n))
    assert len(list((home / "texts").glob("name-*.safetensors"))) == len(cache._files) >= 2
    assert cache._new_tokens <= 8
    cache.save(worth=0.0)
    again = TextCache("name")
    for n in (4, 3, 0, 5, 2):
        found = again.samples(text_key(n), lambda: pytest.fail("it is in the cache"))
        assert [[(p.tokens.tolist(), p.weight) for p in s] for s in found] == [
            [(p.tokens.tolist(), p.weight) for p in s] for s in entry(n)
        ]
    monkeypatch.setattr(text_cache, "ON_DISK", 0)
    full = TextCache("other")
    for n in (6, 5, 7):
        full.samples(text_key(n), lambda n=n: entry(n))
    assert full._new_tokens <= 8 and not list((home / "texts").glob("other-*"))


def spoil(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(bytes(content))


def link(file: Path) -> None:
    moved = file.with_name("elsewhere")
    file.rename(moved)
    file.symlink_to(moved)


@pytest.mark.parametrize(
    "harm",
    [
        spoil,
        link,
        lambda file: file.write_bytes(file.read_bytes()[:50]),
        lambda file: file.chmod(0o622),
        lambda file: file.parent.chmod(0o777),
        lambda file: os.environ.__setitem__("BURNISH_CACHE", "0"),
    ],
    ids=["one bit", "a link", "cut off", "others write the file", "others write the folder", "off"],
)
def test_a_cache_that_others_may_have_written_is_not_read(
    harm: Callable[[Path], object], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BURNISH_CACHE", "1")
    assert private_cache.keep("texts", "a", {"x": np.arange(9, dtype=np.int32)})
    file = home / "texts" / "a.safetensors"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    found = private_cache.recall("texts", "a")
    assert found is not None and found.array("x").tolist() == found.part("x").tolist() == list(range(9))
    harm(file)
    assert private_cache.recall("texts", "a") is None


def entries(add: int) -> TextCache:
    """Entries 0, 1, ... 19 of 50 tokens each, which are k + add."""
    cache = TextCache("name")
    cache._files = []
    for k in range(20):
        cache.tokens(text_key(k), lambda k=k: torch.full((50,), k + add))
    return cache


def test_what_is_read_is_the_file_that_was_verified(home: Path) -> None:
    """The path has another file of the same size, with other tokens, as soon as it has been opened."""
    entries(0).save(worth=0.0)
    kept = TextCache("name")
    old = private_cache.recall("texts", "name-0", on_disk=("tokens",))
    entries(100).save(worth=0.0)
    assert old is not None and sorted(set(old.part("tokens").tolist())) == list(range(20))
    found = [kept.tokens(text_key(k), lambda: pytest.fail("it is in the cache")) for k in range(20)]
    assert [set(tokens.tolist()) for tokens in found] == [{k} for k in range(20)]


@pytest.mark.parametrize("harm", ["altered", "cut off"])
def test_a_file_that_is_altered_after_it_was_verified_is_encoded_again(harm: str, home: Path) -> None:
    entries(0).save(worth=0.0)
    cache, file = TextCache("name"), home / "texts" / "name-0.safetensors"
    assert len(cache._files) == 1
    content = file.read_bytes()
    head = 8 + int.from_bytes(content[:8], "little")
    with file.open("r+b") as opened:  # in place: it is the file that the cache has open
        opened.seek(head)
        opened.write(b"\7" * (len(content) - head) if harm == "altered" else b"")
        opened.truncate()
    found = [cache.tokens(text_key(k), lambda k=k: torch.full((50,), k)) for k in range(20)]
    assert [set(tokens.tolist()) for tokens in found] == [{k} for k in range(20)] and cache.encoded == 20


def test_a_racing_writer_gives_no_text_the_tokens_of_another(home: Path) -> None:
    """Another process writes the same name again and again, each time with the entries in another order."""
    told = {k: torch.full((50,), k) for k in range(20)}
    orders = [text_cache._arrays({text_key(j): [[Piece(told[j], 0.0)]] for j in range(start, 20)}) for start in (0, 9)]
    done = threading.Event()

    def write() -> None:
        turn = 0
        while not done.is_set():
            private_cache.keep("texts", "name-0", orders[turn % 2])
            turn += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(60):
            cache = TextCache("name")
            assert all(set(cache.tokens(text_key(k), lambda k=k: told[k]).tolist()) == {k} for k in told)
    finally:
        done.set()
        writer.join()


def test_nothing_is_written_where_the_cache_is_off(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BURNISH_CACHE", "0")
    assert not private_cache.keep("texts", "a", {"x": np.arange(3)}) and not home.exists()


def test_generated_tasks_and_templates_that_read_the_clock_are_not_kept(model: Path, tmp_path: Path) -> None:
    chat, data = load_chat(model, None), Dataset(written(tmp_path / "rows.jsonl", DEMOS))
    remember_texts(source("add"), chat)
    assert chat.texts is None
    remember_texts(Dataset(DEMOS), chat)
    assert chat.texts is not None and chat.texts.name is None  # rows of Python: in memory
    remember_texts(data, chat)
    assert chat.texts.name is not None
    clock = load_chat(model, None)
    clock.template.text = "{{ strftime_now('%d') }}" + clock.template.text
    remember_texts(data, clock)
    assert clock.texts is None


def test_cutting_long_rows_gives_what_cutting_every_row_gives(model: Path, tmp_path: Path) -> None:
    rows = [{"prompt": "p" * (10 + 7 * (n % 9)), "chosen": "c" * 30, "rejected": "r" * n} for n in range(40)]
    data = Dataset(written(tmp_path / "rows.jsonl", rows), heldout=0)
    settings = Settings(prompts=4, max_length=70, on_long="truncate")
    method = METHODS["dpo"].build(data)
    whole = [data.task("train", i) for i in range(data.size("train"))]
    models = build(method.models, model, settings, device="cpu")
    fit(data, Needs.of(method), models, "policy", settings)
    cut = data._cut["train"][0]
    found = [data.task("train", i) for i in range(data.size("train"))]
    expected = [cut(task) for task in whole]
    assert [task.prompt for task in found] == [task.prompt for task in expected if task is not None]
    assert 0 < len(data._cut["train"][1]) < len(found)


def curve(method: Any, model: Path, settings: Settings, start: int = 0, of: int = 6) -> list[dict[str, float]]:
    models = build(method.models, model, settings, device="cpu")
    return [report.metrics for report in loop(method, models, settings, steps=of, seed=3, start=start)]


@pytest.mark.parametrize("name", ["sft", "dpo"])
def test_steps_drawn_ahead_learn_the_same(
    name: str, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = Dataset(written(tmp_path / "rows.jsonl", DEMOS if name == "sft" else PAIRS))
    taken: list[bool] = []
    take = Prefetcher.take
    monkeypatch.setattr(Prefetcher, "take", lambda *a: (taken.append(True), take(*a))[1])
    straight = curve(METHODS[name].build(data), model, SMALL)
    assert len(taken) == 6
    monkeypatch.setattr(Prefetcher, "phases", [])
    assert curve(METHODS[name].build(data), model, SMALL) == straight


def test_what_is_made_ahead_is_what_the_step_would_make(model: Path, tmp_path: Path) -> None:
    data = Dataset(written(tmp_path / "rows.jsonl", DEMOS))
    method = METHODS["sft"].build(data)
    models = build(method.models, model, SMALL, device="cpu")
    phase = method.phases[0]
    with Prefetcher(method, models, SMALL, steps=5, seed=1) as ahead:
        for number in (2, 3, 4):
            ahead.begin(number)
            assert len(ahead._queued) == min(DEPTH, 4 - number) + 1
            made = ahead.take(phase, Clock(number, 5, 1))
            step = Step(Clock(number, 5, 1), models, SMALL)
            assert made is not None and made.groups is not None
            assert tokens(made.groups) == tokens(phase.rollout.call(phase.draw.call(step), step))
        assert ahead.take(phase, Clock(4, 5, 1)) is None  # each once


def test_an_error_ahead_is_raised_in_its_step(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = Dataset(written(tmp_path / "rows.jsonl", DEMOS))
    method = METHODS["sft"].build(data)
    phase = method.phases[0]

    def bad(step: Step) -> list[Task]:
        if step.clock.step == 2:
            raise ValueError("row 7 is gone")
        return phase.draw.call(step)

    broken = replace(method, phases=(replace(phase, draw=replace(phase.draw, call=bad)),))
    models: Models = build(method.models, model, SMALL, device="cpu")
    seen = []
    with pytest.raises(ValueError, match="row 7 is gone"):
        for report in loop(broken, models, SMALL, steps=4):
            seen.append(report.clock.step)
    assert seen == [0, 1]


def test_only_draws_of_datasets_are_made_ahead(model: Path) -> None:
    assert not draw.prompts(source("add")).ahead and draw.prompts(Dataset(DEMOS)).ahead
    for name in ("sft", "grpo"):
        method = METHODS[name].build(source("add"))
        models = build(method.models, model, SMALL, device="cpu")
        with Prefetcher(method, models, SMALL, steps=3, seed=0) as ahead:
            ahead.begin(0)
            assert ahead._threads is None and ahead.take(method.phases[0], Clock(0, 3)) is None


def test_sampled_replies_get_their_tasks_ahead(model: Path) -> None:
    rows = [{"prompt": f"{n}?", "answer": str(n)} for n in range(40)]
    method = METHODS["grpo"].build(Dataset(rows), n=2)
    models = build(method.models, model, SMALL, device="cpu")
    with Prefetcher(method, models, SMALL, steps=3, seed=0) as ahead:
        ahead.begin(0)
        made = ahead.take(method.phases[0], Clock(0, 3))
        assert made is not None and made.groups is None and len(made.tasks) == SMALL.prompts
