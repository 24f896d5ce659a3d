"""Recorded states with a label: whether help is to be asked for there."""

from __future__ import annotations

from burnish.core import randomness
from burnish.core.parts import Draw, names, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Task, Trace
from burnish.draw.helper_values import HelperTable, Transition
from burnish.select.remember import Store

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
