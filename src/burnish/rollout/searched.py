"""Tree search over episodes: a node is a state of an environment, a child of it a reply and the state after it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import count

from burnish.core.parts import Rollout, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Task, Trace
from burnish.rollout.episode import Episode
from burnish.rollout.play import note_episodes, of_episodes, replies_to, take_turn
from burnish.rollout.replays import branched
from burnish.rollout.search_tree import Backup, Node, Rule, Value, ends, nodes, running_mean, search, value_of

Branch = Node[Episode]
Opinion = Callable[[list[Branch], Step], None]  # writes facts["critic"] on the children of these nodes
Worth = Callable[[Sequence[Episode], Step], list[float]]  # what finished episodes are worth
Take = Callable[[Branch], list[Trace]]  # what is read off a tree


def earned(episodes: Sequence[Episode], step: Step) -> list[float]:
    """The rewards that the environment paid."""
    return [episode.earned for episode in episodes]


class EpisodeTrees:
    """Trees over the episodes of these tasks, one for each, that grow together in one pass of a run.

    spent  tokens that were sampled for each tree
    """

    def __init__(
        self, tasks: Sequence[Task], step: Step, *, who: str = "policy", temperature: float | None = None
    ) -> None:
        self.step, self.temperature = step, temperature
        self.roots: list[Branch] = [Node(Episode(task, 0, step, who)) for task in tasks]
        for root in self.roots:
            root.state.begin()
            root.over = root.state.over
        self.spent: Counter[Branch] = Counter()
        self._numbers = {root: count(1) for root in self.roots}

    def grow(self, parents: Sequence[Branch]) -> list[Branch | None]:
        """One more reply after each of these nodes; None where the state could not be reached again."""
        above = [parent.path()[0] for parent in parents]
        new = branched([(p.state, next(self._numbers[root]), None) for p, root in zip(parents, above, strict=True)])
        going = [(episode, root) for episode, root in zip(new, above, strict=True) if not episode.over]
        replies = replies_to([episode for episode, _ in going], self.step, temperature=self.temperature)
        for (_, root), reply in zip(going, replies, strict=True):
            self.spent[root] += len(reply.turns[-1])
        take_turn([episode for episode, _ in going], replies)
        return [
            None
            if episode.failure
            else parent.add(episode, over=episode.over or episode.replies >= self.step.settings.turns)
            for parent, episode in zip(parents, new, strict=True)
        ]

    def expand(self, leaves: Sequence[Branch], width: int) -> None:
        """Give each of these leaves `width` children; one whose state cannot be reached again is over."""
        self.grow([leaf for leaf in leaves for _ in range(width - len(leaf.children))])
        for leaf in leaves:
            leaf.over = not leaf.children

    def play_on(self, found: Sequence[Branch]) -> list[Branch]:
        """The ends of the episodes that the policy plays from these nodes; the turns on the way become nodes."""
        at = list(found)
        while going := [i for i, node in enumerate(at) if not node.over]:
            for i, child in zip(going, self.grow([at[i] for i in going]), strict=True):
                if child is None:
                    at[i].over = True
                else:
                    at[i] = child
        return at


@supplies("tag:node")
def searched(
    rounds: int,
    width: int,
    *,
    rule: Rule,
    take: Take,
    backup: Backup = running_mean,
    opinion: Opinion | None = None,
    worth: Worth = earned,
    temperature: float | None = None,
    who: str = "policy",
    reads: Sequence[str] = (),
    writes: Sequence[str] = ("tag:node",),
) -> Rollout:
    """A tree per task: in each round one visit, which the policy plays on to the end of the episode.

    A node that is expanded gets `width` replies, sampled in its state; opinion, if any, then judges them. The turns
    of a visit's episode become nodes too, so every visit ends in a finished episode, whose worth is backed up. All
    trees grow together. Environments return to states as `Episode.branch` does. take: what becomes of a tree.
    """

    def call(tasks: list[Task], step: Step) -> list[Group]:
        trees = EpisodeTrees(tasks, step, who=who, temperature=temperature)
        roots = trees.roots

        def propose(leaves: list[Branch]) -> None:
            trees.expand(leaves, width)
            if opinion is not None:
                opinion(leaves, step)

        def evaluate(found: list[Branch]) -> list[tuple[Branch, float]]:
            at = trees.play_on(found)
            return list(zip(at, worth([node.state for node in at], step), strict=True))

        search(roots, rounds, propose=propose, evaluate=evaluate, rule=rule, backup=backup)
        finished = [[node.state for node in ends(root)] or [root.state] for root in roots]
        note_episodes([episode for one in finished for episode in one], step)
        for root, one in zip(roots, finished, strict=True):
            step.notes.add("tree/nodes", sum(node.visits > 0 for node in nodes(root)) - 1)
            step.notes.add("tree/best", max(episode.earned for episode in one))
        groups = [Group(task, take(root)) for task, root in zip(tasks, roots, strict=True)]
        return [group for group in groups if group.traces]

    return of_episodes(f"searched({rounds} x {width})", call, who, reads=reads, writes=writes)


def replies_with(value: Value = value_of) -> Take:
    """One trace for each visited node, which ends with its reply, with the tag "node"; its score is its value."""

    def take(root: Branch) -> list[Trace]:
        found: list[Trace] = []
        for node in nodes(root):
            if node.visits and node.parent is not None:
                trace = node.state.trace(True)
                trace.index, trace.tags = len(found), trace.tags | {"node"}
                trace.scores["reward"], trace.note["visits"] = value(node), node.visits
                found.append(trace)
        return found

    return take


def finished(root: Branch) -> list[Trace]:
    """The finished episodes of a tree."""
    found = []
    for i, node in enumerate(ends(root)):
        trace = node.state.trace(True)
        trace.index = i
        found.append(trace)
    return found
