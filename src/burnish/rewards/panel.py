"""A panel of judges whose critiques a meta judge sorts and merges (MultiCritique)."""

from __future__ import annotations

from typing import Annotated

from burnish import papers
from burnish.core.method import Group, Option, Part, Step
from burnish.core.scorer import FEEDBACK
from burnish.judges import read
from burnish.judges.question import question
from burnish.judges.templates import CRITIQUE, META_CRITIQUE
from burnish.rewards import Scorer, register_reward
from burnish.rewards.judged import Unparsed
from burnish.score.judges import Judge, read_judge, read_judges
from burnish.score.judges.asked import Item, Writer, items_of, note_unread
from burnish.tasks.source import Source

WORST = 7  # the largest severity of a flaw
Flaws = list[tuple[int, str]]


@register_reward(
    papers.MULTICRITIQUE,
    summary="Several judges list flaws independently, a meta judge drops wrong ones; less severe flaws score more.",
    when="Single judges miss or invent flaws.",
    example="burnish train grpo --task prompts.jsonl --reward 'multicritique(judges=A+B+C, meta=D)'",
    trial={"judges": "tiny"},
)
def multicritique(
    task: Source,
    judges: Annotated[str, Option("The judges of the panel, with a plus sign between them.")],
    *,
    meta: Annotated[str, Option("The judge that sorts the flaws; without one all of them count.")] = "",
    limit: Annotated[float, Option("Sum of severities at which the reward is 0.", above=0)] = 14.0,
    unparsed: Unparsed = None,
) -> Scorer:
    """r = max(0, 1 - sum of severities / limit), severities 1 to 7 of the flaws that the meta judge confirms

    The judges do not see each other's critiques (debate lowered diversity in the paper). The meta judge gives each
    flaw a severity, 0 for one that is wrong, invented or repeated; a flaw that its answer leaves out counts as wrong.
    The merged critique is the trace's note["critique"], which `burnish pairs` writes into its rows; with keep=FILE of a
    judge its answers become rows for sft, which trains a critic. One judge without `meta` is a plain critic. The map
    from severities to a reward is RECONSTRUCTED. Left out: SFT on the merged critiques, and RL of a critic on pairs of
    them. The filter of pairs by revisions (MARV) and the reward model with a focal ranking loss: multicritique_rm.
    """
    panel, writer = read_judges(judges), Writer("multicritique", unparsed)
    chief = read_judge(meta) if meta else None

    def call(groups: list[Group], step: Step) -> list[Group]:
        items = items_of(groups, step)
        for item in (item for item in items if item.empty):
            writer.write(item, 0.0, "")
        live = [item for item in items if not item.empty]
        found = _critiques(live, panel, step)
        sorted_ = [flaws and [one for one in flaws if one[0] > 0] for flaws in found]
        kept = sorted_ if chief is None else _confirmed(live, sorted_, chief, step)
        for item, flaws in zip(live, kept, strict=True):
            if flaws is not None:
                item.trace.note[FEEDBACK] = "\n".join(f"{severity} | {text}" for severity, text in flaws)
            total = None if flaws is None else sum(severity for severity, _ in flaws)
            value = None if total is None else max(0.0, 1 - total / limit)
            writer.write(item, value, "no critique could be read")
        return groups

    everyone = [*panel, *([chief] if chief else [])]
    reads = frozenset({"tokens:policy"}).union(*(one.reads for one in everyone))
    part = Part(name=f"multicritique({len(panel)} judges)", call=call, reads=reads, writes=writer.writes)
    return Scorer(part=part, models={name: role for one in everyone for name, role in one.models.items()})


def _critiques(live: list[Item], panel: list[Judge], step: Step) -> list[Flaws | None]:
    """The flaws that the judges of the panel list for each reply, together; None where no critique could be read."""
    found: list[Flaws | None] = [None for _ in live]
    unread = 0
    asked = [question(CRITIQUE, (("request", item.prompt), ("reply", item.reply))) for item in live]
    for judge in panel:
        for k, (answer,) in enumerate(judge.ask(asked, step)):
            flaws = [] if answer.failed else read.weighted_lines(answer.text, WORST, 50)
            unread += not flaws
            if flaws:
                found[k] = [*(found[k] or []), *flaws]
    note_unread(step, unread, len(panel) * len(live))
    return found


def _confirmed(live: list[Item], found: list[Flaws | None], chief: Judge, step: Step) -> list[Flaws | None]:
    """The flaws with the severities of the meta judge; those of 0 and those that it leaves out are dropped."""
    some = [k for k, flaws in enumerate(found) if flaws]
    asked = []
    for k in some:
        flaws = found[k] or []
        listed = "\n".join(f"{i}. {text}" for i, (_, text) in enumerate(flaws, 1))
        data = (("request", live[k].prompt), ("reply", live[k].reply), ("flaws", listed))
        asked.append(question(META_CRITIQUE, data, count=str(len(flaws))))
    kept = list(found)
    unread = 0
    for k, (answer,) in zip(some, chief.ask(asked, step), strict=True):
        flaws = found[k] or []
        pairs = [] if answer.failed else read.numbered_severities(answer.text, len(flaws), WORST)
        unread += not pairs
        kept[k] = [(severity, flaws[i][1]) for i, severity in pairs if severity > 0] if pairs else None
    note_unread(step, unread, len(some))
    return kept
