"""Token shifts: how often the greedy token of an aligned model is not the one that its base would have written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from burnish.core import randomness
from burnish.core.step import Settings, Step
from burnish.core.types import Clock
from burnish.evals.evaluate import held_out_tasks
from burnish.models.build import Models
from burnish.rollout.sample import sample
from burnish.score.reading import require_same_tokens
from burnish.tasks.source import Source

KINDS = ("unshifted", "marginal", "shifted")
MARGINAL = 3  # the highest rank of a marginal token
EDGES = (0, 4, 16, 64)  # where the ranges of positions begin


@dataclass(frozen=True)
class Shifts:
    """Of each reply, the rank of its tokens under the base, 1 the likeliest; and the texts of the shifted tokens."""

    ranks: tuple[tuple[int, ...], ...]
    shifted: tuple[tuple[str, int], ...]

    def shares(self, first: int = 0, last: int | None = None) -> dict[str, float]:
        """The share of each kind among the tokens at positions first <= t < last of the replies; empty without any."""
        kinds = Counter(kind_of(rank) for ranks in self.ranks for rank in ranks[first:last])
        total = sum(kinds.values())
        return {kind: kinds[kind] / total for kind in KINDS} if total else {}

    def by_position(self) -> dict[str, dict[str, float]]:
        """The shares by ranges of positions, those that replies reach."""
        ends = (*EDGES[1:], None)
        rows = {
            f"{first + 1}-{last}" if last else f"{first + 1} on": self.shares(first, last)
            for first, last in zip(EDGES, ends, strict=True)
        }
        return {name: shares for name, shares in rows.items() if shares}


def kind_of(rank: int) -> str:
    """Unshifted at rank 1, marginal at 2 and 3, else shifted (arXiv 2312.01552)."""
    return KINDS[0] if rank == 1 else KINDS[1] if rank <= MARGINAL else KINDS[2]


def ranks_of(logits: Tensor, tokens: Tensor) -> Tensor:
    """[T]: 1 plus how many tokens have a larger logit [T, V] than the token; equal ones do not count."""
    own = logits.gather(-1, tokens[:, None])
    return 1 + (logits > own).sum(-1)


def token_shifts(models: Models, source: Source, settings: Settings, tasks: int, base: str = "ref") -> Shifts:
    """The shifts of the policy's greedy replies to the first held-out tasks, given the same tokens before each."""
    step = Step(Clock(0, 1, randomness.key_of("token_shifts")), models, settings)
    require_same_tokens(base, "policy", step)
    groups = sample(1, temperature=0.0).call(held_out_tasks(source, tasks), step)
    rows = [group.traces[0] for group in groups]
    ranks: list[tuple[int, ...]] = []
    words: Counter[str] = Counter()
    for trace in rows:
        mask = trace.by("policy")
        with torch.no_grad():
            logits = models[base].outputs([trace.tokens], [mask], {"logits"})["logits"].float().cpu()
        said = trace.tokens[mask]
        ranks.append(tuple(ranks_of(logits, said).tolist()))
        words.update(_texts(said, ranks[-1], models))
    return Shifts(tuple(ranks), tuple(words.most_common()))


def _texts(tokens: Tensor, ranks: Sequence[int], models: Models) -> list[str]:
    """The texts of the shifted tokens; those that write nothing, such as the end of a reply, by their names."""
    chat = models["policy"].chat
    shifted = [k for k, rank in enumerate(ranks) if kind_of(rank) == KINDS[2]]
    return [chat.text(tokens[k : k + 1]) or "(end of the reply)" for k in shifted]
