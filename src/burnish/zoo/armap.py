"""Scaling Autonomous Agents via Automatic Reward Modeling And Planning (arXiv 2502.12130).

Episodes that a reward model values: tried again with reflection until one is good enough.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from burnish import credit, draw, learn, rollout, score, select
from burnish.core import randomness
from burnish.core.parts import Part, names, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Task, Trace, Turn
from burnish.learn.terms import reward as terms
from burnish.method import Method, Option, Rollout, chain, everything, frozen, method, roles, trained
from burnish.methods import opt, register
from burnish.models.chat import Chat
from burnish.papers import Paper
from burnish.rollout.conditioned import conditioned
from burnish.rollout.episode import Episode
from burnish.rollout.intents import written
from burnish.rollout.play import note_episodes, of_episodes, play_on, take_turn
from burnish.rollout.replays import branched
from burnish.rollout.search_tree import Rule, Value, ends, value_of
from burnish.rollout.searched import Branch, Worth, earned, finished
from burnish.score.model import only_score
from burnish.score.reading import end_scores, require_same_tokens
from burnish.score.words import told

ARMAP = Paper("armap", "2502.12130", "Scaling Autonomous Agents via Automatic Reward Modeling And Planning")

METRICS = (
    (
        "score/chosen_reward",
        "What was kept",
        "mean reward of the environment for the episodes that another score chose",
        "up",
    ),
)


REFLECT = "The attempt was not good enough. Write in one sentence what to do better next time."


INTENT = "Write the instruction that the agent carries out here, in one sentence."


MISS = "Write another last step for the agent, with which it just fails this instruction: "


@supplies("tag:chosen", "tag:rejected")
def intents(*, who: str = "start", writer: str = "writer", temperature: float | None = None) -> Rollout:
    """Two traces per task: an episode of `who` under the intent that the writer reads off it (tag "chosen"), and a near
    miss of it under the same intent (tag "rejected").

    The writer is shown the episode and writes the intent, which stands in place of the prompt. The near miss is the
    episode up to a drawn step, in whose place the environment gets one that the writer has written so that the intent
    fails; then `who` plays on to the end. An episode whose step the writer repeats, or whose state cannot be reached
    again, has no near miss and is left out.
    """

    def call(tasks: list[Task], step: Step) -> list[Group]:
        played = [Episode(task, 0, step, who, keep=True) for task in tasks]
        for episode in played:
            episode.begin()
        play_on(played, step, step.settings.turns, temperature=temperature)
        kept = [(e, e.trace(True)) for e in played if e.replies and not e.failure]
        chat = step.models[writer].chat
        stories = [told(trace.turns, chat) for _, trace in kept]
        found = written(
            [(e.task, f"{story}\n{INTENT}") for (e, _), story in zip(kept, stories, strict=True)], writer, step
        )
        goals = [chat.text(turn.tokens) or e.task.key for turn, (e, _) in zip(found, kept, strict=True)]
        near = branched([(episode, 1, _a_step(episode, step)) for episode, _ in kept])
        asks = [(e.task, f"{told(e.turns, chat)}\n{MISS}{goal}") for e, goal in zip(near, goals, strict=True)]
        steps = [replace(said, parent=e.turns[-1]) for said, e in zip(written(asks, writer, step), near, strict=True)]
        able = [i for i, episode in enumerate(near) if not episode.over]
        take_turn([near[i] for i in able], [Trace((*near[i].turns, steps[i])) for i in able])
        play_on(near, step, step.settings.turns, temperature=temperature)
        note_episodes([*played, *near], step)
        return [
            Group(first.task, _pair(trace, second, Turn(chat.prompt(replace(first.task, prompt=goal)), "task")))
            for (first, trace), second, said, goal in zip(kept, near, steps, goals, strict=True)
            if not second.failure and _differs(trace, second, said, chat)
        ]

    return Rollout(
        name="intents",
        call=call,
        reads=frozenset({"task:prompt", "given:env", f"model:{who}.generate", f"model:{writer}.generate"}),
        writes=names("tokens", ("task", "env", who, writer)) | names("tag", ("chosen", "rejected")),
    )


def _a_step(episode: Episode, step: Step) -> int:
    """The number of a step of the episode, drawn."""
    dice = randomness.rng(step.clock.seed, "near miss", step.clock.step, step.clock.tick, episode.task.key)
    return dice.randrange(episode.replies)


def _differs(trace: Trace, second: Episode, said: Turn, chat: Chat) -> bool:
    """Whether the written step is another one than the episode's own in its place."""
    at = next(i for i, turn in enumerate(second.turns) if turn.author == said.author)
    return chat.text(trace.turns[at].tokens).strip() != chat.text(said.tokens).strip()


def _pair(trace: Trace, second: Episode, goal: Turn) -> list[Trace]:
    good, near = (goal, *trace.turns[1:]), (goal, *second.trace(True).turns[1:])
    return [Trace(good, 0, tags=frozenset({"chosen"})), Trace(near, 1, tags=frozenset({"rejected"}))]


def log_puct(c: float, value: Value = value_of) -> Rule:
    """Q + c p sqrt(ln N) / (1 + n), p the prior: 1 + n stands outside the root (ARMAP's code, arXiv 2502.12130)."""
    return lambda parent, child: (
        value(child) + c * child.prior * math.sqrt(math.log(max(1, parent.visits))) / (1 + child.visits)
    )


def note_chosen(score: str = "reward") -> Part:
    """Note the mean score of the traces that are left, as score/chosen_reward, where another score chose them."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        for trace in (trace for group in groups for trace in group.traces):
            step.notes.add("score/chosen_reward", trace.scores[score])
        return groups

    return Part(name="note_chosen", call=call, reads=frozenset({f"score:{score}"}))


def judged_by(model: str) -> Worth:
    """What a reward model says of episodes, at the last token of each."""

    def worth(episodes: Sequence[Episode], step: Step) -> list[float]:
        traces = [Trace(tuple(_without_answer(e))) for e in episodes]
        require_same_tokens(model, "policy", step)
        return [only_score(one, model) for one in end_scores(traces, step.models[model], step.settings.token_budget)]

    return worth


def _without_answer(episode: Episode) -> list[Turn]:
    return episode.turns[:-1] if episode.turns[-1].author == "env" else episode.turns


def finished_and_judged(root: Branch) -> list[Trace]:
    """The finished episodes of a tree, each with scores["judged"]: the value of its end."""
    traces = finished(root)
    for trace, node in zip(traces, ends(root), strict=True):
        trace.scores["judged"] = node.value
    return traces


def reflected(tries: int, threshold: float, worth: Worth, *, reads: Sequence[str] = ()) -> Rollout:
    """Up to `tries` episodes per task: another one while the best is worth less than the threshold.

    Before each new attempt the policy reads its last one and writes what to do better, which is added to the prompt.
    scores["judged"] is what an episode is worth.
    """

    def call(tasks: list[Task], step: Step) -> list[Group]:
        chat = step.models["policy"].chat
        made: list[list[tuple[Episode, float]]] = [[] for _ in tasks]
        prompts = list(tasks)
        for number in range(tries):
            open_ = [i for i, some in enumerate(made) if max((v for _, v in some), default=threshold - 1) < threshold]
            episodes = [Episode(prompts[i], number, step, "policy") for i in open_]
            for episode in episodes:
                episode.begin()
            play_on(episodes, step, step.settings.turns)
            for i, episode, value in zip(open_, episodes, worth(episodes, step), strict=True):
                made[i].append((episode, value))
            if number < tries - 1:
                stories = [told(episode.turns, chat) for episode in episodes]
                asked = [(tasks[i], f"{story}\n{REFLECT}") for i, story in zip(open_, stories, strict=True)]
                for i, turn in zip(open_, written(asked, "policy", step, tag=f"reflect {number}"), strict=True):
                    prompts[i] = conditioned(tasks[i], chat.text(turn.tokens))
        note_episodes([episode for some in made for episode, _ in some], step)
        return [Group(task, [_valued(*one) for one in some]) for task, some in zip(tasks, made, strict=True)]

    return of_episodes(f"reflected({tries})", call, "policy", reads=reads, writes={"score:judged"})


def _valued(episode: Episode, value: float) -> Trace:
    trace = episode.trace(True)
    trace.scores["judged"] = value
    return trace


Scorer = Annotated[
    str | None, Option("The directory of a reward model of episodes; unset: the environment's own reward.")
]


@register(
    ARMAP,
    family="agents",
    summary="A reward model of episodes, from episodes with intents written for them and near misses.",
    when="An environment pays nothing, and a frozen policy needs a score to plan with.",
    example="burnish train armap --task guess",
    trial={"task": "guess"},
)
def armap(
    task: draw.Source,
    *,
    writer: Annotated[
        str | None, Option("The model that writes intents and near misses; unset: the base model.")
    ] = None,
    updates: opt.Updates = 1,
) -> Method:
    """ARMAP's reward model r(intent, episode): a linear head on the last token.

    The starting model acts; a writer reads the episode and writes the intent that it fulfils. For a near miss, the
    environment returns to the state before a drawn step, the writer writes another one with which the intent fails,
    the environment takes it, and the starting model plays on to the end.
    L = -log s( r(intent, episode) - r(intent, near miss) ),  mean over pairs

    No label and no reward of the environment is used. The product is a reward model: --reward-model of armap_best_of_n,
    armap_reflexion and armap_search. Departures: one step is changed, where the paper's text leaves open how many; the
    prompts are ours. A writer that writes nonsense gives pairs of nonsense: look at its texts first.
    """
    return method(
        draw=draw.prompts(task, "env"),
        rollout=intents(),
        select=select.given_pairs(),
        credit=credit.claim("end", "start", "writer", positions="end"),
        learn=learn.Learn(terms.score_pairs(on=learn.CLAIMED), updates=updates),
        models=roles("rm", rm=trained(outputs=1), start=frozen("base"), writer=frozen(writer or "base")),
        product="rm",
    )


@register(
    ARMAP,
    family="agents",
    summary="Play n episodes and keep the one that a reward model likes best: no training.",
    when="A reward model of episodes and a policy that may not be trained.",
    example="burnish train armap_best_of_n --reward-model runs/DIR/model --task guess",
    trial={"task": "guess", "n": 3},
)
def armap_best_of_n(task: draw.Source, *, n: opt.Replies = 8, reward_model: Scorer = None) -> Method:
    """Best of n episodes: argmax_i r(intent, episode_i). n = 1 is the policy.

    The metric score/chosen_reward is what the environment paid for the chosen episodes. Without a reward model the
    environment's own reward chooses.
    """
    by_model = chain(score.reward_model(name="judged")) if reward_model else everything
    return _planned(task, rollout.play(n), reward_model, by_model, bool(reward_model))


@register(
    ARMAP,
    family="agents",
    summary="Try again with reflection until a reward model is content: no training.",
    when="As armap_best_of_n, where attempts one after the other are cheaper than many at once.",
    example="burnish train armap_reflexion --reward-model runs/DIR/model --task guess",
    trial={"task": "guess", "tries": 2},
)
def armap_reflexion(
    task: draw.Source,
    *,
    tries: Annotated[int, Option("The most attempts.", at_least=1)] = 4,
    threshold: Annotated[float, Option("An episode that is worth this much is kept.")] = 0.5,
    reward_model: Scorer = None,
) -> Method:
    """Reflexion with a learned reward: while the best r < threshold, reflect on the last episode and play again.

    The reflection is the policy's and is added to the prompt. tries = 1 is the policy.
    """
    worth, reads = _worth(reward_model)
    return _planned(task, reflected(tries, threshold, worth, reads=reads), reward_model)


@register(
    ARMAP,
    family="agents",
    summary="Tree search over episodes with a reward model as the value of their ends: no training.",
    when="As armap_best_of_n, where the environment can return to a state.",
    example="burnish train armap_search --reward-model runs/DIR/model --task guess",
    trial={"task": "guess", "rounds": 3, "width": 2},
)
def armap_search(
    task: draw.Source,
    *,
    rounds: Annotated[int, Option("Visits to each tree.", at_least=1)] = 16,
    width: Annotated[int, Option("Replies that are proposed in each state.", at_least=2)] = 4,
    c: Annotated[float, Option("How strongly the search prefers what it has visited less.", at_least=0)] = 6.364,
    reward_model: Scorer = None,
) -> Method:
    """Tree search by Q + c sqrt(ln N) / (1 + n), Q the running mean of r(intent, episode) over finished episodes.

    1 + n stands outside the root and c = 6.364, as in the released code. The kept episode has the largest r. rounds = 1
    is the policy. Departure: no prior over proposals, and c does not grow.
    """
    worth, reads = _worth(reward_model)
    tree = rollout.searched(
        rounds,
        width,
        rule=log_puct(c),
        take=finished_and_judged,
        worth=worth,
        reads=reads,
        writes=("score:judged",),
    )
    return _planned(task, tree, reward_model)


def _worth(reward_model: str | None) -> tuple[Worth, tuple[str, ...]]:
    """What episodes are worth, and what that reads."""
    return (judged_by("rm"), ("model:rm.score",)) if reward_model else (earned, ())


def _planned(
    task: draw.Source, plays: Rollout, reward_model: str | None, judged: Part = everything, valued: bool = True
) -> Method:
    """Episodes of which the best is kept: by scores["judged"] where they are `valued`, else by the reward itself."""
    chosen = (select.keep_best(1, "judged"), note_chosen()) if valued else (select.keep_best(1),)
    return method(
        draw=draw.prompts(task, "env"),
        rollout=plays,
        score=judged,
        select=chain(*chosen),
        learn=learn.Learn(),
        models=roles(**score.rm_role(reward_model)),
    )
