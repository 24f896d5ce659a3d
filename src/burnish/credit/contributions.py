"""Rewards of turns from a model of their contributions to the outcome (SPA-RL, arXiv 2505.20732)."""

from __future__ import annotations

import torch

from burnish.core.parts import Part, per_trace, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Trace
from burnish.models.chat import Chat


@supplies("stream:outcome")
def outcome(score: str = "reward") -> Part:
    """Stream "outcome": the episode's score, on all its tokens."""

    def write(trace: Trace, group: Group, step: Step) -> None:
        trace.streams["outcome"] = torch.full((len(trace),), float(trace.scores[score]))

    return per_trace(write, name="outcome", reads=frozenset({f"score:{score}"}), writes=frozenset({"stream:outcome"}))


@supplies("stream:reward")
def contribution_rewards(
    alpha: float,
    beta: float,
    *,
    final: float = 0.0,
    refusal: str = "",
    stream: str = "contribution",
    author: str = "policy",
) -> Part:
    """r_k = alpha c_k + beta g_k at the last token of turn k, plus final R at the last of all; 0 at other tokens.

    c_k: the stream of contributions at the last token of turn k;  g_k = 1 where the action was executed, else 0;
    R: the episode's score. With contributions that sum to R, alpha 1 and beta 0 the rewards sum to R.
    """

    def write(trace: Trace, group: Group, step: Step) -> None:
        reward = torch.full((len(trace),), float("nan"))
        trace.streams["reward"] = reward
        spans = [(start, end) for turn, start, end in trace.spans() if turn.author == author and end > start]
        grounded = executed(trace, step.models[author].chat, refusal, author) if beta else [True] * len(spans)
        for (start, end), real in zip(spans, grounded, strict=True):
            reward[start:end] = 0.0
            earned = float(trace.streams[stream][end - 1])
            reward[end - 1] = alpha * earned + beta * real
            step.notes.add("contribution", earned)
        step.notes.add("executed", sum(grounded), max(1, len(grounded)))
        if spans:
            reward[spans[-1][1] - 1] += final * trace.scores["reward"]

    return per_trace(
        write,
        name=f"contribution_rewards({alpha:g}, {beta:g})",
        reads=frozenset({f"tokens:{author}", f"stream:{stream}", "score:reward"}),
        writes=frozenset({"stream:reward"}),
    )


def executed(trace: Trace, chat: Chat, refusal: str, author: str = "policy") -> list[bool]:
    """Whether the environment executed each turn of the author.

    It did not where its info said so (note "valid" of play), or where its answer contains the words of a refusal. The
    answer to the last turn is not part of an episode: there only the info can tell.
    """
    said = trace.note.get("valid") or []
    found: list[bool] = []
    for i, turn in enumerate(trace.turns):
        if turn.author == author and len(turn):
            answer = chat.text(trace.turns[i + 1].tokens) if refusal and i + 1 < len(trace.turns) else ""
            k = len(found)
            found.append((k >= len(said) or bool(said[k])) and not (refusal and refusal in answer))
    return found
