"""What a model writes after prefixes of replies.

All continuations are asked for in one call: the engine reads what they have in common once (the prompt, and of each
prefix what its continuations share), so k continuations of a prefix cost k decodes and one prefill.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from burnish.core.step import Step
from burnish.core.types import Sampling, Task, Turn, input_keys
from burnish.engine.local import Request
from burnish.models.chat import Chat
from burnish.rollout.starts import born, sample_key


@dataclass(frozen=True, eq=False)
class Prefix:
    """Something to go on from: a prompt, what was said after it, the noise's name and number, and how much to write.
    until: texts after which it pauses.
    """

    task: Task
    prompt: Turn
    said: Tensor
    noise: str
    number: int
    most: int
    until: tuple[str, ...] = ()

    def within(self, limit: int) -> Prefix:
        """The same with a limit of the whole reply: it may write what is left of it."""
        return replace(self, most=limit - len(self.said))


def continued(prefixes: Sequence[Prefix], who: str, step: Step, settings: Sampling) -> list[tuple[Turn, str]]:
    """What `who` writes after each prefix, and why it stopped; "paused" where it was after a text of `until`."""
    model = step.models[who]
    requests = [
        Request(
            torch.cat([prefix.prompt.tokens, prefix.said]),
            sample_key(step.clock, prefix.task, prefix.number, prefix.noise),
            prefix.most,
            **settings.named(),
            stop=prefix.until,
            input_keys=input_keys((prefix.prompt, Turn(prefix.said, who))),
        )
        for prefix in prefixes
    ]
    found = model.generate(requests) if requests else []
    ended = [
        "paused"
        if one.stopped == "stop" and prefix.until and int(one.tokens[-1]) not in model.chat.stops
        else one.stopped
        for one, prefix in zip(found, prefixes, strict=True)
    ]
    return [(born(one, who, model.version, None, settings), why) for one, why in zip(found, ended, strict=True)]


def completions(
    prefixes: Sequence[tuple[Task, Turn, Tensor, str]],
    k: int,
    step: Step,
    *,
    closing: str | None = None,
    temperature: float | None = None,
    who: str = "policy",
) -> list[list[str]]:
    """k finished replies for each prefix (task, prompt, tokens said, the noise's name), as text.

    closing  words that follow every prefix: they end a thought and ask for the answer (a forced stop)
    A whole reply obeys the run's limit max_new_tokens, and always gets at least one new token; what follows a forced
    stop has the whole limit, because the answer comes after thoughts that may be as long. Prefixes that leave no room
    in the context get no continuation: their replies are the prefixes themselves.
    """
    model, limit = step.models[who], step.settings.max_new_tokens
    asked: list[tuple[int, Prefix]] = []
    found: list[list[str]] = [[] for _ in prefixes]
    for i, (task, prompt, said, noise) in enumerate(prefixes):
        whole = said if closing is None else torch.cat([said, closing_words(said, closing, model.chat)])
        most = max(1, limit - len(said)) if closing is None else limit
        room = model.context - len(prompt) - len(whole)
        if room < 1:
            found[i] = [model.chat.text(whole)] * k
            continue
        asked += [(i, Prefix(task, prompt, whole, noise, number, min(most, room))) for number in range(k)]
    grown = continued([prefix for _, prefix in asked], who, step, step.sampling(temperature))
    for (i, prefix), (turn, _) in zip(asked, grown, strict=True):
        found[i].append(model.chat.text(torch.cat([prefix.said, turn.tokens])))
    return found


def closing_words(said: Tensor, closing: str, chat: Chat) -> Tensor:
    """The tokens that stop a thought after what was said; a new line begins only where none has begun."""
    fresh = not len(said) or chat.text(said[-1:]).endswith("\n")
    return chat.written(closing.removeprefix("\n") if fresh else closing)
