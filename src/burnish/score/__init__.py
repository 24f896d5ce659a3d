"""Score: numbers on replies. `score=score.verify(task)`."""

from typing import TYPE_CHECKING

from burnish.util.lazy import lazy_names

if TYPE_CHECKING:
    from burnish.score.data import fused as fused
    from burnish.score.data import like_reference as like_reference
    from burnish.score.data import personal as personal
    from burnish.score.data import pessimistic as pessimistic
    from burnish.score.given import given_label as given_label
    from burnish.score.given import given_order as given_order
    from burnish.score.given import given_scores as given_scores
    from burnish.score.heads import aggregated as aggregated
    from burnish.score.heads import discriminated as discriminated
    from burnish.score.heads import gated as gated
    from burnish.score.heads import preferred_to_baseline as preferred_to_baseline
    from burnish.score.heads import scoring_part as scoring_part
    from burnish.score.judges.battles import battles as battles
    from burnish.score.judges.battles import unequal as unequal
    from burnish.score.judges.pairs import leads as leads
    from burnish.score.judges.pairs import leads_by_score as leads_by_score
    from burnish.score.judges.pointwise import pointwise as pointwise
    from burnish.score.length import punish_overlong as punish_overlong
    from burnish.score.lengths import brevity_once_right as brevity_once_right
    from burnish.score.lengths import effort as effort
    from burnish.score.lengths import halved_after_each_right as halved_after_each_right
    from burnish.score.lengths import within as within
    from burnish.score.majority import known_or_majority as known_or_majority
    from burnish.score.majority import majority as majority
    from burnish.score.model import reward_model as reward_model
    from burnish.score.model import rm_role as rm_role
    from burnish.score.model import scoring as scoring
    from burnish.score.objectives import brevity as brevity
    from burnish.score.objectives import directed_reward as directed_reward
    from burnish.score.objectives import implicit_score as implicit_score
    from burnish.score.outcomes import outcomes as outcomes
    from burnish.score.process import aggregated_steps as aggregated_steps
    from burnish.score.process import dense_steps as dense_steps
    from burnish.score.refusals import no_refusal as no_refusal
    from burnish.score.segments import segmentation as segmentation
    from burnish.score.shape import Moments as Moments
    from burnish.score.shape import clipped as clipped
    from burnish.score.shape import normalised as normalised
    from burnish.score.shape import spread as spread
    from burnish.score.shape import success_chance as success_chance
    from burnish.score.shaping import partial_for_answering as partial_for_answering
    from burnish.score.shaping import reflection_reward as reflection_reward
    from burnish.score.shaping import squashed_model as squashed_model
    from burnish.score.verify import verify as verify
    from burnish.score.wins import as_gap as as_gap
    from burnish.score.wins import less_length as less_length
    from burnish.score.wins import mean_logp_of as mean_logp_of
    from burnish.score.wins import win_rates as win_rates
    from burnish.score.written import after_tools as after_tools
    from burnish.score.written import corrected_tokens as corrected_tokens
    from burnish.score.written import toward_goal as toward_goal
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
