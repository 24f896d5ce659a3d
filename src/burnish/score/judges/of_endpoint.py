"""A model behind an OpenAI-compatible endpoint as judge, with a cache of its answers on the disk."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from burnish.core.roles import Role
from burnish.core.scorer import ScoringStops
from burnish.core.seeds import key_of
from burnish.core.step import Step
from burnish.judges.cache import AnswerCache, cache_key
from burnish.judges.endpoint import Endpoint, Reply, content_of, first_token_logprobs
from burnish.judges.question import Question
from burnish.score.judges.judge import Answer, Choice
from burnish.score.judges.kept import heard
from burnish.util.json_types import Json

Read = Callable[[dict[str, Json]], dict[str, Any] | None]  # a reply -> what is kept of it
TOP = 20  # log-probs of the likeliest first tokens: the most that the protocol allows


@dataclass(frozen=True)
class EndpointJudge:
    """Asks `model` at an endpoint. Answers are cached by (address, model, settings, template, text, sample).

    The seed of an answer depends on the same, never on the step: a resumed run finds its answers in the cache.
    keep: the file that gets every answer (kept.py).
    """

    endpoint: Endpoint
    model: str
    cache: AnswerCache
    temperature: float = 0.0
    top_p: float = 1.0
    max_tokens: int = 512
    keep: str = ""
    models: Mapping[str, Role] = field(default_factory=dict)
    reads: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        return f"{self.model} at {self.endpoint.url}"

    def ask(self, questions: Sequence[Question], step: Step, samples: int = 1) -> list[list[Answer]]:
        settings = (self.temperature, self.top_p, self.max_tokens)
        keys = [[self._key("text", one, *settings, i) for i in range(samples)] for one in questions]
        bodies = {
            key: self._body(one, self.temperature, self.max_tokens, seed=key_of(key) % 2**31)
            for one, own in zip(questions, keys, strict=True)
            for key in own
        }
        found = self.answers(bodies, _text, step)
        return heard(self.name, self.keep, questions, [[_answer(found[key]) for key in own] for own in keys])

    def choose(self, questions: Sequence[Question], words: tuple[str, str], step: Step) -> list[Choice]:
        keys = [self._key("logprobs", one, *words) for one in questions]
        extra = {"logprobs": True, "top_logprobs": TOP}
        bodies = {key: self._body(one, 0.0, 1, **extra) for key, one in zip(keys, questions, strict=True)}
        found = self.answers(bodies, lambda reply: {"logprobs": first_token_logprobs(reply)}, step)
        return [_choice(found[key], words, self.name) for key in keys]

    def _key(self, kind: str, question: Question, *settings: object) -> str:
        return cache_key(self.endpoint.url, self.model, kind, question.key, *settings)

    def _body(self, question: Question, temperature: float, max_tokens: int, **more: object) -> dict[str, object]:
        return {
            "model": self.model,
            "messages": [{"role": "user", "content": question.text}],
            "temperature": temperature,
            "top_p": self.top_p,
            "max_tokens": max_tokens,
            **more,
        }

    def answers(self, bodies: dict[str, dict[str, object]], read: Read, step: Step) -> dict[str, dict[str, Any]]:
        """What `read` takes from the reply to each body, from the cache or the endpoint; {"why": ...} for a failure."""
        found = {key: stored for key in bodies if (stored := self.cache.get(key)) is not None}
        missing = [key for key in bodies if key not in found]
        step.notes.count("judge_cached", len(found))
        step.notes.count("judge_calls", len(missing))

        def answered(number: int, reply: Reply) -> None:
            if reply.response is not None and (taken := read(reply.response)) is not None:
                self.cache.put(missing[number], taken)

        replies = self.endpoint.ask([bodies[key] for key in missing], answered)
        if missing and not found and all(reply.response is None for reply in replies):
            raise ScoringStops(
                f"the judge {self.name} answered none of {len(missing)} questions: {replies[0].why}; start it or "
                "correct its address, and use --resume"
            )
        for key, reply in zip(missing, replies, strict=True):
            taken = None if reply.response is None else read(reply.response)
            found[key] = taken or {"why": reply.why or "the judge's answer has no text"}
        return found


def _text(reply: dict[str, Json]) -> dict[str, Any] | None:
    text = content_of(reply)
    return None if text is None else {"text": text}


def _answer(found: dict[str, object]) -> Answer:
    return Answer("", str(found["why"])) if "why" in found else Answer(str(found.get("text", "")))


def _choice(found: dict[str, Any], words: tuple[str, str], name: str) -> Choice:
    """log P(first) - log P(second), each summed over the ways to write it with a space or not."""
    if "why" in found:
        return Choice(0.0, str(found["why"]))
    logprobs = found.get("logprobs") or {}
    chances = [sum(math.exp(min(0.0, p)) for token, p in logprobs.items() if token.strip() == word) for word in words]
    if not logprobs:
        return Choice(0.0, f"{name} gives no log-probs; use a server that does, such as vLLM")
    if not any(chances):
        return Choice(0.0, f"neither {words[0]!r} nor {words[1]!r} is among the {TOP} likeliest first tokens")
    least = math.exp(min(logprobs.values()))  # a word that is not listed is at most as likely as the last that is
    first, second = (max(chance, least) if chance == 0 else chance for chance in chances)
    return Choice(math.log(first) - math.log(second))
