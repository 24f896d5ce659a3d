"""URPO: A Unified Reward & Policy Optimization Framework for Large Language Models (arXiv 2507.17515)."""

from __future__ import annotations

from typing import Annotated

from burnish import draw
from burnish.judges import templates
from burnish.method import Method, Option
from burnish.methods import opt, register
from burnish.methods.fronts import judge_grpo
from burnish.papers import Paper
from burnish.score.judges.of_model import ModelJudge
from burnish.score.judges.self_scores import note_agreement, self_scores
from burnish.tasks.refereed import KIND, OPEN, REFEREE, VERIFIED, Refereed

URPO = Paper("urpo", "2507.17515", "URPO: A Unified Reward & Policy Optimization Framework for Large Language Models")

Words = Annotated[str, Option("How much a question says; brief is for small models.", choices=("full", "brief"))]
_SCORES = {"full": templates.PRINCIPLES, "brief": templates.PRINCIPLES_BRIEF}
_SMALL = {"task": "sort:1", "words": "brief"}


@register(
    URPO,
    family="reward",
    summary="One model is player and referee: verifiable, preference and open-ended tasks in one GRPO run.",
    when="Some rows have answers, some preferences, some neither, and there is no reward model.",
    trial={"n": 4, **_SMALL},
)
def urpo(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    eps: opt.ClipRange = 0.2,
    beta: opt.KLCoef = 0.0,
    temperature: opt.Temperature = 1.0,
    verified: Annotated[float, Option("Share of tasks with a verifier.", at_least=0)] = 1.0,
    referee: Annotated[float, Option("Share of preference tasks.", at_least=0)] = 1.0,
    open_ended: Annotated[float, Option("Share of open-ended tasks.", at_least=0)] = 1.0,
    max_tokens: Annotated[int, Option("The longest answer of the policy as referee.", at_least=1)] = 512,
    words: Words = "full",
) -> Method:
    """Unified reward and policy optimisation.

    R = verifier's 0 or 1 (verified), Kendall's tau-a of the written scores and the given order (referee),
        the policy's own score of the reply, (s - 1) / 9 (open);  GRPO within each group, one loss for all kinds

    Each row becomes one of the kinds that it can be: verified with an answer, referee with preferences, open always; by
    a hash of its key and the shares. The self-scores are those of the present weights, in one question per group, and
    no gradient goes through them. RECONSTRUCTED from the abstract and a review: tau-a with ties counting 0, -1 for
    scores that cannot be read. Only verified tasks: GRPO. Watch self_score next to referee_agreement: without
    preference tasks in each batch self-scores drift up.
    """
    source = Refereed(task, _SCORES[words], {VERIFIED: verified, REFEREE: referee, OPEN: open_ended})
    judge = ModelJudge("policy", "policy", max_tokens=max_tokens, moves=True)
    return judge_grpo(
        draw.prompts(source),
        source,
        n,
        temperature,
        eps,
        beta,
        note_agreement((KIND, REFEREE)),
        self_scores(judge, _SCORES[words], (KIND, OPEN)),
    )
