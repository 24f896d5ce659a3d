"""`search`: answer questions by searching a small corpus, in several turns, with tags or with tool calls."""

from __future__ import annotations

import re
from functools import partial
from typing import ClassVar

from burnish.core.seeds import rng
from burnish.core.splits import ByLevel
from burnish.core.state import State
from burnish.core.task import Message, Task, Verdict
from burnish.envs.hops import Question, draw_question, retrieve
from burnish.envs.protocol import Outcome
from burnish.envs.tools import parse_calls
from burnish.verifiers.answer_line import LONGEST_REPLY, answer_of
from burnish.verifiers.similarity import squad_normalised

_TOP = {1: 1, 2: 2, 3: 3, 4: 3}  # passages that a search returns, by level
_TAG = re.compile(r"<(search|answer)>([^<]{0,400})</\1>")
ASK = {
    True: "search or answer",
    False: "Search with <search>words</search>, note what helps in <refine>...</refine>, and finish with "
    "<answer>...</answer>.",
}  # by Question.plain

Step = tuple[str, str]  # ("search" or "answer" or "", what is searched or said)


def read_step(reply: str) -> Step:
    """What a reply does: its last <search> or <answer>; else a tool call of search; else its line `answer: ...`, of
    which the last word counts, as in `passages`."""
    text = reply[-LONGEST_REPLY:]
    if tagged := _TAG.findall(text):
        return str(tagged[-1][0]), str(tagged[-1][1]).strip()
    for call in parse_calls(text):
        if call.name == "search" and isinstance(query := call.arguments.get("query"), str):
            return "search", query
    said = answer_of(text)
    return ("answer", " ".join(said.split()[-1:])) if said is not None else ("", "")


class Searching:
    """The environment of one question: a search is answered by passages, an answer ends it with reward 1 or 0.

    At most two turns more than the question has facts; then it is truncated.
    """

    def __init__(self, question: Question, top: int) -> None:
        self.question, self.top = question, top
        facts = (*question.facts, *question.distractors)
        self.passages = [question.passage(fact) for fact in facts]
        self.order = list(range(len(facts)))
        rng("search", question.facts).shuffle(self.order)
        self.made, self.seen = 0, set[int]()

    def reset(self) -> str:
        self.made, self.seen = 0, set()
        return self.question.text if self.question.plain else f"{self.question.text}\n{ASK[False]}"

    def tools(self) -> list[dict[str, object]]:
        """The schema of the search, for chat templates that take tools."""
        query = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
        return [{"type": "function", "function": {"name": "search", "description": "Search.", "parameters": query}}]

    def step(self, action: str) -> Outcome:
        self.made += 1
        what, said = read_step(action)
        if what == "answer":
            right = same_name(said, self.question.answer)
            return Outcome("correct" if right else "wrong", float(right), terminated=True)
        text = self._found(said) if what == "search" else ASK[self.question.plain]
        return Outcome(text, 0.0, truncated=self.made >= len(self.question.facts) + 2)

    def _found(self, query: str) -> str:
        shown = [self.passages[i] for i in self.order]
        found = retrieve(query, shown, self.top)
        self.seen |= {self.order[i] for i in found}
        if self.question.plain:
            return f"{self.question.text}: {' '.join(shown[i] for i in found) or 'none'}"
        lines = [f"[{i + 1}] {shown[i]}" for i in found]
        return "\n".join(["<documents>", *(lines or ["nothing found"]), "</documents>"])

    def key(self) -> str:
        """The state: the passages seen, and the turns made."""
        return f"{sorted(self.seen)} after {self.made}"

    def expert(self) -> str:
        """What a reader who follows the chain of facts would write now."""
        facts = self.question.facts
        known = 0
        while known < len(facts) and known in self.seen:
            known += 1
        noted = f"<refine>{self.question.passage(facts[known - 1])}</refine>\n" if known and len(facts) > 1 else ""
        if known == len(facts):
            return f"{noted}<answer>{self.question.answer}</answer>"
        person, relation, _ = facts[known]
        query = person if self.question.plain else f"{relation} of {person}"
        return f"{noted}<search>{query}</search>"

    def state_dict(self) -> State:
        return {"made": self.made, "seen": sorted(self.seen)}

    def load_state_dict(self, state: State) -> None:
        self.made, self.seen = int(state["made"]), set(state["seen"])


class Search(ByLevel):
    """The questions of `passages` without their passages: 1, 2, 2 or 3 facts to be found among 3, 4, 8 or 12 others.

    given: answer, and a conversation in which an expert searches, notes and answers (demo, messages)
    """

    name: ClassVar[str] = "search"
    summary: ClassVar[str] = "answer questions by searching a small corpus (several turns)"
    gives: ClassVar[frozenset[str]] = frozenset({"env", "answer", "demo", "messages"})

    def task(self, split: str, index: int) -> Task:
        question = self.drawn(split, index, lambda dice: draw_question(dice, self.level), self.key)
        env = partial(Searching, question, _TOP[self.level])
        messages = transcript(env())
        given = {"env": env, "answer": question.answer, "messages": messages, "demo": str(messages[-1]["content"])}
        return Task("game", (messages[0],), given, self.key(question))

    def key(self, question: Question) -> str:
        return f"{self.name} {question.facts}"

    def facts(self, task: Task) -> str:
        """The right answer."""
        return str(task.given["answer"])

    def verify(self, task: Task, reply: str) -> Verdict:
        return self.verdict(self.facts(task), reply)

    def verdict(self, right: str, reply: str) -> Verdict:
        """Whether the answer of a transcript is right. To let a model search, step given["env"]()."""
        what, said = read_step(reply)
        if what == "answer" and same_name(said, right):
            return Verdict(1.0, True)
        return Verdict(0.0, False, f"the answer is {right}, not {said[:40]!r}" if what == "answer" else "no answer")


def same_name(said: str, right: str) -> bool:
    """Whether two answers are equal in SQuAD's normal form."""
    return squad_normalised(said) == squad_normalised(right)


def transcript(env: Searching) -> list[Message]:
    """The conversation of the expert with an environment, up to its answer."""
    messages: list[Message] = [{"role": "user", "content": env.reset()}]
    while True:
        said = env.expert()
        found = env.step(said)
        messages.append({"role": "assistant", "content": said})
        if found.over:
            return messages
        messages.append({"role": "user", "content": str(found.observation)})
