"""A model of the run as judge: a frozen one beside the policy, or the policy itself with its present weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from burnish.core import randomness
from burnish.core.roles import Role
from burnish.core.step import Step
from burnish.core.types import Task, Trace, Turn
from burnish.engine.local import Request
from burnish.judges.question import Question
from burnish.models.chat import Chat
from burnish.score.judges.judge import Answer, Choice
from burnish.score.judges.kept import heard

MARGIN = 1  # tokens of the context that must be left for an answer


@dataclass(frozen=True)
class ModelJudge:
    """Asks the model `who` of the run through its engine.

    The noise of an answer is keyed by the question and the number of the sample, so a frozen model always gives the
    same answer; for a model that is trained, also by the run's seed and step.
    """

    who: str
    name: str
    temperature: float = 0.0
    top_p: float = 1.0
    max_tokens: int = 512
    models: Mapping[str, Role] = field(default_factory=dict)
    moves: bool = False  # whether its weights change during the run
    keep: str = ""  # the file that gets every answer (kept.py)

    @property
    def reads(self) -> frozenset[str]:
        return frozenset({f"model:{self.who}.generate", f"model:{self.who}.logp"})

    def ask(self, questions: Sequence[Question], step: Step, samples: int = 1) -> list[list[Answer]]:
        model = step.models[self.who]
        prompts = {one.key: _prompt(model.chat, one) for one in questions}
        room = {key: model.context - len(tokens) for key, tokens in prompts.items()}
        when = (step.clock.seed, step.clock.step, step.clock.tick) if self.moves else ()
        asked = [(key, i) for key in prompts if room[key] >= MARGIN for i in range(samples)]
        requests = [
            Request(
                prompts[key],
                randomness.key_of("judge", *when, key, i),
                min(self.max_tokens, room[key]),
                self.temperature,
                top_p=self.top_p,
            )
            for key, i in asked
        ]
        found = dict(zip(asked, model.generate(requests), strict=True)) if requests else {}

        def answer(key: str, i: int) -> Answer:
            sample = found.get((key, i))
            return _too_long(prompts[key], model.context) if sample is None else Answer(model.chat.text(sample.tokens))

        answers = [[answer(one.key, i) for i in range(samples)] for one in questions]
        return heard(self.name, self.keep, questions, answers)

    def choose(self, questions: Sequence[Question], words: tuple[str, str], step: Step) -> list[Choice]:
        model = step.models[self.who]
        said = [_word(model.chat, word) for word in words]
        prompts = {one.key: _prompt(model.chat, one) for one in questions}
        longest = max(map(len, said))
        fits = [key for key, tokens in prompts.items() if len(tokens) + longest <= model.context]
        traces = [Trace((Turn(prompts[key], "task"), Turn(word, "judge"))) for key in fits for word in said]
        masks = [trace.by("judge") for trace in traces]
        streams = model.streams(traces, masks, {"logp"}, step.settings.token_budget) if traces else []
        totals = [float(one["logp"][mask].sum()) for one, mask in zip(streams, masks, strict=True)]
        logits = {key: totals[2 * k] - totals[2 * k + 1] for k, key in enumerate(fits)}
        return [
            Choice(logits[one.key]) if one.key in logits else Choice(0.0, _why(prompts[one.key], model.context))
            for one in questions
        ]


def _prompt(chat: Chat, question: Question) -> Tensor:
    return chat.prompt(Task("question", ({"role": "user", "content": question.text},), {}, question.key))


def _word(chat: Chat, word: str) -> Tensor:
    """The tokens with which an answer that is this word begins."""
    tokens = chat.reply(word)[: -len(chat.closing)]
    return tokens if len(tokens) else torch.tensor([int(chat.closing[0])])


def _why(prompt: Tensor, context: int) -> str:
    return f"the question has {len(prompt)} tokens, but the judge's context holds {context}"


def _too_long(prompt: Tensor, context: int) -> Answer:
    return Answer("", _why(prompt, context))
