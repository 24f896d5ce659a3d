"""Agent-R: Training Language Model Agents to Reflect via Iterative Self-Training (arXiv 2501.11425).

Bad paths that turn into good ones: the beginning of a bad episode, a revision, and the end of a good one.

Which steps of an episode are bad, by a model's own judgement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

import torch

from burnish import draw, learn, rollout
from burnish.core import randomness
from burnish.core.parts import Part, supplies
from burnish.core.schedules import Schedule, at, linear
from burnish.core.step import Step
from burnish.core.types import Group, Trace, Turn
from burnish.method import Method, Option, method, roles
from burnish.methods import opt, register
from burnish.models.chat import Chat
from burnish.papers import Paper
from burnish.score.words import told, word_logps

AGENT_R = Paper(
    "agent-r", "2501.11425", "Agent-R: Training Language Model Agents to Reflect via Iterative Self-Training"
)

METRICS = (
    ("steps_judged_bad", "What was kept", "share of the steps that the policy itself calls bad"),
    ("revised", "What was kept", "share of the rows that turn a bad episode into a good one"),
)


REVISIONS = (
    "That last step was a mistake. I will try another way.",
    "My last step does not lead to the goal. I change my plan.",
    "I see now that this step was wrong. Let me correct it.",
    "This is not working. I go back to what I know and try again.",
    "I made an error in my last step. The next one will be different.",
    "What I just did does not help. I need another action.",
    "I took a wrong turn there. Let me think again and fix it.",
    "The last step was not right, so I start from a better one.",
    "I should not have done that. Here is a better step.",
    "My plan was wrong up to here. I revise it now.",
)

NOTES = {"bad": "which of its turns a judge or the policy calls bad steps"}


@supplies("tokens:revision")
def revisions(
    alpha: Schedule,
    beta: float,
    *,
    words: Sequence[str] = REVISIONS,
    author: str = "policy",
    reader: str = "policy",
) -> Part:
    """The good episodes of each group, and for each bad one a row that turns it into a good one (Agent-R, 2501.11425).

    An episode is good if its reward is above alpha. A bad one has a reward more than beta below the largest; of the
    episodes with that reward it is joined with the one that shares its beginning longest, then the shortest one. The
    row: the bad episode up to its first bad step after that beginning and the environment's answer (author "past", not
    trained on), a revision (author "revision") that the environment answers with "ok.", and the good episode after the
    beginning that both share. Turns are shared if they have the same tokens. The revision is one of `words`. A bad
    episode without a bad step there, or whose bad step was its last, gives no row.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        model, kept, made = step.models[reader], [], 0
        for group in groups:
            good = [trace for trace in group.traces if trace.scores["reward"] > at(alpha, step.clock)]
            if not good:
                continue
            most = max(trace.scores["reward"] for trace in good)
            best = [trace for trace in good if trace.scores["reward"] == most]
            rows = []
            for trace in group.traces:
                joined = beside(trace, best) if most - trace.scores["reward"] > beta else None
                if joined is not None:
                    dice = randomness.rng(step.clock.seed, "revision", step.clock.step, group.task.key, trace.index)
                    row = spliced(trace, *joined, dice.choice(words), model.chat, author)
                    if len(row) <= model.context:
                        rows.append(row)
            made += len(rows)
            group.traces = [*good, *rows]
            for i, trace in enumerate(group.traces):
                trace.index = i
            kept.append(group)
        step.notes.add("dropped/no_good_episode", len(groups) - len(kept), max(1, len(groups)))
        step.notes.add("revised", made, max(1, sum(len(group.traces) for group in kept)))
        return kept

    return Part(
        name="revisions",
        call=call,
        reads=frozenset({"score:reward", "tag:judged", f"tokens:{author}"}),
        writes=frozenset({"tokens:revision", "tokens:past"}),
        updates=frozenset({f"tokens:{author}"}),
    )


def shared(bad: Trace, good: Trace) -> int:
    """How many turns two episodes share at their beginnings: those with the same tokens."""
    pairs = enumerate(zip(bad.turns, good.turns, strict=False))
    return next((i for i, (a, b) in pairs if not same(a, b)), min(len(bad.turns), len(good.turns)))


def same(a: Turn, b: Turn) -> bool:
    return a is b or (a.author == b.author and torch.equal(a.input_keys, b.input_keys))


def beside(bad: Trace, best: Sequence[Trace]) -> tuple[Trace, int] | None:
    """The episode of `best` with which a bad one is joined, and the bad step after which it is cut; None: nowhere."""
    good = max(best, key=lambda trace: (shared(bad, trace), -len(trace.turns)))
    first = next((i for i in bad.note["bad"] if i >= shared(bad, good)), len(bad.turns))
    return (good, first) if first + 1 < len(bad.turns) else None


def spliced(bad: Trace, good: Trace, first_bad: int, words: str, chat: Chat, author: str = "policy") -> Trace:
    """The bad trace up to the answer to turn `first_bad`, a revision, "ok.", the good trace after what both share."""
    turns = [bad.turns[0]]
    for turn in bad.turns[1 : first_bad + 2]:
        turns.append(replace(turn, author="past" if turn.author == author else turn.author, parent=turns[-1]))
    turns.append(Turn(chat.reply(words), "revision", parent=turns[-1]))
    turns.append(Turn(chat.observation("ok."), "env", parent=turns[-1]))
    for turn in good.turns[shared(bad, good) :]:
        turns.append(replace(turn, parent=turns[-1]))
    scores = {"reward": good.scores["reward"]}
    return Trace(tuple(turns), scores=scores, tags=frozenset({"revised"}), note={"bad": []})


GRADES = ("good", "uncertain", "bad")
QUESTION = "Is the agent's last step good, bad or uncertain? Answer with one word."


@supplies("tag:judged")
def bad_steps(*, who: str = "policy", author: str = "policy") -> Part:
    """note["bad"] = which of the trace's turns are steps that `who` calls bad, in their order.

    It reads the episode up to each step and the answer to it, and says good, uncertain or bad: the word with the
    largest log-prob. The answer to the last step is not part of an episode.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        chat = step.models[who].chat
        asked: dict[int, list[tuple[Trace, int]]] = {}  # a turn that traces share is judged once
        for trace in (trace for group in groups for trace in group.traces):
            trace.tags |= {"judged"}
            trace.note["bad"] = []
            for i, turn in enumerate(trace.turns):
                if turn.author == author:
                    asked.setdefault(id(turn), []).append((trace, i))
        firsts = [places[0] for places in asked.values()]
        questions = [f"{told(trace.turns[: i + 2], chat)}\n{QUESTION}" for trace, i in firsts]
        for places, logps in zip(asked.values(), word_logps(questions, GRADES, who, step), strict=True):
            bad = GRADES[max(range(len(GRADES)), key=logps.__getitem__)] == "bad"
            step.notes.add("steps_judged_bad", float(bad))
            for trace, i in places if bad else ():
                trace.note["bad"] = sorted([*trace.note["bad"], i])
        return groups

    return Part(
        name="bad_steps",
        call=call,
        reads=frozenset({f"tokens:{author}", f"model:{who}.logp"}),
        writes=frozenset({"tag:judged"}),
    )


Rounds = Annotated[int, Option("Visits to each tree.", at_least=1)]
Width = Annotated[int, Option("Replies that are proposed in each state.", at_least=2)]
Explore = Annotated[float, Option("How strongly the search prefers what it has visited less.", at_least=0)]
_TREE = {"task": "guess", "rounds": 4, "width": 3}


@register(
    AGENT_R,
    family="agents",
    summary="Imitate episodes that notice their first mistake and turn into good ones, found by tree search.",
    when="An agent repeats its mistakes to the end of an episode: it should notice and correct them on the way.",
    example="burnish train agent_r --task guess",
    trial={**_TREE, "alpha": 0.5, "final": 0.5},
)
def agent_r(
    task: draw.Source,
    *,
    rounds: Rounds = 16,
    width: Width = 4,
    c: Explore = 0.25,
    alpha: Annotated[float, Option("Reward above which an episode is good, at the start.")] = 0.5,
    final: Annotated[float, Option("The same at the end of the run.")] = 0.9,
    beta: Annotated[float, Option("How much worse than the best a bad episode is at least.", at_least=0)] = 0.2,
    revision: Annotated[
        str | None, Option("What the policy says when it revises, with | between several; unset: ten sentences.")
    ] = None,
    updates: opt.Updates = 4,
    minibatches: opt.Minibatches = 4,
) -> Method:
    """Agent-R: search for good and bad episodes, splice them, imitate.

    Search by Q + c sqrt(ln N / n), unvisited first, running means. An episode is good if R > alpha; a bad one has
    R < R(best) - beta. The policy itself judges each step of the bad one as good, uncertain or bad.
    row = bad episode up to and with its first bad step (no loss) + one of ten revision sentences (loss) +
          "ok." + a best episode after the turns that the two share (loss)
    L = -(1/N) sum over the N tokens of rows and good episodes that have loss of log pi

    Of the best episodes a bad one gets the one that shares its beginning longest, and its first bad step is looked for
    after that. alpha rises linearly to `final`. Without bad episodes it is rejection-sampling fine-tuning. As in the
    paper, each round's episodes are imitated in many updates before the next round is played. The thresholds and the
    number of updates are ours: the release compares numbers with strings. The environment has to take a revision as an
    action without effect, and the good episode has to make sense after the bad step: nothing is played again. The
    policy has to be able to say a revision. Departures: the judgement is the likeliest of the three words, and no chat
    data is mixed in.
    """
    return method(
        draw=draw.prompts(task, "env"),
        rollout=rollout.searched(rounds, width, rule=rollout.uct(c), take=rollout.finished, writes=()),
        score=bad_steps(),
        select=revisions(linear(alpha, final), beta, words=revision.split("|") if revision else REVISIONS),
        learn=learn.Learn(
            learn.imitate(on=("policy", "revision")), updates=updates, minibatches=minibatches, logp_temperature=1.0
        ),
        models=roles(),
    )
