"""Tree search over partial replies: a node is the beginning of a reply, a child of it the next fragment."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace

import torch

from burnish.parts import Rollout, names, supplies
from burnish.rollout.completions import Prefix, continued
from burnish.rollout.sample import sample
from burnish.rollout.search_tree import Backup, Node, Rule, nodes, running_mean, search
from burnish.score.judge import judge, judge_traces, require_verifier
from burnish.step import Step
from burnish.tasks.source import Source
from burnish.types import Group, Sampling, Task, Trace, Turn


@dataclass(frozen=True, eq=False)
class Partial:
    """The beginning of a reply: the prompt, then fragments."""

    task: Task
    turns: tuple[Turn, ...]

    @property
    def said(self) -> torch.Tensor:
        return torch.cat([turn.tokens for turn in self.turns[1:]]) if len(self.turns) > 1 else self.turns[0].tokens[:0]


@supplies("tag:node")
def fragments(
    source: Source,
    rounds: int,
    width: int,
    size: int,
    *,
    rule: Rule,
    enough: float = 1.0,
    backup: Backup = running_mean,
    temperature: float = 1.0,
    who: str = "policy",
) -> Rollout:
    """A tree for each deficient task: one whose sampled reply scores less than `enough`; other tasks are left out.

    A child is a fragment of at most `size` tokens, of which a node gets `width`. The value of a new node is the score
    of the reply that the policy makes of it; only the fragments become nodes. One trace for each visited node, with
    its value as score and the tag "node". The run's limit of tokens is that of the whole reply.
    """
    require_verifier(source)
    plain = sample(1, temperature=temperature, who=who)

    def call(tasks: list[Task], step: Step) -> list[Group]:
        model = step.models[who]
        chat, limit = model.chat, step.settings.max_new_tokens
        first = plain.call(tasks, step)
        verdicts = judge_traces(source, [(group.task, group.traces[0]) for group in first], chat)
        short = [group for group, verdict in zip(first, verdicts, strict=True) if verdict.score < enough]
        step.notes.add("deficient", len(short), max(1, len(first)))
        roots = [Node(Partial(group.task, group.traces[0].turns[:1])) for group in short]
        numbers: dict[int, int] = defaultdict(int)

        def write(states: list[tuple[Node[Partial], int]], noise: str) -> list[tuple[Turn, str]]:
            prefixes = []
            for node, most in states:
                root = node.path()[0]
                numbers[id(root)] += 1
                room = min(limit, model.context - len(node.state.turns[0])) - len(node.state.said)
                start = Prefix(node.state.task, node.state.turns[0], node.state.said, noise, numbers[id(root)], 0)
                prefixes.append(replace(start, most=min(most, room)))
            return continued(prefixes, who, step, Sampling(temperature))

        def propose(leaves: list[Node[Partial]]) -> None:
            wanted = [leaf for leaf in leaves for _ in range(width)]
            for leaf, (new, stopped) in zip(wanted, write([(leaf, size) for leaf in wanted], "fragment"), strict=True):
                turns = (*leaf.state.turns, replace(new, parent=leaf.state.turns[-1]))
                long = sum(len(turn) for turn in turns[1:])
                full = long >= limit or long + len(turns[0]) >= model.context
                leaf.add(Partial(leaf.state.task, turns), over=stopped == "stop" or full)

        def evaluate(found: list[Node[Partial]]) -> list[tuple[Node[Partial], float]]:
            going = [node for node in found if not node.over]
            rest = dict(zip(map(id, going), write([(node, limit) for node in going], "simulation"), strict=True))
            texts = [
                chat.text(
                    torch.cat([node.state.said, rest[id(node)][0].tokens]) if id(node) in rest else node.state.said
                )
                for node in found
            ]
            scores = judge(source, [node.state.task for node in found], texts)
            return [(node, verdict.score) for node, verdict in zip(found, scores, strict=True)]

        search(roots, rounds, propose=propose, evaluate=evaluate, rule=rule, backup=backup)
        for root in roots:
            step.notes.add("tree/nodes", sum(node.visits > 0 for node in nodes(root)) - 1)
        return [Group(root.state.task, _traces(root)) for root in roots]

    return Rollout(
        name=f"fragments({rounds} x {width})",
        call=call,
        reads=plain.reads,
        writes=names("tokens", ("task", who)) | names("mu", who) | names("tag", "node") | names("score", "reward"),
    )


def _traces(root: Node[Partial]) -> list[Trace]:
    visited = [node for node in nodes(root) if node.visits and node.parent is not None]
    return [
        Trace(node.state.turns, i, {"reward": node.value}, tags=frozenset({"node"}), note={"visits": node.visits})
        for i, node in enumerate(visited)
    ]
