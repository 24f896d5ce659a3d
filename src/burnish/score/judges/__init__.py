"""Who judges: a frozen model of the run, the policy itself, or an OpenAI-compatible endpoint (judge.py).

The words, the readers and the votes are in burnish/judges.
"""

from typing import TYPE_CHECKING

from burnish.util.lazy import lazy_names

if TYPE_CHECKING:
    from burnish.score.judges.judge import Answer as Answer
    from burnish.score.judges.judge import Judge as Judge
    from burnish.score.judges.spec import read_judge as read_judge
    from burnish.score.judges.spec import read_judges as read_judges
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
