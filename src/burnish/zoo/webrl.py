"""WebRL: Training LLM Web Agents via Self-Evolving Online Curriculum Reinforcement Learning (arXiv 2411.02337).

Advantages of single actions from a critic of success, and which replayed actions are trained on (WebRL).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import torch

from burnish import credit, draw, learn, rollout, select
from burnish.core import randomness
from burnish.core.parts import Draw, Part, names, supplies
from burnish.core.state import State
from burnish.core.step import Step
from burnish.core.types import Group, Task, Trace, Turn
from burnish.credit.turn_gae import fill_own
from burnish.draw.failed import PLACE
from burnish.draw.tasks import prompts, tasks_of
from burnish.method import Method, Option, chain, method, roles, snapshot, trained
from burnish.methods import opt, register
from burnish.papers import Paper
from burnish.score.heads import end_outputs
from burnish.select.task_replay import PAST, TaskStore, played_before
from burnish.select.turn_rows import episodes_of, own_span
from burnish.tasks.source import Source

WEBRL = Paper(
    "webrl", "2411.02337", "WebRL: Training LLM Web Agents via Self-Evolving Online Curriculum Reinforcement Learning"
)

METRICS = (
    (
        "replayed_kept",
        "What was kept",
        "share of the replayed actions that are trained on, by their probability under the policy",
    ),
    ("failed_tasks", "What was kept", "share of the batch that are tasks which failed before"),
    ("in_band", "What was kept", "share of the batch whose value at the start is in the critic's band"),
)


class Failed:
    """The indices of tasks that failed, newest last, and the place in the source up to which tasks were drawn."""

    def __init__(self, name: str, capacity: int) -> None:
        self.name, self.capacity = name, capacity
        self.indices: list[int] = []
        self.place = 0

    def saw(self, index: int, failed: bool) -> None:
        """The task at an index was played: every episode of it failed, or not."""
        self.indices = [other for other in self.indices if other != index]
        if failed:
            self.indices = [*self.indices, index][-self.capacity :]

    def state_dict(self) -> State:
        return {"indices": self.indices, "place": self.place}

    def load_state_dict(self, state: State) -> None:
        self.indices, self.place = [int(index) for index in state["indices"]], int(state["place"])


def failed_again(
    source: Source,
    *needs: str,
    low: float,
    high: float,
    share: float,
    warmup: int,
    scan: int = 4,
    capacity: int = 1000,
    above: float = 0.5,
    critic: str = "critic",
) -> Draw:
    """The next tasks: failed ones again and new ones of the source, those whose value at the start is in [low, high].

    V(s_0) = min over the critic's heads of sigmoid of its output after the prompt. Of a batch, at most `share` are
    failed tasks, newest first. Candidates are looked at until the batch is full, at most scan x the batch new ones;
    what is missing then is filled with the new ones nearest to the band. In the first `warmup` steps, when the critic
    knows nothing, every new task is taken.
    """
    plain = prompts(source, *needs)
    memory = Failed("failed", capacity)

    def call(step: Step) -> list[Task]:
        n = step.settings.prompts
        if step.clock.step < warmup:
            return _next(n, step)
        again = _at(memory.indices[::-1][: round(share * n) * scan], step)
        chosen = [task for task, off in zip(again, _off(again, step), strict=True) if not off][: round(share * n)]
        step.notes.add("failed_tasks", len(chosen), n)
        rest: list[tuple[float, Task]] = []
        for _ in range(scan):
            if len(chosen) >= n:
                break
            new = _next(n - len(chosen), step)
            offs = _off(new, step)
            chosen += [task for task, off in zip(new, offs, strict=True) if not off]
            rest += [(off, task) for task, off in zip(new, offs, strict=True) if off]
        step.notes.add("in_band", len(chosen), n)
        nearest = sorted(range(len(rest)), key=lambda i: (rest[i][0], i))
        return [*chosen, *(rest[i][1] for i in nearest[: n - len(chosen)])]

    def _off(tasks: list[Task], step: Step) -> list[float]:
        """How far outside the band the value at the start of each task is; 0 inside."""
        chat = step.models[critic].chat
        starts = [Trace((Turn(chat.prompt(task), "task"),)) for task in tasks]
        values = end_outputs(starts, step, critic).sigmoid().min(-1).values.tolist() if starts else []
        return [max(low - value, value - high, 0.0) for value in values]

    def _next(count: int, step: Step) -> list[Task]:
        """The next new tasks of the source."""
        size, seed, first = source.size("train"), step.clock.seed, memory.place
        memory.place += count
        places = range(first, memory.place)
        if size is None:
            return _at([place + (seed << 32) for place in places], step)
        return _at([randomness.placed(place % size, size, seed, "failed", place // size) for place in places], step)

    def _at(indices: list[int], step: Step) -> list[Task]:
        drawn = tasks_of(source, "train", indices, step)
        return [replace(task, given={**task.given, PLACE: index}) for task, index in zip(drawn, indices, strict=True)]

    def saw(groups: list[Group], step: Step) -> None:
        for group in groups:
            if PLACE in group.task.given and group.traces and not any("replayed" in t.tags for t in group.traces):
                memory.saw(int(group.task.given[PLACE]), all(t.scores["reward"] <= above for t in group.traces))

    return Draw(
        name="failed_again",
        call=call,
        heldout=plain.heldout,
        saw=saw,
        reads=frozenset({f"model:{critic}.score"}),
        writes=plain.writes | names("given", [PLACE]),
        state=(memory,),
    )


@supplies("tag:replayed")
def beside_successes(store: TaskStore, share: float, *, above: float = 0.5, score: str = "reward") -> Part:
    """The groups, and past successes as groups of their own (tag "replayed"): share x the run's prompts of them.

    Tasks of the store are drawn without replacement, and of each one of its episodes. Then the fresh traces that score
    more than `above` are stored.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        clock = step.clock
        dice = randomness.rng(clock.seed, "successes", store.name, clock.step, clock.tick)
        keys = dice.sample(list(store.groups), min(round(share * step.settings.prompts), len(store.groups)))
        past = [Group(store.groups[key].task, [played_before(dice.choice(store.of(key)), 0)]) for key in keys]
        for group in groups:
            store.add(group, [trace for trace in group.traces if trace.scores[score] > above])
        step.notes.add("replay_store", len(store))
        return [*groups, *past]

    return Part(
        name=f"beside_successes({store.name})",
        call=call,
        reads=frozenset({f"score:{score}"}),
        writes=frozenset({f"tag:{PAST}"}),
        updates=frozenset({"tokens:policy"}),
        state=(store,),
    )


def mixed_advantage(reward: float, ahead: float, value: float, final: float, lam: float) -> float:
    """A = lam (r + V(s') - V(s)) + (1 - lam)(r_T - V(s)): the one-step error mixed with the outcome."""
    return lam * (reward + ahead - value) + (1 - lam) * (final - value)


@supplies("stream:gain", "stream:success")
def success_advantages(lam: float, *, above: float = 0.5) -> Part:
    """Stream "gain": the advantage of each row's own turn; stream "success": 1 where its episode scored above, else 0.

    V(s_k) = min over the critic's heads of sigmoid(stream "value") at the first token of turn k, 0 after the last turn.
    The reward of an episode counts as 1 or 0, by its success, and is paid at its last turn.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            for rows in episodes_of(group):
                final = float(rows[0].scores["reward"] > above)
                values = [float(row.streams["value"][own_span(row)[0]].sigmoid().min()) for row in rows]
                gains = []
                for k, value in enumerate(values):
                    last = k == len(rows) - 1
                    ahead = 0.0 if last else values[k + 1]
                    gains.append(mixed_advantage(final if last else 0.0, ahead, value, final, lam))
                    step.notes.add("advantage", gains[-1])
                fill_own(rows, "gain", gains)
                fill_own(rows, "success", [final] * len(rows))
        return groups

    return Part(
        name=f"success_advantages({lam:g})",
        call=call,
        reads=frozenset({"tag:turn", "score:reward", "stream:value"}),
        writes=frozenset({"stream:gain", "stream:success"}),
    )


@supplies("claim:*")
def fresh_or_familiar(term: str, low: float, high: float) -> Part:
    """The term claims the own turn of fresh rows, and of replayed rows where low < p <= high.

    p = exp(mean over the turn's tokens of stream "ref"): the geometric mean of its token probabilities under the last
    phase's policy, so that the perplexity 1 / p is in [1 / high, 1 / low). Actions that the policy was sure of already,
    and those that it would hardly have taken, are left out.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        for row in (row for group in groups for row in group.traces):
            own = slice(*own_span(row))
            kept = True
            if PAST in row.tags:
                kept = low < float(row.streams["ref"][own].double().mean().exp()) <= high
                step.notes.add("replayed_kept", kept)
            row.streams[f"claim:{term}"] = torch.zeros(len(row), dtype=torch.bool)
            row.streams[f"claim:{term}"][own] = kept
        return groups

    return Part(
        name=f"fresh_or_familiar({term})",
        call=call,
        reads=frozenset({"tag:turn", f"tag:{PAST}", "stream:ref"}),
        writes=frozenset({f"claim:{term}"}),
    )


@register(
    WEBRL,
    family="agents",
    summary="Each action's log-ratio regresses its advantage; failed tasks come back, past successes are replayed.",
    when="Success is 0 or 1 at the end of an episode, tasks differ much in difficulty, and drift must be bounded.",
    example="burnish train webrl --task guess:1",
    trial={"task": "guess", "n": 2, "sync": 1, "warmup": 0, "beta": 0.3, "updates": 1},
)
def webrl(
    task: draw.Source,
    *,
    n: opt.Replies = 4,
    beta: opt.Beta = 0.3,
    lam: Annotated[float, Option("Share of the one-step error in the advantage.", at_least=0, at_most=1)] = 0.5,
    sync: opt.Sync = 5,
    warmup: Annotated[int, Option("Steps before the critic chooses tasks.", at_least=0)] = 5,
    easy: Annotated[
        float, Option("Tasks of which the critic expects more are left out.", at_least=0, at_most=1)
    ] = 0.75,
    hard: Annotated[
        float, Option("Tasks of which the critic expects less are left out.", at_least=0, at_most=1)
    ] = 0.05,
    again: Annotated[float, Option("Failed tasks in a batch, at most: a share.", at_least=0, at_most=1)] = 0.5,
    replay: Annotated[float, Option("Past successes beside a batch, in shares of its prompts.", at_least=0)] = 0.5,
    sure: Annotated[float, Option("Replayed actions above this probability are left out.", above=0, at_most=1)] = 0.95,
    unsure: Annotated[float, Option("Replayed actions at most this likely are left out.", at_least=0, below=1)] = 0.5,
    updates: opt.Updates = 4,
    critic_lr: opt.CriticLR = 1.0,
) -> Method:
    """WebRL: a curriculum of failed tasks, a critic of success, and a regression held to the last phase's policy.

    A = lam (r + V(s') - V(s)) + (1 - lam)(r_T - V(s));  V = the smaller of two heads, by cross-entropy on success
    L = mean over actions of (beta sum_t log pi/pi_ref(a_t) - A)^2 + the critic's loss;  pi_ref: the policy at the
    start of the phase, which has `sync` steps
    tasks     failed ones and new ones, where hard <= V(s_0) <= easy
    replay    past successes, action by action where unsure < p <= sure, p the geometric mean of the token probabilities
              under pi_ref

    The loss and its constants are the paper's; the released actor is another method (a sign of a clamped advantage, a
    smooth-L1 loss). The band and the range of p are confirmed by the released code.
    pi = pi_ref with A = 0 has no loss. Departures: new instructions are the source's next tasks, because an environment
    cannot be made of a text that a model writes; reward and success are the environment's in place of an outcome reward
    model's; beta, shares, sync, warmup and updates are ours.
    """
    store = select.TaskStore("successes", per_task=8)
    return method(
        draw=failed_again(task, "env", low=hard, high=easy, share=again, warmup=warmup),
        rollout=rollout.play(n),
        select=chain(beside_successes(store, replay), select.by_turn()),
        credit=chain(
            credit.ref(),
            credit.streams("critic", "policy", value="value"),
            success_advantages(lam),
            fresh_or_familiar("step", unsure, sure),
            credit.last_turn("chance", "turn", "first"),
        ),
        learn=learn.Learn(
            learn.regress_advantage(beta, coef=2 * beta**2, on=learn.CLAIMED),
            learn.chance_fit("success", on=learn.CLAIMED),
            updates=updates,
        ),
        models=roles(ref=snapshot("policy", sync), critic=trained(outputs=2, lr=critic_lr)),
    )
