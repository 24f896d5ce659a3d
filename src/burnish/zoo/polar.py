"""Pre-Trained Policy Discriminators are General Reward Models (arXiv 2507.05197)."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout
from burnish.learn.terms import reward as terms
from burnish.method import Method, Option, frozen, method, roles, trained
from burnish.methods import opt, papers, register
from burnish.select.beside import beside_reference


@register(
    papers.POLAR,
    family="reward",
    summary="A reward model that reads a reference reply beside the candidate and says how alike their policies are.",
    when="Prompts have reference answers; the reward should be the distance to them, without labels at first.",
)
def polar(
    task: draw.Source,
    *,
    other: Annotated[str | None, Option("Another policy, for pre-training; by default the model of the run.")] = None,
    temperature: opt.Temperature = 1.0,
    other_temperature: Annotated[float, Option("The other policy's temperature.", above=0)] = 1.5,
) -> Method:
    """POLAR: a policy discriminator. The model reads prompt + reference, a separator, prompt + candidate.

    pre-training:  L = -log s( r(x, a1, a2) - r(x, a1, b1) ),  a1, a2 two samples of one policy, b1 of another
    fine-tuning:   L = -log s( r(x, A, B) - r(x, A, C) ),  A > B > C ranked replies; the best is the reference

    Data with at least three ranked replies, or with a reference beside chosen and rejected ones, is fine-tuned on; any
    other task is pre-trained on: the run's model against `other` (by default itself at another temperature). Mean over
    triples. As a reward: `polar(DIR)` with the task's answer as the reference. A constant reference is reward_model.
    """
    samples = "responses" not in task.gives and not {"reference", "chosen", "rejected"} <= task.gives
    if "responses" in task.gives:
        drawn, replies, triple = draw.prompts(task), rollout.listed(reader="rm"), beside_reference("listed")
    elif not samples:
        drawn, replies = draw.pairs(task), rollout.given("reference", "chosen", "rejected", reader="rm")
        triple = beside_reference("reference", "chosen", "rejected")
    else:
        same = rollout.sample(2, who="same", temperature=temperature, tag="same")
        different = rollout.sample(1, who="different", temperature=other_temperature, tag="different")
        drawn, replies, triple = (
            draw.prompts(task),
            rollout.join(same, different),
            beside_reference("same", "different"),
        )
    policies = {"same": frozen("base"), "different": frozen(other or "base")} if samples else {}
    return method(
        draw=drawn,
        rollout=replies,
        select=triple,
        credit=credit.claim("end", "candidate", positions="end"),
        learn=learn.Learn(terms.score_pairs(on=learn.CLAIMED)),
        models=roles("rm", rm=trained(outputs=1), **policies),
        product="rm",
    )
