"""Papers as constants: `papers.GRPO`. One file per kind of what they describe."""

from burnish.papers.agents import *  # noqa: F403
from burnish.papers.methods import *  # noqa: F403 - a list of constants
from burnish.papers.paper import Paper as Paper
from burnish.papers.pipelines import *  # noqa: F403
from burnish.papers.rewards import *  # noqa: F403
