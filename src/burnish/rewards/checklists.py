"""Rewards from checklists: each requirement is judged by itself, and by a program where one can check it (RLCF)."""

from __future__ import annotations

from typing import Annotated

from burnish import papers
from burnish.core.method import Group, Option, Part, Step
from burnish.core.scorer import RATINGS, SPAN
from burnish.core.state import State
from burnish.judges import read, vote
from burnish.judges.checklist import HIGHEST, UNIVERSAL, Requirement, passes, read_checklist
from burnish.judges.question import question
from burnish.judges.templates import CHECK_ITEM, MAKE_CHECKLIST
from burnish.rewards import Scorer, register_reward
from burnish.rewards.judged import JudgeText, Unparsed, text_or_file
from burnish.score.judges import Judge, read_judge
from burnish.score.judges.asked import Item, Writer, by_group, items_of, note_unread, reason
from burnish.tasks.source import Source

COLUMN = "checklist"
SHOWN = 4  # attempts that the judge sees when it writes a checklist
KEPT = 100_000  # checklists that are kept, the oldest are forgotten


class Checklists:
    """Request -> the checklist that was written for it; kept in checkpoints, so that it stays the same."""

    name = "checklists"

    def __init__(self) -> None:
        self.by_prompt: dict[str, list[Requirement]] = {}

    def keep(self, prompt: str, found: list[Requirement]) -> None:
        self.by_prompt[prompt] = found
        while len(self.by_prompt) > KEPT:
            del self.by_prompt[next(iter(self.by_prompt))]

    def state_dict(self) -> State:
        return {prompt: [one.stored() for one in found] for prompt, found in self.by_prompt.items()}

    def load_state_dict(self, state: State) -> None:
        self.by_prompt = {prompt: read_checklist(found, "checkpoint") for prompt, found in state.items()}


@register_reward(
    papers.RLCF,
    summary="The weighted share of a checklist that a reply meets: judged item by item, and by programs.",
    when="Instructions with several requirements.",
    example="burnish train grpo --task prompts.jsonl --reward 'checklist(runs/DIR/model, samples=5)'",
    trial={"judge": "tiny", "items": "The reply is short."},
)
def checklist(
    task: Source,
    judge: JudgeText,
    *,
    items: Annotated[str, Option("The same requirements for every row, one per line, or a file with them.")] = "",
    most: Annotated[int, Option("Requirements that the judge writes for a request.", at_least=1, at_most=30)] = 8,
    universal: Annotated[bool, Option("Add the two requirements that hold for every request.")] = True,
    samples: Annotated[int, Option("Judgements of each requirement, of which the mean counts.", at_least=1)] = 25,
    unparsed: Unparsed = None,
) -> Scorer:
    """r = clip( sum_i w_i s_i / sum_i w_i / 100, 0, 1 ),  s_i = mean of `samples` judgements in 0 ... 100
    s_i = (judge + 100 [program passes]) / 2 where an item has a program

    The requirements of a row are in its column `checklist` (texts, or objects with item, weight 0 to 100 and check: a
    verifier by name), or in `items`; otherwise the judge writes them once per request, from the request and replies to
    it, asking how they fail, and they are kept for the run. The paper takes those attempts from models of several
    sizes; here they are the policy's own. Its judge also writes the programs of items; here `check` names a verifier. A
    judgement that cannot be read is dropped from the mean (the released code counts it as -1). The paper uses the score
    to select DPO pairs (burnish pairs); as an online reward it is an extension. One item without a program is a plain
    judge.
    """
    who, writer, memory = read_judge(judge), Writer("checklist", unparsed), Checklists()
    fixed = read_checklist(text_or_file(items, "items"), "items") if items else []
    extra = list(UNIVERSAL) if universal else []

    def call(groups: list[Group], step: Step) -> list[Group]:
        found = items_of(groups, step)
        for item in (item for item in found if item.empty):
            writer.write(item, 0.0, "")
        live = [item for item in found if not item.empty]
        lists = {id(own[0].group): _given(own[0], fixed) for own in by_group(live)}
        unknown = [own for own in by_group(live) if not lists[id(own[0].group)]]
        for own, made in zip(unknown, _made(unknown, who, memory, most, step), strict=True):
            lists[id(own[0].group)] = made
        _score(live, {key: [*own, *extra] for key, own in lists.items() if own}, who, samples, writer, step)
        return groups

    reads = who.reads | {"tokens:policy"}
    part = Part(name=f"checklist({who.name})", call=call, reads=reads, writes=writer.writes, state=(memory,))
    return Scorer(part=part, models=who.models)


def _given(item: Item, fixed: list[Requirement]) -> list[Requirement]:
    own: object = item.task.given.get(COLUMN)
    return read_checklist(own, f"task {item.task.key[:60]!r}") if own else fixed


def _made(
    parties: list[list[Item]], judge: Judge, memory: Checklists, most: int, step: Step
) -> list[list[Requirement]]:
    """The checklist for each request, remembered or written now; empty where the judge's lines cannot be read."""
    new = [own for own in parties if own[0].prompt not in memory.by_prompt]
    asked = []
    for own in new:
        attempts = [(f"attempt {k + 1}", item.reply) for k, item in enumerate(own[:SHOWN])]
        asked.append(question(MAKE_CHECKLIST, [("request", own[0].prompt), *attempts], most=str(most)))
    for own, answers in zip(new, judge.ask(asked, step), strict=True):
        lines = [] if answers[0].failed else read.weighted_lines(answers[0].text, HIGHEST, most)
        if lines:
            memory.keep(own[0].prompt, [Requirement(text, float(weight)) for weight, text in lines])
    return [memory.by_prompt.get(own[0].prompt, []) for own in parties]


def _score(
    live: list[Item],
    lists: dict[int, list[Requirement]],
    judge: Judge,
    samples: int,
    writer: Writer,
    step: Step,
) -> None:
    """Ask about every requirement of every reply, run the programs, and write the weighted means."""
    for item in (item for item in live if id(item.group) not in lists):
        writer.write(item, None, "the judge wrote no checklist that could be read")
    pairs = [(item, one) for item in live for one in lists.get(id(item.group), [])]
    asked = [question(CHECK_ITEM, (("request", i.prompt), ("reply", i.reply)), item=one.text) for i, one in pairs]
    programs = _programs(pairs)
    scores: dict[int, list[float | None]] = {id(item): [] for item in live}
    why: dict[int, str] = {}
    unread = 0
    for k, ((item, _), answers) in enumerate(zip(pairs, judge.ask(asked, step, samples), strict=True)):
        values = [None if a.failed else read.score(a.text, 0, 100) for a in answers]
        unread += sum(value is None for value in values)
        judged, passed = vote.mean(values), programs.get(k)
        scores[id(item)].append(judged if passed is None else vote.with_program(judged, passed))
        if judged is None:
            why[id(item)] = reason(answers)
    note_unread(step, unread, samples * len(pairs))
    for item in (item for item in live if id(item.group) in lists):
        weights = [one.weight for one in lists[id(item.group)]]
        value = vote.weighted_checklist(scores[id(item)], weights)
        known = zip(lists[id(item.group)], scores[id(item)], strict=True)
        item.trace.note[RATINGS] = {one.text: score / HIGHEST for one, score in known if score is not None}
        item.trace.note[SPAN] = 1.0
        writer.write(item, value, why.get(id(item), "all requirements weigh nothing"))


def _programs(pairs: list[tuple[Item, Requirement]]) -> dict[int, bool | None]:
    """Number of a pair -> whether its reply passes the requirement's program; one call per program."""
    places: dict[str, list[int]] = {}
    for k, (_, one) in enumerate(pairs):
        if one.check:
            places.setdefault(one.check, []).append(k)
    found: dict[int, bool | None] = {}
    for check, own in places.items():
        items = [pairs[k][0] for k in own]
        rows = [dict(item.task.given) for item in items]
        found |= dict(zip(own, passes(check, [i.prompt for i in items], [i.reply for i in items], rows), strict=True))
    return found
