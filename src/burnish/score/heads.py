"""Scores from reward models with several heads, and from several reward models, as one number per reply.

    score=aggregated(("rm1", "rm2"), aggregate.worst_case)

Every part here scores the last token of a trace unless it says otherwise. Reward models are named models of the method;
each may have one output or several, and all their outputs side by side are the k scores that are aggregated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from burnish.core.parts import Part, Stateful, names, supplies
from burnish.core.state import State
from burnish.core.step import Step
from burnish.core.types import Group, Task, Trace, Turn
from burnish.models.chat import Chat
from burnish.score import aggregate
from burnish.score.lengths import reply_length
from burnish.score.reading import as_read, in_words_of, last_token, require_same_tokens

Aggregate = Callable[[Tensor], Tensor]  # [n, k] -> [n]
Places = Callable[[Trace, Chat], Tensor]  # a trace -> [T] bool: the tokens whose scores count
Over = Callable[[Tensor], Tensor]  # [m, k] scores at these tokens, in order -> [k]


def every_token(trace: Trace, chat: Chat) -> Tensor:
    """All tokens after the prompt."""
    return torch.arange(len(trace)) >= len(trace.turns[0])


def step_ends(trace: Trace, chat: Chat) -> Tensor:
    """The last token of each line of the reply, and the end of the trace."""
    mask = last_token(trace, chat)
    start = len(trace.turns[0])
    for place in range(start, len(trace) - 1):
        if "\n" in chat.text(trace.tokens[place : place + 1]):
            mask[place] = True
    return mask


def end_outputs(traces: Sequence[Trace], step: Step, model: str, output: str = "score") -> Tensor:
    """[n, k] (or [n, H], output "state"): what a model says after the last token of each trace, without gradient."""
    return outputs_over(traces, step, model, last_token, lambda scores: scores[-1], output)


def outputs_over(
    traces: Sequence[Trace], step: Step, model: str, places: Places, over: Over, output: str = "score"
) -> Tensor:
    """[n, k]: a model's outputs at chosen tokens of each trace, reduced to one row by `over`."""
    chat = step.models[model].chat
    read = [as_read(trace, chat) for trace in traces] if places is last_token else list(traces)
    masks = [places(trace, chat) for trace in read]
    found = step.models[model].streams(read, masks, {output}, step.settings.token_budget)
    rows = [
        over(one[output][mask].double().reshape(int(mask.sum()), -1)) for one, mask in zip(found, masks, strict=True)
    ]
    return torch.stack(rows) if rows else torch.zeros(0, 1, dtype=torch.float64)


class Scale:
    """Mean and standard deviation of k scores, over the first `size` replies that are scored; then held.

    A minimum over members that are not on one scale only picks the member with the lowest offset.
    """

    def __init__(self, size: int = 256, name: str = "scale") -> None:
        self.name, self.size = name, size
        self.seen: list[list[float]] = []

    def __call__(self, scores: Tensor) -> Tensor:
        """(scores - mean) / std, column by column; std 1 where all seen are equal."""
        self.seen += scores[: max(0, self.size - len(self.seen))].tolist()
        known = torch.tensor(self.seen, dtype=scores.dtype)
        std = known.std(0, unbiased=False)
        return (scores - known.mean(0)) / torch.where(std > 0, std, torch.ones_like(std))

    def state_dict(self) -> State:
        return {"seen": self.seen}

    def load_state_dict(self, state: State) -> None:
        self.seen = [list(row) for row in state["seen"]]


class GroupWeights:
    """Weights of groups that follow the worst one: w_u <- w_u exp(-eta x the batch's mean of r_u), normalised.

    The exponentiated-gradient form of MaxMin-RLHF (arXiv 2402.08925). A large eta is `aggregate.worst_group`.
    """

    def __init__(self, eta: float, name: str = "group_weights") -> None:
        self.name, self.eta = name, eta
        self.logits: list[float] = []

    def __call__(self, scores: Tensor) -> Tensor:
        """sum_u w_u r_u with the weights after this batch. [n, k] -> [n]."""
        logits = torch.tensor(self.logits or [0.0] * scores.shape[1], dtype=scores.dtype) - self.eta * scores.mean(0)
        self.logits = (logits - logits.max()).tolist()
        return aggregate.weighted(scores, torch.softmax(logits, -1))

    def state_dict(self) -> State:
        return {"logits": self.logits}

    def load_state_dict(self, state: State) -> None:
        self.logits = list(state["logits"])


Values = Callable[[list[Group], Step], Tensor]  # one number for each trace of all groups, in order: [n]


def scoring_part(
    label: str,
    values: Values,
    *,
    models: tuple[str, ...],
    author: str = "policy",
    name: str = "reward",
    output: str = "score",
    needs: tuple[str, ...] = (),
    state: tuple[Stateful, ...] = (),
    by_words: bool = False,
) -> Part:
    """A part that writes scores[name] of every trace, from `values`, with an output of some models.

    by_words  `values` itself gives each model the traces in its own tokens (score/reading.py); else a model of another
              tokenizer is refused
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        for model in () if by_words else models:
            require_same_tokens(model, author, step)
        traces = [trace for group in groups for trace in group.traces]
        for trace, value in zip(traces, values(groups, step).tolist() if traces else (), strict=True):
            trace.scores[name] = value
        return groups

    return Part(
        name=label,
        call=call,
        reads=names("tokens", author) | {f"model:{model}.{output}" for model in models} | set(needs),
        writes=frozenset({f"score:{name}"}),
        state=state,
    )


def all_traces(groups: list[Group]) -> list[Trace]:
    return [trace for group in groups for trace in group.traces]


@supplies("score:reward")
def aggregated(
    models: tuple[str, ...],
    how: Aggregate,
    *,
    scale: Scale | None = None,
    places: Places = last_token,
    over: Over = lambda scores: scores[-1],
    author: str = "policy",
    name: str = "reward",
) -> Part:
    """scores[name] = how([n, k]), all outputs of all models side by side.

    how     one of score/aggregate.py; it sees the whole batch, for rules such as the group with the lowest mean
    scale   normalises each column before they are aggregated
    """

    def values(groups: list[Group], step: Step) -> Tensor:
        read = {model: all_traces(in_words_of(model, groups, author, step)) for model in models}
        scores = torch.cat([outputs_over(read[model], step, model, places, over) for model in models], -1)
        scores = scores if scale is None else scale(scores)
        step.notes.add("head_spread", float(scores.std(-1, unbiased=False).sum()), len(scores))
        return how(scores)

    state = (*(() if scale is None else (scale,)), *((how,) if isinstance(how, GroupWeights) else ()))
    return scoring_part(
        f"aggregated({', '.join(models)})",
        values,
        models=models,
        author=author,
        name=name,
        state=state,
        by_words=True,
    )


@supplies("score:reward")
def gated(model: str = "rm", *, temperature: float = 10.0, author: str = "policy", name: str = "reward") -> Part:
    """ArmoRM's score: the first half of the outputs after the reply, weighted by a softmax of the second half after
    the prompt.
    """

    def values(groups: list[Group], step: Step) -> Tensor:
        traces = all_traces(in_words_of(model, groups, author, step))
        ends = end_outputs(traces, step, model)
        prompts = outputs_over(traces, step, model, _prompt_end, lambda scores: scores[-1])
        half = ends.shape[1] // 2
        if half * 2 != ends.shape[1] or not half:
            raise ValueError(
                f"the reward model {model!r} has {ends.shape[1]} outputs; a gated one has as many gates as attributes: "
                "pass a directory that `burnish train armorm` saved"
            )
        return aggregate.gated(ends[:, :half], prompts[:, half:], temperature)

    return scoring_part(f"gated({model})", values, models=(model,), author=author, name=name, by_words=True)


def _prompt_end(trace: Trace, chat: Chat) -> Tensor:
    return torch.arange(len(trace)) == len(trace.turns[0]) - 1


def robust_of(share: float, worst: Aggregate = aggregate.worst_group) -> Aggregate:
    """BRME's reward from the outputs (r, mu_1 .. mu_k, log sigma_1 .. log sigma_k) of `burnish train brme`."""

    def how(scores: Tensor) -> Tensor:
        heads = (scores.shape[1] - 1) // 2
        if heads < 1 or scores.shape[1] != 1 + 2 * heads:
            raise ValueError(
                f"the reward model has {scores.shape[1]} outputs, but one of `burnish train brme` has 1 + 2 x heads"
            )
        means, stds = scores[:, 1 : 1 + heads], scores[:, 1 + heads :].exp()
        return aggregate.robust(means, stds, share, worst(means))

    return how


@supplies("score:reward")
def preferred_to_baseline(
    model: str = "rm", *, column: str = "demo", author: str = "policy", name: str = "reward"
) -> Part:
    """scores[name] = sigmoid(r(x, y) - r(x, y0)), y0 the reply in a column of the task: a number in (0, 1)."""

    def values(groups: list[Group], step: Step) -> Tensor:
        chat, limit = step.models[model].chat, step.models[model].context
        replies = [answered(group.task, str(group.task.given[column]), chat, limit) for group in groups]
        baselines = end_outputs(replies, step, model).mean(-1)
        sizes = torch.tensor([len(group.traces) for group in groups])
        own = end_outputs(all_traces(in_words_of(model, groups, author, step)), step, model).mean(-1)
        return aggregate.against_baseline(own, baselines.repeat_interleave(sizes))

    label, needs = f"preferred_to_baseline({column})", (f"given:{column}",)
    return scoring_part(label, values, models=(model,), author=author, name=name, needs=needs, by_words=True)


@supplies("score:reward")
def discriminated(model: str = "rm", *, shortest: float = 0.0, author: str = "policy", name: str = "reward") -> Part:
    """scores[name] = sigmoid(r): the chance that a reply is of the wanted kind; 0 where it is too short.

    shortest  a reply with fewer tokens than this share of the prompt's scores 0: nothing is not a simplification
    """

    def values(groups: list[Group], step: Step) -> Tensor:
        traces = all_traces(groups)
        enough = [reply_length(trace, author) >= shortest * len(trace.turns[0]) for trace in traces]
        read = all_traces(in_words_of(model, groups, author, step))
        return end_outputs(read, step, model).mean(-1).sigmoid() * torch.tensor(enough, dtype=torch.float64)

    return scoring_part(f"discriminated({model})", values, models=(model,), author=author, name=name, by_words=True)


def answered(task: Task, text: str, chat: Chat, limit: int) -> Trace:
    """A task's prompt and a reply to it, cut to the limit: for answers of the data that a reward model reads."""
    prompt = Turn(chat.prompt(task), "task")
    reply = Turn(chat.reply(text), "demo", parent=prompt)
    return Trace((prompt, reply.first(max(1, limit - len(prompt)))))
