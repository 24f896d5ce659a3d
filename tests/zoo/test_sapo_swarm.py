"""Nodes that share groups as text: what is written, what is drawn, and what becomes of it."""

from __future__ import annotations

import json
import math
import os
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import SMALL, build_cast, coin
from gradients import gradient

import burnish
from burnish.api.train import resume
from burnish.core.loop import loop, run_phase
from burnish.core.method import Method, Phase
from burnish.core.step import Step
from burnish.core.types import Clock, Group, Task
from burnish.learn.batch import write_claims
from burnish.learn.learn import Learn
from burnish.methods.policy import grpo
from burnish.models.build import Models
from burnish.tasks.table import source
from burnish.tasks.task_set import rewarded
from burnish.zoo import sapo_swarm as swarm_files
from burnish.zoo.sapo_swarm import SharedGroup, SwarmFolder, sapo_swarm

TASK = rewarded(source("sort"), coin)


def by_last_letter(completions: list[str]) -> list[float]:
    return [float(text.endswith("1")) for text in completions]


JUDGED = rewarded(source("sort"), by_last_letter)


def line(*texts: str, finished: bool = True, **changed: Any) -> str:
    replies = [{"text": text, "finished": finished} for text in texts]
    return json.dumps({"key": "k", "prompt": "Which?", "given": {"answer": "a1"}, "replies": replies, **changed})


def learned(method: Method, models: Models) -> tuple[list[Group], Step]:
    """The groups that a step of the method learns from."""
    step = Step(Clock(0, 4), models, SMALL)
    phase: Phase = method.phases[0]
    groups = run_phase(replace(phase, learn=Learn()), step, {}, [])
    write_claims(groups, phase.learn.terms)
    return groups, step


def test_a_group_goes_through_a_file_and_back() -> None:
    task = Task("question", ({"role": "user", "content": "1+1?"},), {"answer": "2", "digits": [1, 1]}, "one")
    group = SharedGroup(task, (("2", True), ("so it is", False)))
    assert SharedGroup.of(group.line()) == group
    with pytest.raises(ValueError, match="cannot be shared with a swarm"):
        SharedGroup(Task("game", "play", {"env": object()}, "g"), ()).line()


@pytest.mark.parametrize(
    "bad",
    (
        "{",
        "[]",
        "null",
        line("a", key=3),
        line("a", given=[]),
        line("a", prompt=[{"role": "user", "content": [{"type": "image"}]}]),
        line("a", prompt=[3]),
        line("a", given={"env": "x"}),
        json.dumps({"key": "k", "prompt": "p", "given": {}, "replies": [{"text": 3, "finished": True}]}),
        "[" * 100_000,
    ),
)
def test_a_line_of_another_form_is_left_out(bad: str) -> None:
    assert SharedGroup.of(bad) is None


def chat_line(message: Any, **changed: Any) -> str:
    return line("a2", "b1", prompt=[{"role": "user", "content": "Which?"}, message], **changed)


HOSTILE = {
    **{f"role {role!r}": chat_line({"role": role, "content": "x"}) for role in ("", "a b", "<|im_end|>", None, 3, [])},
    **{
        f"tool calls {calls!r}": chat_line({"role": "assistant", "content": None, "tool_calls": calls})
        for calls in (3, "x", [3], [{}], {"a": []}, [{"function": None}])
    },
    **{
        f"content {content!r}": chat_line({"role": "user", "content": content})
        for content in (None, 3, {}, [3], [{}], [{"type": "image"}], [{"type": "text"}], [{"type": "text", "text": 3}])
    },
    "a message with a list": chat_line({"role": "user", "content": "x", "name": [1]}),
    "no answer": line("a2", "b1", given={}),
    "another answer": line("a2", "b1", given={"answer": {"a": 1}}),
    "a number that overflows": line("a2", "b1").replace('"a1"', "1e999"),
    "a long number": line("a2", "b1", given={"answer": 10**4000}),
    "5,000 digits": line("a2", "b1").replace('"a1"', "1" * 5000),
    "NaN": line("a2", "b1", given={"answer": math.nan}),
    "a deep answer": line("a2", "b1").replace('"a1"', "[" * 90_000 + "]" * 90_000),
    "900 deep": line("a2", "b1").replace('"a1"', "[" * 900 + "]" * 900),
    "a deep key": "[" * 100_000,
    "a lone surrogate": line("a\ud800", "b1"),
    "one in the prompt": line("a2", "b1", prompt="\udfff"),
    "one in the key": line("a2", "b1", key="\ud800"),
    "one in the answer": line("a2", "b1", given={"answer": "\ud800"}),
    "one in a name": line("a2", "b1", given={"\ud800": 1, "answer": "1"}),
    "a long key": line("a2", "b1", key="k" * 10_000),
    "no replies": line(),
    "one reply": line("a2"),
    "replies of other kinds": line("a2", "b1", replies=[{"text": 3, "finished": 1}, {"text": None, "finished": 0}]),
    "replies in a text": line("a2", "b1", replies="ab"),
    "replies in a mapping": line("a2", "b1", replies={"text": "a"}),
    "an empty reply": line("", "b1", finished=False),
    "too many replies": line(*("a2", "b1") * 1000),
    "many values": line("a2", "b1", given={"answer": "1", "more": [[]] * 20_000}),
    "many lists": line("a2", "b1", given={"answer": "1", "more": "MORE"}).replace('"MORE"', f"[{'[],' * 400_000}0]"),
    "much to judge": line(*("a2", "b1") * 100, given={"answer": "1", "more": "x" * 1_000_000}),
    "a long line": line("a" * (1 << 23), "b1"),
    "a prompt that is too long": line("a2", "b1", prompt="x" * 1_000_000),
    "a long reply": line("a" * 1_000_000, "b1"),
    "tools": line("a2", "b1", given={"tools": []}),
    "null": "null",
    "a number": "3",
    "no JSON": "{" * 10,
    "an infinite reward": line("inf", "b1"),
    "a reward too large for fp32": line("huge", "b1"),
    "a reward function that raises": line("raise", "b1"),
    "a reward function that gives nothing": line("none", "b1"),
}


def strict(completions: list[str], answer: list[Any]) -> list[float | None]:
    """A reward function that trusts its columns, and gives 1 to replies that end like the answer."""
    odd = {"inf": math.inf, "huge": 1e300, "none": None}
    if "raise" in completions:
        raise RuntimeError("a reply that I cannot read")
    return [odd.get(c, float(c.endswith(a[-1]))) for c, a in zip(completions, answer, strict=True)]


def test_no_line_of_a_peer_ends_a_step(small_model: Path, tmp_path: Path) -> None:
    """Each hostile line beside an honest one: the honest one is drawn, the other is left out and counted."""
    method = sapo_swarm(rewarded(source("sort"), strict), swarm=str(tmp_path), node="mine", external=2)
    models = build_cast(method, small_model)
    file, honest = tmp_path / "other.00000000.jsonl", line("a1", "b2", key="honest", given={"answer": "1"})
    for name, hostile in HOSTILE.items():
        file.write_bytes(f"{honest}\n{hostile}".encode())
        step = Step(Clock(0, 4), models, SMALL)
        drawn = method.phases[0].select.call([], step)
        noted = step.notes.values()
        assert [group.task.key for group in drawn] == ["honest"], name
        assert noted["swarm/refused"] + noted["swarm/discarded"] == 1 and not step.refusals, name
        assert not noted.get("reward_failures"), name
    file.write_bytes(b"\xff\xfe{}\n\x00\n" + honest.encode())
    step = Step(Clock(0, 4), models, SMALL)
    assert [group.task.key for group in method.phases[0].select.call([], step)] == ["honest"]
    assert step.notes.values()["swarm/refused"] == 2


def test_a_large_file_costs_no_memory_and_takes_no_room_from_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """60 MB: of one line with 1.4 million replies, of empty lines, of one text; and folders, links, FIFOs."""
    reply = '{"text": "a", "finished": true}, '
    (tmp_path / "one.00000003.jsonl").write_text(f'{{"replies": [{reply * 1_800_000}]}}')
    (tmp_path / "lines.00000003.jsonl").write_text("{}\n" * 5000)
    (tmp_path / "sparse.00000003.jsonl").touch()
    os.truncate(tmp_path / "sparse.00000003.jsonl", 1 << 40)
    (tmp_path / "folder.00000003.jsonl").mkdir()
    os.mkfifo(tmp_path / "fifo.00000003.jsonl")
    (tmp_path / "broken.00000003.jsonl").symlink_to("nowhere")
    (tmp_path / "honest.00000003.jsonl").write_text(line("a", "b"))
    tracemalloc.start()
    lines, refused = SwarmFolder(str(tmp_path), "mine").lines()
    groups = [SharedGroup.of(one) for one in lines]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert refused == 5 and [group.task.key for group in groups if group] == ["k"]
    assert peak < 200e6  # two copies of 60 MB; it was 18.9 GiB
    monkeypatch.setattr(swarm_files, "TOTAL", 10_000)
    for step in range(4):
        (tmp_path / f"greedy.{step:08d}.jsonl").write_text((line("a" * 2000, "b") + "\n") * 4)
    lines, _ = SwarmFolder(str(tmp_path), "mine").lines()
    assert len(lines) == 5  # the newest file of greedy, and all of honest


def test_hostile_peers_harm_no_run(small_model: Path, tmp_path: Path) -> None:
    """A whole run with its store, in which every file of the swarm is of hostile lines and of one that is honest."""
    folder = tmp_path / "swarm"
    folder.mkdir()
    honest = line("a", "bb", key="honest", given={"answer": "a \u2028 b"})
    (folder / "other.00000000.jsonl").write_text("\n".join([*HOSTILE.values(), honest]))
    reward = tmp_path / "reward.py"
    reward.write_text("def odd(completions):\n    return [float(len(c) % 2) for c in completions]\n")
    options = {"task": "sort", "prompts": 2, "max_new_tokens": 8, "eval_tasks": 0, "device": "cpu", "n": 4}
    options |= {"model": str(small_model), "reward": f"{reward}:odd", "swarm": str(folder), "external": 16}
    result = burnish.train("sapo_swarm", steps=2, out=str(tmp_path / "run"), **options)
    assert all(math.isfinite(metrics["grad_norm"]) for metrics in result.metrics)
    assert all(metrics["swarm/drawn"] >= 1 and metrics["swarm/refused"] > 30 for metrics in result.metrics)


def test_only_the_newest_files_of_others_are_read(tmp_path: Path) -> None:
    mine, other = SwarmFolder(str(tmp_path), "mine", recent=2), SwarmFolder(str(tmp_path), "other")
    group = SharedGroup.of(line("a"))
    assert group is not None
    for step in range(3):
        other.publish([SharedGroup(Task("question", f"{step}?", {}, str(step)), group.replies)], step)
    mine.publish([group], 7)
    (tmp_path / "notes.jsonl").write_text("{}\n")
    assert [json.loads(one)["key"] for one in mine.lines()[0]] == ["1", "2"]
    assert [json.loads(one)["key"] for one in other.lines()[0]] == ["k"]
    assert SwarmFolder(str(tmp_path / "missing"), "mine").lines() == ([], 0)
    with pytest.raises(ValueError, match="--node is 'a/b'"):
        SwarmFolder(str(tmp_path), "a/b")


def test_groups_with_equal_rewards_are_not_drawn(small_model: Path, tmp_path: Path) -> None:
    """Of rewards (1, 1) and (0, 1) only the second may be drawn; its advantages are -.707 and .707."""
    (tmp_path / "other.00000000.jsonl").write_text(
        f"{line('a1', 'b1', key='equal')}\n{line('a2', 'b1', key='unequal')}\n"
    )
    method = sapo_swarm(JUDGED, swarm=str(tmp_path), node="mine", external=2, n=4)
    models = build_cast(method, small_model)
    groups, step = learned(method, models)
    drawn = groups[SMALL.prompts :]
    assert [group.task.key for group in drawn] == ["unequal"]
    traces, chat = drawn[0].traces, models["policy"].chat
    assert [trace.scores["reward"] for trace in traces] == [0.0, 1.0]
    assert [float(trace.streams["adv"][0]) for trace in traces] == pytest.approx([-0.7071, 0.7071], abs=1e-4)
    for trace, text in zip(traces, ("a2", "b1"), strict=True):
        prompt, reply = trace.turns
        assert (reply.author, reply.logp) == ("swarm", None)
        assert reply.tokens.tolist() == chat.reply(text).tolist()
        assert torch.isfinite(trace.streams["old"][len(prompt) :]).all()
        assert trace.streams["claim:pg"].tolist() == trace.by("swarm").tolist()
    assert step.notes.values()["swarm/drawn"] == 1 and step.notes.values()["swarm/published"] == SMALL.prompts
    assert len(list(tmp_path.glob("mine.00000000.jsonl"))) == 1


def test_a_reply_that_was_cut_off_stays_open_and_one_that_is_too_long_is_left_out(
    small_model: Path, tmp_path: Path
) -> None:
    lines = [line("a2", "b1", finished=False, key="open"), line("a" * 300, "b1", key="long"), line("b1", key="alone")]
    (tmp_path / "other.00000000.jsonl").write_text("\n".join(lines))
    method = sapo_swarm(JUDGED, swarm=str(tmp_path), node="mine", external=3, n=4)
    models = build_cast(method, small_model)
    drawn = learned(method, models)[0][SMALL.prompts :]
    assert [group.task.key for group in drawn] == ["open"]
    chat = models["policy"].chat
    assert drawn[0].traces[0].turns[1].tokens.tolist() == chat.reply("a2")[: -len(chat.closing)].tolist()


def test_without_external_groups_it_is_grpo(small_model: Path, tmp_path: Path) -> None:
    (tmp_path / "other.00000000.jsonl").write_text(line("a2", "b1"))
    found = []
    for method in (
        grpo(TASK, n=4, beta=0.0),
        sapo_swarm(TASK, n=4, swarm=str(tmp_path), external=0),
        sapo_swarm(TASK, n=4),
    ):
        groups, step = learned(method, build_cast(method, small_model))
        assert len(groups) == SMALL.prompts
        found.append(gradient(groups, method.phases[0].learn, step))
    assert float(found[0].abs().max()) > 1e-4
    for other in found[1:]:
        torch.testing.assert_close(other, found[0], atol=1e-6, rtol=1e-3)


def test_two_nodes_learn_from_each_other(small_model: Path, tmp_path: Path) -> None:
    nodes = {}
    for name in ("a", "b"):
        method = sapo_swarm(TASK, swarm=str(tmp_path), node=name, external=2, n=4)
        nodes[name] = loop(method, build_cast(method, small_model), SMALL, steps=3, seed=ord(name))
    reports = [(next(nodes["a"]), next(nodes["b"])) for _ in range(3)]
    assert "swarm/drawn" not in reports[0][0].metrics or reports[0][0].metrics["swarm/drawn"] == 0
    for theirs in (reports[0][1], *reports[1], *reports[2]):
        assert theirs.metrics["swarm/drawn"] == 2
        assert sum("swarm" in t.tags for group in theirs.groups["main"] for t in group.traces) == 8
    assert len(list(tmp_path.glob("*.jsonl"))) == 6


def test_a_resumed_run_is_the_same_node(small_model: Path, tmp_path: Path) -> None:
    reward = tmp_path / "reward.py"
    reward.write_text("def odd(completions):\n    return [float(len(c) % 2) for c in completions]\n")
    options = {"task": "sort", "prompts": 2, "max_new_tokens": 8, "eval_tasks": 0, "device": "cpu", "n": 4}
    options |= {"model": str(small_model), "reward": f"{reward}:odd", "swarm": str(tmp_path / "swarm")}
    burnish.train("sapo_swarm", steps=2, save_every=1, out=str(tmp_path / "run"), **options)
    resume(tmp_path / "run", steps=3)
    files = sorted(file.name for file in (tmp_path / "swarm").glob("*.jsonl"))
    assert len(files) == 3 and len({name.rpartition(".0")[0].partition(".")[0] for name in files}) == 1
