"""Episodes that a reward model values: tried again with reflection until one is good enough."""

from __future__ import annotations

from collections.abc import Sequence

from burnish.core.parts import Rollout
from burnish.core.step import Step
from burnish.core.types import Group, Task, Trace, Turn
from burnish.rollout.conditioned import conditioned
from burnish.rollout.episode import Episode
from burnish.rollout.intents import written
from burnish.rollout.play import note_episodes, of_episodes, play_on
from burnish.rollout.search_tree import ends
from burnish.rollout.searched import Branch, Worth, finished
from burnish.score.model import only_score
from burnish.score.reading import end_scores, require_same_tokens
from burnish.score.words import told

REFLECT = "The attempt was not good enough. Write in one sentence what to do better next time."


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


def reflected(
    tries: int, threshold: float, worth: Worth, *, reads: Sequence[str] = (), temperature: float = 1.0
) -> Rollout:
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
            play_on(episodes, step, step.settings.turns, temperature=temperature)
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
