"""Replies to a prompt by several writers, each under a principle of its own: models of this run, and endpoints.

    tiny+runs/DIR/model+endpoint(https://HOST/v1, NAME)

UltraFeedback (arXiv 2310.01377) has four replies to a prompt, by four of 17 models drawn at random, each asked under a
principle (a system message) drawn at random.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from burnish.core import randomness
from burnish.core.call_syntax import split_outside
from burnish.core.messages import Message, as_messages, prompt_shown
from burnish.core.parts import Rollout, names
from burnish.core.roles import Role, frozen
from burnish.core.step import Step
from burnish.core.types import Group, Sampling, Task, Trace, Turn
from burnish.judges.cache import cache_key
from burnish.judges.endpoint import content_of
from burnish.models.chat import Chat
from burnish.rollout.given import given_trace
from burnish.rollout.starts import Reply, Start, sample_key, write_on
from burnish.score.judge import reply_text
from burnish.score.judges import read_judge
from burnish.score.judges.of_endpoint import EndpointJudge
from burnish.util.paths import expanded

WRITTEN_BY, ASKED_UNDER = "written_by", "asked_under"  # notes of a trace: its writer, its principle
TAG = "pairs"
ANY_LENGTH = 1 << 30  # tokens


@dataclass(frozen=True)
class Writer:
    """Who writes: a model of the run (its role), or a model behind an endpoint."""

    name: str
    role: str = ""
    endpoint: EndpointJudge | None = None


def read_writers(text: str) -> list[Writer]:
    """The writers that a text names, with a plus sign between them. The first model of the run is the policy."""
    pieces = [text] if Path(text).exists() else _pieces(text)
    named: list[Writer] = []
    for piece in pieces:
        if piece.startswith("endpoint("):
            judge = read_judge(piece)
            assert isinstance(judge, EndpointJudge)
            named.append(Writer(judge.name, endpoint=judge))
        else:
            local = sum(not one.endpoint for one in named)
            named.append(Writer(piece, f"writer_{local}" if local else "policy"))
    if len({one.name for one in named}) < len(named):
        raise ValueError(f"--model {text!r} names a model twice; name each once")
    return named


def _pieces(text: str) -> list[str]:
    if not all(map(str.strip, text.split("+"))):
        raise ValueError(f"--model {text!r} has a plus sign without a model on one side; write tiny+runs/DIR/model")
    return [piece.strip() for piece in split_outside(text, "+")]


def roles_of(writers: Sequence[Writer]) -> dict[str, Role]:
    """The models that a run loads besides the policy."""
    return {one.role: frozen(one.name) for one in writers if one.role not in ("", "policy")}


def policy_of(writers: Sequence[Writer]) -> str:
    """The model whose tokenizer writes and counts tokens: the first of the run; where only endpoints write, `tiny`."""
    return next((one.name for one in writers if one.role == "policy"), "tiny")


def read_principles(file: str | None) -> list[str]:
    """The lines of a file; none without one."""
    if file is None:
        return []
    path = expanded(file)
    if not path.is_file():
        raise ValueError(f"--principles {file}: there is no such file; write one with a principle in each line")
    lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    if not any(lines):
        raise ValueError(f"--principles {file} is empty; write a principle in each line")
    return [line for line in lines if line]


@dataclass(frozen=True)
class _Asked:
    """A reply that is asked for. said: the task with the principle as its system message."""

    task: Task
    said: Task
    index: int
    writer: Writer
    principle: str


def several(writers: Sequence[Writer], n: int, principles: Sequence[str], sampling: Sampling) -> Rollout:
    """n replies to a task, by writers and under principles that a hash of the task draws: without replacement while
    there are any left.

    A reply by another model than the policy, or under a principle, is read again in the policy's tokens after the task
    as it was given, so that replies are compared as replies to the same prompt.
    """

    def call(tasks: list[Task], step: Step) -> list[Group]:
        asked = [one for task in tasks for one in _asked(task, writers, n, principles)]
        places = {id(one): i for i, one in enumerate(asked)}
        traces: list[Trace | None] = [None] * len(asked)
        for writer in writers:
            own = [one for one in asked if one.writer == writer]
            write = _by_endpoint if writer.endpoint else _by_model
            for one, trace in zip(own, write(own, writer, sampling, step), strict=True):
                if trace is not None:
                    trace.note.update({WRITTEN_BY: writer.name, ASKED_UNDER: one.principle})
                traces[places[id(one)]] = trace
        by_task = [traces[k * n : (k + 1) * n] for k in range(len(tasks))]
        return [
            Group(task, [trace for trace in own if trace is not None]) for task, own in zip(tasks, by_task, strict=True)
        ]

    reads = frozenset({"task:prompt"} | {f"model:{one.role}.generate" for one in writers if one.role})
    return Rollout(
        name=f"sample({n}) from {len(writers)} writers",
        call=call,
        reads=reads,
        writes=names("tokens", ("task", "policy")) | names("tag", TAG),
    )


def _asked(task: Task, writers: Sequence[Writer], n: int, principles: Sequence[str]) -> list[_Asked]:
    names = _drawn(len(writers), n, "writers", task.key)
    lines = _drawn(len(principles), n, "principles", task.key)
    replies = []
    for i in range(n):
        principle = principles[lines[i]] if lines else ""
        said = replace(task, prompt=_under(task, principle)) if principle else task
        replies.append(_Asked(task, said, i, writers[names[i]], principle))
    return replies


def _drawn(size: int, n: int, *what: object) -> list[int]:
    """n of range(size), without replacement while there are any left, then again in another order."""
    rounds = range(-(-n // size)) if size else ()
    return [i for again in rounds for i in randomness.shuffled(size, *what, again)][:n]


def _under(task: Task, principle: str) -> tuple[Message, ...]:
    """The messages of a task with a principle as their system message, after the one that they have."""
    first, *rest = as_messages(task.prompt)
    if first["role"] == "system":
        return ({**first, "content": f"{prompt_shown((first,))}\n\n{principle}"}, *rest)
    return ({"role": "system", "content": principle}, first, *rest)


def _by_model(own: Sequence[_Asked], writer: Writer, sampling: Sampling, step: Step) -> list[Trace | None]:
    model, policy = step.models[writer.role], step.models["policy"].chat
    replies = []
    for one in own:
        turns = (Turn(model.chat.prompt(one.said), "task"),)
        key = sample_key(step.clock, one.task, one.index, TAG)
        replies.append(Reply(Start(one.said, turns, one.index, key, writer.role, "policy", TAG, sampling)))
    write_on(replies, step)
    traces = [reply.trace() for reply in replies]
    if writer.role == "policy" and not any(one.principle for one in own):
        return list(traces)
    traces_of_text: list[Trace | None] = []
    for one, trace in zip(own, traces, strict=True):
        traces_of_text.append(
            _read_again(one, reply_text(trace, model.chat), trace.note.get("stopped") == "length", policy)
        )
    return traces_of_text


def _read_again(one: _Asked, text: str, cut: bool, chat: Chat) -> Trace:
    """A reply in the policy's tokens, after the task as it was given."""
    task = replace(one.task, given={"reply": text})
    trace = given_trace(task, "reply", "policy", chat, ANY_LENGTH, one.index)
    trace.note["stopped"] = "length" if cut else "stop"
    return trace


def _by_endpoint(own: Sequence[_Asked], writer: Writer, sampling: Sampling, step: Step) -> list[Trace | None]:
    """Replies of an endpoint; none where it gave no answer. They are kept on the disk, as a judge's answers are."""
    judge, chat = writer.endpoint, step.models["policy"].chat
    assert judge is not None
    limit = step.settings.max_new_tokens
    bodies: dict[str, dict[str, object]] = {}
    keys = []
    for one in own:
        messages = [dict(message) for message in as_messages(one.said.prompt)]
        settings = (sampling.temperature, sampling.top_p, limit)
        noise = sample_key(step.clock, one.task, one.index, TAG)
        key = cache_key(judge.endpoint.url, judge.model, "written", messages, *settings, noise)
        keys.append(key)
        bodies[key] = {
            "model": judge.model,
            "messages": messages,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "max_tokens": limit,
            "seed": noise % 2**31,
        }
    answers = judge.answers(bodies, _written, step)
    traces_of_text: list[Trace | None] = []
    for one, key in zip(own, keys, strict=True):
        said = answers[key]
        traces_of_text.append(None if "why" in said else _read_again(one, str(said["text"]), bool(said["cut"]), chat))
    return traces_of_text


def _written(reply: dict[str, Any]) -> dict[str, Any] | None:
    """The text of a reply, and whether it was cut at its limit."""
    text, choices = content_of(reply), reply.get("choices")
    if text is None or not isinstance(choices, list):
        return None
    return {"text": text, "cut": isinstance(choices[0], dict) and choices[0].get("finish_reason") == "length"}
