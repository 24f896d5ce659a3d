"""Replies in which some tokens of a given one are drawn anew, all at once: nothing is decoded token by token."""

from __future__ import annotations

import torch
from torch import Tensor

from burnish.core import randomness
from burnish.core.parts import Rollout, names, supplies
from burnish.core.step import Step
from burnish.core.types import Clock, Group, Sampling, Task, Trace, Turn
from burnish.forward.module import input_embeddings
from burnish.models.model import Model
from burnish.rollout.given import given_trace


@supplies("tokens:*", "mu:*")
def filled(column: str, n: int, share: float, *, temperature: float = 1.0, who: str = "policy") -> Rollout:
    """n fills of the reply in `column`: of its tokens but the last, each is masked with the chance `share`, and every
    masked one drawn from `who`, which reads the mask in all masked places (semi-offline RL, arXiv 2306.09712).

    One forward pass for all fills of a task. Kept tokens are by "static", drawn ones by `who`; no stop token is drawn.
    """
    if n < 1 or not 0 <= share <= 1:
        raise ValueError(f"{n} fills with a share of {share}; at least 1 fill, and a share between 0 and 1")

    def call(tasks: list[Task], step: Step) -> list[Group]:
        model, clock = step.models[who], step.clock
        traces = [
            given_trace(task, column, "static", model.chat, model.context, 0, step.settings.on_long == "truncate")
            for task in tasks
        ]
        masks = [hidden(trace, "static", task, clock, share) for trace, task in zip(traces, tasks, strict=True)]
        found = []
        for task, trace, mask in zip(tasks, traces, masks, strict=True):
            logp = _distributions(model, trace, mask, temperature)
            keys = [randomness.key_of(clock.seed, "fill", clock.step, clock.tick, task.key, i) for i in range(n)]
            found.append(
                Group(
                    task,
                    [_fill(trace, mask, logp, key, i, model, who, Sampling(temperature)) for i, key in enumerate(keys)],
                )
            )
        return found

    return Rollout(
        name=f"filled({column}, {n})",
        call=call,
        reads=frozenset({"task:prompt", f"given:{column}", f"model:{who}.logits"}),
        writes=names("tokens", ("task", "static", who)) | names("mu", who) | names("tag", "fill"),
    )


def hidden(trace: Trace, author: str, task: Task, clock: Clock, share: float) -> Tensor:
    """[T] bool: each of the author's tokens but the trace's last, with the chance `share`; the same in a rerun."""
    key = torch.tensor(randomness.key_of(clock.seed, "hide", clock.step, clock.tick, task.key, author))
    mask = trace.by(author) & (randomness.uniform(key, torch.arange(len(trace))) < share)
    mask[-1] = False
    return mask


def mask_token(model: Model) -> int:
    """The tokenizer's mask token; where it has none, its padding, else its end: a token that no reply contains."""
    tokenizer = model.chat.tokenizer
    for token in (getattr(tokenizer, "mask_token_id", None), tokenizer.pad_token_id):
        if token is not None:
            return int(token)
    return model.chat.stops[0]


def with_mask(trace: Trace, mask: Tensor, model: Model) -> Tensor:
    """The trace's tokens with the mask token where the mask is."""
    return torch.where(mask, torch.tensor(mask_token(model)), trace.tokens)


@torch.no_grad()
def _distributions(model: Model, trace: Trace, mask: Tensor, temperature: float) -> Tensor:
    """[masked, V] log-probs at the masked tokens, read with the mask in their places."""
    if not bool(mask.any()):
        return torch.zeros(0, 1)
    table = input_embeddings(model.module)
    read = table(with_mask(trace, mask, model).to(model.device))
    logits = model.outputs([trace.tokens], [mask], {"logits"}, temperature, [read])["logits"]
    return torch.log_softmax(logits.double().cpu(), -1)


def _fill(
    trace: Trace, mask: Tensor, logp: Tensor, key: int, index: int, model: Model, who: str, settings: Sampling
) -> Trace:
    """One draw of every masked token, by the inverse of its distribution's sum; runs of one author become turns."""
    places = mask.nonzero()[:, 0]
    tokens, born = trace.tokens.clone(), torch.full((len(trace),), float("nan"))
    if len(places):
        chances = logp.exp()
        chances[:, list(model.chat.stops)] = 0.0
        total = chances.cumsum(-1)
        at = randomness.uniform(torch.tensor(key), places) * total[:, -1]
        drawn = (total <= at[:, None]).sum(-1).clamp(max=total.shape[-1] - 1)
        tokens[places], born[places] = drawn, logp.gather(-1, drawn[:, None])[:, 0].float()
    turns: tuple[Turn, ...] = (trace.turns[0],)
    for start, end in _runs(mask, len(trace.turns[0])):
        by_model = bool(mask[start])
        turns += (
            Turn(
                tokens[start:end],
                who if by_model else "static",
                born[start:end] if by_model else None,
                torch.full((end - start,), model.version) if by_model else None,
                turns[-1],
                settings if by_model else None,
            ),
        )
    return Trace(turns, index, tags=frozenset({"fill"}))


def _runs(mask: Tensor, start: int) -> list[tuple[int, int]]:
    """The half-open ranges from `start` on over which the mask does not change."""
    cuts = [start, *(t for t in range(start + 1, len(mask)) if mask[t] != mask[t - 1]), len(mask)]
    return list(zip(cuts, cuts[1:], strict=False))
