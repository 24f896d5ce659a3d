"""Pre-Trained Policy Discriminators are General Reward Models (arXiv 2507.05197).

Triples (reference, better, worse) as pairs of texts that hold the reference (POLAR).
"""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout
from burnish.core.parts import Part, names, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Trace
from burnish.learn.terms import reward as terms
from burnish.method import Method, Option, frozen, method, roles, trained
from burnish.methods import papers, register
from burnish.score.data import beside


@supplies("pairs", "tokens:candidate")
def beside_reference(*tags: str, reader: str = "rm") -> Part:
    """Each group's triple becomes one pair: the better and the worse reply, each beside the reference.

    tags  of the reference, the better and the worse reply. With one tag a group's traces are ranked, best first: the
          first is the reference, the second the better and the last the worse one. With two, two traces have the first
          tag (the same policy), one the second. The reference itself is never scored.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        model, kept = step.models[reader], []
        limit = min(model.context, step.settings.max_length or model.context)
        for group in groups:
            triple = _triple(group, tags)
            if triple is None or triple[1].tokens.tolist() == triple[2].tokens.tolist():
                continue
            prompt, reference = triple[0].turns[0].tokens, triple[0].turns[-1].tokens
            read = [beside(prompt, reference, one.turns[-1].tokens, model.chat, limit) for one in triple[1:]]
            kept.append(Group(group.task, read, [(0, 1)]))
        step.notes.add("dropped/no_preference", len(groups) - len(kept), max(1, len(groups)))
        return kept

    return Part(
        name=f"beside_reference({', '.join(tags)})",
        call=call,
        reads=names("tag", tags),
        writes=frozenset({"pairs", "tokens:candidate"}),
    )


def _triple(group: Group, tags: tuple[str, ...]) -> tuple[Trace, Trace, Trace] | None:
    by_tag = [[trace for trace in group.traces if tag in trace.tags] for tag in tags]
    if len(tags) == 1 and len(by_tag[0]) > 2:
        return by_tag[0][0], by_tag[0][1], by_tag[0][-1]
    if len(tags) == 2 and len(by_tag[0]) > 1 and by_tag[1]:
        return by_tag[0][0], by_tag[0][1], by_tag[1][0]
    if len(tags) == 3 and all(by_tag):
        return by_tag[0][0], by_tag[1][0], by_tag[2][0]
    return None


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
        same = rollout.sample(2, who="same", tag="same")
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
