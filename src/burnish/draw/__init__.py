"""Draw: which tasks a step works on. `draw=draw.prompts(task)`."""

from burnish.draw.bandit import by_bandit
from burnish.draw.easier import easier_first
from burnish.draw.few import few
from burnish.draw.labelled import labelled_steps
from burnish.draw.replay import past_groups, transitions
from burnish.draw.stored import stored, stored_prompts
from burnish.draw.tasks import demos, pairs, prompts, questions
from burnish.tasks.data.scan import WEIGHTS
from burnish.tasks.source import Source

__all__ = [
    "easier_first",
    "WEIGHTS",
    "Source",
    "by_bandit",
    "demos",
    "few",
    "labelled_steps",
    "pairs",
    "past_groups",
    "prompts",
    "questions",
    "stored",
    "stored_prompts",
    "transitions",
]
