"""Who judges: a frozen model of the run, the policy itself, or an OpenAI-compatible endpoint (judge.py).

The words, the readers and the votes are in burnish/rewards/judges.
"""

from burnish.score.judges.judge import Answer, Judge
from burnish.score.judges.spec import read_judge, read_judges

__all__ = ["Answer", "Judge", "read_judge", "read_judges"]
