"""Draw: which tasks a step works on. `draw=draw.prompts(task)`."""

from burnish.draw.bandit import by_bandit
from burnish.draw.columns import require_column, require_values
from burnish.draw.evolve import Evolution, Pool, evolving, informativeness
from burnish.draw.failed import failed_again
from burnish.draw.few import few
from burnish.draw.instructor import decided, taught
from burnish.draw.labelled import has_labels, labelled_replies, labelled_steps
from burnish.draw.made import mixed_in
from burnish.draw.rated import by_failure, by_rate, in_order
from burnish.draw.replay import past_groups, transitions, with_replies
from burnish.draw.self_instruct import Instructions, Writing, self_instructed
from burnish.draw.stored import stored, stored_prompts
from burnish.draw.tasks import demos, episodes, pairs, prompts, questions
from burnish.tasks.data.scan import WEIGHTS
from burnish.tasks.source import Source

__all__ = [
    "Evolution",
    "Instructions",
    "Pool",
    "Source",
    "WEIGHTS",
    "Writing",
    "by_bandit",
    "by_failure",
    "by_rate",
    "decided",
    "demos",
    "episodes",
    "evolving",
    "failed_again",
    "few",
    "has_labels",
    "in_order",
    "informativeness",
    "labelled_replies",
    "labelled_steps",
    "mixed_in",
    "pairs",
    "past_groups",
    "prompts",
    "questions",
    "require_column",
    "require_values",
    "self_instructed",
    "stored",
    "stored_prompts",
    "taught",
    "transitions",
    "with_replies",
]
