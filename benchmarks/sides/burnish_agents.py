"""burnish: whole GRPO steps of episodes with several turns."""

from __future__ import annotations

from typing import Any

from worker import Turns
from workload import text

from burnish.core.loop import loop
from burnish.core.method import method
from burnish.core.parts import chain
from burnish.core.roles import roles
from burnish.credit.group import group_relative
from burnish.credit.streams import behaviour
from burnish.draw.tasks import prompts
from burnish.envs import Outcome
from burnish.learn.learn import Learn
from burnish.learn.norms import seq_mean
from burnish.learn.terms import pg_clip
from burnish.rollout.play import play
from burnish.tasks.environment import EnvSource
from sides.burnish_side import cast_of, settings_of
from sides.talk import TOOL, answer_to, reward_of


def source_of(work: dict[str, Any]) -> EnvSource:
    """The tasks, one row for every prompt."""

    class Talk:
        """Answers every reply."""

        @staticmethod
        def tasks(split: str) -> list[list[int]]:
            return work["prompts"]

        def reset(self, task: list[int]) -> str:
            self.replies = 0
            return text(task)

        def step(self, action: str) -> Outcome:
            self.replies += 1
            said = {"role": "tool", "name": TOOL, "content": answer_to(action, work)}
            return Outcome((said,), reward_of(action), terminated=self.replies >= work["turns"])

    return EnvSource(Talk)


def step(work: dict[str, Any], turns: Turns) -> None:
    """Whole GRPO steps: draw, play, credit, learn."""
    settings = settings_of(work)
    plan = method(
        draw=prompts(source_of(work)),
        rollout=play(work["group"], turns=work["turns"]),
        credit=chain(group_relative(), behaviour()),
        learn=Learn(pg_clip(0.2, norm=seq_mean)),
        models=roles(),
    )
    reports = loop(plan, cast_of(work, settings), settings, steps=1 << 20)
    while turns.begin():
        some = [next(reports) for _ in range(work["steps_a_turn"])]
        seconds = turns.lap()
        traces = [t for report in some for groups in report.groups.values() for group in groups for t in group.traces]
        tokens = {who: sum(len(turn) for t in traces for turn in t.turns if turn.author == who) for who in AUTHORS}
        turns.end(
            seconds,
            samples=len(traces),
            replies=sum(trace.note["turns"] for trace in traces),
            prompt_tokens=tokens["task"],
            answer_tokens=tokens["env"],
            sampled_tokens=tokens["policy"],
            trained_tokens=sum(int(trace.streams["claim:pg"].sum()) for trace in traces),
            rewarded=sum(trace.scores["reward"] for trace in traces) / len(traces),
            rooms={name: round(sum(report.seconds[name] for report in some), 6) for name in some[0].seconds},
        )


AUTHORS = ("task", "env", "policy")
