"""Semi-Offline Reinforcement Learning for Optimized Text Generation (arXiv 2306.09712).

Replies in which some tokens of a given one are drawn anew, all at once: nothing is decoded token by token.

What is read in place of a trace's tokens while learning, where some of them are hidden.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from torch import Tensor, nn

from burnish import credit, draw, learn, rollout, score
from burnish.core import randomness
from burnish.core.parts import Part, Rollout, names, per_trace, supplies
from burnish.core.step import Step
from burnish.core.types import Clock, Sampling, Task, Turn
from burnish.forward.module import input_embeddings
from burnish.learn.learn import Embed
from burnish.learn.norms import Norm
from burnish.method import Group, Method, Option, Trace, chain, method, roles
from burnish.methods import opt, register
from burnish.models.model import Model
from burnish.papers import Paper
from burnish.rollout.given import given_trace

SEMI_OFFLINE_RL = Paper(
    "semi-offline-rl", "2306.09712", "Semi-Offline Reinforcement Learning for Optimized Text Generation"
)


def other_tokens() -> Embed:
    """The embeddings of stream "read" in place of those of the tokens themselves: what is read is not what is said."""

    def call(embeddings: Tensor, trace: Trace, table: nn.Module) -> Tensor:
        inputs: Tensor = table(trace.streams["read"].to(embeddings.device))
        return inputs

    return Embed("other_tokens", call, ("read",))


seq_mean_sum = Norm("mean over groups of the sum of token means", lambda seq, group: 1.0 / seq, lambda n: n.groups)


@supplies("tokens:*", "mu:*")
def filled(column: str, n: int, share: float, *, who: str = "policy") -> Rollout:
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
        found, heat = [], step.sampling().logp_temperature
        for task, trace, mask in zip(tasks, traces, masks, strict=True):
            logp = _distributions(model, trace, mask, heat)
            keys = [randomness.key_of(clock.seed, "fill", clock.step, clock.tick, task.key, i) for i in range(n)]
            found.append(
                Group(
                    task,
                    [_fill(trace, mask, logp, key, i, model, who, Sampling(heat)) for i, key in enumerate(keys)],
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


@supplies("stream:read")
def masked_inputs(share: float, *, drawn: str = "policy", given: str = "demo", reader: str = "policy") -> Part:
    """What is read while learning, as stream "read": the mask where `drawn` wrote, and in place of each of `given`'s
    tokens
    but the last with the chance `share`; elsewhere the token itself."""

    def write(trace: Trace, group: Group, step: Step) -> None:
        mask = trace.by(drawn) | hidden(trace, given, group.task, step.clock, share)
        trace.streams["read"] = with_mask(trace, mask, step.models[reader])

    return per_trace(
        write,
        name=f"masked_inputs({share:g})",
        reads=names("tokens", (drawn, given)),
        writes=frozenset({"stream:read"}),
    )


@register(
    SEMI_OFFLINE_RL,
    family="policy",
    summary="Masked tokens of a given reply are drawn anew, all at once, and the fills compared; with imitation.",
    when="Decoding is too slow, replies are at hand, and exploring around them in one pass is enough.",
)
def semi_offline_rl(
    task: draw.Source,
    *,
    n: Annotated[int, Option("Fills of each static reply.", at_least=2)] = 16,
    share: Annotated[float, Option("Share of the static reply's tokens that are masked.", at_least=0, at_most=1)] = 0.4,
    weight: Annotated[float, Option("Weight of the policy gradient beside imitation.", at_least=0)] = 20.0,
    smoothing: Annotated[float, Option("Label smoothing of the imitation.", at_least=0, below=1)] = 0.1,
    static: Annotated[Literal["rejected", "chosen"], Option("The column of the static reply.")] = "rejected",
    reward_model: opt.RewardModel = None,
) -> Method:
    """Semi-offline RL: explore in the neighbourhood of a reply that is there, without decoding.

    M = the masked tokens of the static reply, each with the chance `share`
    y_i, i = 1..n: every token of M drawn from pi( . | x, what precedes, with [mask] in M's places), the others kept
    L_RL = mean over prompts of -sum_i (r_i - mean r) (1/|M|) sum over t in M of log pi(y_i,t | .)
    L = weight L_RL + mean over tokens of the label-smoothed -log pi(y*_t | .), y* the chosen reply, masked alike

    share = 0 is imitation alone, share = 1 draws every token blind. The released code: the static reply is the
    worst of the data's candidates (here the rejected one; the ground truth is a variant), the sum over fills is not
    divided by n. It has n = 64, and 16 for SQuAD; weights of 20, 5, 4 and 2 and smoothings of 0.1, 0, 0.15 and 0.1
    for its four tasks. Its log pi is a softmax over the drawn tokens' logits and zeros, a quirk that is not
    followed. Departures: tokens are masked one by one, where the code masks whole words and spares what follows a
    comma; where the tokenizer has no mask token, padding stands for it; no stop token is drawn, where the code puts
    the static token back.
    """
    return method(
        draw=draw.pairs(task),
        rollout=rollout.join(filled(static, n, share), rollout.given("chosen")),
        score=score.scoring(task, reward_model),
        credit=chain(credit.group_relative(std=False, peers=_fills), masked_inputs(share)),
        learn=learn.Learn(
            learn.pg_reinforce(norm=seq_mean_sum, coef=weight),
            learn.imitate_smoothed(smoothing, norm=learn.token_mean, on="demo"),
            embed=other_tokens(),
            logp_temperature="run",
        ),
        models=roles(**score.rm_role(reward_model)),
    )


def _fills(trace: Trace, group: Group) -> bool:
    """Fills are compared with fills."""
    return "fill" in trace.tags
