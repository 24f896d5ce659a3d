"""TeaMs-RL: Teaching LLMs to Generate Better Instruction Datasets via Reinforcement Learning (arXiv 2403.08694)."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

import torch
from torch import Tensor

from burnish import draw, learn
from burnish.core import randomness
from burnish.core.parts import Draw, Part, Rollout, names, supplies
from burnish.core.schedules import after, before
from burnish.core.state import State
from burnish.core.step import Step
from burnish.core.types import Group, Task, Trace, Turn
from burnish.draw.made import made_task, request_of
from burnish.judges import rewrites
from burnish.judges.question import Template
from burnish.judges.rewrites import (
    OF_REWRITE,
    SIX,
    Words,
    equality_question,
    new_prompt,
    plain,
    rewrite_question,
    says_unequal,
)
from burnish.learn.trust_region import conjugate_gradient
from burnish.method import Method, Option, Phase, roles
from burnish.methods import register
from burnish.methods.compositions import models_of
from burnish.papers import Paper
from burnish.rollout.operated import answered_trace, answers_of, token_limit
from burnish.score.judges import read_judge
from burnish.score.judges.asked import note_unread
from burnish.score.judges.judge import Judge

TEAMS_RL = Paper(
    "teams-rl",
    "2403.08694",
    "TeaMs-RL: Teaching LLMs to Generate Better Instruction Datasets via Reinforcement Learning",
)

METRICS = (
    ("executor_calls", "What was kept", "questions to the model that rewrites and answers instructions"),
    ("not_equal", "What was kept", "share of the operations that changed an instruction, by the judge", "up"),
)

EQUALITY = {"full": rewrites.EQUALITY, "brief": rewrites.EQUALITY_BRIEF}


OPERATIONS = "operations"  # note of a trace: the numbers of the operations that were applied, in order


Decisions = list[tuple[int, float]]  # (operation, reward) of one sequence, in order

NOTES = {
    "operations": "the numbers of the operations that were applied, in order",
    "instructions": "the instruction before, and after each operation",
}


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

    def state_dict(self) -> State:
        return {"table": self.table.tolist(), "pending": self.pending}

    def load_state_dict(self, state: State) -> None:
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


TEXTS = "instructions"  # note of a trace: the instruction before, and after each operation


def _sequences(
    tasks: list[Task], instructor: Instructor, executor: Judge, template: Template, length: int, step: Step
) -> tuple[list[list[int]], list[list[str]]]:
    """Of each task the operations that the instructor chose, and the instruction before and after each of them.

    An operation whose result cannot be read leaves the instruction as it was.
    """
    clock = step.clock
    texts = [[request_of(task)] for task in tasks]
    chosen: list[list[int]] = [[] for _ in tasks]
    for k in range(length):
        for task, own in zip(tasks, chosen, strict=True):
            dice = randomness.rng(clock.seed, "operation", step.phase, clock.step, clock.tick, task.key, k)
            own.append(instructor.choose(own[-1] if own else None, dice))
        asked = [rewrite_question(template, t[-1], SIX[own[-1]]) for t, own in zip(texts, chosen, strict=True)]
        for written, (answer,) in zip(texts, executor.ask(asked, step), strict=True):
            said = None if answer.failed else new_prompt(answer.text, written[-1])
            written.append(written[-1] if said is None else said)
    step.notes.count("executor_calls", length * len(tasks))
    for i, operation in enumerate(SIX):
        step.notes.add(f"draw/{operation.name}", sum(own.count(i) for own in chosen), length * len(tasks))
    return chosen, texts


@supplies("tokens:executor")
def operated(instructor: Instructor, executor: Judge, template: Template, length: int) -> Rollout:
    """One sequence of `length` operations per task: each instruction that `executor` wrote is a turn by "executor"."""

    def call(tasks: list[Task], step: Step) -> list[Group]:
        chat, limit = step.models["policy"].chat, token_limit(step, "policy")
        groups = []
        for task, own, texts in zip(
            tasks, *_sequences(tasks, instructor, executor, template, length, step), strict=True
        ):
            turns = [Turn(chat.prompt(task), "task")]
            for text in texts[1:]:
                room = max(0, limit - sum(map(len, turns)))
                turns.append(Turn(chat.reply(text)[:room], "executor", parent=turns[-1]))
            groups.append(Group(task, [Trace(tuple(turns), note={OPERATIONS: own, TEXTS: texts})]))
        return groups

    return Rollout(
        name=f"operated({executor.name})",
        call=call,
        reads=executor.reads | {"task:prompt", "store:teams"},
        writes=names("tokens", ("task", "executor")),
        state=(instructor,),
    )


@supplies("tokens:demo")
def expanded(instructor: Instructor, executor: Judge, template: Template, length: int) -> Rollout:
    """The instruction after a sequence of operations, with the executor's answer as a demonstration.

    A sequence that changed nothing, and an answer that did not come, gives no group.
    """

    def call(tasks: list[Task], step: Step) -> list[Group]:
        _, texts = _sequences(tasks, instructor, executor, template, length, step)
        new = [made_task(task, own[-1]) for task, own in zip(tasks, texts, strict=True) if own[-1] != own[0]]
        step.notes.count("draw_made", len(new))
        replies = answers_of(executor, new, step)
        step.notes.count("executor_calls", len(new))
        made = [(task, answered_trace(task, text, "demo", step, 0)) for task, text in zip(new, replies, strict=True)]
        return [Group(task, [trace]) for task, trace in made if trace is not None]

    return Rollout(
        name=f"expanded({executor.name})",
        call=call,
        reads=executor.reads | {"task:prompt", "store:teams"},
        writes=names("tokens", ("task", "demo")),
        state=(instructor,),
    )


@supplies("turn_score:reward")
def unequal(judge: Judge | None, template: Template, texts: str = "instructions") -> Part:
    """turn_scores["reward"] of each rewritten instruction: 1 if it is not equal to the one before, else 0.

    judge: says Equal or Not Equal; None: they are equal if they have the same words. An answer that cannot be read
    counts as Equal. Texts that are the same are Equal without a question.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        traces = [trace for group in groups for trace in group.traces]
        pairs = [pair for trace in traces for pair in zip(trace.note[texts], trace.note[texts][1:], strict=False)]
        differ = [plain(old) != plain(new) for old, new in pairs]
        if judge is not None:
            asked = [equality_question(template, *pair) for pair, other in zip(pairs, differ, strict=True) if other]
            said = [None if one.failed else says_unequal(one.text) for (one,) in judge.ask(asked, step)]
            note_unread(step, sum(verdict is None for verdict in said), len(said))
            verdicts = iter(said)
            differ = [other and bool(next(verdicts)) for other in differ]
        following = iter(differ)
        for trace in traces:
            rewards = [float(next(following)) for _ in trace.turns[1:]]
            trace.turn_scores["reward"] = [math.nan, *rewards]
            step.notes.add("not_equal", sum(rewards), len(rewards))
        return groups

    return Part(
        name=f"unequal({judge.name if judge else 'texts'})",
        call=call,
        reads=frozenset({"tokens:executor"}) | (judge.reads if judge else frozenset()),
        writes=frozenset({"turn_score:reward"}),
    )


@register(
    TEAMS_RL,
    family="imitation",
    summary="A small policy learns by TRPO which operations change an instruction; then SFT on what it makes.",
    when="Seed instructions and a model that rewrites and answers; no RLHF afterwards.",
    example="burnish train teams_rl --teach 5 --words brief",
    trial={"teach": 0, "length": 2, "words": "brief", "executor": "policy(temperature=1, max_tokens=8)"},
)
def teams_rl(
    task: draw.Source,
    *,
    executor: Annotated[str, Option("Who rewrites and answers (docs/judges.md).")] = "policy(temperature=1)",
    judge: Annotated[
        str | None, Option("Who says Equal or Not Equal; without one, texts with the same words are equal.")
    ] = None,
    teach: Annotated[int, Option("Steps in which the instructor alone is trained.", at_least=0)] = 50,
    length: Annotated[int, Option("Operations applied to an instruction.", at_least=1)] = 4,
    delta: Annotated[float, Option("The instructor's trust region.", above=0)] = 0.01,
    gamma: Annotated[float, Option("Discount per operation.", at_least=0, at_most=1)] = 0.99,
    words: Words = "full",
) -> Method:
    """Teaching a model to generate instruction data by reinforcement learning.

    First `teach` steps:  a_k ~ pi(. | a_{k-1}), one of six operations (five in depth, and breadth), which `executor`
    carries out;  r_k = 1 if the judge finds the new instruction Not Equal to the old one, else 0;
    pi moves by TRPO: maximise mean rho A subject to mean KL <= delta, A_k = G_k - the batch's mean G_k
    Then:  SFT on (instruction after `length` operations, the executor's answer), L = -mean over tokens of log pi

    The instructor is a softmax table of 7 x 6 (none or the last operation, one-hot). teach = 0 draws operations
    uniformly: Evol-Instruct. "Diversity" is that single inequality, as in the released code. Departures: the baseline
    is the batch's mean at the same place, not a value network; an instruction that a sequence did not change is left
    out; length, delta and gamma are ours. executor_calls counts the paper's cost.
    """
    instructor = Instructor(delta, gamma)
    who, says = read_judge(executor), read_judge(judge) if judge else None
    learning = Phase(
        name="teach",
        times=before(teach),
        draw=taught(draw.prompts(task), instructor),
        rollout=operated(instructor, who, OF_REWRITE[words], length),
        score=unequal(says, EQUALITY[words]),
        select=decided(instructor),
        learn=learn.Learn(),
    )
    making = Phase(
        times=after(teach),
        draw=draw.prompts(task),
        rollout=expanded(instructor, who, OF_REWRITE[words], length),
        learn=learn.Learn(learn.imitate(on="demo")),
    )
    return Method(models=roles(**models_of(who, says)), phases=(learning, making))
