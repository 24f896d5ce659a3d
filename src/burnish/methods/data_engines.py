"""Methods that make their data: an instructor that rewrites instructions (TeaMs-RL), battles of models (Arena)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from burnish import credit, draw, learn, rollout, score, select
from burnish.core.schedules import after, before
from burnish.draw.instructor import Instructor, decided, taught
from burnish.judges import rewrites, templates
from burnish.judges.rewrites import OF_REWRITE, Words
from burnish.learn.terms import reward as reward_terms
from burnish.method import Clock, Method, Option, Phase, Role, chain, roles, snapshot, trained
from burnish.methods import opt, papers, register
from burnish.methods.actor_critic import ppo_credit
from burnish.rollout.operated import answered, expanded, operated
from burnish.score.judges import Judge, read_judge, read_judges
from burnish.score.judges.battles import battles, unequal
from burnish.select.battles import decided_battles, winners

EQUALITY = {"full": rewrites.EQUALITY, "brief": rewrites.EQUALITY_BRIEF}
BATTLE = {"full": templates.BATTLE, "brief": templates.PRINCIPLES_BRIEF}
STAGES = ("sft", "dpo", "rm", "ppo")
BattleJudge = Annotated[
    str | None, Option("Who judges battles (docs/judges.md); without one the task's verifier decides them.")
]


@register(
    papers.TEAMS_RL,
    family="imitation",
    summary="A small policy learns by TRPO which operations change an instruction; then SFT on what it makes.",
    when="Seed instructions and a model that rewrites and answers; no RLHF afterwards.",
    example="burnish train teams_rl --teach 5 --words brief",
    trial={"teach": 0, "length": 2, "words": "brief", "executor": "policy(temperature=1, max_tokens=8)"},
)
def teams_rl(
    task: draw.Source,
    *,
    executor: Annotated[str, Option("Who rewrites and answers (docs/judges.md).")] = "policy(temperature=1)",
    judge: Annotated[
        str | None, Option("Who says Equal or Not Equal; without one, texts with the same words are equal.")
    ] = None,
    teach: Annotated[int, Option("Steps in which the instructor alone is trained.", at_least=0)] = 50,
    length: Annotated[int, Option("Operations applied to an instruction.", at_least=1)] = 4,
    delta: Annotated[float, Option("The instructor's trust region.", above=0)] = 0.01,
    gamma: Annotated[float, Option("Discount per operation.", at_least=0, at_most=1)] = 0.99,
    words: Words = "full",
) -> Method:
    """Teaching a model to generate instruction data by reinforcement learning.

    First `teach` steps:  a_k ~ pi(. | a_{k-1}), one of six operations (five in depth, and breadth), which `executor`
    carries out;  r_k = 1 if the judge finds the new instruction Not Equal to the old one, else 0;
    pi moves by TRPO: maximise mean rho A subject to mean KL <= delta, A_k = G_k - the batch's mean G_k
    Then:  SFT on (instruction after `length` operations, the executor's answer), L = -mean over tokens of log pi

    The instructor is a softmax table of 7 x 6 (none or the last operation, one-hot). teach = 0 draws operations
    uniformly: Evol-Instruct. "Diversity" is that single inequality, as in the released code. Departures: the baseline
    is the batch's mean at the same place, not a value network; an instruction that a sequence did not change is left
    out; length, delta and gamma are ours. executor_calls counts the paper's cost.
    """
    instructor = Instructor(delta, gamma)
    who, says = read_judge(executor), read_judge(judge) if judge else None
    learning = Phase(
        name="teach",
        times=before(teach),
        draw=taught(draw.prompts(task), instructor),
        rollout=operated(instructor, who, OF_REWRITE[words], length),
        score=unequal(says, EQUALITY[words]),
        select=decided(instructor),
        learn=learn.Learn(),
    )
    making = Phase(
        times=after(teach),
        draw=draw.prompts(task),
        rollout=expanded(instructor, who, OF_REWRITE[words], length),
        learn=learn.Learn(learn.imitate(on="demo")),
    )
    return Method(models=roles(**models_of(who, says)), phases=(learning, making))


@register(
    papers.ARENA_LEARNING,
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
    stage: Annotated[int, Option("Steps of each stage; a round is SFT, DPO, reward model, PPO.", at_least=1)] = 25,
    beta: opt.Beta = 0.1,
    eps: opt.ClipRange = 0.2,
    value_eps: opt.ValueClipRange = 0.2,
    kl: opt.KLPenalty = 0.05,
    lam: opt.Lam = 0.95,
    updates: opt.Updates = 4,
    critic_lr: opt.CriticLR = 1.0,
    temperature: opt.Temperature = 1.0,
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
    rounds are the paper's: --steps 300 with stage = 25. Without losses the first stage learns nothing; with no rival
    better than the target, dpo still prefers the target's replies. The paper's reward model and PPO share a shard. A
    tie between rankings is not compared. `burnish arena` ranks models by their battles.
    """
    others, says = read_judges(rivals), read_judge(judge) if judge else None
    fights: dict[str, Any] = {
        "draw": draw.prompts(task),
        "rollout": rollout.join(rollout.sample(1, temperature=temperature), answered(others)),
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
            "rollout": rollout.sample(1, temperature=temperature),
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


def models_of(*judges: Judge | None) -> dict[str, Role]:
    """The models that these judges bring into a run."""
    return {name: role for one in judges if one is not None for name, role in one.models.items()}


def _in_stage(number: int, steps: int) -> Callable[[Clock], float]:
    """1 in the steps of a stage, in every round."""

    def times(clock: Clock) -> float:
        return float(clock.step // steps % len(STAGES) == number)

    return times
