"""Arena Learning: Build Data Flywheel for LLMs Post-training via Simulated Chatbot Arena (arXiv 2407.10627).

What a target's battles with rivals leave to train on (Arena Learning).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

from burnish import credit, draw, learn, rollout, score, select
from burnish.core.messages import prompt_shown
from burnish.core.parts import Part, Rollout, names, supplies
from burnish.core.schedules import steps_of
from burnish.core.step import Step
from burnish.core.types import Group, Task, Trace
from burnish.judges import templates
from burnish.judges.question import Template
from burnish.judges.rewrites import Words
from burnish.learn.terms import reward as reward_terms
from burnish.method import Clock, Method, Option, Phase, chain, roles, snapshot, trained
from burnish.methods import opt, register
from burnish.methods.actor_critic import ppo_credit
from burnish.methods.compositions import models_of
from burnish.papers import Paper
from burnish.rollout.operated import answered_trace, answers_of
from burnish.score.judge import reply_text
from burnish.score.judges import read_judge, read_judges
from burnish.score.judges.battles import fought
from burnish.score.judges.judge import Judge
from burnish.select.pairs import scored_pairs

ARENA_LEARNING = Paper(
    "arena-learning",
    "2407.10627",
    "Arena Learning: Build Data Flywheel for LLMs Post-training via Simulated Chatbot Arena",
)

METRICS = (("battles/tied", "What was kept", "share of the battles in which the two orders did not agree on a winner"),)

NOTES = {"rival": "the model that wrote the other reply of the battle"}


@supplies("tokens:rival", "tag:rival")
def answered(rivals: Sequence[Judge], *, author: str = "rival") -> Rollout:
    """One reply of each rival to each task, in the words of its own tokenizer, read again by the policy's.

    A rival is a model of the run or an endpoint. One that gives no answer has no trace.
    """

    def call(tasks: list[Task], step: Step) -> list[Group]:
        groups = [Group(task, []) for task in tasks]
        for i, rival in enumerate(rivals):
            for group, text in zip(groups, answers_of(rival, tasks, step), strict=True):
                if (trace := answered_trace(group.task, text, author, step, i)) is not None:
                    trace.note["rival"] = rival.name
                    group.traces.append(trace)
        return groups

    return Rollout(
        name=f"answered({', '.join(rival.name for rival in rivals)})",
        call=call,
        reads=frozenset({"task:prompt"}).union(*(rival.reads for rival in rivals)),
        writes=names("tokens", ("task", author)) | names("tag", author),
    )


@supplies("score:battle")
def battles(judge: Judge | None, template: Template, *, target: str = "policy", rival: str = "rival") -> Part:
    """scores["battle"] of each reply: its lead over the target's reply, which has 0; 0 for an undecided battle.

    judge: None: the difference of scores["reward"]
    Notes battles/won, battles/lost and battles/tied: shares of the target's battles.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        chat, parties = step.models["policy"].chat, [_parties(group, target, rival) for group in groups]
        if judge is None:
            leads = [
                other.scores["reward"] - own.scores["reward"] for own, others in parties for other in others if own
            ]
        else:
            fights = [
                (prompt_shown(group.task.prompt), reply_text(other, chat), reply_text(own, chat))
                for group, (own, others) in zip(groups, parties, strict=True)
                for other in others
                if own
            ]
            leads = fought(fights, judge, template, step)
        following = iter(leads)
        for own, others in parties:
            if own:
                own.scores["battle"] = 0.0
            for other in others:
                other.scores["battle"] = next(following) if own else 0.0
        for name, count in outcomes(leads).items():
            step.notes.add(f"battles/{name}", count, max(1, len(leads)))
        return groups

    reads = {f"tokens:{target}", f"tokens:{rival}"} | (judge.reads if judge else {"score:reward"})
    return Part(
        name=f"battles({judge.name if judge else 'reward'})",
        call=call,
        reads=frozenset(reads),
        writes=frozenset({"score:battle"}),
    )


def outcomes(leads: Sequence[float]) -> dict[str, int]:
    """How many battles the target won, lost and tied, by the leads of its rivals."""
    return {"won": sum(x < 0 for x in leads), "lost": sum(x > 0 for x in leads), "tied": sum(x == 0 for x in leads)}


def _parties(group: Group, target: str, rival: str) -> tuple[Trace | None, list[Trace]]:
    own = next((trace for trace in group.traces if target in trace.authors()), None)
    return own, [trace for trace in group.traces if rival in trace.authors()]


def winners(score: str = "battle") -> Part:
    """Of each group whose target lost a battle, the rival with the largest lead; other groups are dropped."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        kept = []
        for group in groups:
            best = max(group.traces, key=lambda trace: trace.scores[score], default=None)
            if best is not None and best.scores[score] > 0:
                group.traces = [best]
                kept.append(group)
        step.notes.add("dropped/not_lost", len(groups) - len(kept), max(1, len(groups)))
        return kept

    return Part(name="winners", call=call, reads=frozenset({f"score:{score}"}), updates=frozenset({"tokens:rival"}))


@supplies("pairs")
def decided_battles(score: str = "battle") -> Part:
    """(winner, loser) of every battle of the first trace, the target's, that was decided."""

    def rule(leads: Sequence[float]) -> list[tuple[int, int]]:
        return [(0, j) if leads[0] > leads[j] else (j, 0) for j in range(1, len(leads))]

    return scored_pairs(rule, name="decided_battles", score=score)


BATTLE = {"full": templates.BATTLE, "brief": templates.PRINCIPLES_BRIEF}
STAGES = ("sft", "dpo", "rm", "ppo")
BattleJudge = Annotated[
    str | None, Option("Who judges battles (docs/judges.md); without one the task's verifier decides them.")
]


@register(
    ARENA_LEARNING,
    family="preference",
    summary="Rounds of SFT, DPO and PPO on battles with other models: lost ones, decided ones, and their rankings.",
    when="Stronger models to learn from and a judge of pairs.",
    trial={
        "rivals": "+".join(f"policy(temperature=1, max_tokens={k})" for k in (4, 5, 6, 7)),
        "stage": 1,
        "updates": 1,
    },
)
def arena_learning(
    task: draw.Source,
    *,
    rivals: Annotated[str, Option("The other models, a + between them: models or endpoints (docs/judges.md).")],
    judge: BattleJudge = None,
    stage: Annotated[
        float,
        Option("Steps of each stage; a round is SFT, DPO, reward model, PPO. Below 1, a share of all steps.", above=0),
    ] = 1 / 12,
    beta: opt.Beta = 0.1,
    eps: opt.ClipRange = 0.2,
    value_eps: opt.ValueClipRange = 0.2,
    kl: opt.KLPenalty = 0.05,
    lam: opt.Lam = 0.95,
    updates: opt.Updates = 4,
    critic_lr: opt.CriticLR = 1.0,
    words: Words = "full",
) -> Method:
    """Arena Learning: a data flywheel of simulated battles.

    battle: the judge scores the target's and a rival's reply from 1 to 10 in both orders; the mean difference d counts
    if both orders agree on the winner, else it is a tie and dropped
    sft   prompts on which the target lost: L = -mean over tokens of log pi(the best rival's reply)
    dpo   every decided battle: L = -log s( beta [lr_w - lr_l] ),  lr = log pi - log ref
    rm    all replies to a prompt ranked by d: L = the mean over their pairs of -log s(r_i - r_j)
    ppo   PPO on the reward model: clipped surrogate, clipped value loss, KL inside the reward

    A stage has `stage` steps and its own prompts, a round four stages; ref is the policy at the start of a stage. Three
    rounds are the paper's. Without losses the first stage learns nothing; with no rival
    better than the target, dpo still prefers the target's replies. The paper's reward model and PPO share a shard.
    Ties are dropped: an undecided rival's reply, and of rivals with the same d all but the first, stay out of the
    ranking. `burnish arena` ranks models by their battles.
    """
    others, says = read_judges(rivals), read_judge(judge) if judge else None
    fights: dict[str, Any] = {
        "draw": draw.prompts(task),
        "rollout": rollout.join(rollout.sample(1), answered(others)),
        "score": chain(*(() if says else (score.verify(task),)), battles(says, BATTLE[words])),
    }
    stages: tuple[dict[str, Any], ...] = (
        {**fights, "select": winners(), "learn": learn.Learn(learn.imitate(on="rival"))},
        {
            **fights,
            "select": decided_battles(),
            "credit": credit.ref(),
            "learn": learn.Learn(learn.dpo(beta, on=("policy", "rival"))),
        },
        {
            **fights,
            "select": select.ranked("battle"),
            "credit": credit.claim("end", "policy", "rival", positions="end"),
            "learn": learn.Learn(reward_terms.score_all_pairs(on=learn.CLAIMED)),
        },
        {
            "draw": draw.prompts(task),
            "rollout": rollout.sample(1),
            "score": score.reward_model(),
            "credit": ppo_credit(kl, lam),
            "learn": learn.Learn(learn.pg_clip(eps), learn.value_clip(value_eps, coef=0.5), updates=updates),
        },
    )
    phases = tuple(
        Phase(name=name, times=_in_stage(i, stage), **parts)
        for i, (name, parts) in enumerate(zip(STAGES, stages, strict=True))
    )
    models = {"ref": snapshot("policy", stage), "critic": trained(outputs=1, lr=critic_lr), "rm": trained(outputs=1)}
    return Method(models=roles(**models, **models_of(*others, says)), phases=phases)


def _in_stage(number: int, stage: float) -> Callable[[Clock], float]:
    """1 in the steps of a stage, in every round."""

    def times(clock: Clock) -> float:
        return float(clock.step // steps_of(stage, clock.of) % len(STAGES) == number)

    return times
