"""Draw: which tasks a step works on. `draw=draw.prompts(task)`."""

from typing import TYPE_CHECKING

from burnish.util.lazy import lazy_names

if TYPE_CHECKING:
    from burnish.draw.bandit import by_bandit as by_bandit
    from burnish.draw.columns import require_column as require_column
    from burnish.draw.columns import require_values as require_values
    from burnish.draw.evolve import Evolution as Evolution
    from burnish.draw.evolve import Pool as Pool
    from burnish.draw.evolve import evolving as evolving
    from burnish.draw.evolve import informativeness as informativeness
    from burnish.draw.failed import failed_again as failed_again
    from burnish.draw.few import few as few
    from burnish.draw.instructor import decided as decided
    from burnish.draw.instructor import taught as taught
    from burnish.draw.labelled import has_labels as has_labels
    from burnish.draw.labelled import labelled_replies as labelled_replies
    from burnish.draw.labelled import labelled_steps as labelled_steps
    from burnish.draw.made import mixed_in as mixed_in
    from burnish.draw.rated import by_failure as by_failure
    from burnish.draw.rated import by_rate as by_rate
    from burnish.draw.rated import in_order as in_order
    from burnish.draw.replay import past_groups as past_groups
    from burnish.draw.replay import transitions as transitions
    from burnish.draw.replay import with_replies as with_replies
    from burnish.draw.self_instruct import Instructions as Instructions
    from burnish.draw.self_instruct import Writing as Writing
    from burnish.draw.self_instruct import self_instructed as self_instructed
    from burnish.draw.stored import stored as stored
    from burnish.draw.stored import stored_prompts as stored_prompts
    from burnish.draw.tasks import demos as demos
    from burnish.draw.tasks import episodes as episodes
    from burnish.draw.tasks import pairs as pairs
    from burnish.draw.tasks import prompts as prompts
    from burnish.draw.tasks import questions as questions
    from burnish.tasks.data.scan import WEIGHTS as WEIGHTS
    from burnish.tasks.source import Source as Source
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
