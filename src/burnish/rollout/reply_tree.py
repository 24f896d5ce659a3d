"""Search trees over replies: a node is the beginning of a reply, a child of it the next step or fragment."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from burnish.core.step import Step
from burnish.core.types import Sampling, Task, Trace, Turn, Verdict
from burnish.rollout.completions import Prefix, continued
from burnish.rollout.search_tree import Node, nodes
from burnish.score.judge import judge
from burnish.tasks.source import Source


@dataclass(frozen=True, eq=False)
class Partial:
    """The beginning of a reply: the prompt, then a turn for each step."""

    task: Task
    turns: tuple[Turn, ...]

    @property
    def said(self) -> Tensor:
        """The tokens after the prompt."""
        return torch.cat([turn.tokens for turn in self.turns[1:]]) if len(self.turns) > 1 else self.turns[0].tokens[:0]


Branch = Node[Partial]


def node_traces(root: Branch) -> list[Trace]:
    """One trace for each node that has a value, which is its score; it ends with the node's step. Tag "node"."""
    found = [node for node in nodes(root) if node.known and node.parent is not None]
    return [
        Trace(node.state.turns, i, {"reward": node.value}, tags=frozenset({"node"}), note={"visits": node.visits})
        for i, node in enumerate(found)
    ]


class ReplyTrees:
    """Trees over the replies of `who`, one for each prompt, that grow together in one pass of a run.

    size   tokens of a step, at most; None: as many as the run allows
    until  texts that end a step
    depth  steps of a reply, at most: the last one goes on to the reply's end
    spent  tokens that were sampled for each tree
    The run's limit of tokens is that of the whole reply.
    """

    def __init__(
        self,
        prompts: Sequence[Partial],
        step: Step,
        *,
        who: str = "policy",
        size: int | None = None,
        until: tuple[str, ...] = (),
        depth: float = math.inf,
        temperature: float | None = None,
    ) -> None:
        self.step, self.who, self.depth, self.settings = step, who, depth, step.sampling(temperature)
        self.model = step.models[who]
        self.limit = step.settings.max_new_tokens
        self.size, self.until = size or self.limit, until
        self.roots: list[Branch] = [Node(one) for one in prompts]
        self.spent: Counter[Branch] = Counter()
        self._numbers: Counter[Branch] = Counter()

    def grow(
        self, parents: Sequence[Branch], noise: str = "fragment", settings: Sampling | None = None
    ) -> list[Branch]:
        """A new child of each of these nodes (of one that stands here several times, several): its next step."""
        last = [len(parent.state.turns) >= self.depth for parent in parents]
        asked = [(parent, self.limit if end else self.size) for parent, end in zip(parents, last, strict=True)]
        until = [() if end else self.until for end in last]
        found = []
        for parent, (new, stopped) in zip(parents, self._write(asked, noise, until, settings), strict=True):
            turns = (*parent.state.turns, replace(new, parent=parent.state.turns[-1]))
            long = sum(len(turn) for turn in turns[1:])
            full = long >= self.limit or long + len(turns[0]) >= self.model.context
            state = Partial(parent.state.task, turns)
            over = stopped == "stop" or full or len(turns) > self.depth
            found.append(parent.add(state, over=over, key=tuple(new.tokens.tolist())))
        return found

    def expand(self, leaves: Sequence[Branch], width: int) -> list[Branch]:
        """The new children of these leaves: `width` proposals each, of which equal ones are one child.

        A child's prior is its share of the proposals, facts["logp"] the log-prob of its step.
        """
        self.grow([leaf for leaf in leaves for _ in range(width)], "step")
        for leaf in leaves:
            times = Counter(child.key for child in leaf.children)
            leaf.children = list({child.key: child for child in reversed(leaf.children)}.values())[::-1]
            for child in leaf.children:
                logp = child.state.turns[-1].logp
                child.prior = times[child.key] / sum(times.values())
                child.facts["logp"] = 0.0 if logp is None else float(logp.sum())
        return [child for leaf in leaves for child in leaf.children]

    def replies(self, at: Sequence[Branch], k: int = 1, noise: str = "simulation") -> list[list[Tensor]]:
        """k whole replies for each node, as tokens after the prompt: itself where it is over, else k completions."""
        going = [node for node in at if not node.over for _ in range(k)]
        rest = iter(self._write([(node, self.limit) for node in going], noise))
        return [
            [node.state.said] * k
            if node.over
            else [torch.cat([node.state.said, next(rest)[0].tokens]) for _ in range(k)]
            for node in at
        ]

    def verdicts(self, source: Source, at: Sequence[Branch], k: int = 1) -> list[list[Verdict]]:
        """What the verifier says of k whole replies from each node; one that is over is judged once."""
        many = [replies[:1] if node.over else replies for node, replies in zip(at, self.replies(at, k), strict=True)]
        asked = [(node, tokens) for node, replies in zip(at, many, strict=True) for tokens in replies]
        texts = [self.model.chat.text(tokens) for _, tokens in asked]
        found = iter(judge(source, [node.state.task for node, _ in asked], texts))
        return [[next(found) for _ in replies] for replies in many]

    def scores(self, model: str, at: Sequence[Branch]) -> list[float]:
        """What a scoring model says at the last token of each of these nodes."""
        traces = [Trace(node.state.turns) for node in at]
        masks = [torch.arange(len(trace)) == len(trace) - 1 for trace in traces]
        found = self.step.models[model].streams(traces, masks, {"score"}, self.step.settings.token_budget)
        return [float(one["score"][-1]) for one in found]

    def _write(
        self,
        asked: Sequence[tuple[Branch, int]],
        noise: str,
        until: Sequence[tuple[str, ...]] | None = None,
        settings: Sampling | None = None,
    ) -> list[tuple[Turn, str]]:
        """What is written after each of these nodes, at most so many tokens, and why it ended."""
        prefixes = []
        for i, (node, most) in enumerate(asked):
            root = node.path()[0]
            self._numbers[root] += 1
            prompt, said = node.state.turns[0], node.state.said
            room = min(self.limit, self.model.context - len(prompt)) - len(said)
            stops = until[i] if until is not None else ()
            number = self._numbers[root]
            prefixes.append(Prefix(node.state.task, prompt, said, noise, number, min(most, room), stops))
        found = continued(prefixes, self.who, self.step, settings or self.settings)
        for (node, _), (new, _) in zip(asked, found, strict=True):
            self.spent[node.path()[0]] += len(new)
        return found
