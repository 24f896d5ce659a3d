"""The Unlocking Spell on Base LLMs: Rethinking Alignment via In-Context Learning (arXiv 2312.01552)."""

from __future__ import annotations

from itertools import islice
from typing import Annotated

from burnish import draw, learn, rollout, score, select
from burnish.method import Method, Option, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper
from burnish.tasks.data.files import read_rows

URIAL = Paper("urial", "2312.01552", "The Unlocking Spell on Base LLMs: Rethinking Alignment via In-Context Learning")


@register(
    URIAL,
    family="decoding",
    summary="A base model answers after an instruction and a few examples that never change: no training.",
    when="You have a base model and want to know how far a good prefix goes before you train.",
    trial={"n": 2, "examples": 0, "instruction": ""},
)
def urial(
    task: draw.Source,
    *,
    examples: Annotated[int, Option("Examples before each question, at most; 0: none.", at_least=0)] = 3,
    examples_file: Annotated[
        str | None, Option("A dataset with columns prompt and completion, in place of the built-in examples.")
    ] = None,
    instruction: Annotated[str, Option("The text before the examples; empty: none.")] = rollout.INSTRUCTION,
    n: opt.Replies = 1,
    temperature: opt.Temperature = 0.3,
) -> Method:
    """URIAL: untuned LLMs with restyled in-context alignment.

    y ~ pi( . | instruction, (q_1, a_1), ..., (q_K, a_K), x ),  in markdown blocks "# Query:" and "# Answer:"

    The prefix is the same for all questions. A reply ends where the model begins the next query. A base model reads the
    text as it is with --chat-template none. examples = 0 leaves the instruction and the form. Departures: instruction
    and examples are our own; the repetition penalty of 1.1 of the released scripts is left out. burnish eval --measure
    shift has the paper's analysis of token shifts.
    """
    known = rollout.EXAMPLES if examples_file is None else _read(examples_file, examples)
    return method(
        draw=draw.prompts(task),
        rollout=rollout.in_context(n, known[:examples], instruction, temperature=temperature),
        score=score.scoring(task, None),
        select=select.keep_best(n),  # all of them
        learn=learn.Learn(),
        models=roles(),
    )


def _read(name: str, most: int) -> tuple[tuple[str, str], ...]:
    """The first rows of a dataset as questions and answers."""
    rows = [row for part in read_rows(name).values() for row in islice(part, most)][:most]
    for number, row in enumerate(rows, 1):
        for column in ("prompt", "completion"):
            if not isinstance(row.get(column), str):
                raise ValueError(f"row {number} of {name} has no text in column {column!r}; examples need both columns")
    return tuple((row["prompt"], row["completion"]) for row in rows)
