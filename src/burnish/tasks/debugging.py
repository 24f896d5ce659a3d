"""Self-debugging: a wrong program with what running it said; the reply explains the fault and corrects it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from burnish.core.task import Task, Verdict
from burnish.tasks.batched import batched
from burnish.tasks.limited import Sandboxed, sandboxed
from burnish.tasks.source import SameTasks, Source, unwrapped
from burnish.verifiers.code.extract import program_of
from burnish.verifiers.code.grader import code_grader
from burnish.verifiers.code.outcome import Outcome

ASK = "It fails: {why}\nExplain what is wrong, then correct it."
_ANSWER = re.compile(r"answer\s*:", re.IGNORECASE)


@dataclass(frozen=True)
class Refinement:
    """A reply in two parts. start: the character at which the refinement begins, behind the explanation."""

    explanation: str
    code: str
    start: int


def read_refinement(reply: str) -> Refinement:
    """The explanation and the code of a reply: its last block of code, or what follows the last `answer:`.

    A reply with neither is all refinement.
    """
    marks = [*_ANSWER.finditer(reply)]
    if "```" in reply:
        program = program_of(reply)
        if program is not None:
            return Refinement(reply[: program.start].strip(), program.own.strip(), program.start)
    if marks:
        return Refinement(reply[: marks[-1].start()].strip(), reply[marks[-1].end() :].strip(), marks[-1].start())
    return Refinement("", reply.strip(), 0)


class Debugging(SameTasks):
    """The tasks of a source of programs, each with its wrong program (`mistake`) and the outcome of running it."""

    eager = None

    def __init__(self, source: Source) -> None:
        inner = sandboxed(unwrapped(source))
        if inner is None or inner.scorer()["kind"] != "code":
            raise ValueError(f"task {source.name!r} has no tests of programs, which debugging needs; try --task code:3")
        if not {"mistake", "demo"} <= source.gives:
            raise ValueError(
                f"task {source.name!r} gives no wrong and right program of a problem; add the columns mistake and demo"
            )
        super().__init__(source)
        self.programs: Sandboxed = inner

    def task(self, split: str, index: int) -> Task:
        found = self.source.task(split, index)
        wrong = str(found.given["mistake"])
        (outcome,) = self.outcomes([found], [wrong])
        asked = [{"role": "user", "content": found.prompt}] if isinstance(found.prompt, str) else [*found.prompt]
        why = ASK.format(why=outcome.reason[:200] or "it is not the program that was asked for")
        prompt = (*asked, {"role": "assistant", "content": wrong}, {"role": "user", "content": why})
        return Task(found.kind, prompt, found.given, f"debug {found.key}")

    def outcomes(self, tasks: list[Task], replies: list[str]) -> list[Outcome]:
        """The outcome of the tests for each reply, in the sandbox."""
        grader = code_grader(isolated=self.programs.scorer()["isolated"])
        return grader.outcomes([self.programs.facts(task) for task in tasks], replies)

    def require_verifier(self, split: str) -> None:
        batched(self.source).require_verifier(split)

    def verify(self, task: Task, reply: str) -> Verdict:
        return self.verdicts([task], [reply])[0]

    def verdicts(self, tasks: list[Task], replies: list[str]) -> list[Verdict]:
        return list(batched(self.source).verdicts(tasks, replies))
