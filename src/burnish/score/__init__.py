"""Score: numbers on replies. `score=score.verify(task)`."""

from typing import TYPE_CHECKING

from burnish.util.lazy import lazy_names

if TYPE_CHECKING:
    from burnish.score.given import given_label as given_label
    from burnish.score.given import given_order as given_order
    from burnish.score.given import given_scores as given_scores
    from burnish.score.heads import aggregated as aggregated
    from burnish.score.heads import scoring_part as scoring_part
    from burnish.score.length import punish_overlong as punish_overlong
    from burnish.score.majority import majority as majority
    from burnish.score.model import reward_model as reward_model
    from burnish.score.model import rm_role as rm_role
    from burnish.score.model import scoring as scoring
    from burnish.score.outcomes import outcomes as outcomes
    from burnish.score.process import aggregated_steps as aggregated_steps
    from burnish.score.process import dense_steps as dense_steps
    from burnish.score.segments import segmentation as segmentation
    from burnish.score.shape import Moments as Moments
    from burnish.score.shape import normalised as normalised
    from burnish.score.shaping import partial_for_answering as partial_for_answering
    from burnish.score.verify import verify as verify
    from burnish.score.wins import win_rates as win_rates
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
