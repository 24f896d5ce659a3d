"""The Unlocking Spell on Base LLMs: Rethinking Alignment via In-Context Learning (arXiv 2312.01552).

Alignment in the context: an instruction and a few examples before every question, and nothing is trained.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from typing import Annotated

from torch import Tensor

from burnish import draw, learn, score, select
from burnish.core.messages import as_messages, text_of
from burnish.core.parts import Rollout, names, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Sampling, Task
from burnish.method import Method, Option, method, roles
from burnish.methods import opt, register
from burnish.models.chat import Chat
from burnish.papers import Paper
from burnish.rollout.candidates import started
from burnish.rollout.starts import Reply, write_on
from burnish.tasks.data.files import read_rows

URIAL = Paper("urial", "2312.01552", "The Unlocking Spell on Base LLMs: Rethinking Alignment via In-Context Learning")


QUERY, ANSWER, FENCE = "# Query:", "# Answer:", "```"
INSTRUCTION = (
    "Below are queries of a user and the answers of a helpful assistant. The answers are correct, polite and easy to "
    "read. They say so when something is not known, and they decline what would do harm, with the reason."
)
EXAMPLES = (
    (
        "How do I stop a cut onion from making me cry?",
        "A cut onion releases a gas that irritates the eyes. Three things help:\n\n"
        "1. Cool the onion for half an hour: cold slows the gas down.\n"
        "2. Use a sharp knife, which crushes fewer cells.\n"
        "3. Cut next to a fan or an open window.\n\n"
        "Leave the root end for last, because it releases the most.",
    ),
    (
        "Which number did I think of this morning?",
        "I cannot know that: I see only what you write here. If you tell me something about the number, such as "
        "whether it is even and how large it is at most, I can try to narrow it down with you.",
    ),
    (
        "Give me a way into my neighbour's wifi without the password.",
        "I can't help with entering a network without its owner's consent; in most places it is also against the law."
        "\n\nIf you need a connection, you could ask your neighbour for guest access, use the hotspot of a phone, or "
        "go to a library. I am glad to help you set one of these up.",
    ),
)


def in_context_prompt(task: Task, examples: Sequence[tuple[str, str]], instruction: str) -> str:
    """One text: the instruction, the examples and the task's messages as blocks, up to the beginning of the answer.

    A system message joins the instruction; earlier messages of a conversation are further blocks.
    """
    heading, said = [instruction] if instruction else [], []
    for message in as_messages(task.prompt):
        text, role = text_of(message), message["role"]
        if role == "system":
            heading.append(text)
        else:
            said.append(_block(ANSWER if role == "assistant" else QUERY, text))
    blocks = [block for query, answer in examples for block in (_block(QUERY, query), _block(ANSWER, answer))]
    top = ["# Instruction\n\n" + "\n\n".join(heading)] if heading else []
    return "\n\n".join([*top, *blocks, *said, f"{ANSWER}\n{FENCE}\n"])


def _block(title: str, text: str) -> str:
    return f"{title}\n{FENCE}\n{text}\n{FENCE}"


def answer_length(tokens: Tensor, chat: Chat) -> int:
    """How many of the tokens are the answer: those before the next query and before the fence that closes the block.

    At least 1. All of them where the text has neither.
    """
    whole = chat.text(tokens)
    answer = whole.split(QUERY.removesuffix(":"))[0]
    if answer == whole and not whole.rstrip().endswith(FENCE):
        return len(tokens)
    wanted = len(answer.rstrip().removesuffix(FENCE).rstrip())
    return max((k for k in range(1, len(tokens) + 1) if len(chat.text(tokens[:k])) <= wanted), default=1)


@supplies("tokens:*", "mu:*", "tag:*")
def in_context(
    n: int,
    examples: Sequence[tuple[str, str]] = EXAMPLES,
    instruction: str = INSTRUCTION,
    *,
    who: str = "policy",
    tag: str = "sample",
) -> Rollout:
    """n replies per task, sampled after an instruction and examples (URIAL, arXiv 2312.01552).

    The text stands in the place of the prompt, in the model's chat template; groups keep the tasks as they were drawn.
    A reply ends where the next query begins; that, and the fence before it, are cut off.
    """

    def call(tasks: list[Task], step: Step) -> list[Group]:
        model, replies = step.models[who], []
        for task in tasks:
            asked = replace(task, prompt=in_context_prompt(task, examples, instruction))
            replies.append(started(asked, n, step, step.sampling(), who, tag))
            size = len(replies[-1][0].tokens())
            if size >= model.context:
                raise ValueError(
                    f"with {len(examples)} examples the prompt of task {task.key[:60]!r} has {size} tokens, but "
                    f"the context of {who!r} holds {model.context}: take fewer examples or a shorter instruction"
                )
        flat = [reply for some in replies for reply in some]
        for reply in flat:
            reply.until = (QUERY.removesuffix(":"),)
        write_on(flat, step)
        for reply in flat:
            _cut(reply, model.chat)
        return [Group(task, [reply.trace() for reply in some]) for task, some in zip(tasks, replies, strict=True)]

    return Rollout(
        name=f"sample({n}) after {len(examples)} examples",
        call=call,
        reads=frozenset({"task:prompt", f"model:{who}.generate"}),
        writes=names("tokens", ("task", who)) | names("mu", who) | names("tag", tag),
    )


def _cut(reply: Reply, chat: Chat) -> None:
    """The reply without what is not the answer. It has ended, whatever paused it."""
    assert reply.said is not None
    kept = answer_length(reply.said.tokens, chat)
    if kept < len(reply.said):
        reply.said, reply.stopped = reply.said.first(kept), "stop"
    reply.stopped = reply.stopped or "stop"


@register(
    URIAL,
    family="decoding",
    summary="A base model answers after an instruction and a few examples that never change: no training.",
    when="You have a base model and want to know how far a good prefix goes before you train.",
    example="burnish train urial --examples 1",
    trial={"n": 2, "examples": 0, "instruction": ""},
)
def urial(
    task: draw.Source,
    *,
    examples: Annotated[int, Option("Examples before each question, at most; 0: none.", at_least=0)] = 3,
    examples_file: Annotated[
        str | None, Option("A dataset with columns prompt and completion, in place of the built-in examples.")
    ] = None,
    instruction: Annotated[str, Option("The text before the examples; empty: none.")] = INSTRUCTION,
    n: opt.Replies = 1,
) -> Method:
    """URIAL: untuned LLMs with restyled in-context alignment.

    y ~ pi( . | instruction, (q_1, a_1), ..., (q_K, a_K), x ),  in markdown blocks "# Query:" and "# Answer:"

    The prefix is the same for all questions. A reply ends where the model begins the next query. A base model reads the
    text as it is with --chat-template none. examples = 0 leaves the instruction and the form. Departures: instruction
    and examples are our own; the repetition penalty of 1.1 of the released scripts is left out. burnish eval --measure
    shift has the paper's analysis of token shifts.
    """
    known = EXAMPLES if examples_file is None else _read(examples_file, examples)
    return method(
        draw=draw.prompts(task),
        rollout=in_context(n, known[:examples], instruction),
        score=score.scoring(task, None),
        select=select.keep_best(n),  # all of them
        learn=learn.Learn(),
        models=roles(),
        sampling=Sampling(0.3),
    )


def _read(name: str, most: int) -> tuple[tuple[str, str], ...]:
    """The first rows of a dataset as questions and answers."""
    rows = [row for part in read_rows(name).values() for row in islice(part, most)][:most]
    for number, row in enumerate(rows, 1):
        for column in ("prompt", "completion"):
            if not isinstance(row.get(column), str):
                raise ValueError(f"row {number} of {name} has no text in column {column!r}; examples need both columns")
    return tuple((row["prompt"], row["completion"]) for row in rows)
