"""Credit: what each token is worth, and what it is compared with. `credit=credit.group_relative()`."""

from typing import TYPE_CHECKING

from burnish.util.lazy import lazy_names

if TYPE_CHECKING:
    from burnish.core.preferences import by_bradley_terry as by_bradley_terry
    from burnish.core.preferences import by_comparison as by_comparison
    from burnish.credit.baselines import leave_one_out as leave_one_out
    from burnish.credit.baselines import over_memory as over_memory
    from burnish.credit.cached import cached_ref as cached_ref
    from burnish.credit.claims import claim as claim
    from burnish.credit.copies import copies as copies
    from burnish.credit.gae import gae as gae
    from burnish.credit.gae import token_rewards as token_rewards
    from burnish.credit.gae import whiten as whiten
    from burnish.credit.group import group_relative as group_relative
    from burnish.credit.mismatch import masked as masked
    from burnish.credit.penalty import kl_in_score as kl_in_score
    from burnish.credit.penalty import rewards_to_go as rewards_to_go
    from burnish.credit.preference import pair_preference as pair_preference
    from burnish.credit.returns import lambda_returns as lambda_returns
    from burnish.credit.returns import monte_carlo as monte_carlo
    from burnish.credit.reward import bags as bags
    from burnish.credit.reward import normal_noise as normal_noise
    from burnish.credit.sequence import shared as shared
    from burnish.credit.streams import behaviour as behaviour
    from burnish.credit.streams import old as old
    from burnish.credit.streams import ref as ref
    from burnish.credit.streams import streams as streams
    from burnish.credit.streams import token_ids as token_ids
    from burnish.credit.teacher_text import teacher_logp as teacher_logp
    from burnish.credit.utterance import at_utterance as at_utterance
    from burnish.credit.utterance import last_turn as last_turn
    from burnish.credit.verdicts import label as label
    from burnish.credit.verdicts import right as right
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
