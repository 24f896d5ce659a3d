"""Tree search over the steps of a reply, and what is read off its trees.

A search of this kind is chosen by five things: the rule and the backup of the tree (rollout/search_tree.py), how nodes
are valued (`Valuation`, rollout/valued.py), the priors of proposals, and what becomes of the trees (`Take`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from burnish.core.parts import Rollout, names, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Task, Trace, Turn
from burnish.rollout.particles import delimiter
from burnish.rollout.reply_tree import Branch, Partial, ReplyTrees
from burnish.rollout.search_tree import Backup, Rule, best_path, mean_of_children, nodes, search, step_values
from burnish.rollout.valued import Valuation
from burnish.score.judge import require_verifier, write_verdicts
from burnish.tasks.source import Source

Priors = Callable[[Sequence[Branch]], None]  # given the proposals in one state, it may change their priors
Done = Callable[[Branch], bool]  # whether a tree, given its root, needs no more visits
Take = Callable[[ReplyTrees], list[Group]]  # what becomes of the trees: a group for each, or none


def by_frequency(children: Sequence[Branch]) -> None:
    """A proposal's prior is its share of those that were sampled, as it is when it is added."""


@supplies("tokens:*", "mu:*", "tag:node", "tag:path", "tag:right", "turn_score:value")
def stepped(
    rounds: int,
    width: int,
    *,
    rule: Rule,
    valuation: Valuation,
    take: Take,
    backup: Backup = mean_of_children,
    priors: Priors = by_frequency,
    done: Done = lambda root: False,
    steps: str = "lines",
    depth: int = 40,
    temperature: float | None = None,
    who: str = "policy",
    writes: Iterable[str] = (),
) -> Rollout:
    """A tree for each task: in each round one visit. A child is the next step, of which a node gets `width` proposals;
    equal ones are one child. After `depth` steps a reply is written to its end.

    steps: lines, paragraphs or after:TEXT. take: what becomes of the trees; writes names what it writes.
    """
    end = delimiter(steps)

    def call(tasks: list[Task], step: Step) -> list[Group]:
        prompts = [Partial(task, (Turn(step.models[who].chat.prompt(task), "task"),)) for task in tasks]
        trees = ReplyTrees(prompts, step, who=who, until=(end,), depth=depth, temperature=temperature)

        def propose(leaves: list[Branch]) -> None:
            new = trees.expand(leaves, width) if leaves else []
            for leaf in leaves:
                priors(leaf.children)
            if new:
                valuation.born(trees, new)

        def evaluate(found: list[Branch]) -> list[tuple[Branch, float]]:
            return valuation.visit(trees, found)

        search(trees.roots, rounds, propose=propose, evaluate=evaluate, rule=rule, backup=backup, done=done)
        groups = take(trees)
        for root in trees.roots:
            step.notes.add("tree/nodes", sum(node.known for node in nodes(root)) - 1)
            step.notes.add("tree/tokens", trees.spent[root])
        return groups

    return Rollout(
        name=f"stepped({rounds} x {width})",
        call=call,
        reads=frozenset({"task:prompt", f"model:{who}.generate"}) | valuation.reads,
        writes=names("tokens", ("task", who)) | names("mu", who) | frozenset(writes),
    )


# ------------------------------------------------------------------------------------------------------ when it is done


# -------------------------------------------------------------------------------------------------- what is read off it

Labels = Callable[[Branch, Callable[[Branch], bool]], dict[Branch, float]]  # (root, is an end right?) -> node -> label


def tree_values(root: Branch, right: Callable[[Branch], bool]) -> dict[Branch, float]:
    """The values of the nodes that have one, as the search left them."""
    return {node: node.value for node in nodes(root) if node.known}


def paths(source: Source, labels: Labels = step_values) -> Take:
    """The finished replies of each tree, with the tag "path", and "right" if the verifier says so.

    turn_scores["value"] has the labels of their steps, NaN where a step has none. Paths share the turns of the nodes
    that they share. Trees without a finished reply are left out.
    """
    require_verifier(source)

    def take(trees: ReplyTrees) -> list[Group]:
        ends = [[node for node in nodes(root) if node.over] for root in trees.roots]
        everyone = [node for some in ends for node in some]
        verdicts = {node: one for node, [one] in zip(everyone, trees.verdicts(source, everyone), strict=True)}
        groups = []
        for root, some in zip(trees.roots, ends, strict=True):
            known = labels(root, lambda node: verdicts[node].correct)
            traces = []
            for i, node in enumerate(some):
                values = [math.nan, *(known.get(each, math.nan) for each in node.path()[1:])]
                tags = frozenset({"path", "right"} if verdicts[node].correct else {"path"})
                traces.append(Trace(node.state.turns, i, turn_scores={"value": values}, tags=tags))
            write_verdicts(traces, [verdicts[node] for node in some])
            trees.step.notes.add("tree/right", sum("right" in trace.tags for trace in traces), max(1, len(traces)))
            groups.append(Group(root.state.task, traces))
        return [group for group in groups if group.traces]

    return take


def best_end(root: Branch) -> Branch:
    """The end with the largest value; where the tree has none, the last node of the best path."""
    ends = [node for node in nodes(root) if node.over and node.known]
    return max(ends, key=lambda node: node.value) if ends else best_path(root)[-1]


def answers(chosen: Callable[[Branch], Branch] = best_end) -> Take:
    """One reply for each tree: that of the chosen node, which the policy finishes where it is not over."""

    def take(trees: ReplyTrees) -> list[Group]:
        at = [chosen(root) for root in trees.roots]
        while going := [i for i, node in enumerate(at) if not node.over]:
            for i, child in zip(going, trees.grow([at[i] for i in going], "answer"), strict=True):
                at[i] = child
        return [Group(node.state.task, [_whole(node)]) for node in at]

    return take


def _whole(node: Branch) -> Trace:
    """A finished reply as one turn: its steps are for the search alone."""
    prompt, first, *rest = node.state.turns
    said = first
    for turn in rest:
        said = said.followed_by(turn)
    return Trace((prompt, said), tags=frozenset({"path"}), note={"stopped": "stop"})
