"""The parts of a method's page that a composition alone implies: a row of its data, a snippet, and what to watch."""

from __future__ import annotations

import inspect
import re

from burnish.core.method import Method
from burnish.methods.table import Entry
from burnish.run.lengths import Needs

ROWS = (  # what a composition reads of a task -> a row of the data
    ({"given:chosen", "given:rejected"}, '{"prompt": "...", "chosen": "the better", "rejected": "the worse"}'),
    ({"given:label"}, '{"prompt": "...", "completion": "a reply", "label": true}'),
    ({"given:responses"}, '{"prompt": "...", "responses": ["...", "..."], "scores": [0.9, 0.2]}'),
    ({"given:steps"}, '{"prompt": "...", "completions": ["a step", "a step"], "labels": [true, false]}'),
    ({"given:episode"}, '{"messages": [...], "rewards": [...]}'),
    ({"given:demo"}, '{"messages": [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]}'),
)
LABELS = ("kto", "bco", "aot_unpaired")  # they read pairs too, as two labelled replies
SAMPLED = '{"prompt": "What is 17 + 25?", "answer": "42"}'
WATCH = {  # a metric, by a piece of the composition -> what it says
    "rollout": (
        "`zero_variance_groups`: groups whose replies all score the same, which teach nothing",
        "`cut_off`: replies that reached the limit of tokens",
        "`*/entropy`: near 0, the policy no longer explores",
    ),
    "clip": ("`*/clipped`: tokens whose ratio left the clip range; above a fifth, take fewer updates",),
    "kl": ("`kl/loss`: how far the policy is from its start",),
    "critic": ("`*/explained_variance`: the share of the return's variance that the critic predicts",),
    "pairs": (
        "`*/accuracy` and `*/margin`: pairs in the right order, and by how much",
        "`*/chosen_logp`: if it falls fast, both replies are unlearned",
        "`*/length_gap`: whether longer replies are preferred",
    ),
    "demos": ("the held-out NLL: when it rises again, rows are learned by heart (`--patience 3`)",),
}


def reads_of(example: Method) -> set[str]:
    """What the parts of a method read of a task."""
    found: set[str] = set()
    for phase in example.phases:
        for stage in (phase.rollout, phase.score, phase.select, phase.credit):
            found |= set(getattr(stage, "reads", ()) or ())
    return found


def samples(example: Method) -> bool:
    """Whether a method learns from replies that are sampled in the run."""
    return Needs.of(example).samples


def row_of(entry: Entry, example: Method) -> str:
    """A row of the data that the method learns from."""
    if entry.name in LABELS:
        return ROWS[1][1]
    reads = reads_of(example)
    return next((row for names, row in ROWS if names & reads), SAMPLED)


def snippet(entry: Entry) -> str:
    """A run in Python on the embedded model, with the models that the method needs besides."""
    arguments = inspect.signature(entry.build).parameters
    task = str(entry.trial.get("task", "add"))
    named = re.search(r"--task (\S+)", entry.example)
    needed = [name for name, p in arguments.items() if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    options = [f'"{entry.name}"', 'model="tiny"', f'task="{named[1] if named else task}"', "steps=20"]
    options += [f'{name}="runs/DIR/model"' for name in needed]
    return f"import burnish\n\nresult = burnish.train({', '.join(options)})\nprint(result)"


def watched(example: Method) -> list[str]:
    """What to look at while it trains."""
    reads = reads_of(example)
    terms = [term for phase in example.phases for term in phase.learn.terms]
    kinds = []
    if samples(example):
        kinds.append("rollout")
    if any(word in term.name for term in terms for word in ("pg", "clip", "ppo")):
        kinds.append("clip")
    if any(term.name.startswith("kl") for term in terms):
        kinds.append("kl")
    if "critic" in example.models or "value" in example.models:
        kinds.append("critic")
    if {"given:chosen", "given:responses"} & reads or any(term.unit in ("pair", "list") for term in terms):
        kinds.append("pairs")
    if "given:demo" in reads and not samples(example) and "pairs" not in kinds:
        kinds.append("demos")
    return [line for kind in kinds for line in WATCH[kind]]
