"""Credit: what each token is worth, and what it is compared with. `credit=credit.group_relative()`."""

from burnish.credit.action_values import fresh_or_familiar, success_advantages
from burnish.credit.actions import actions
from burnish.credit.alignment import aligned
from burnish.credit.baselines import (
    Memory,
    RewardQueue,
    RunningMean,
    group_mean_batch_std,
    leave_one_out,
    over_batch_mean,
    over_greedy,
    over_length_weighted_mean,
    over_memory,
)
from burnish.credit.branches import claim_copies, claim_where_they_part, reward_where_they_part, shared_mean
from burnish.credit.by_part import gae_of_parts
from burnish.credit.cached import LogpCache, cached_ref
from burnish.credit.categories import category_labels
from burnish.credit.chi2 import chi2_scale
from burnish.credit.claims import alternating, claim
from burnish.credit.components import decoupled
from burnish.credit.confidence import own_probability
from burnish.credit.consistency import local_and_global
from burnish.credit.constrained import calibrated_weight, constrained_advantage, mixed_advantages
from burnish.credit.contributions import contribution_rewards, outcome
from burnish.credit.copies import copies
from burnish.credit.cut_off import weigh_cut_off
from burnish.credit.density import PromptMemory, density_ratio
from burnish.credit.discriminator import discriminator_rewards, expert_labels
from burnish.credit.entropy_control import swap_in_tempered
from burnish.credit.entropy_target import entropy_side
from burnish.credit.fitness import fitness
from burnish.credit.forced import over_forced
from burnish.credit.gae import gae, token_rewards, whiten
from burnish.credit.goals import goals
from burnish.credit.group import group_relative
from burnish.credit.hardness import by_hardness
from burnish.credit.helper import asks_for_help
from burnish.credit.kl_baseline import kl_baseline
from burnish.credit.leads import by_leads
from burnish.credit.macro import macro_gae
from burnish.credit.margin import group_plus_margin
from burnish.credit.masked_inputs import masked_inputs
from burnish.credit.message_weights import message_weights
from burnish.credit.mismatch import Level, by_sequence, by_token, masked, truncated
from burnish.credit.nash import by_bradley_terry, by_comparison, nash_advantage
from burnish.credit.penalty import kl_in_score, kl_on_tokens, rewards_to_go
from burnish.credit.preference import (
    Midpoint,
    Reliability,
    beyond_the_shorter,
    contrasted_rewards,
    factor_of_right,
    guided_weights,
    label_confidence,
    matched_margins,
    matched_replies,
    pair_preference,
    reward_midpoint,
)
from burnish.credit.returns import lambda_advantages, lambda_returns, monte_carlo, n_step
from burnish.credit.reward import at_prompt, axiom_kinds, bags, clustered, graded_margin, normal_noise, ratings
from burnish.credit.reward_weights import reward_weights
from burnish.credit.segments import segment_advantages, success_rates, tree_advantages
from burnish.credit.sequence import class_weights, shared
from burnish.credit.speaking import speaking
from burnish.credit.step_labels import step_labels, turn_labels
from burnish.credit.steps import add_dense, dense_bonus, step_advantage
from burnish.credit.streams import behaviour, old, ref, streams, token_ids
from burnish.credit.strength import strengths
from burnish.credit.teacher import discounted_sum, distilled_where, from_teacher, is_unsolved, is_wrong, mean_of_later
from burnish.credit.thoughts import entropy_of_thoughts
from burnish.credit.tokens import covariance, drop_from_band, top_share
from burnish.credit.turn_gae import bi_level_gae, chain_gae, standardised_turns
from burnish.credit.turns import own_turns, state_groups, turn_rewards
from burnish.credit.utterance import (
    Q,
    V,
    at_utterance,
    best_candidate_targets,
    last_turn,
    td_targets,
    utterance_advantage,
)
from burnish.credit.verdicts import label, make_up_for_flat_groups, pass_rate, right, signed

__all__ = [
    "Level",
    "LogpCache",
    "Memory",
    "Midpoint",
    "PromptMemory",
    "Q",
    "Reliability",
    "RewardQueue",
    "RunningMean",
    "V",
    "actions",
    "add_dense",
    "aligned",
    "alternating",
    "asks_for_help",
    "at_prompt",
    "at_utterance",
    "axiom_kinds",
    "bags",
    "behaviour",
    "best_candidate_targets",
    "beyond_the_shorter",
    "bi_level_gae",
    "by_bradley_terry",
    "by_comparison",
    "by_hardness",
    "by_leads",
    "by_sequence",
    "by_token",
    "cached_ref",
    "calibrated_weight",
    "category_labels",
    "chain_gae",
    "chi2_scale",
    "claim",
    "claim_copies",
    "claim_where_they_part",
    "class_weights",
    "clustered",
    "constrained_advantage",
    "contrasted_rewards",
    "contribution_rewards",
    "copies",
    "covariance",
    "decoupled",
    "dense_bonus",
    "density_ratio",
    "discounted_sum",
    "discriminator_rewards",
    "distilled_where",
    "drop_from_band",
    "entropy_of_thoughts",
    "entropy_side",
    "expert_labels",
    "factor_of_right",
    "fitness",
    "fresh_or_familiar",
    "from_teacher",
    "gae",
    "gae_of_parts",
    "goals",
    "graded_margin",
    "group_mean_batch_std",
    "group_plus_margin",
    "group_relative",
    "guided_weights",
    "is_unsolved",
    "is_wrong",
    "kl_baseline",
    "kl_in_score",
    "kl_on_tokens",
    "label",
    "label_confidence",
    "lambda_advantages",
    "lambda_returns",
    "last_turn",
    "leave_one_out",
    "local_and_global",
    "macro_gae",
    "make_up_for_flat_groups",
    "masked",
    "masked_inputs",
    "matched_margins",
    "matched_replies",
    "mean_of_later",
    "message_weights",
    "mixed_advantages",
    "monte_carlo",
    "n_step",
    "nash_advantage",
    "normal_noise",
    "old",
    "outcome",
    "over_batch_mean",
    "over_forced",
    "over_greedy",
    "over_length_weighted_mean",
    "over_memory",
    "own_probability",
    "own_turns",
    "pair_preference",
    "pass_rate",
    "ratings",
    "ref",
    "reward_midpoint",
    "reward_weights",
    "reward_where_they_part",
    "rewards_to_go",
    "right",
    "segment_advantages",
    "shared",
    "shared_mean",
    "signed",
    "speaking",
    "standardised_turns",
    "state_groups",
    "step_advantage",
    "step_labels",
    "streams",
    "strengths",
    "success_advantages",
    "success_rates",
    "swap_in_tempered",
    "td_targets",
    "token_ids",
    "token_rewards",
    "top_share",
    "tree_advantages",
    "truncated",
    "turn_labels",
    "turn_rewards",
    "utterance_advantage",
    "weigh_cut_off",
    "whiten",
]
