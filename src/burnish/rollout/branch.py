"""Replies that branch: continued afresh from points along them, grown as trees, or by one step at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from burnish.core import randomness
from burnish.core.parts import Rollout, names, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Task, Trace, Turn
from burnish.models.chat import Chat
from burnish.rollout.completions import Prefix, continued
from burnish.rollout.sample import sample

Cuts = Callable[[Turn, Chat], list[int]]


def uncertain(below: float, interval: int) -> Cuts:
    """Before every `interval`-th of the tokens that had less than this probability when they were sampled."""
    if interval < 1:
        raise ValueError(f"interval is {interval}; a segment holds at least 1 uncertain token")

    def cuts(turn: Turn, chat: Chat) -> list[int]:
        assert turn.logp is not None
        return (turn.logp.exp() < below).nonzero()[:, 0].tolist()[::interval]

    return cuts


def lines(turn: Turn, chat: Chat) -> list[int]:
    """At the start, and after every token that ends a line: where steps of reasoning begin."""
    return [0, *(i + 1 for i in range(len(turn) - 1) if "\n" in chat.text(turn.tokens[i : i + 1]))]


@supplies("tag:probe")
def probed(n: int, k: int, cuts: Cuts, *, temperature: float | None = None, who: str = "policy") -> Rollout:
    """n replies per task (tag "sample"), and k fresh continuations (tag "probe") from every cut of every reply.

    A reply's note["cuts"] holds the cuts as positions in the trace; a probe's note says "of" which reply and "at" which
    position it is a continuation. A probe holds the reply's tokens up to the cut; its whole length obeys the run's
    limit.
    """
    plain = sample(n, temperature=temperature, who=who)

    def call(tasks: list[Task], step: Step) -> list[Group]:
        groups = plain.call(tasks, step)
        chat, limit = step.models[who].chat, step.settings.max_new_tokens
        wanted: list[tuple[Group, Trace, int, Prefix]] = []
        for group in groups:
            for trace in group.traces:
                prompt, reply = trace.turns
                found = cuts(reply, chat)
                trace.note["cuts"] = [len(prompt) + at for at in found]
                starts = [
                    Prefix(group.task, prompt, reply.tokens[:at], f"probe {trace.index} {at}", i, limit - at)
                    for at in found
                    for i in range(k)
                ]
                wanted += [(group, trace, len(prompt) + len(start.said), start) for start in starts]
        grown = continued([start for *_, start in wanted], who, step, step.sampling(temperature))
        for (group, trace, at, start), (new, stopped) in zip(wanted, grown, strict=True):
            group.traces.append(_probe(group, trace, at, start, new, stopped, who))
        return groups

    return Rollout(
        name=f"probed({n}, {k})",
        call=call,
        reads=plain.reads,
        writes=plain.writes | names("tag", "probe"),
    )


@supplies("tag:tree")
def tree(branch: int, depth: int, segment: int, *, temperature: float | None = None, who: str = "policy") -> Rollout:
    """Replies that share beginnings: each node has `branch` children, for `depth` levels; one trace per leaf.

    Every level but the last writes at most `segment` tokens; the last writes to the end. A reply that ends early is a
    leaf.
    Siblings and cousins share turns, so each turn is claimed once by a term.
    """

    def call(tasks: list[Task], step: Step) -> list[Group]:
        limit, room = step.settings.max_new_tokens, step.models[who].context
        alive = [
            _Path(task, (Turn(step.models[who].chat.prompt(task), "task"),), f"tree {i}")
            for i, task in enumerate(tasks)
        ]
        leaves: dict[str, list[_Path]] = {path.name: [] for path in alive}
        for level in range(depth):
            grown = [path.child(i) for path in alive for i in range(branch)]
            most = [limit - path.said() if level == depth - 1 else min(segment, limit - path.said()) for path in grown]
            starts = [path.start(size) for path, size in zip(grown, most, strict=True)]
            ended = []
            for path, (new, stopped) in zip(
                grown, continued(starts, who, step, step.sampling(temperature)), strict=True
            ):
                path.turns = (*path.turns, replace(new, parent=path.turns[-1]))
                path.stopped = stopped
                full = path.said() >= limit or len(Trace(path.turns)) >= room
                ended.append(stopped == "stop" or full or level == depth - 1)
                if ended[-1]:
                    leaves[path.root()].append(path)
            alive = [path for path, over in zip(grown, ended, strict=True) if not over]
        return [
            Group(task, [path.trace(k) for k, path in enumerate(leaves[f"tree {i}"])]) for i, task in enumerate(tasks)
        ]

    return Rollout(
        name=f"tree({branch}^{depth})",
        call=call,
        reads=frozenset({"task:prompt", f"model:{who}.generate"}),
        writes=names("tokens", ("task", who)) | names("mu", who) | names("tag", "tree"),
    )


@supplies("tokens:state")
def next_steps(m: int, cuts: Cuts = lines, *, temperature: float | None = None, who: str = "policy") -> Rollout:
    """m candidates for one next step per task, from a state on a reply of `who`.

    A reply is sampled and one of its cuts is drawn; what was said up to there is the state (author "state"), and each
    candidate is a fresh continuation of it up to the end of its first line.
    """
    plain = sample(1, temperature=temperature, who=who)

    def call(tasks: list[Task], step: Step) -> list[Group]:
        chat, clock, limit = step.models[who].chat, step.clock, step.settings.max_new_tokens
        shared: list[tuple[Task, tuple[Turn, ...]]] = []
        for group in plain.call(tasks, step):
            prompt, reply = group.traces[0].turns
            at = randomness.rng(clock.seed, "state", clock.step, clock.tick, group.task.key).choice(cuts(reply, chat))
            state = replace(reply.first(at), author="state", logp=None)
            shared.append((group.task, (prompt, state) if at else (prompt,)))
        starts = [
            Prefix(task, turns[0], Trace(turns).tokens[len(turns[0]) :], "step", i, 0)
            for task, turns in shared
            for i in range(m)
        ]
        grown = continued([start.within(limit) for start in starts], who, step, step.sampling(temperature))
        groups = []
        for j, (task, turns) in enumerate(shared):
            candidates = []
            for i, (new, stopped) in enumerate(grown[j * m : (j + 1) * m]):
                first = lines(new, chat)[1:2] or [len(new)]
                said = replace(new.first(first[0]), parent=turns[-1])
                candidates.append(Trace((*turns, said), i, tags=frozenset({"sample"}), note={"stopped": stopped}))
            groups.append(Group(task, candidates))
        return groups

    return Rollout(
        name=f"next_steps({m})",
        call=call,
        reads=plain.reads,
        writes=plain.writes | names("tokens", "state"),
    )


def _probe(group: Group, trace: Trace, at: int, start: Prefix, new: Turn, stopped: str, who: str) -> Trace:
    prompt, reply = trace.turns
    turn = reply.first(len(start.said)).followed_by(new)
    note = {"stopped": stopped, "of": trace.index, "at": at}
    return Trace((prompt, turn), len(group.traces), tags=frozenset({"probe"}), note=note)


@dataclass(eq=False)
class _Path:
    """A path from the root of a tree: its name tells its noise from every other path's."""

    task: Task
    turns: tuple[Turn, ...]
    name: str
    stopped: str = ""

    def child(self, i: int) -> _Path:
        return _Path(self.task, self.turns, f"{self.name}.{i}")

    def root(self) -> str:
        return self.name.partition(".")[0]

    def said(self) -> int:
        return sum(len(turn) for turn in self.turns[1:])

    def start(self, most: int) -> Prefix:
        noise = "tree" + self.name[len(self.root()) :]
        return Prefix(self.task, self.turns[0], Trace(self.turns).tokens[len(self.turns[0]) :], noise, 0, most)

    def trace(self, index: int) -> Trace:
        return Trace(self.turns, index, tags=frozenset({"tree"}), note={"stopped": self.stopped})
