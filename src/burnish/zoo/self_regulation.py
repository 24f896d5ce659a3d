"""Self-Regulation and Requesting Interventions (arXiv 2502.04576).

When to ask for help: tabular values of recorded states, and the price of help that keeps to a budget of requests.

    V(s) = max(V_cont(s), V_help(s) - price);   V_a(s) = mean over the recorded steps (s, a, r, s') of r + V(s')

Help is asked for in s where V_help(s) - price > V_cont(s). Reconstructed from the abstract of arXiv 2502.04576.

Recorded states with a label: whether help is to be asked for there.

Episodes in which some replies are written by a stronger model: help that is asked for at random, or by a gate.

Labels of states for a helper that decides whether to ask for help.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import torch

from burnish import credit, draw, learn, select
from burnish.core import randomness
from burnish.core.parts import Draw, Part, Rollout, names, per_trace, supplies
from burnish.core.schedules import after, every
from burnish.core.step import Step
from burnish.core.types import Group, Task, Trace, Turn
from burnish.method import Method, Option, Phase, chain, frozen, roles, trained
from burnish.methods import opt, register
from burnish.papers import Paper
from burnish.rollout.episode import PLAY, Episode
from burnish.rollout.play import note_episodes
from burnish.rollout.sample import continue_from
from burnish.score.reading import end_scores
from burnish.select.remember import Store

SELF_REGULATION = Paper("self-regulating-helper", "2502.04576", "Self-Regulation and Requesting Interventions")

METRICS = (
    (
        "help_price",
        "What was sampled",
        "the price of a request for help at which the recorded episodes keep to the budget",
    ),
    (
        "help_planned",
        "What was sampled",
        "requests of an episode that the values of the recorded states expect at that price",
    ),
    ("help_labels", "What was sampled", "share of the trained states in which help is to be asked for"),
    ("help_asked", "What was sampled", "requests of an episode with the helper in charge"),
    ("assisted_reward", "What was sampled", "mean reward of the episodes with the helper in charge", "up"),
    ("random_help_asked", "What was sampled", "requests of an episode while help comes at random"),
    ("random_help_reward", "What was sampled", "mean reward of the episodes with help at random", "up"),
)


SWEEPS = 1000  # most passes over the table; states that cannot be met again need as many as episodes have turns
HALVINGS = 30
_DEAR = 1e9  # a price that nothing is worth

Numbers = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Transition:
    """One recorded step. helped: whether help wrote it; after: the next state, None at the end of the episode."""

    state: str
    helped: bool
    reward: float
    after: str | None


class HelperTable:
    """The recorded steps by state and action, as matrices, and where episodes begin."""

    def __init__(self, steps: Sequence[Transition], starts: Sequence[str]) -> None:
        names = dict.fromkeys(state for step in steps for state in (step.state, step.after) if state is not None)
        self.place = {state: i for i, state in enumerate(names)}
        size = len(self.place)
        self.starts = np.array([self.place[state] for state in starts], dtype=np.int64)
        at = {helped: [step for step in steps if step.helped is helped] for helped in (False, True)}
        self.many = {helped: np.bincount(self._of(own), minlength=size) for helped, own in at.items()}
        self.paid = {helped: self._mean(helped, self._of(own), [s.reward for s in own]) for helped, own in at.items()}
        going = {helped: [step for step in own if step.after is not None] for helped, own in at.items()}
        self.rows = {helped: self._of(own) for helped, own in going.items()}
        self.next = {
            helped: np.array([self.place[step.after] for step in own if step.after is not None], dtype=np.int64)
            for helped, own in going.items()
        }

    def _of(self, steps: Sequence[Transition]) -> Numbers:
        return np.array([self.place[step.state] for step in steps], dtype=np.int64)

    def _mean(self, helped: bool, rows: Numbers, values: Sequence[float] | Numbers) -> Numbers:
        """The mean of the values of each state's steps with this action; 0 where there are none."""
        total = np.bincount(rows, weights=np.asarray(values, dtype=float), minlength=len(self.place))
        return total / np.maximum(1, self.many[helped])

    def _later(self, helped: bool, values: Numbers) -> Numbers:
        """The mean of a number of the next states, which is 0 at the end of an episode."""
        return self._mean(helped, self.rows[helped], values[self.next[helped]])

    def _options(self, values: Numbers, price: float) -> dict[bool, Numbers]:
        """The value of each action in every state; -inf where it was not recorded."""
        found = {}
        for helped in (False, True):
            worth = self.paid[helped] + self._later(helped, values) - price * helped
            found[helped] = np.where(self.many[helped] > 0, worth, -np.inf)
        return found

    def _settled(self, update: Callable[[Numbers], Numbers]) -> Numbers:
        """The fixed point of an update, from zeros."""
        found = np.zeros(len(self.place))
        for _ in range(SWEEPS):
            new = update(found)
            if np.abs(new - found).max(initial=0.0) < 1e-12:
                break
            found = new
        return found

    def _values(self, price: float) -> Numbers:
        def update(values: Numbers) -> Numbers:
            options = self._options(values, price)
            best = np.maximum(options[False], options[True])
            return np.where(np.isinf(best), 0.0, best)  # a state without a recorded step

        return self._settled(update)

    def _asks(self, price: float) -> Numbers:
        options = self._options(self._values(price), price)
        return options[True] > options[False]

    def values(self, price: float) -> dict[str, float]:
        """V of every state, by value iteration. An action that was not recorded in a state is not chosen there."""
        found = self._values(price)
        return {state: float(found[i]) for state, i in self.place.items()}

    def asks(self, price: float) -> dict[str, bool]:
        """Whether help is asked for in each state in which both actions were recorded."""
        found, both = self._asks(price), (self.many[False] > 0) & (self.many[True] > 0)
        return {state: bool(found[i]) for state, i in self.place.items() if both[i]}

    def requests(self, price: float) -> float:
        """The expected number of requests of an episode, over the recorded beginnings."""
        asks = self._asks(price)

        def update(expected: Numbers) -> Numbers:
            return np.where(asks, 1 + self._later(True, expected), self._later(False, expected))

        return float(self._settled(update)[self.starts].mean()) if len(self.starts) else 0.0

    def price_for(self, budget: float) -> float:
        """The lowest price, by bisection, at which at most `budget` requests are expected; 0 if all fit into it.

        States in which only help was recorded ask at any price; they do not count against the search.
        """
        allowed = max(budget, self.requests(_DEAR))
        if self.requests(0.0) <= allowed:
            return 0.0
        low, high = 0.0, 1.0
        while self.requests(high) > allowed:
            low, high = high, 2 * high
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            low, high = (low, middle) if self.requests(middle) <= allowed else (middle, high)
        return high


HELP = "expert"  # the author of helping replies


POOLS = ("task", "all")  # which states with equal names are one state: those of one task, or of all tasks


def recorded_steps(group: Group, trace: Trace, pool: str = "task") -> list[tuple[Transition, int]]:
    """The steps of an episode, each with the index of its turn. States are named by the environment's keys, else by
    their tokens, and with pool "task" by their task, too."""
    within = f"{group.task.key} | " if pool == "task" else ""
    turns = [i for i, turn in enumerate(trace.turns) if turn.author in ("policy", HELP)]
    keys = trace.note.get("keys") or []
    states = []
    for k, turn in enumerate(turns):
        own = keys[k] if k < len(keys) and keys[k] is not None else None
        said = own if own is not None else randomness.key_of([t.tokens.tolist() for t in trace.turns[:turn]])
        states.append(f"{within}{said}")
    rewards, following = trace.turn_scores["reward"], [*states[1:], None]
    return [
        (Transition(states[k], trace.turns[i].author == HELP, rewards[i], following[k]), i) for k, i in enumerate(turns)
    ]


@supplies("given:trace", "given:turn", "given:asks")
def helper_states(store: Store, budget: float, pool: str = "task") -> Draw:
    """Labelled states of the stored episodes, as many as the run has prompts, drawn uniformly.

    Each has its episode (given["trace"]), the turn that it comes before (given["turn"]), and given["asks"], whether
    help is to be asked for at the price that keeps to the budget.

    Only states in which both actions were recorded have a label. pool: one of POOLS.
    """
    seen: dict[str, object] = {}

    def labelled() -> tuple[list[tuple[Group, Trace, int, bool]], float, float]:
        if seen.get("written") != store.written:
            steps = [
                (group, trace, recorded_steps(group, trace, pool)) for group in store.groups for trace in group.traces
            ]
            table = HelperTable(
                [s for _, _, own in steps for s, _ in own], [own[0][0].state for _, _, own in steps if own]
            )
            price = table.price_for(budget)
            asks = table.asks(price)
            rows = [(g, t, i, asks[s.state]) for g, t, own in steps for s, i in own if s.state in asks]
            seen.update(written=store.written, found=(rows, price, table.requests(price)))
        return seen["found"]  # type: ignore[return-value]

    def call(step: Step) -> list[Task]:
        rows, price, requests = labelled()
        step.notes.add("help_price", price)
        step.notes.add("help_planned", requests)
        clock = step.clock
        dice = randomness.rng(clock.seed, "helper states", clock.step, clock.tick, store.written)
        drawn = [dice.choice(rows) for _ in range(step.settings.prompts if rows else 0)]
        return [
            Task("past", g.task.prompt, {**g.task.given, "trace": t, "turn": i, "asks": asks}, g.task.key)
            for g, t, i, asks in drawn
        ]

    return Draw(
        name=f"helper_states({budget:g})",
        call=call,
        reads=frozenset({f"store:{store.name}"}),
        writes=frozenset({"task:prompt"}) | names("given", ("trace", "turn", "asks")),
        state=(store,),
    )


Gate = Callable[[list[Episode], Step], list[bool]]


@supplies("tokens:expert", "turn_score:reward", "score:reward")
def assisted(n: int, *, share: float = 0.5, gate: str | None = None, expert: str = "expert") -> Rollout:
    """n episodes per task; each reply is the expert's where help is asked for, else the policy's.

    gate: the model with one output that asks for help where its score of the state is above 0; without one, help is
    asked for with probability `share`. The environment rewards as in `play`. Metrics: help_asked and assisted_reward
    with a gate, random_help_asked and random_help_reward without one.
    """

    def call(tasks: list[Task], step: Step) -> list[Group]:
        episodes = [Episode(task, i, step, "policy") for task in tasks for i in range(n)]
        for episode in episodes:
            episode.begin()
        asked = 0
        for _ in range(step.settings.turns):
            running = [episode for episode in episodes if not episode.over]
            if not running:
                break
            wants = _at_random(running, share, step) if gate is None else _by_gate(running, gate, step)
            asked += sum(wants)
            for who, helped in (("policy", False), (expert, True)):
                some = [episode for episode, want in zip(running, wants, strict=True) if want == helped]
                starts = [(one.task, tuple(one.turns), one.number()) for one in some]
                said = continue_from(starts, who, step, tag="play") if some else []
                for episode, trace in zip(some, said, strict=True):
                    episode.reply(trace.turns[-1])
            for episode in running:
                episode.answer()
        note_episodes(episodes, step)
        traces = [episode.trace(True, PLAY) for episode in episodes]
        names_of = ("random_help_asked", "random_help_reward") if gate is None else ("help_asked", "assisted_reward")
        step.notes.add(names_of[0], asked, max(1, len(episodes)))
        step.notes.add(names_of[1], sum(trace.scores["reward"] for trace in traces), len(traces))
        return [Group(task, traces[k * n : (k + 1) * n]) for k, task in enumerate(tasks)]

    earned = frozenset({"turn_score:reward", "score:reward"} if gate is None else ())  # with a gate it is measured only
    asks = {"model:policy.generate", f"model:{expert}.generate"} | ({f"model:{gate}.score"} if gate else set())
    return Rollout(
        name=f"assisted({n}, {gate or share})",
        call=call,
        reads=frozenset({"task:prompt", "given:env"} | asks),
        writes=names("tokens", ("task", "env", "policy", expert)) | names("mu", "policy") | earned | {f"tag:{PLAY}"},
    )


def _at_random(running: list[Episode], share: float, step: Step) -> list[bool]:
    clock = step.clock
    return [
        randomness.rng(clock.seed, "help", clock.step, clock.tick, one.task.key, one.number()).random() < share
        for one in running
    ]


def _by_gate(running: list[Episode], gate: str, step: Step) -> list[bool]:
    traces = [Trace(tuple(one.turns)) for one in running]
    return [float(score) > 0 for score in end_scores(traces, step.models[gate], step.settings.token_budget)]


@supplies("tokens:task")
def states() -> Rollout:
    """The stored episode of each task up to the reply that it names: one trace, whose last token ends the state."""

    def call(tasks: list[Task], step: Step) -> list[Group]:
        found = []
        for task in tasks:
            past: tuple[Turn, ...] = task.given["trace"].turns[: task.given["turn"]]
            found.append(Group(task, [Trace(past)]))
        return found

    return Rollout(
        name="states", call=call, reads=names("given", ("trace", "turn")), writes=names("tokens", ("task", "env"))
    )


@supplies("stream:label")
def asks_for_help() -> Part:
    """Stream "label" is 1 at the last token of a state where help is to be asked for, 0 where not."""

    def write(trace: Trace, group: Group, step: Step) -> None:
        asks = float(group.task.given["asks"])
        last = torch.arange(len(trace)) == len(trace) - 1
        trace.streams["label"] = torch.where(last, asks, torch.nan)
        step.notes.add("help_labels", asks)

    return per_trace(
        write,
        name="asks_for_help",
        reads=frozenset({"tokens:task", "given:asks"}),
        writes=frozenset({"stream:label"}),
    )


@register(
    SELF_REGULATION,
    family="agents",
    summary="Learn when to ask a stronger model for help, within a budget of requests.",
    when="A stronger model can take over single turns, each costs, and you want to know which are worth it.",
    example="burnish train self_regulating --task guess:1 --expert runs/DIR/model --max-new-tokens 8",
    trial={"task": "guess", "n": 4, "collect": 0, "expert": "tiny"},
)
def self_regulating(
    task: draw.Source,
    *,
    expert: Annotated[str, Option("The stronger model that helps: a name or directory, with the policy's tokenizer.")],
    budget: Annotated[float, Option("Requests for help that an episode may make on average.", at_least=0)] = 1.0,
    n: opt.Replies = 8,
    share: Annotated[
        float, Option("Chance of help in a turn while episodes are recorded.", at_least=0, at_most=1)
    ] = 0.5,
    collect: Annotated[int, Option("Steps that only record episodes.", at_least=0)] = 10,
    pool: Annotated[
        str,
        Option("Which states with the same key() are one state: those of one task, or of all tasks.", choices=POOLS),
    ] = "task",
    capacity: Annotated[int, Option("Recorded replies that are kept.", at_least=1)] = 20_000,
    measure_every: Annotated[int, Option("Steps between episodes with the helper in charge.", at_least=1)] = 10,
) -> Method:
    """Self-regulation by offline values of states, reconstructed from the abstract.

    Episodes of a frozen policy are recorded in which help (the expert writes the turn) comes at random.
    V(s) = max(V_cont(s), V_help(s) - lambda), V_a(s) = mean over recorded steps of r + V(s'); lambda by bisection, the
    lowest at which an episode expects at most `budget` requests.  y(s) = 1 if V_help(s) - lambda > V_cont(s), else 0
    L = mean over states of -y log sigmoid(h(s)) - (1 - y) log(1 - sigmoid(h(s))); the helper asks where h(s) > 0

    The product is the helper. budget = 0 never asks. States are those that the environment's key() names; states in
    which one of the two actions was not recorded have no label. V is a mean over the steps that were recorded in a
    state: where states are met a few times only, labels are noise and the helper learns never to ask. Then let key()
    name what matters alone, such as what is left to do, and use pool = all. Departures: the rewards of recorded
    episodes stand for the success probability that the paper takes from a process reward model; the recursion and the
    bisection are ours.
    """
    replay = select.Store("helper replay", capacity, select.turns_by("policy"))
    asked = draw.prompts(task, "env")
    record = Phase(
        name="record",
        draw=asked,
        rollout=assisted(n, share=share),
        select=select.remember(replay, "score:reward", "turn_score:reward"),
        learn=learn.Learn(),
    )
    main = Phase(
        times=after(collect),
        draw=helper_states(replay, budget, pool),
        rollout=states(),
        credit=chain(asks_for_help(), credit.claim("ask", "task", "env", positions="end")),
        learn=learn.Learn(learn.step_chance("label", trainee="helper", name="ask")),
    )
    gated = Phase(
        name="gated",
        times=every(measure_every, collect + measure_every - 1),
        draw=asked,
        rollout=assisted(n, gate="helper"),
        learn=learn.Learn(),
    )
    models = roles("helper", helper=trained(outputs=1), policy=frozen("base"), expert=frozen(expert))
    return Method(models=models, phases=(record, main, gated), product="helper")
