"""Learning to Generate Research Idea with Dynamic Control (arXiv 2412.14626)."""

from __future__ import annotations

from typing import Annotated

from burnish import draw, learn, rollout, score
from burnish.method import Method, Option, chain, method
from burnish.methods import opt, register
from burnish.methods.actor_critic import ppo_credit, ppo_models
from burnish.methods.fronts import names_in
from burnish.papers import Paper

DYNAMIC_CONTROL_IDEATION = Paper(
    "dynamic-control-ideation", "2412.14626", "Learning to Generate Research Idea with Dynamic Control"
)


@register(
    DYNAMIC_CONTROL_IDEATION,
    family="policy",
    summary="PPO on several rewards under control words, so that one model can be steered between them.",
    when="Qualities pull apart (novelty, feasibility, effectiveness) and their balance is to be chosen at inference.",
    example="burnish train dynamic_control --reward 'my.py:novelty,my.py:feasibility' --rewards novelty,feasibility",
    trial={"n": 2, "updates": 1, "rewards": "correct"},
)
def dynamic_control(
    task: draw.Source,
    *,
    rewards: Annotated[str, Option("Names of the rewards that are controlled, with commas: novelty,feasibility.")],
    levels: Annotated[str, Option("Levels of a control word, with commas; 0 is not mentioned.")] = "-1,0,1",
    n: opt.Replies = 4,
    eps: opt.ClipRange = 0.2,
    value_eps: opt.ValueClipRange = 0.2,
    value_coef: opt.ValueCoef = 0.5,
    kl: opt.KLPenalty = 0.05,
    lam: opt.Lam = 0.95,
    updates: opt.Updates = 4,
    critic_lr: opt.CriticLR = 1.0,
    temperature: opt.Temperature = 1.0,
) -> Method:
    """PPO with one controller per reward. RECONSTRUCTED: the paper's abstract was read, not its equations.

    e_d drawn from the levels for each prompt and each reward d; the prompt begins with "novelty +1, feasibility -1"
    R = sum_d e_d r_d / sum_d |e_d|, the mean of the rewards where all e_d are 0; then `ppo` with R as the score

    The paper trains three reward models on review scores, steers by low-rank modules inside the model scaled by e_d,
    and predicts e_d for the next sentence with a small recurrent decoder. Here control is by words before the prompt,
    once for a reply; the modules and the decoder are left out. Levels of both signs are trained, so both can be asked
    for. levels 0 is PPO on the mean of the rewards, its prompts unchanged. At inference put the words before a prompt.
    """
    names = names_in(rewards)
    if not names:
        raise ValueError("rewards is empty; name the rewards that are controlled: novelty,feasibility")
    try:
        known = [float(level) for level in levels.split(",")]
    except ValueError:
        raise ValueError(f"levels is {levels!r}; write numbers with commas: -1,0,1") from None
    return method(
        draw=draw.prompts(task),
        rollout=rollout.steered(rollout.sample(n, temperature=temperature), names, known),
        score=chain(score.verify(task), score.steered_reward(names)),
        credit=ppo_credit(kl, lam, score="steered"),
        learn=learn.Learn(learn.pg_clip(eps), learn.value_clip(value_eps, coef=value_coef), updates=updates),
        models=ppo_models(critic_lr),
    )
