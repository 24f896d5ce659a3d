"""Score: numbers on replies. `score=score.verify(task)`."""

from burnish.score.agreement import answer_entropy
from burnish.score.baseline import above_value
from burnish.score.constraints import calibrated, ratio_to_reference, satisfied
from burnish.score.data import fused, like_reference, personal, pessimistic
from burnish.score.debugged import START as REFINED_AT
from burnish.score.debugged import Refinements, debugged, keep_refinements
from burnish.score.given import given_label, given_order, given_scores
from burnish.score.heads import aggregated, discriminated, gated, preferred_to_baseline, scoring_part
from burnish.score.judges.battles import battles, unequal
from burnish.score.judges.pairs import leads, leads_by_score
from burnish.score.judges.pointwise import pointwise
from burnish.score.judges.self_scores import note_agreement, self_scores
from burnish.score.latents import latent_values
from burnish.score.length import punish_overlong
from burnish.score.lengths import brevity_once_right, effort, halved_after_each_right, within
from burnish.score.majority import known_or_majority, majority
from burnish.score.model import reward_model, rm_role, scoring
from burnish.score.objectives import brevity, directed_reward, implicit_score
from burnish.score.outcomes import outcomes
from burnish.score.process import aggregated_steps, dense_steps
from burnish.score.refusals import no_refusal
from burnish.score.sanity import price_astray
from burnish.score.segments import segmentation
from burnish.score.shape import Moments, clipped, normalised, spread, success_chance
from burnish.score.shaping import partial_for_answering, reflection_reward, squashed_model
from burnish.score.steered import steered_reward
from burnish.score.steps_judged import bad_steps
from burnish.score.verify import verify
from burnish.score.wins import as_gap, less_length, mean_logp_of, win_rates
from burnish.score.written import after_tools, corrected_tokens, toward_goal

__all__ = [
    "Moments",
    "REFINED_AT",
    "Refinements",
    "above_value",
    "after_tools",
    "aggregated",
    "aggregated_steps",
    "answer_entropy",
    "as_gap",
    "bad_steps",
    "battles",
    "brevity",
    "brevity_once_right",
    "calibrated",
    "clipped",
    "corrected_tokens",
    "debugged",
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
    "keep_refinements",
    "known_or_majority",
    "latent_values",
    "leads",
    "leads_by_score",
    "less_length",
    "like_reference",
    "majority",
    "mean_logp_of",
    "no_refusal",
    "normalised",
    "note_agreement",
    "outcomes",
    "partial_for_answering",
    "personal",
    "pessimistic",
    "pointwise",
    "preferred_to_baseline",
    "price_astray",
    "punish_overlong",
    "ratio_to_reference",
    "reflection_reward",
    "reward_model",
    "rm_role",
    "satisfied",
    "scoring",
    "scoring_part",
    "segmentation",
    "self_scores",
    "spread",
    "squashed_model",
    "steered_reward",
    "success_chance",
    "toward_goal",
    "unequal",
    "verify",
    "win_rates",
    "within",
]
