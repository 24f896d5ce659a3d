"""Boosting Tool Use of Large Language Models via Iterative Reinforced Fine-Tuning (arXiv 2501.09766).

Demonstrations from easy to hard.

Tree search over partial replies: a node is the beginning of a reply, a child of it the next fragment.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from burnish import credit, draw, learn, rollout, select
from burnish.core.parts import Draw, Rollout, names, supplies
from burnish.core.schedules import after, before
from burnish.core.step import Step
from burnish.core.types import Group, Task
from burnish.learn.terms import preference_pairs as pairs
from burnish.method import Method, Option, Phase, roles
from burnish.methods import opt, register
from burnish.papers import Paper
from burnish.rollout.reply_tree import Branch, Partial, ReplyTrees, node_traces
from burnish.rollout.sample import sample
from burnish.rollout.search_tree import Backup, Rule, nodes, running_mean, search
from burnish.score.judge import judge_traces, require_verifier
from burnish.tasks.source import Source

ITOOL = Paper("itool", "2501.09766", "Boosting Tool Use of Large Language Models via Iterative Reinforced Fine-Tuning")

METRICS = (
    ("deficient", "What was kept", "share of the tasks whose sampled reply is not good enough, and that are searched"),
)


def easier_first(inner: Draw, stages: int, steps: int, *, column: str = "demo") -> Draw:
    """Of `stages` times as many tasks, those of one stage by the length of their demonstration: first the shortest.

    steps: over how many the stages are spread; later steps stay in the last stage.
    """

    def call(step: Step) -> list[Task]:
        prompts = step.settings.prompts
        wide = replace(step, settings=replace(step.settings, prompts=stages * prompts))
        found = sorted(inner.call(wide), key=lambda task: len(str(task.given[column])))
        stage = min(stages - 1, step.clock.step * stages // max(1, steps))
        size = -(-len(found) // stages)
        return found[stage * size : (stage + 1) * size] or found[-size:]

    return replace(inner, name=f"{inner.name}, easier first", call=call)


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
    who: str = "policy",
) -> Rollout:
    """A tree for each deficient task: one whose sampled reply scores less than `enough`; other tasks are left out.

    A child is a fragment of at most `size` tokens, of which a node gets `width`. The value of a new node is the score
    of the reply that the policy makes of it; only the fragments become nodes. One trace for each visited node, with
    its value as score and the tag "node". The run's limit of tokens is that of the whole reply.
    """
    require_verifier(source)
    plain = sample(1, who=who)

    def call(tasks: list[Task], step: Step) -> list[Group]:
        first = plain.call(tasks, step)
        verdicts = judge_traces(source, [(group.task, group.traces[0]) for group in first], step.models[who].chat)
        short = [group for group, verdict in zip(first, verdicts, strict=True) if verdict.score < enough]
        step.notes.add("deficient", len(short), max(1, len(first)))
        prompts = [Partial(group.task, group.traces[0].turns[:1]) for group in short]
        trees = ReplyTrees(prompts, step, who=who, size=size)

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


Rounds = Annotated[int, Option("Visits to each tree.", at_least=1)]
Width = Annotated[int, Option("Replies that are proposed in each state.", at_least=2)]
Explore = Annotated[float, Option("How strongly the search prefers what it has visited less.", at_least=0)]


@register(
    ITOOL,
    family="agents",
    summary="SFT from easy to hard, then tree search over fragments of wrong replies and SimPO on siblings.",
    when="Tool calls with a gold answer: SFT has stopped to help, and replies go wrong at single fragments.",
    example="burnish train itool --task sort",
    trial={"warmup": 0, "rounds": 6, "width": 3, "size": 4, "enough": 2.0},
)
def itool(
    task: draw.Source,
    *,
    warmup: Annotated[int, Option("Steps of SFT from easy to hard.", at_least=0)] = 20,
    rounds: Rounds = 16,
    width: Width = 3,
    size: Annotated[int, Option("Tokens of a fragment.", at_least=1)] = 8,
    enough: Annotated[float, Option("A task whose sampled reply scores this much is not searched.")] = 1.0,
    gap: Annotated[float, Option("The least distance of the values of a pair.", at_least=0)] = 0.1,
    c: Explore = 1.0,
    beta: opt.Beta = 2.0,
    gamma: Annotated[float, Option("SimPO's margin.", at_least=0)] = 1.0,
) -> Method:
    """iTool: a warm-up, then iterated tree search and preference learning.

    Warm-up: SFT on demonstrations in three stages, the shortest third of those drawn first, the longest last
    Then, for tasks whose sampled reply scores less than `enough`: a tree over fragments, values by the verifier's
    score of completed replies;  pairs (w, l) of siblings whose values differ by more than gap
    L = -log s( beta/|w| log pi(w) - beta/|l| log pi(l) - gamma ),  over the fragments' tokens,  mean over pairs

    The loss is SimPO's (the paper's best choice). Its constants could not be read: all numbers here are ours, and
    difficulty by length is too. The score is the task's: a graded match of calls is a reward (--reward). Without a
    tree (size as large as a reply) it is SimPO on sampled replies.
    """
    first = Phase(
        name="warmup",
        times=before(warmup),
        draw=easier_first(draw.demos(task), 3, warmup),
        rollout=rollout.given("demo"),
        learn=learn.Learn(learn.imitate(on="demo")),
    )
    main = Phase(
        times=after(warmup),
        draw=draw.prompts(task),
        rollout=fragments(task, rounds, width, size, rule=rollout.uct(c), enough=enough),
        select=select.sibling_pairs(gap),
        credit=credit.last_turn("reply", "node"),
        learn=learn.Learn(pairs.simpo(beta, gamma, on=learn.CLAIMED), logp_temperature=1.0),
    )
    return Method(models=roles(), phases=(first, main), lr_share=0.1)
