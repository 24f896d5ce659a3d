"""What a trained model is asked besides its accuracy: other tasks, the spread of its right replies, early answers.

Each probe gives named lists of numbers; studies read them as measures (studies/measures.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from burnish.core import randomness
from burnish.core.step import Settings, Step
from burnish.core.types import Clock, Group, Task
from burnish.engine.request import Request
from burnish.evals.evaluate import evaluate, held_out_tasks, majority_at_k, pass_at_k
from burnish.models.build import Models
from burnish.rollout.sample import sample
from burnish.score.judge import judge, reply_text
from burnish.tasks.resolve import resolve_task
from burnish.tasks.source import Source
from burnish.verifiers.final_answer import final_answer

Measures = dict[str, tuple[float, ...]]


@dataclass(frozen=True)
class Asked:
    """The model `who` of a run, and the held-out tasks. start: the model that the run began with."""

    models: Models
    source: Source
    settings: Settings
    tasks: int
    who: str
    start: Callable[[], Models]

    def step(self, tag: str) -> Step:
        return Step(Clock(0, 1, randomness.key_of(tag)), self.models, self.settings)


def answers(asked: Asked, *, task: str, k: int = 8) -> Measures:
    """The accuracy on another task, pass@k and maj@k: `accuracy on add:4`, an item for each held-out task."""
    source = resolve_task(task)
    evaluation = evaluate(asked.models, source, asked.settings, tasks=asked.tasks, k=k, who=asked.who)
    measures: Measures = {}
    sizes = [2**i for i in range(k.bit_length()) if 2**i <= k]
    for size in sizes:
        name = "accuracy" if size == 1 else f"pass@{size}"
        measures[f"{name} on {task}"] = tuple(pass_at_k(k, sum(row), size) for row in evaluation.correct)
    rows = list(zip(evaluation.answers, evaluation.correct, strict=True))
    measures[f"maj@{k} on {task}"] = tuple(majority_at_k(texts, right, k) for texts, right in rows)
    return measures


def right_replies(asked: Asked, *, k: int = 64, tasks: int = 50) -> Measures:
    """How the right replies to a task are spread, over k samples of each of some held-out tasks.

    distinct_right  the number of different right replies among the samples, an item for each task
    right_entropy   H(pi | right) = -E[log pi(y) | right] + log P(right), nats a reply, the mean over tasks
    right_kl        KL(pi | right || pi0 | right) = E[log pi(y) - log pi0(y) | right] - log P(right) + log P0(right)

    pi0 is the model at the start. Both means are over tasks of which pi and pi0 have right samples; P is the share of
    right samples. Where the reward is 0 or 1, KL-regularised RL has the optimum pi0(y) exp(r / beta) / Z, which leaves
    the odds among right replies as they are: its right_kl is 0 (arXiv 2205.11275).
    """
    own = replies_of(asked, k, tasks)
    start = Asked(asked.start(), asked.source, asked.settings, asked.tasks, "policy", asked.start)
    before = replies_of(start, k, tasks)
    distinct, entropies, kls = [], [], []
    for (group, right), (_, right0) in zip(own, before, strict=True):
        traces = [trace for trace, is_right in zip(group.traces, right, strict=True) if is_right]
        distinct.append(float(len({tuple(trace.turns[-1].tokens.tolist()) for trace in traces})))
        if not traces or not any(right0):
            continue
        logps = [float(logp.double().sum()) for trace in traces if (logp := trace.turns[-1].logp) is not None]
        masks = [trace.by(asked.who) for trace in traces]
        streams = start.models["policy"].streams(traces, masks, {"logp"}, asked.settings.token_budget)
        pairs = zip(streams, masks, strict=True)
        logps0 = [float(stream["logp"][mask].double().sum()) for stream, mask in pairs]
        share, share0 = len(traces) / k, sum(right0) / k
        entropies.append(conditional_entropy(logps, share))
        kls.append(conditional_kl(logps, logps0, share, share0))
    measures: Measures = {"distinct_right": tuple(distinct)}
    if entropies:
        measures |= {"right_entropy": (_mean(entropies),), "right_kl": (_mean(kls),)}
    return measures


def replies_of(asked: Asked, k: int, tasks: int) -> list[tuple[Group, list[bool]]]:
    """k sampled replies to each of the first held-out tasks, and whether each is right."""
    step = asked.step("right_replies")
    groups = sample(k, temperature=1.0, who=asked.who).call(held_out_tasks(asked.source, tasks), step)
    chat = asked.models[asked.who].chat
    flat = [(group.task, reply_text(trace, chat)) for group in groups for trace in group.traces]
    verdicts = iter(judge(asked.source, [task for task, _ in flat], [text for _, text in flat]))
    return [(group, [next(verdicts).correct for _ in group.traces]) for group in groups]


def early_answers(asked: Asked, *, tasks: int = 200) -> Measures:
    """Whether the answer depends on the working that was written: after greedy replies with at least one line of it.

    share_unchanged_none   the share whose answer stays the same when it is forced before the first line of the working
    share_unchanged_half   after half of the lines
    share_unchanged_dots   with each line of the working replaced by dots
    share_unchanged_wrong  with one digit of the last line of the working changed

    The answer is forced by writing "answer:" (arXiv 2411.15382, after 2307.13702). An item for each task with working.
    """
    rows = held_out_tasks(asked.source, tasks)
    whole = _continued(asked, [(task, "") for task in rows])
    with_lines = [(task, text) for task, text in zip(rows, whole, strict=True) if len(_working(text)) > 0]
    if not with_lines:
        return {}
    measures: Measures = {"share_with_working": tuple(float(len(_working(text)) > 0) for text in whole)}
    for name, change in _CHANGES.items():
        started = [(task, change(_working(text)) + "answer:") for task, text in with_lines]
        ends = _continued(asked, started)
        same = [
            final_answer(begun + end) == final_answer(text)
            for (_, text), (_, begun), end in zip(with_lines, started, ends, strict=True)
        ]
        measures[f"share_unchanged_{name}"] = (_mean([float(one) for one in same]),)
    return measures


def _working(reply: str) -> list[str]:
    """The lines before the answer."""
    head, mark, _ = reply.partition("answer:")
    return [line for line in head.split("\n") if line.strip()] if mark else []


def _lines(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _wrong_digit(lines: list[str]) -> str:
    """The working with the last digit of its last line raised by one, 9 becoming 0."""
    last = lines[-1]
    places = [i for i, letter in enumerate(last) if letter.isdigit()]
    if not places:
        return _lines(lines)
    i = places[-1]
    return _lines([*lines[:-1], f"{last[:i]}{(int(last[i]) + 1) % 10}{last[i + 1 :]}"])


_CHANGES: dict[str, Callable[[list[str]], str]] = {
    "none": lambda lines: "",
    "half": lambda lines: _lines(lines[: len(lines) // 2]),
    "dots": lambda lines: _lines(["." * len(line) for line in lines]),
    "wrong": _wrong_digit,
}


def _continued(asked: Asked, begun: list[tuple[Task, str]]) -> list[str]:
    """The greedy end of each reply after these beginnings."""
    model = asked.models[asked.who]
    requests = []
    for i, (task, text) in enumerate(begun):
        prompt = model.chat.prompt(task)
        tokens = torch.cat([prompt, model.chat.written(text)]) if text else prompt
        requests.append(Request(tokens, i, asked.settings.max_new_tokens, 0.0))
    return [model.chat.text(one.tokens) for one in model.generate(requests)]


def conditional_entropy(logps: Sequence[float], share: float) -> float:
    """H(pi | right) = -mean log pi(y) + log P over right replies y, with the probability P of a right reply."""
    return -_mean(logps) + math.log(share)


def conditional_kl(logps: Sequence[float], logps0: Sequence[float], share: float, share0: float) -> float:
    """KL(pi | right || pi0 | right) = mean (log pi(y) - log pi0(y)) - log P + log P0 over right replies y of pi."""
    return _mean(logps) - _mean(logps0) - math.log(share) + math.log(share0)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
