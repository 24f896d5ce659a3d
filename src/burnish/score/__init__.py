"""Score: numbers on replies. `score=score.verify(task)`."""

from burnish.score.data import fused, like_reference, personal, pessimistic
from burnish.score.given import given_label, given_order, given_scores
from burnish.score.heads import aggregated, discriminated, gated, preferred_to_baseline, scoring_part
from burnish.score.judges.battles import battles, unequal
from burnish.score.judges.pairs import leads, leads_by_score
from burnish.score.judges.pointwise import pointwise
from burnish.score.length import punish_overlong
from burnish.score.lengths import brevity_once_right, effort, halved_after_each_right, within
from burnish.score.majority import known_or_majority, majority
from burnish.score.model import reward_model, rm_role, scoring
from burnish.score.objectives import brevity, directed_reward, implicit_score
from burnish.score.outcomes import outcomes
from burnish.score.process import aggregated_steps, dense_steps
from burnish.score.refusals import no_refusal
from burnish.score.segments import segmentation
from burnish.score.shape import Moments, clipped, normalised, spread, success_chance
from burnish.score.shaping import partial_for_answering, reflection_reward, squashed_model
from burnish.score.verify import verify
from burnish.score.wins import as_gap, less_length, mean_logp_of, win_rates
from burnish.score.written import after_tools, corrected_tokens, toward_goal

__all__ = [
    "Moments",
    "after_tools",
    "aggregated",
    "aggregated_steps",
    "as_gap",
    "battles",
    "brevity",
    "brevity_once_right",
    "clipped",
    "corrected_tokens",
    "dense_steps",
    "directed_reward",
    "discriminated",
    "effort",
    "fused",
    "gated",
    "given_label",
    "given_order",
    "given_scores",
    "halved_after_each_right",
    "implicit_score",
    "known_or_majority",
    "leads",
    "leads_by_score",
    "less_length",
    "like_reference",
    "majority",
    "mean_logp_of",
    "no_refusal",
    "normalised",
    "outcomes",
    "partial_for_answering",
    "personal",
    "pessimistic",
    "pointwise",
    "preferred_to_baseline",
    "punish_overlong",
    "reflection_reward",
    "reward_model",
    "rm_role",
    "scoring",
    "scoring_part",
    "segmentation",
    "spread",
    "squashed_model",
    "success_chance",
    "toward_goal",
    "unequal",
    "verify",
    "win_rates",
    "within",
]
