"""Replies that are written token by token, under a guide that scores the likeliest next tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from burnish.core.parts import Rollout, names, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Sampling, Task, Turn, keys_of_rows
from burnish.engine.request import Sample, Stopped
from burnish.engine.sampling import choose, logp_of, restrict
from burnish.forward.kept_keys import Kept, read_on
from burnish.forward.outputs import packable
from burnish.models.model import Model
from burnish.rollout.starts import Reply, Start, grow, require_room, sample_key

Scores = Callable[[Sequence[Reply], Tensor, Step], Tensor]


@dataclass(frozen=True)
class Guide:
    """Scores that are added to the log-probs of candidates for the next token.

    scores  (replies, candidates [B, k], step) -> [B, k]; None: all are 0
    k       how many of the writer's likeliest tokens are candidates; 0: all
    cut     whether the other tokens are left out; else they keep their log-probs
    reads   names of what it needs of the run's models
    """

    name: str
    scores: Scores | None
    k: int
    cut: bool
    reads: frozenset[str] = frozenset()


def candidate_scores(replies: Sequence[Reply], candidates: Tensor, guide: Guide, step: Step) -> Tensor:
    """[B, k]: the guide's scores. One that is NaN or infinite counts as the lowest finite one of its row, or as 0."""
    if guide.scores is None:
        return torch.zeros(candidates.shape)
    scores = guide.scores(replies, candidates, step).float()
    known = scores.isfinite()
    low = scores.masked_fill(~known, torch.inf).amin(-1, keepdim=True)
    return torch.where(known, scores, torch.where(low.isfinite(), low, 0.0))


def guided_by(logp: Tensor, candidates: Tensor, scores: Tensor, cut: bool) -> Tensor:
    """[B, V]: log-probs plus the scores of the candidates [B, k]; the other tokens at -inf if cut, else unchanged."""
    base = torch.full_like(logp, -torch.inf) if cut else logp
    return base.scatter(-1, candidates, logp.gather(-1, candidates) + scores)


def candidates_of(logp: Tensor, k: int) -> Tensor:
    """[B, k]: the likeliest tokens of each row, the likeliest first; all of them at k = 0."""
    return logp.topk(min(k or logp.shape[-1], logp.shape[-1]), -1).indices


@torch.no_grad()
def next_logp(replies: Sequence[Reply], model: Model) -> Tensor:
    """[B, V]: the model's log-probs of the token after each reply, in fp32 on the CPU."""
    if keeps(replies, model):
        found = model.working.current().logits(state_after(replies, model))
    else:
        rows = [(*reply.turns(), Turn(reply.start.turns[0].tokens[:1], "next")) for reply in replies]  # never read
        tokens = [torch.cat([turn.tokens for turn in row]) for row in rows]
        masks = [torch.arange(len(row)) == len(row) - 1 for row in tokens]
        found = model.outputs(tokens, masks, {"logits"}, input_keys=keys_of_rows(rows))["logits"]
    return torch.log_softmax(found.float().cpu(), -1)


def keeps(replies: Sequence[Reply], model: Model) -> bool:
    """Whether keys and values of replies can be kept: the model's attention is ours, and it reads tokens alone."""
    plain = all(turn.content is None for reply in replies for turn in reply.turns())
    return plain and model.packed and packable(model.working.current().module)


def state_after(replies: Sequence[Reply], model: Model) -> Tensor:
    """[B, H]: the model's hidden states after each reply. It reads what it has not read yet, and keeps it; what several
    replies begin with is read once.
    """
    runner = model.working.current()
    fresh = [r for r in replies if model.name not in r.kept or not r.kept[model.name].begins(r.tokens())]
    prompts = {reply.start.turns[0].tokens.numpy().tobytes(): reply.start.turns[0].tokens for reply in fresh}
    read = {key: Kept() for key in prompts}
    if prompts:
        read_on(runner, list(read.values()), list(prompts.values()))
    for reply in fresh:
        reply.kept[model.name] = read[reply.start.turns[0].tokens.numpy().tobytes()].copy()
    rows = [reply.kept[model.name] for reply in replies]
    return read_on(runner, rows, [r.tokens()[len(row.tokens) :] for r, row in zip(replies, rows, strict=True)])


def in_batches(replies: Sequence[Reply], step: Step) -> Iterator[list[Reply]]:
    """The replies in runs that fit the run's budget of tokens."""
    longest = max((len(reply.tokens()) for reply in replies), default=0) + 1
    size = max(1, step.settings.token_budget // longest)
    for first in range(0, len(replies), size):
        yield list(replies[first : first + size])


def write_guided(replies: Sequence[Reply], guide: Guide, step: Step) -> None:
    """Write these replies, all by one model, to their ends, or so many tokens as their `most` says.

    log p(a) = log pi(a) + score(a) for candidates a. Temperature, top_k, top_p and min_p act on the sum, and the
    recorded log-probs are those of the sum at the temperature. The noise is keyed as the engine's is: a guide without
    scores that cuts nothing writes what the model alone would write.
    """
    limits = {id(reply): len(reply) + reply.most for reply in replies if reply.most is not None}
    for reply in replies:
        require_room(reply, step.models[reply.start.who])
    while running := [r for r in replies if not r.stopped and len(r) < limits.get(id(r), len(r) + 1)]:
        for some in in_batches(running, step):
            _write_one(some, guide, step)


def _write_one(replies: list[Reply], guide: Guide, step: Step) -> None:
    """One more token for each reply."""
    model = step.models[replies[0].start.who]
    logits = next_logp(replies, model)
    if guide.scores is not None or guide.cut:
        candidates = candidates_of(logits, guide.k)
        logits = guided_by(logits, candidates, candidate_scores(replies, candidates, guide, step), guide.cut)
    how = [reply.start.settings for reply in replies]
    factor = torch.tensor([1 / one.logp_temperature for one in how])
    limits = [torch.tensor([getattr(one, name) for one in how]) for name in ("top_k", "top_p", "min_p")]
    allowed = restrict(logits, factor, *limits)
    token, _ = choose(
        allowed,
        factor,
        torch.tensor([reply.start.key for reply in replies]),
        torch.tensor([len(reply.tokens()) for reply in replies]),
        torch.tensor([one.temperature == 0 for one in how]),
    )
    logp = logp_of(logits, factor, token).float()  # as the engine has it: before top_k, top_p and min_p
    for k, reply in enumerate(replies):
        add_token(reply, token[k : k + 1], logp[k : k + 1], step)


def add_token(reply: Reply, token: Tensor, logp: Tensor, step: Step) -> None:
    """Append one token [1] to a reply, and end it where it ends."""
    model = step.models[reply.start.who]
    why: Stopped = "stop" if int(token) in model.chat.stops else "length"
    grow(reply, Sample(token, logp, why), model, step.settings.max_new_tokens)


@supplies("tokens:*", "mu:*", "tag:*")
def by_candidates(
    n: int, guide: Guide, *, temperature: float | None = None, who: str = "policy", tag: str = "sample"
) -> Rollout:
    """n replies per task by `who`, each token sampled under a guide (`write_guided`)."""
    if n < 1:
        raise ValueError(f"n is {n}; at least 1 reply must be sampled for each task")

    def call(tasks: list[Task], step: Step) -> list[Group]:
        replies = [started(task, n, step, step.sampling(temperature), who, tag) for task in tasks]
        write_guided([reply for some in replies for reply in some], guide, step)
        return [Group(task, [reply.trace() for reply in some]) for task, some in zip(tasks, replies, strict=True)]

    return Rollout(
        name=f"sample({n}) under {guide.name}",
        call=call,
        reads=frozenset({"task:prompt", f"model:{who}.logits"}) | guide.reads,
        writes=names("tokens", ("task", who)) | names("mu", who) | names("tag", tag),
    )


def started(task: Task, n: int, step: Step, settings: Sampling, who: str, tag: str) -> list[Reply]:
    """n replies to a task, nothing of them written yet."""
    prompt = (Turn(step.models[who].chat.prompt(task), "task"),)
    keys = [sample_key(step.clock, task, i, tag) for i in range(n)]
    return [Reply(Start(task, prompt, i, key, who, who, tag, settings)) for i, key in enumerate(keys)]
