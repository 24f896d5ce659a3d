"""Draw: which tasks a step works on. `draw=draw.prompts(task)`."""

from burnish.draw.bandit import by_bandit
from burnish.draw.few import few
from burnish.draw.labelled import labelled_steps
from burnish.draw.replay import past_groups, transitions, with_replies
from burnish.draw.stored import stored, stored_prompts
from burnish.draw.tasks import demos, episodes, pairs, prompts, questions
from burnish.tasks.data.scan import WEIGHTS
from burnish.tasks.source import Source

__all__ = [
    "WEIGHTS",
    "Source",
    "by_bandit",
    "demos",
    "episodes",
    "few",
    "labelled_steps",
    "pairs",
    "past_groups",
    "prompts",
    "questions",
    "stored",
    "stored_prompts",
    "transitions",
    "with_replies",
]
