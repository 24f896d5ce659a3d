"""Tree search over partial replies: a node is the beginning of a reply, a child of it the next fragment."""

from __future__ import annotations

from burnish.core.parts import Rollout, names, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Task
from burnish.rollout.reply_tree import Branch, Partial, ReplyTrees, node_traces
from burnish.rollout.sample import sample
from burnish.rollout.search_tree import Backup, Rule, nodes, running_mean, search
from burnish.score.judge import judge_traces, require_verifier
from burnish.tasks.source import Source


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
        first = plain.call(tasks, step)
        verdicts = judge_traces(source, [(group.task, group.traces[0]) for group in first], step.models[who].chat)
        short = [group for group, verdict in zip(first, verdicts, strict=True) if verdict.score < enough]
        step.notes.add("deficient", len(short), max(1, len(first)))
        prompts = [Partial(group.task, group.traces[0].turns[:1]) for group in short]
        trees = ReplyTrees(prompts, step, who=who, size=size, temperature=temperature)

        def propose(leaves: list[Branch]) -> None:
            trees.grow([leaf for leaf in leaves for _ in range(width)])

        def evaluate(found: list[Branch]) -> list[tuple[Branch, float]]:
            return [(node, one.score) for node, [one] in zip(found, trees.verdicts(source, found), strict=True)]

        search(trees.roots, rounds, propose=propose, evaluate=evaluate, rule=rule, backup=backup)
        for root in trees.roots:
            step.notes.add("tree/nodes", sum(node.visits > 0 for node in nodes(root)) - 1)
        return [Group(root.state.task, node_traces(root)) for root in trees.roots]

    return Rollout(
        name=f"fragments({rounds} x {width})",
        call=call,
        reads=plain.reads,
        writes=names("tokens", ("task", who)) | names("mu", who) | names("tag", "node") | names("score", "reward"),
    )
