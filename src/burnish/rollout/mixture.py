"""Replies sampled from a geometric mixture of two members, token by token."""

from __future__ import annotations

import torch
from torch import Tensor

from burnish.cast.member import Member
from burnish.nouns import Group, Task, Trace, Turn
from burnish.parts import Rollout, names, supplies
from burnish.randomness import uniform
from burnish.rollout.sample import sample_key
from burnish.schedules import Schedule, at
from burnish.step import Step


@supplies("tokens:mixture")
def mixture(
    n: int, share: Schedule, *, who: str = "policy", other: str = "ref", temperature: float = 1.0, tag: str = "mixture"
) -> Rollout:
    """n replies per task by author "mixture", each token from softmax((1 - share) log p_who + share log p_other).

    share 0 is `who`, share 1 is `other`. The two models are read anew for every token, without a cache: a reply costs as
    many passes as it has tokens.
    """
    if n < 1:
        raise ValueError(f"n is {n}; at least 1 reply must be sampled for each task")

    def call(tasks: list[Task], step: Step) -> list[Group]:
        prompts = [step.cast[who].chat.prompt(task) for task in tasks]
        rows = [prompt for prompt in prompts for _ in range(n)]
        keys = [sample_key(step.clock, task, i, tag) for task in tasks for i in range(n)]
        replies = _decode(rows, keys, (step.cast[who], step.cast[other]), at(share, step.clock), temperature, step)
        version = step.cast[who].version
        groups = []
        for k, task in enumerate(tasks):
            asked, traces = Turn(prompts[k], "task"), []
            for i, (tokens, logp, stopped) in enumerate(replies[k * n : (k + 1) * n]):
                said = Turn(tokens, "mixture", logp, version, asked)
                traces.append(Trace((asked, said), i, tags=frozenset({tag}), note={"stopped": stopped}))
            groups.append(Group(task, traces))
        return groups

    return Rollout(
        name=f"mixture({who}, {other})",
        call=call,
        reads=frozenset({"task:prompt", f"cast:{who}.logits", f"cast:{other}.logits"}),
        writes=names("tokens", ("task", "mixture")) | names("mu", "mixture") | names("tag", tag),
    )


@torch.no_grad()
def _decode(
    prompts: list[Tensor], keys: list[int], members: tuple[Member, Member], share: float, temperature: float, step: Step
) -> list[tuple[Tensor, Tensor, str]]:
    """Tokens, their log-probs under the mixture, and why each reply ended."""
    stops, context = members[0].chat.stops, min(member.context for member in members)
    rows = list(prompts)
    said: list[list[float]] = [[] for _ in prompts]
    why = ["" if len(row) < context else "length" for row in rows]
    for _ in range(step.settings.max_new_tokens):
        alive = [i for i in range(len(rows)) if not why[i]]
        if not alive:
            break
        logp = _mixed([rows[i] for i in alive], members, share, temperature, step.settings.token_budget)
        u = uniform(torch.tensor([keys[i] for i in alive]), torch.tensor([len(rows[i]) for i in alive]))
        cumulative = logp.exp().double().cumsum(-1)
        drawn = torch.searchsorted(cumulative, (u * cumulative[:, -1])[:, None], right=True)[:, 0]
        for k, i in enumerate(alive):
            token = min(int(drawn[k]), logp.shape[-1] - 1)
            rows[i] = torch.cat([rows[i], torch.tensor([token])])
            said[i].append(float(logp[k, token]))
            why[i] = "stop" if token in stops else "length" if len(rows[i]) >= context else ""
    return [
        (row[len(prompt) :], torch.tensor(logps), reason or "length")
        for row, prompt, logps, reason in zip(rows, prompts, said, why, strict=True)
    ]


def _mixed(rows: list[Tensor], members: tuple[Member, Member], share: float, temperature: float, budget: int) -> Tensor:
    """[rows, V] log-probs of each row's next token under the mixture."""
    at_once = max(1, budget // (max(len(row) for row in rows) + 1))
    found = []
    for begin in range(0, len(rows), at_once):
        asked = [
            torch.cat([row, row[-1:]]) for row in rows[begin : begin + at_once]
        ]  # the last token only holds the place
        masks = [torch.arange(len(row)) == len(row) - 1 for row in asked]
        first, second = (
            torch.log_softmax(member.outputs(asked, masks, {"logits"}, temperature)["logits"].float().cpu(), -1)
            for member in members
        )
        found.append(torch.log_softmax((1 - share) * first + share * second, -1))
    return torch.cat(found)
