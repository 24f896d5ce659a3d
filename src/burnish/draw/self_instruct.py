"""SeRL's instructions: the policy writes prompts like those of the data, and filters keep the new and fit ones."""

from __future__ import annotations

from dataclasses import dataclass

from burnish.core import randomness
from burnish.core.parts import Draw
from burnish.core.state import State
from burnish.core.step import Step
from burnish.core.types import Group, Task
from burnish.core.types_json import task_from_record, task_to_record
from burnish.draw.made import made_task, mixed_in, request_of
from burnish.judges.question import Template
from burnish.judges.rewrites import fit_for_text, more_question, new_prompt, plain, too_similar
from burnish.score.judges.judge import Judge
from burnish.verifiers.similarity import words

SEEDS = 256  # prompts of the data that examples are drawn from, the newest
PAST = 2000  # prompts of the run that a new one is compared with, the newest
OWN = 2  # examples that the run wrote


@dataclass(frozen=True)
class Writing:
    """How prompts are written and filtered.

    examples  prompts that are shown, two of them of the run's own
    tries     prompts that are asked for in a step, for each prompt of a batch
    similar   the largest ROUGE-L F1 with any other prompt
    least, most  words of a prompt
    share     share of the written prompts in a batch
    """

    examples: int
    tries: int
    similar: float
    least: int
    most: int
    share: float
    template: Template


class Instructions:
    """Prompts of the data that were drawn, prompts that the run wrote, and those of them that are still to be drawn."""

    name = "serl"

    def __init__(self) -> None:
        self.seeds: dict[str, Task] = {}
        self.past: list[str] = []
        self.queue: list[Task] = []
        self.asked = 0

    def drew(self, tasks: list[Task]) -> None:
        """Remember prompts of the data, as examples."""
        for task in tasks:
            self.seeds.pop(plain(request_of(task)), None)
            self.seeds[plain(request_of(task))] = task
        for key in list(self.seeds)[:-SEEDS]:
            del self.seeds[key]

    def take(self) -> Task | None:
        """The prompt that was written first."""
        return self.queue.pop(0) if self.queue else None

    def state_dict(self) -> State:
        seeds, queue = ([task_to_record(t) for t in tasks] for tasks in (self.seeds.values(), self.queue))
        return {"seeds": seeds, "past": self.past, "queue": queue, "asked": self.asked}

    def load_state_dict(self, state: State) -> None:
        self.seeds = {}
        self.drew([task_from_record(row) for row in state["seeds"]])
        self.past, self.asked = [str(text) for text in state["past"]], int(state["asked"])
        self.queue = [task_from_record(row) for row in state["queue"]]


def self_instructed(old: Draw, known: Instructions, rule: Writing, writer: Judge) -> Draw:
    """What `old` draws, mixed with prompts that `writer` wrote after the step before, by its present weights.

    A question shows prompts of the data and two that were written before. A new prompt is dropped if its ROUGE-L F1
    with any of these prompts is above `similar`, or if it breaks a rule (length, words about other media). Each is
    drawn once; a slot without one keeps the task of `old`. With share 0 nothing is written.
    """

    def saw(groups: list[Group], step: Step) -> None:
        wanted = step.settings.prompts - len(known.queue)
        if rule.share > 0 and wanted > 0 and known.seeds:
            _write_more(known, rule, writer, step, wanted)

    return mixed_in(
        old,
        known.take,
        rule.share,
        name="self_instructed",
        kinds=("generated", "seed"),
        reads=writer.reads,
        saw=saw,
        state=(known,),
        drew=known.drew,
    )


def _write_more(known: Instructions, rule: Writing, writer: Judge, step: Step, wanted: int) -> None:
    clock = step.clock
    dice = randomness.rng(clock.seed, "serl", clock.step, clock.tick)
    seeds, asked = list(known.seeds.values()), []
    for _ in range(rule.tries * wanted):
        own = dice.sample(known.past, min(OWN, len(known.past), rule.examples - 1))
        shown = dice.sample(seeds, min(len(seeds), rule.examples - len(own)))
        texts = [*own, *(request_of(task) for task in shown)]
        dice.shuffle(texts)
        asked.append((shown[0], more_question(rule.template, texts, known.asked)))
        known.asked += 1
    answers = writer.ask([question for _, question in asked], step)
    others = [words(request_of(task)) for task in seeds] + [words(text) for text in known.past]
    made = 0
    for (task, _), (answer,) in zip(asked, answers, strict=True):
        text = None if answer.failed else new_prompt(answer.text)
        if text is None or not fit_for_text(text, rule.least, rule.most) or too_similar(text, others, rule.similar):
            continue
        known.queue.append(made_task(task, text))
        known.past.append(text)
        others.append(words(text))
        made += 1
    known.past = known.past[-PAST:]
    step.notes.count("draw_made", made)
    step.notes.add("draw_refused", len(asked) - made, len(asked))
