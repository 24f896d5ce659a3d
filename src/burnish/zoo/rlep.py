"""RLEP: Reinforcement Learning with Experience Replay for LLM Reasoning (arXiv 2507.07451).

Replies of an earlier policy that came with the task, beside those that are sampled now.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from burnish import credit, draw, learn, rollout, score, select
from burnish.core import randomness
from burnish.core.parts import Draw, Part, Rollout, names, supplies
from burnish.core.schedules import after, before
from burnish.core.step import Step
from burnish.core.types import Group, Task, Trace, Turn
from burnish.draw.replay import groups_by_task
from burnish.method import Method, Option, Phase, chain, roles, trained
from burnish.methods import opt, register
from burnish.papers import Paper
from burnish.select.remember import Store

RLEP = Paper("rlep", "2507.07451", "RLEP: Reinforcement Learning with Experience Replay for LLM Reasoning")


@supplies("given:replay")
def with_replies(drawn: Draw, store: Store, n: int) -> Draw:
    """The drawn tasks, each with n different stored traces of its own as given["replay"], drawn without replacement,
    and fewer where there are fewer (RLEP, arXiv 2507.07451).
    """

    def call(step: Step) -> list[Task]:
        known, clock = groups_by_task(store.groups), step.clock
        found = []
        for task in drawn.call(step):
            different: dict[tuple[int, ...], Trace] = {}
            for trace in (trace for group in known.get(task.key, []) for trace in group.traces):
                different.setdefault(tuple(trace.tokens.tolist()), trace)
            dice = randomness.rng(clock.seed, "with_replies", clock.step, clock.tick, task.key)
            replay = dice.sample(list(different.values()), min(n, len(different)))
            found.append(replace(task, given={**task.given, "replay": replay}))
        return found

    return replace(
        drawn,
        name=f"{drawn.name} with {n} of {store.name}",
        call=call,
        ahead=False,
        reads=drawn.reads | {f"store:{store.name}"},
        writes=drawn.writes | {"given:replay"},
        state=(*drawn.state, store),
    )


@supplies("store:*")
def remember_right(store: Store, *, threshold: float = 0.5, score: str = "reward", author: str = "policy") -> Part:
    """Put a copy of every group into the store, with the traces that score more than the threshold; a group without one
    is not stored. The groups themselves stay as they are.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        right = [Group(g.task, [t for t in g.traces if t.scores[score] > threshold]) for g in groups]
        store.add([group for group in right if group.traces])
        return groups

    return Part(
        name=f"remember_right({store.name})",
        call=call,
        reads=frozenset({f"score:{score}", f"tokens:{author}"}),
        writes=frozenset({f"store:{store.name}"}),
        state=(store,),
    )


@supplies("tokens:replay", "tag:replay")
def replayed(*, author: str = "replay") -> Rollout:
    """The traces in given["replay"] of each task (`draw.with_replies`), written by `author`.

    Their tokens are those that were sampled. Log-probs and scores are not taken over: `credit.old` and `score.verify`
    make new ones.
    """

    def call(tasks: list[Task], step: Step) -> list[Group]:
        return [
            Group(_without(task), [_rewritten(trace, i, author) for i, trace in enumerate(task.given["replay"])])
            for task in tasks
        ]

    return Rollout(
        name="replayed",
        call=call,
        reads=frozenset({"task:prompt", "given:replay"}),
        writes=names("tokens", ("task", author)) | names("tag", author),
    )


def _without(task: Task) -> Task:
    return replace(task, given={name: value for name, value in task.given.items() if name != "replay"})


def _rewritten(trace: Trace, index: int, author: str) -> Trace:
    turns = [trace.turns[0]]
    for turn in trace.turns[1:]:
        turns.append(Turn(turn.tokens, author, parent=turns[-1], settings=turn.settings))
    return Trace(tuple(turns), index, tags=frozenset({author}))


@register(
    RLEP,
    family="policy",
    summary="A first run collects right replies; a second starts over with some of them in every group.",
    when="RL spends most of its time on finding solutions that an earlier run has found already.",
    trial={"n": 4, "replay": 2, "collect_steps": 1, "minibatches": 1},
)
def rlep(
    task: draw.Source,
    *,
    n: opt.GroupSize = 16,
    replay: Annotated[int, Option("Stored right replies that join each group.", at_least=0)] = 2,
    collect_steps: Annotated[
        float,
        Option("Steps of the run that collects; the second begins in the last. Below 1, a share of all.", above=0),
    ] = 0.5,
    questions: Annotated[int, Option("Different questions, where the task has no end.", at_least=1)] = 256,
    capacity: Annotated[int, Option("Groups of right replies that are stored.", at_least=1)] = 100_000,
    eps_low: opt.ClipLow = 0.2,
    eps_high: opt.ClipHigh = 0.28,
    overlong: opt.Overlong = 0.2,
    minibatches: opt.Minibatches = 8,
) -> Method:
    """Reinforcement learning with experience replay.

    First  a copy of the starting model ("collector") is trained by L on its own n replies; right ones are stored
    Then   the policy, from the same start, learns from n fresh replies and `replay` stored ones of each question
    A_i = (R_i - mean R) / std R over all n + replay;  R = 2 score - 1 + the punishment of overlong replies (as in DAPO)
    L = mean over all tokens of -min(rho A, clip(rho, 1-eps_low, 1+eps_high) A),   rho = pi / pi_old, also for stored
    replies, with pi_old computed by the policy before its update

    replay = 0 is the baseline. No group is filtered. Stored replies are different ones, drawn at random; a question
    with fewer has fewer. Both runs are phases of one here: the collector is a model of its own. n is ours.
    """
    pool = select.Store("pool", capacity)
    drawn = draw.few(task, questions) if task.size("train") is None else draw.prompts(task)
    collect = Phase(
        name="collect",
        times=before(collect_steps),
        draw=drawn,
        rollout=rollout.sample(n, who="collector"),
        score=chain(score.verify(task, author="collector"), score.punish_overlong(overlong, author="collector")),
        select=remember_right(pool, author="collector"),
        credit=chain(credit.group_relative(score="shaped"), credit.behaviour("collector")),
        learn=learn.Learn(
            learn.pg_clip(eps_low, eps_high, trainee="collector", on="collector", name="collect"),
            minibatches=minibatches,
        ),
    )
    both = ("policy", "replay")
    main = Phase(
        times=after(collect_steps, early=1),
        draw=with_replies(drawn, pool, replay),
        rollout=rollout.join(replayed(), rollout.sample(n)),
        score=chain(score.verify(task), score.punish_overlong(overlong, author=both)),
        credit=chain(credit.group_relative(score="shaped"), credit.old()),
        learn=learn.Learn(learn.pg_clip(eps_low, eps_high, on=both), minibatches=minibatches),
    )
    return Method(models=roles(collector=trained()), phases=(collect, main))
