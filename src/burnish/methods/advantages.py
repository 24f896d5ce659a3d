"""Other advantages on groups of replies: other scales, several scores, margins, agreement."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score
from burnish.method import Method, Option, chain, frozen, method, roles
from burnish.methods import opt, papers, register


@register(
    papers.LITE_PPO,
    family="policy",
    summary="Vanilla PPO clip with two tricks: group mean with batch std, and a token mean.",
    when="You want the fewest moving parts on top of PPO's clip, and your batches are large enough to have a spread.",
)
def lite_ppo(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    eps: opt.ClipRange = 0.2,
    temperature: opt.Temperature = 0.99,
    top_k: Annotated[int, Option("Tokens among which a sample is drawn; 0 for all.", at_least=0)] = 100,
    top_p: opt.TopP = 0.99,
    updates: opt.Updates = 1,
    reward_model: opt.RewardModel = None,
) -> Method:
    """Lite PPO: critic-free PPO with two tricks and no others.

    A_i = (r_i - mean r of the prompt's replies) / (std of all rewards of the batch + 1e-6)
    L = mean over all tokens of -min(rho A, clip(rho, 1-eps, 1+eps) A)

    std is the sample standard deviation of the raw rewards. No KL, no clip-higher, no overlong filter.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n, temperature=temperature, top_k=top_k, top_p=top_p),
        score=score.scoring(task, reward_model),
        credit=chain(credit.group_mean_batch_std(), credit.behaviour()),
        learn=learn.Learn(learn.pg_clip(eps), updates=updates),
        models=roles(**score.rm_role(reward_model)),
    )


@register(
    papers.GDPO,
    family="policy",
    summary="Several rewards, each normalised in its group before they are added.",
    when="Replies are scored on several counts at once, and one would drown the others if they were added first.",
)
def gdpo(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    eps: opt.ClipRange = 0.2,
    correct_weight: Annotated[float, Option("Weight of the scorer's reward.", at_least=0)] = 1.0,
    length_weight: Annotated[float, Option("Weight of the length reward.", at_least=0)] = 1.0,
    within_share: Annotated[float, Option("The limit of length, as a share of the longest.", above=0, at_most=1)] = 0.5,
    temperature: opt.Temperature = 1.0,
    updates: opt.Updates = 1,
    reward_model: opt.RewardModel = None,
) -> Method:
    """GDPO with two rewards: being right (r_1, the scorer's) and being short (r_2 = 1 within a limit, else 0).

    a_k,i = (r_k,i - mean) / (std + 1e-4) over the replies to the prompt;   s_i = sum_k w_k a_k,i
    A_i = (s_i - mean s) / (std s + 1e-4) over all replies of the batch
    L = mean over tokens of -min(rho A, clip(rho, 1-eps, 1+eps) A)

    The batch normalisation is over replies, as in the paper's equation (one of its two codes whitens tokens). No
    KL. The released recipes sample 4 and 16 replies.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n, temperature=temperature),
        score=chain(score.scoring(task, reward_model), score.within(within_share)),
        credit=chain(credit.decoupled({"reward": correct_weight, "within": length_weight}), credit.behaviour()),
        learn=learn.Learn(learn.pg_clip(eps), updates=updates),
        models=roles(**score.rm_role(reward_model)),
    )


@register(
    papers.AAPO,
    family="policy",
    summary="The group advantage plus how far each reply beats one of the reference's.",
    when="Groups often tie: a comparison with the starting policy still says something when their own spread does not.",
)
def aapo(
    task: draw.Source,
    *,
    n: Annotated[
        int, Option("Replies sampled for each prompt, by the policy and by the reference each.", at_least=2)
    ] = 6,
    margin_low: Annotated[float, Option("The least margin.")] = -0.2,
    margin_high: Annotated[float, Option("The greatest margin.")] = 0.28,
    temperature: opt.Temperature = 1.0,
    reward_model: opt.RewardModel = None,
) -> Method:
    """AAPO: advantages with momentum (in later versions of the paper: with a margin).

    A_i = (r_i - mean r) / (std r + 1e-4) + clip(r_i - r'_i, margin_low, margin_high)
    L = mean over tokens of -A_i log pi(y_t | .)

    r'_i is the score of the i-th of n replies that the starting policy gives to the same prompt. No ratio, no clip,
    no KL.
    """
    theirs = rollout.sample(n, temperature=temperature, who="ref", tag="reference")
    return method(
        draw=draw.prompts(task),
        rollout=rollout.join(rollout.sample(n, temperature=temperature), theirs),
        score=score.scoring(task, reward_model),
        credit=credit.group_plus_margin(low=margin_low, high=margin_high),
        learn=learn.Learn(learn.pg_reinforce(norm=learn.token_mean)),
        models=roles(ref=frozen("policy"), **score.rm_role(reward_model)),
    )


@register(
    papers.COPO,
    family="policy",
    summary="Groups that agree learn from the batch, groups that differ from themselves.",
    when="Many prompts are answered alike by all replies, right or wrong, and GRPO would learn nothing from them.",
)
def copo(
    task: draw.Source,
    *,
    n: opt.GroupSize = 6,
    eps: opt.ClipRange = 0.2,
    dual: opt.DualClip = 3.0,
    sharpness: Annotated[float, Option("How sharply w changes with entropy.", at_least=0)] = 5.0,
    centre: Annotated[float, Option("The entropy, in bits, at which w is 1/2.")] = 1.0,
    gate: Annotated[float, Option("Replies that score this or less follow the global signal alone.")] = 0.0,
    temperature: opt.Temperature = 1.0,
    updates: opt.Updates = 1,
) -> Method:
    """COPO: a local and a global signal, blended by how much the answers to a prompt differ.

    A_local = (r_i - mean r) / (std r + 1e-6) in the group
    A_global = (R(q) - mean R) / (std R + 1e-6) over the prompts,   R(q) = mean r
    w = sigmoid(sharpness (H - centre)), 0 where r_i <= gate;   H(q) = entropy in bits of the final answers
    L = mean over replies of mean over tokens of [ w clipped(rho, A_local) + (1 - w) clipped(rho, A_global) ]
    clipped: PPO's, with the dual clip where A < 0.

    The constants and the gate are those of the authors' script ("soft with zero"); a survey reports 20 and 1.5 for
    sharpness and centre. No KL.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n, temperature=temperature),
        score=chain(score.verify(task), score.answer_entropy()),
        credit=chain(credit.local_and_global(sharpness=sharpness, centre=centre, gate=gate), credit.behaviour()),
        learn=learn.Learn(
            learn.pg_clip(eps, dual=dual, norm=learn.seq_mean),
            learn.pg_clip(eps, dual=dual, norm=learn.seq_mean, adv="adv_global", name="global"),
            updates=updates,
        ),
        models=roles(),
    )
