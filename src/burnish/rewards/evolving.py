"""A rubric that a meta judge refines during the run (Meta Policy Optimization)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from burnish import papers
from burnish.core import randomness
from burnish.core.method import Group, Option, Part, Step
from burnish.core.state import State
from burnish.judges import read, vote
from burnish.judges.question import Question, question
from burnish.judges.templates import BY_ITEMS, REFINE_RUBRIC
from burnish.rewards import Scorer, register_reward
from burnish.rewards.judged import GENERAL, JudgeText, Samples, Unparsed, text_or_file
from burnish.score.judges import Judge, read_judge
from burnish.score.judges.asked import Item, Writer, items_of, note_unread, reason
from burnish.tasks.source import Source

LARGEST = 10  # of one item
KEPT = 200  # rollouts that are remembered between two refinements
Items = list[tuple[int, str]]


class Rubric:
    """The versions of the rubric, the last one in force, and recent rollouts with their scores; kept in checkpoints."""

    name = "rubric"

    def __init__(self, items: Items) -> None:
        self.versions: list[dict[str, Any]] = [{"step": 0, "items": [list(one) for one in items]}]
        self.rollouts: list[list[Any]] = []  # [prompt, reply, share of the largest score]

    @property
    def items(self) -> Items:
        return [(int(most), str(text)) for most, text in self.versions[-1]["items"]]

    @property
    def largest(self) -> int:
        return sum(most for most, _ in self.items)

    def remember(self, prompt: str, reply: str, share: float) -> None:
        self.rollouts = [*self.rollouts, [prompt, reply, share]][-KEPT:]

    def refine(self, step: int, items: Items) -> None:
        self.versions.append({"step": step, "items": [list(one) for one in items]})
        self.rollouts = []

    def due(self, step: int, every: int) -> bool:
        """Whether a refinement is due: at every `every`-th step, once."""
        return bool(every) and step > 0 and step % every == 0 and self.versions[-1]["step"] < step

    def state_dict(self) -> State:
        return {"versions": self.versions, "rollouts": self.rollouts}

    def load_state_dict(self, state: State) -> None:
        self.versions, self.rollouts = list(state["versions"]), list(state["rollouts"])


def read_items(text: str) -> Items:
    """(largest score, item) of lines `MAXIMUM | item`; a line without a maximum counts up to 10."""
    found = []
    for line in filter(str.strip, text.splitlines()):
        weighted = read.weighted_lines(line, LARGEST, 1)
        found.append(weighted[0] if weighted and weighted[0][0] > 0 else (LARGEST, line.strip()))
    return found


@register_reward(
    papers.META_PO,
    summary="A judge grades by a rubric that a meta judge refines every few steps from replies and their scores.",
    when="A fixed rubric is exploited: the reward rises and the replies do not get better.",
    example="burnish train ppo --task prompts.jsonl --reward 'meta_po(JUDGE, meta=LARGER_JUDGE, scale=share)'",
    trial={"judge": "tiny"},
)
def meta_po(
    task: Source,
    judge: JudgeText,
    *,
    rubric: Annotated[str, Option("The first rubric, one item per line (MAXIMUM | item), or a file.")] = GENERAL,
    meta: Annotated[str, Option("The judge that refines the rubric; by default the same one.")] = "",
    every: Annotated[int, Option("Steps between two refinements; 0: never.", at_least=0)] = 10,
    shown: Annotated[int, Option("Replies that the meta judge sees.", at_least=1)] = 20,
    most: Annotated[int, Option("Items of a refined rubric.", at_least=1, at_most=50)] = 10,
    scale: Annotated[
        Literal["sum", "share"], Option("The sum of the items' scores, or its share of the largest sum.")
    ] = "sum",
    samples: Samples = 1,
    unparsed: Unparsed = None,
) -> Scorer:
    """r = sum over the items of the rubric of the judge's score;  with scale=share divided by the largest sum

    Every `every` steps the meta judge sees `shown` recent replies with their scores and writes a better rubric. A
    refinement that cannot be read leaves the rubric as it is. All versions, with their steps, are in the checkpoints;
    rubric_version is a metric. every=0: a fixed rubric. TRAP: the sum jumps with the number of items (3 and 4 of two
    items are 7, three items of 3 each are 9), which misleads a critic; scale=share is an addition against that. The
    paper merges several proposals and has rubrics per cluster of prompts; here one proposal replaces the rubric.
    """
    who = read_judge(judge)
    refiner, writer = read_judge(meta) if meta else who, Writer("meta_po", unparsed)
    memory = Rubric(read_items(text_or_file(rubric, "rubric")))

    def call(groups: list[Group], step: Step) -> list[Group]:
        if memory.due(step.clock.step, every) and memory.rollouts:
            _refine(memory, refiner, shown, most, step)
        items, largest = memory.items, memory.largest
        replies = items_of(groups, step)
        for item in (item for item in replies if item.empty):
            writer.write(item, 0.0, "")
        live = [item for item in replies if not item.empty]
        answers = who.ask([_by_items(item, items) for item in live], step, samples)
        unread = 0
        for item, own in zip(live, answers, strict=True):
            sums = [None if a.failed else _sum(a.text, items) for a in own]
            unread += sum(one is None for one in sums)
            total = vote.mean(sums)
            if total is not None:
                memory.remember(item.prompt, item.reply, total / largest)
            writer.write(item, None if total is None else total / (largest if scale == "share" else 1), reason(own))
        note_unread(step, unread, samples * len(live))
        step.notes.add("rubric_version", len(memory.versions) - 1)
        return groups

    reads = who.reads | refiner.reads | {"tokens:policy"}
    part = Part(name=f"meta_po({who.name})", call=call, reads=reads, writes=writer.writes, state=(memory,))
    return Scorer(part=part, models={**who.models, **refiner.models})


def _refine(memory: Rubric, judge: Judge, shown: int, most: int, step: Step) -> None:
    order = randomness.shuffled(len(memory.rollouts), "meta_po", step.clock.seed, step.clock.step)[:shown]
    data: list[tuple[str, str]] = []
    for k, i in enumerate(order):
        prompt, reply, share = memory.rollouts[i]
        data += [(f"request {k + 1}", prompt), (f"reply {k + 1} with {share:.0%} of the score", reply)]
    asked = question(REFINE_RUBRIC, data, rubric=_listed(memory.items), most=str(most))
    answer = judge.ask([asked], step)[0][0]
    found = [] if answer.failed else [one for one in read.weighted_lines(answer.text, LARGEST, most) if one[0] > 0]
    note_unread(step, not found, 1)
    if found:
        memory.refine(step.clock.step, found)


def _listed(items: Sequence[tuple[int, str]]) -> str:
    return "\n".join(f"{largest} | {text}" for largest, text in items)


def _by_items(item: Item, items: Items) -> Question:
    data = (("request", item.prompt), ("reply", item.reply))
    return question(BY_ITEMS, data, items=_listed(items), count=str(len(items)))


def _sum(text: str, items: Items) -> float | None:
    """The sum of an answer's scores; None where one is missing or above its item's maximum."""
    scores = read.scores(text, len(items), 0, LARGEST)
    if scores is None or any(score > most for score, (most, _) in zip(scores, items, strict=True)):
        return None
    return sum(scores)
