"""The terms of reward models that test_reward_terms.py has numbers for: their models have several outputs."""

from __future__ import annotations

SEVERAL_OUTPUTS = {
    "score_axioms",
    "chosen_head_pairs",
    "differences",
    "gated_pairs",
    "goal_contrast",
    "head_pairs",
    "latent_pairs",
    "logit_pairs",
    "rate",
    "score_all_pairs",
    "score_labels",
    "score_ranking",
    "uncertain_heads",
}
