"""Other advantages on groups of replies: other scales, several scores, margins, agreement."""

from __future__ import annotations

from burnish.cast.roles import frozen, stage
from burnish.credit.baselines import group_mean_batch_std
from burnish.credit.components import decoupled
from burnish.credit.consistency import local_and_global
from burnish.credit.margin import group_plus_margin
from burnish.credit.members import member
from burnish.credit.streams import behaviour
from burnish.draw.tasks import prompts
from burnish.learn.learn import Learn
from burnish.learn.norms import seq_mean, token_mean
from burnish.learn.terms import pg_clip, pg_reinforce
from burnish.method import Method, method
from burnish.methods.table import register
from burnish.parts import chain
from burnish.rollout.sample import join, sample
from burnish.score.agreement import answer_entropy
from burnish.score.lengths import within
from burnish.score.model import rm_role, scoring
from burnish.score.verify import verify
from burnish.tasks.source import Source


@register(
    family="policy",
    catalogue=("lite-ppo",),
    title="Part I: Tricks or Traps? A Deep Dive into RL for LLM Reasoning",
    arxiv="2508.08221",
    summary="Vanilla PPO clip with two tricks: group mean with batch std, and a token mean.",
    when="You want the fewest moving parts on top of PPO's clip, and batches large enough for their spread to mean something.",
    trial={"n": 4},
)
def lite_ppo(
    task: Source, *, n: int = 8, eps: float = 0.2, temperature: float = 0.99, top_k: int = 100, top_p: float = 0.99, updates: int = 1,
    reward_model: str | None = None,
) -> Method:  # fmt: skip
    """Lite PPO: critic-free PPO with two tricks and no others.

    A_i = (r_i - mean r of the prompt's replies) / (std of all rewards of the batch + 1e-6)
    L = mean over all tokens of -min(rho A, clip(rho, 1-eps, 1+eps) A)

    std is the sample standard deviation of the raw rewards. No KL, no clip-higher, no overlong filter.
    n: replies sampled for each prompt. eps: the clip range, symmetric. updates: passes over each batch.
    top_k: tokens among which a sample is drawn. top_p: probability that they cover.
    reward_model: the directory of a reward model, in place of the task's own verifier.
    """
    return method(
        draw=prompts(task),
        rollout=sample(n, temperature=temperature, top_k=top_k, top_p=top_p),
        score=scoring(task, reward_model),
        credit=chain(group_mean_batch_std(), behaviour(), member("pg", "policy")),
        learn=Learn(pg_clip(eps), epochs=updates, temperature=temperature),
        cast=stage(**rm_role(reward_model)),
    )


@register(
    family="policy",
    catalogue=("gdpo",),
    title="GDPO: Group reward-Decoupled Normalization Policy Optimization for Multi-reward RL Optimization",
    arxiv="2601.05242",
    summary="Several rewards, each normalised in its group before they are added.",
    when="Replies are scored on several counts at once, and one of them would drown the others if they were added first.",
    trial={"n": 4},
)
def gdpo(
    task: Source, *, n: int = 8, eps: float = 0.2, correct_weight: float = 1.0, length_weight: float = 1.0, within_share: float = 0.5,
    temperature: float = 1.0, updates: int = 1, reward_model: str | None = None,
) -> Method:  # fmt: skip
    """GDPO with two rewards: being right (r_1, the scorer's) and being short (r_2 = 1 within a limit of length, else 0).

    a_k,i = (r_k,i - mean) / (std + 1e-4) over the replies to the prompt;   s_i = sum_k w_k a_k,i
    A_i = (s_i - mean s) / (std s + 1e-4) over all replies of the batch
    L = mean over tokens of -min(rho A, clip(rho, 1-eps, 1+eps) A)

    The batch normalisation is over replies, as in the paper's equation (one of its two codes whitens tokens). No KL. The
    released recipes sample 4 and 16 replies.
    n: replies sampled for each prompt. eps: the clip range. correct_weight: weight of the scorer's reward.
    length_weight: weight of the length reward. within_share: the limit of length, as a share of the longest allowed reply.
    updates: passes over each batch. reward_model: the directory of a reward model, in place of the task's own verifier.
    """
    return method(
        draw=prompts(task),
        rollout=sample(n, temperature=temperature),
        score=chain(scoring(task, reward_model), within(within_share)),
        credit=chain(decoupled({"reward": correct_weight, "within": length_weight}), behaviour(), member("pg", "policy")),
        learn=Learn(pg_clip(eps), epochs=updates, temperature=temperature),
        cast=stage(**rm_role(reward_model)),
    )  # fmt: skip


@register(
    family="policy",
    catalogue=("aapo",),
    title="AAPO: Enhance the Reasoning Capabilities of LLMs with Advantage Momentum",
    arxiv="2505.14264",
    summary="The group advantage plus how far each reply beats one of the reference's.",
    when="Groups often tie: a comparison with the starting policy still says something when their own spread does not.",
    trial={"n": 4},
)
def aapo(
    task: Source, *, n: int = 6, margin_low: float = -0.2, margin_high: float = 0.28, temperature: float = 1.0, reward_model: str | None = None
) -> Method:  # fmt: skip
    """AAPO: advantages with momentum (in later versions of the paper: with a margin).

    A_i = (r_i - mean r) / (std r + 1e-4) + clip(r_i - r'_i, margin_low, margin_high)
    L = mean over tokens of -A_i log pi(y_t | .)

    r'_i is the score of the i-th of n replies that the starting policy gives to the same prompt. No ratio, no clip, no KL.
    n: replies sampled for each prompt, by the policy and by the reference each. margin_low: the least margin.
    margin_high: the greatest margin.
    reward_model: the directory of a reward model, in place of the task's own verifier.
    """
    theirs = sample(n, temperature=temperature, who="ref", tag="reference")
    return method(
        draw=prompts(task),
        rollout=join(sample(n, temperature=temperature), theirs),
        score=scoring(task, reward_model),
        credit=chain(group_plus_margin(low=margin_low, high=margin_high), member("pg", "policy")),
        learn=Learn(pg_reinforce(norm=token_mean), temperature=temperature),
        cast=stage(ref=frozen("policy"), **rm_role(reward_model)),
    )


@register(
    family="policy",
    catalogue=("copo",),
    title="COPO: Consistency-Aware Policy Optimization",
    arxiv="2508.04138",
    summary="Groups that agree learn from the batch, groups that differ from themselves.",
    when="Many prompts are answered alike by all replies, right or wrong, and GRPO would learn nothing from them.",
    trial={"n": 4},
)
def copo(
    task: Source, *, n: int = 6, eps: float = 0.2, dual: float = 3.0, sharpness: float = 5.0, centre: float = 1.0, gate: float = 0.0,
    temperature: float = 1.0, updates: int = 1,
) -> Method:  # fmt: skip
    """COPO: a local and a global signal, blended by how much the answers to a prompt differ.

    A_local = (r_i - mean r) / (std r + 1e-6) in the group;   A_global = (R(q) - mean R) / (std R + 1e-6) over the prompts,
    R(q) = mean r;   H(q) = entropy in bits of the final answers;   w = sigmoid(sharpness (H - centre)), 0 where r_i <= gate
    L = mean over replies of mean over tokens of [ w clipped(rho, A_local) + (1 - w) clipped(rho, A_global) ]
    clipped: PPO's, with the dual clip where A < 0.

    The constants and the gate are those of the authors' script ("soft with zero"); a survey reports 20 and 1.5 for
    sharpness and centre. No KL.
    n: replies sampled for each prompt. eps: the clip range. dual: the second clip where A < 0.
    sharpness: how sharply w changes with entropy. centre: the entropy at which w is 1/2.
    gate: replies that score this or less follow the global signal alone. updates: passes over each batch.
    """
    return method(
        draw=prompts(task),
        rollout=sample(n, temperature=temperature),
        score=chain(verify(task), answer_entropy()),
        credit=chain(
            local_and_global(sharpness=sharpness, centre=centre, gate=gate), behaviour(), member("pg", "policy"), member("global", "policy")
        ),
        learn=Learn(
            pg_clip(eps, dual=dual, norm=seq_mean), pg_clip(eps, dual=dual, norm=seq_mean, adv="adv_global", name="global"),
            epochs=updates, temperature=temperature,
        ),
        cast=stage(),
    )  # fmt: skip
