"""Ask a model the rows of a benchmark, and score what it says."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from burnish.bench.kinds import Bench, Choices, Replies, Row, Scores
from burnish.bench.likelihood import likelihoods, pair_of
from burnish.bench.rows import Rows
from burnish.core.randomness import key_of
from burnish.core.types import Task
from burnish.engine.request import Request
from burnish.evals.evaluate import Interval, share
from burnish.models.model import Model

Progress = Callable[[int], None]


@dataclass(frozen=True)
class Result:
    """A measured benchmark.

    scores   metric -> a number for each row
    said     of each row: the reply, or the log-probs of the choices
    """

    bench: Bench
    rows: Sequence[Row]
    shots: int
    prompts: Sequence[str]
    said: Sequence[str | list[float]]
    scores: Scores

    def metric(self, name: str, keep: Sequence[int] | None = None) -> Interval:
        """The mean of a metric with its 95% interval over rows. keep: the places of the rows that count."""
        values = self.scores[name]
        return share(values if keep is None else [values[i] for i in keep])

    def groups(self) -> dict[str, tuple[float, int]]:
        """The mean of the usual metric and the number of rows of each part; empty where it has no parts."""
        parts: dict[str, list[float]] = {}
        for row, value in zip(self.rows, self.scores[self.bench.metric], strict=True):
            parts.setdefault(self.bench.group(row), []).append(value)
        return {name: (math.fsum(values) / len(values), len(values)) for name, values in parts.items() if name}


def measure(
    model: Model, bench: Bench, data: Rows, *, shots: int | None, most: int | None, chat: bool, progress: Progress
) -> Result:
    """Ask the first `most` rows (None: all) with `shots` examples each (None: as usual).

    chat: the examples and the question are a user's message in the model's chat template; else plain text
    """
    rows = data.asked[:most]
    count = bench.shots if shots is None or not bench.shots else shots  # some are never asked with examples
    if chat and isinstance(bench.measure, Choices):
        raise ValueError(
            f"{bench.name} compares the likelihood of given answers, in plain text; leave out --bench-chat"
        )
    prompts = [_prompt(bench, row, data, count) for row in rows]
    if isinstance(bench.measure, Choices):
        said, scores = _choose(model, bench.measure, rows, prompts, progress)
        return Result(bench, rows, count, prompts, said, scores)
    replies = _reply(model, bench.measure, prompts, chat, progress)
    return Result(bench, rows, count, prompts, replies, bench.measure.judge(rows, replies))


def _prompt(bench: Bench, row: Row, data: Rows, shots: int) -> str:
    """What stands before the questions, the first `shots` examples of the row's own part, and the question."""
    own = [one for one in bench.examples or data.examples if bench.group(one) in ("", bench.group(row))]
    if len(own) < shots:
        where = f" of {bench.group(row)!r}" if bench.group(row) else ""
        raise ValueError(
            f"{bench.name} is asked with {shots} examples{where}, and its data have {len(own)} to take them from; add "
            f"a file {bench.name}_train.jsonl with such rows, or pass --shots {len(own)}"
        )
    shown = [bench.ask(one) + bench.answer(one) + "\n\n" for one in own[:shots]]
    return bench.before(row) + "".join(shown) + bench.ask(row)


def _choose(
    model: Model, kind: Choices, rows: Sequence[Row], prompts: Sequence[str], progress: Progress
) -> tuple[list[str | list[float]], Scores]:
    """acc: the likeliest choice is right; acc_norm: the likeliest per character (the space before it does not count);
    mc2: the probability of the true choices, divided by that of all.
    """
    choices = [list(kind.of(row)) for row in rows]
    pairs = [
        pair_of(model.chat, prompt, choice, model.context)
        for prompt, own in zip(prompts, choices, strict=True)
        for choice in own
    ]
    ends = [sum(map(len, choices[: i + 1])) for i in range(len(rows))]
    logps = [one.logp for one in likelihoods(model, pairs, lambda n: progress(sum(end <= n for end in ends)))]
    said: list[str | list[float]] = []
    scores: Scores = {"acc": [], "acc_norm": [], "mc2": []}
    for row, own, end in zip(rows, choices, ends, strict=True):
        logp, right = logps[end - len(own) : end], kind.right(row)
        said.append(logp)
        normed = [value / max(1, len(choice) - 1) for value, choice in zip(logp, own, strict=True)]
        scores["acc"].append(float(_largest(logp) in right))
        scores["acc_norm"].append(float(_largest(normed) in right))
        top = max(logp)
        chances = [math.exp(value - top) for value in logp]
        scores["mc2"].append(sum(chances[i] for i in right) / sum(chances))
    return said, scores


def _largest(values: Sequence[float]) -> int:
    return max(range(len(values)), key=lambda i: values[i])


def _reply(model: Model, kind: Replies, prompts: Sequence[str], chat: bool, progress: Progress) -> list[str]:
    """The greedy reply to each prompt, up to the first of the texts that end it."""
    requests = []
    for i, prompt in enumerate(prompts):
        if chat:
            tokens = model.chat.prompt(Task("question", prompt, {}, f"bench {i}"))
        else:
            tokens = model.chat.ids(model.chat.tokenizer.encode(prompt))
        room = max(1, model.context - kind.tokens)
        requests.append(
            Request(tokens[-room:], key_of("bench", i), min(kind.tokens, model.context - 1), 0.0, stop=kind.stop)
        )
    done = 0

    def count(number: int, sample: object) -> None:
        nonlocal done
        done += 1
        progress(done)

    samples = model.generate(requests, on_sample=count)
    return [until(model.chat.text(sample.tokens), kind.stop) for sample in samples]


def until(said: str, stop: Sequence[str]) -> str:
    """A text up to the first of these strings."""
    places = [at for word in stop if word and (at := said.find(word)) >= 0]
    return said[: min(places)] if places else said
