"""Draw: which tasks a step works on. `draw=draw.prompts(task)`."""

from typing import TYPE_CHECKING

from burnish.util.lazy import lazy_names

if TYPE_CHECKING:
    from burnish.draw.columns import require_column as require_column
    from burnish.draw.few import few as few
    from burnish.draw.labelled import has_labels as has_labels
    from burnish.draw.labelled import labelled_replies as labelled_replies
    from burnish.draw.labelled import labelled_steps as labelled_steps
    from burnish.draw.made import mixed_in as mixed_in
    from burnish.draw.replay import transitions as transitions
    from burnish.draw.stored import stored as stored
    from burnish.draw.tasks import demos as demos
    from burnish.draw.tasks import episodes as episodes
    from burnish.draw.tasks import pairs as pairs
    from burnish.draw.tasks import prompts as prompts
    from burnish.draw.tasks import questions as questions
    from burnish.tasks.data.scan import WEIGHTS as WEIGHTS
    from burnish.tasks.source import Source as Source
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
