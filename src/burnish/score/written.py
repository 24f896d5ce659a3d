"""Scores by language models: of the tokens that a corrector would change, and after what a tool says of a reply."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from burnish.core.messages import shown
from burnish.core.parts import Part, names, supplies
from burnish.core.scorer import mark_failed
from burnish.core.step import Step
from burnish.core.types import Group, Task, Trace, Turn
from burnish.models.chat import Chat
from burnish.score.debias import data_replies
from burnish.score.heads import all_traces, end_outputs, every_token, scoring_part
from burnish.tasks.source import Source

ASK = "{0}\n\nReply:\n{1}\n\nWrite a better reply, or the same if it cannot be better."
MOST = 8  # equations that are checked
_EQUATION = re.compile(r"(-?\d{1,12})\s*([-+*])\s*(-?\d{1,12})\s*=\s*(-?\d{1,24})")
_OPERATE = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__}


def correction(task: Task, reply: str) -> Task:
    """The task of improving a reply to another task."""
    question = task.prompt if isinstance(task.prompt, str) else shown(task.prompt[-1])
    return replace(task, prompt=ASK.format(question, reply))


def prefix_rewards(said: Sequence[int], preferred: Sequence[int]) -> list[float]:
    """Token rewards by what a corrector would say at each place (arXiv 2409.00162): 1 up to the first difference, then
    -1 where it would say another token, 0 where it agrees.
    """
    found, same = [], True
    for mine, theirs in zip(said, preferred, strict=True):
        same = same and mine == theirs
        found.append(1.0 if same else 0.0 if mine == theirs else -1.0)
    return found


def correctable(trace: Trace, task: Task, chat: Chat, author: str, context: int) -> Trace | None:
    """The reply again, after the task of improving it; None where that does not fit."""
    reply = torch.cat([turn.tokens for turn in trace.turns if turn.author == author])
    prompt = Turn(chat.prompt(correction(task, chat.text(reply))), "task")
    if not len(reply) or len(prompt) + len(reply) > context:
        return None
    return Trace((prompt, Turn(reply, author, parent=prompt)))


@supplies("stream:dense/*")
def corrected_tokens(stream: str, *, model: str = "corrector", author: str = "policy") -> Part:
    """Stream [T]: `prefix_rewards` of each token of the reply, divided by their number; NaN elsewhere.

    The sum over a reply is between -1 and 1. A reply that does not fit into the corrector's context twice gets 0.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        reader = step.models[model]
        pairs = [(trace, group.task) for group in groups for trace in group.traces]
        again = [correctable(trace, task, reader.chat, author, reader.context) for trace, task in pairs]
        read = [one for one in again if one is not None]
        masks = [one.by(author) for one in read]
        greedy = iter(zip(reader.streams(read, masks, {"greedy"}, step.settings.token_budget), masks, strict=True))
        for (trace, _), one in zip(pairs, again, strict=True):
            mask = trace.by(author)
            trace.streams[stream] = torch.where(mask, 0.0, torch.nan)
            if one is not None:
                out, there = next(greedy)
                rewards = prefix_rewards(trace.tokens[mask].tolist(), out["greedy"][there].long().tolist())
                trace.streams[stream][mask] = torch.tensor(rewards) / len(rewards)
        return groups

    return Part(
        name=f"corrected_tokens({model})",
        call=call,
        reads=names("tokens", author) | {f"model:{model}.greedy"},
        writes=frozenset({f"stream:{stream}"}),
    )


def calculated(reply: str) -> str:
    """What the calculator says of the equations in a reply: tool call, observation and rationale, line by line."""
    lines, wrong = [], 0
    for a, operator, b, claimed in _EQUATION.findall(reply)[:MOST]:
        right = _OPERATE[operator](int(a), int(b))
        wrong += right != int(claimed)
        lines += [f"Tool: calculator({a}{operator}{b})", f"Observation: {right}"]
    if not lines:
        return "\nTool: none\nRationale: the reply has no equation to check."
    verdict = f"{wrong} of its equations are wrong" if wrong else "its equations are right"
    return "\n" + "\n".join([*lines, f"Rationale: {verdict}."])


def with_tools(trace: Trace, said: str, chat: Chat, limit: int) -> Trace:
    """The trace, then what the tools said (author "tool") and one token (author "score") before which it is scored."""
    spoken = chat.reply(said)[: -len(chat.closing)]  # as text: a control token that it spells is none, and no bos
    tool = Turn(spoken[: max(1, limit - len(trace) - 1)], "tool", parent=trace.turns[-1])
    score = Turn(torch.tensor([chat.stops[0]]), "score", parent=tool)
    return Trace((*trace.turns, tool, score), trace.index, tags=trace.tags)


@supplies("score:reward")
def after_tools(model: str = "judge", *, author: str = "policy", name: str = "reward") -> Part:
    """scores[name]: the logit of the end token after the reply and what the calculator says of it (Themis)."""

    def values(groups: list[Group], step: Step) -> Tensor:
        reader, read = step.models[model], []
        for trace in all_traces(groups):
            reply = torch.cat([turn.tokens for turn in trace.turns[1:]])
            read.append(with_tools(trace, calculated(reader.chat.text(reply)), reader.chat, reader.context))
        masks = [one.by("score") for one in read]
        found = reader.streams(read, masks, {"logits"}, step.settings.token_budget, 1.0)
        end = reader.chat.stops[0]
        return torch.stack([out["logits"][mask][-1, end] for out, mask in zip(found, masks, strict=True)]).double()

    return scoring_part(f"after_tools({model})", values, models=(model,), author=author, name=name, output="logits")


@supplies("score:reward")
def toward_goal(
    source: Source, count: int, skip: int, *, model: str = "rm", author: str = "policy", name: str = "reward"
) -> Part:
    """scores[name]: the lowest cosine of a reply's states, after its first `skip` tokens, to the goal prototype.

    The prototype is the mean of the last states of the good replies of the first `count` training tasks
    (arXiv 2407.13887).
    """
    goal: list[Tensor] = []

    def values(groups: list[Group], step: Step) -> Tensor:
        if not goal:
            good = data_replies(source, count, step, model, ("chosen", "demo"))
            goal.append(F.normalize(end_outputs(good, step, model, "state").mean(0), dim=0))
        traces = all_traces(groups)
        masks = [every_token(trace, step.models[model].chat) for trace in traces]
        found = step.models[model].streams(traces, masks, {"state"}, step.settings.token_budget)
        lowest = []
        for trace, out, mask in zip(traces, found, masks, strict=True):
            if not mask.any():
                mark_failed(trace, "the reply has no tokens, so it has no states to compare with the goal")
                lowest.append(goal[0].new_tensor(-1.0))
                continue
            cosines = F.normalize(out["state"][mask].double(), dim=-1) @ goal[0]
            lowest.append((cosines[skip:] if len(cosines) > skip else cosines).min())
        return torch.stack(lowest)

    return scoring_part("toward_goal", values, models=(model,), author=author, name=name, output="state")
