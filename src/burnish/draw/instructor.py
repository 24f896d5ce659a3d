"""TeaMs-RL's instructor: a small policy over rewriting operations, trained by TRPO (arXiv 2403.08694)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from burnish.core.parts import Draw, Part, supplies
from burnish.core.step import Step
from burnish.core.types import Group
from burnish.judges.rewrites import SIX
from burnish.learn.trust_region import conjugate_gradient

OPERATIONS = "operations"  # note of a trace: the numbers of the operations that were applied, in order
Decisions = list[tuple[int, float]]  # (operation, reward) of one sequence, in order


class Instructor:
    """pi(a | s) = softmax of row s of a table; s: none or the last operation, one-hot, so that a linear layer is it.

    The table begins at 0: every operation is as likely as any other, which is Evol-Instruct.
    """

    name = "teams"

    def __init__(self, delta: float = 0.01, gamma: float = 0.99, damping: float = 0.01) -> None:
        self.delta, self.gamma, self.damping = delta, gamma, damping
        self.table = torch.zeros(1 + len(SIX), len(SIX), dtype=torch.float64)
        self.pending: list[Decisions] = []

    def chances(self, last: int | None) -> list[float]:
        """The probability of each operation after the last one (None: there was none)."""
        return torch.softmax(self.table[0 if last is None else last + 1], 0).tolist()

    def choose(self, last: int | None, dice: random.Random) -> int:
        """The next operation."""
        return dice.choices(range(len(SIX)), self.chances(last))[0]

    def update(self) -> dict[str, float]:
        """One TRPO step on the pending sequences, which are then forgotten; what it did.

        G_k = sum_{j >= k} gamma^(j-k) r_j;  A_k = G_k - the mean G_k of all sequences;  maximise mean rho A
        subject to mean KL(old || new) <= delta
        """
        sequences, self.pending = self.pending, []
        states, actions, advantages = _decisions(sequences, self.gamma)
        if not len(states) or not bool(advantages.abs().max() > 0):
            return {}
        old = torch.log_softmax(self.table, 1)
        visits = torch.bincount(states, minlength=len(self.table)).to(old) / len(states)
        chosen = torch.zeros_like(old).index_put((states, actions), advantages / len(states), accumulate=True)
        gradient = chosen - chosen.sum(1, keepdim=True) * old.exp()

        def fisher(v: Tensor) -> Tensor:
            rows, p = v.view_as(old), old.exp()
            inner = p * rows - p * (p * rows).sum(1, keepdim=True)
            return (visits[:, None] * inner).flatten() + self.damping * v

        x = conjugate_gradient(fisher, gradient.flatten(), 10)
        full = ((2 * self.delta / float(x @ fisher(x))) ** 0.5 * x).view_as(old)
        for k in range(10):
            new = torch.log_softmax(self.table + full * 0.8**k, 1)
            kl = float((visits[:, None] * old.exp() * (old - new)).sum())
            gain = float(((new - old).exp() * chosen).sum() - chosen.sum())
            if kl <= self.delta and gain > 0:
                self.table = self.table + full * 0.8**k
                return {"trust/kl": kl, "trust/accepted": 1.0}
        return {"trust/kl": 0.0, "trust/accepted": 0.0}

    def state_dict(self) -> dict[str, Any]:
        return {"table": self.table.tolist(), "pending": self.pending}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.table = torch.tensor(state["table"], dtype=torch.float64)
        self.pending = [[(int(a), float(r)) for a, r in sequence] for sequence in state["pending"]]


def _decisions(sequences: Sequence[Decisions], gamma: float) -> tuple[Tensor, Tensor, Tensor]:
    """The state, the operation and the advantage of each decision."""
    states, actions, places, returns = [], [], [], []
    for sequence in sequences:
        following, own = 0.0, []
        for k, (action, reward) in reversed(list(enumerate(sequence))):
            following = reward + gamma * following
            own.append((0 if k == 0 else sequence[k - 1][0] + 1, action, k, following))
        for state, action, k, total in reversed(own):
            states.append(state)
            actions.append(action)
            places.append(k)
            returns.append(total)
    gained, at = torch.tensor(returns, dtype=torch.float64), torch.tensor(places, dtype=torch.int64)
    for k in at.unique():
        gained[at == k] -= gained[at == k].mean()
    return torch.tensor(states, dtype=torch.int64), torch.tensor(actions, dtype=torch.int64), gained


@supplies("store:teams")
def decided(instructor: Instructor) -> Part:
    """Records the operations of each trace with their rewards, for the instructor's next update."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        for trace in (trace for group in groups for trace in group.traces):
            rewards = trace.turn_scores["reward"][1:]
            instructor.pending.append(list(zip(trace.note[OPERATIONS], rewards, strict=True)))
        return groups

    return Part(
        name="decided",
        call=call,
        reads=frozenset({"turn_score:reward"}),
        writes=frozenset({"store:teams"}),
        state=(instructor,),
    )


def taught(old: Draw, instructor: Instructor) -> Draw:
    """What `old` draws; after each step the instructor learns from what its operations earned."""

    def saw(groups: list[Group], step: Step) -> None:
        for name, value in instructor.update().items():
            step.notes.add(name, value)

    return replace(
        old,
        name="taught",
        saw=saw,
        ahead=False,
        reads=old.reads | {"store:teams"},
        state=(*old.state, instructor),
    )
