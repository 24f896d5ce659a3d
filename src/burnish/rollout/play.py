"""Multi-turn games: the policy and an environment take turns, token in, token out."""

from __future__ import annotations

import math

from burnish.nouns import Group, Task, Trace, Turn
from burnish.parts import Rollout, names, supplies
from burnish.rollout.sample import continue_from
from burnish.step import Step
from burnish.tasks.source import Environment


@supplies("tokens:env", "turn_score:reward", "score:reward")
def play(n: int = 1, *, turns: int = 16, temperature: float = 1.0, who: str = "policy") -> Rollout:
    """n episodes per task, of at most `turns` replies each.

    The environment's reward for a reply stands on the turn (turn_scores["reward"]); their sum is scores["reward"].
    Environments are stepped in order, replies of all running episodes are sampled together.
    """

    def call(tasks: list[Task], step: Step) -> list[Group]:
        episodes = [_Episode(task, i, step, who) for task in tasks for i in range(n)]
        for _ in range(turns):
            running = [episode for episode in episodes if not episode.over]
            if not running:
                break
            starts = [(episode.task, tuple(episode.turns), episode.number()) for episode in running]
            traces = continue_from(starts, who, step, tag="play", temperature=temperature)
            for episode, trace in zip(running, traces, strict=True):
                episode.reply(trace)
        return [
            Group(task, [episode.trace() for episode in episodes[k * n : (k + 1) * n]]) for k, task in enumerate(tasks)
        ]

    return Rollout(
        name=f"play({n})",
        call=call,
        reads=frozenset({"task:prompt", "given:env", f"cast:{who}.generate"}),
        writes=names("tokens", ("task", "env", who))
        | names("mu", who)
        | frozenset({"turn_score:reward", "score:reward", "tag:play"}),
    )


class _Episode:
    def __init__(self, task: Task, index: int, step: Step, who: str) -> None:
        self.task, self.index = task, index
        self.member, self.room = step.cast[who], step.settings.max_new_tokens
        self.env: Environment = task.given["env"]()
        self.env.reset()
        self.turns = [Turn(self.member.chat.prompt(task), "task")]
        self.rewards = [math.nan]
        self.over, self.why = False, "turns"

    def number(self) -> int:
        """A sample index that differs for every reply of every episode of the task."""
        return self.index * 1000 + len(self.turns)

    def reply(self, trace: Trace) -> None:
        said = trace.turns[-1]
        answer, reward, self.over = self.env.step(self.member.chat.text(said.tokens))
        self.turns.append(said)
        self.rewards.append(float(reward))
        if self.over:
            self.why = "done"
            return
        words = Turn(self.member.chat.observation(answer), "env", parent=said)
        if len(Trace(tuple(self.turns))) + len(words) + self.room > self.member.context:
            self.over, self.why = True, "context"
            return
        self.turns.append(words)
        self.rewards.append(math.nan)

    def trace(self) -> Trace:
        earned = sum(reward for reward in self.rewards if not math.isnan(reward))
        turns, rewards = (
            (self.turns, self.rewards) if self.turns[-1].author != "env" else (self.turns[:-1], self.rewards[:-1])
        )
        return Trace(
            tuple(turns),
            self.index,
            {"reward": earned},
            {"reward": rewards},
            tags=frozenset({"play"}),
            note={"stopped": self.why, "done": self.why == "done"},
        )
