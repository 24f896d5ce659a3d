"""Credit: what each token is worth, and what it is compared with. `credit=credit.group_relative()`."""

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
from burnish.credit.cached import LogpCache, cached_ref
from burnish.credit.claims import alternating, claim
from burnish.credit.components import decoupled
from burnish.credit.constrained import calibrated_weight, constrained_advantage, mixed_advantages
from burnish.credit.copies import copies
from burnish.credit.gae import gae, token_rewards, whiten
from burnish.credit.group import group_relative
from burnish.credit.kl_baseline import kl_baseline
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
from burnish.credit.segments import segment_advantages, success_rates, tree_advantages
from burnish.credit.sequence import class_weights, shared
from burnish.credit.step_labels import step_labels, turn_labels
from burnish.credit.steps import add_dense, dense_bonus, step_advantage
from burnish.credit.streams import behaviour, old, ref, streams, token_ids
from burnish.credit.teacher import discounted_sum, distilled_where, from_teacher, is_unsolved, is_wrong, mean_of_later
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
    "Q",
    "Reliability",
    "RewardQueue",
    "RunningMean",
    "V",
    "add_dense",
    "alternating",
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
    "by_sequence",
    "by_token",
    "cached_ref",
    "calibrated_weight",
    "chain_gae",
    "claim",
    "claim_copies",
    "claim_where_they_part",
    "class_weights",
    "clustered",
    "constrained_advantage",
    "contrasted_rewards",
    "copies",
    "decoupled",
    "dense_bonus",
    "discounted_sum",
    "distilled_where",
    "factor_of_right",
    "from_teacher",
    "gae",
    "graded_margin",
    "group_mean_batch_std",
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
    "make_up_for_flat_groups",
    "masked",
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
    "over_batch_mean",
    "over_greedy",
    "over_length_weighted_mean",
    "over_memory",
    "own_turns",
    "pair_preference",
    "pass_rate",
    "ratings",
    "ref",
    "reward_midpoint",
    "reward_where_they_part",
    "rewards_to_go",
    "right",
    "segment_advantages",
    "shared",
    "shared_mean",
    "signed",
    "standardised_turns",
    "state_groups",
    "step_advantage",
    "step_labels",
    "streams",
    "success_rates",
    "td_targets",
    "token_ids",
    "token_rewards",
    "tree_advantages",
    "truncated",
    "turn_labels",
    "turn_rewards",
    "utterance_advantage",
    "whiten",
]
