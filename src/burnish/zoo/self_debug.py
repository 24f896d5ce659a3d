"""Training LLMs to Better Self-Debug and Explain Code (arXiv 2405.18649).

Credit to two parts of a reply apart: each has its own reward at its end, and its own advantages.

Rewards of self-debugging (LeDex): one for the refined program, one for the explanation before it.

Self-debugging: a wrong program with what running it said; the reply explains the fault and corrects it.
"""

from __future__ import annotations

import re
import statistics
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import numpy as np
import torch

from burnish import credit, draw, learn, rollout, score, select
from burnish.core.parts import Part, per_trace, supplies
from burnish.core.schedules import after, before, is_zero
from burnish.core.scorer import mark_failed
from burnish.core.state import State
from burnish.core.step import Step
from burnish.core.types import Group, Task, Trace
from burnish.credit.gae import advantages_and_returns
from burnish.method import Method, Option, Phase, chain
from burnish.methods import opt, papers, register
from burnish.methods.actor_critic import anchors, ppo_models
from burnish.score.judge import reply_text
from burnish.score.maths.similarity import embedded
from burnish.score.segments import tokens_of
from burnish.tasks.scoring import Sandboxed
from burnish.tasks.source import Source
from burnish.tasks.task_set import MadeTasks, sandboxed
from burnish.verifiers.code.extract import program_of
from burnish.verifiers.code.grader import code_grader
from burnish.verifiers.code.outcome import Outcome
from burnish.verifiers.verifier import verifier

ASK = "It fails: {why}\nExplain what is wrong, then correct it."


_ANSWER = re.compile(r"answer\s*:", re.IGNORECASE)

NOTES = {"refined_at": "the position of the first token of the refinement"}


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


class Debugging(MadeTasks):
    """The tasks of a source of programs, each with its wrong program (`mistake`) and the outcome of running it."""

    def __init__(self, source: Source) -> None:
        inner = sandboxed(source)
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


@supplies("stream:adv", "stream:returns")
def gae_of_parts(
    first: str,
    second: str,
    split: str,
    *,
    kl: float | None = 0.0,
    gamma: float = 1.0,
    lam: float = 0.95,
    author: str = "policy",
) -> Part:
    """Advantages and returns by GAE on the tokens before note[split] and on those from it on, each as its own sequence.

    r_t = -kl (log pi_old - log ref)(t), plus scores[first] at the first part's last token, scores[second] at the
    second's. So no reward reaches the tokens of the other part. An empty first part gives PPO's credit with the second
    score. With kl None there is no penalty and no reference is asked for.
    """

    def write(trace: Trace, group: Group, step: Step) -> None:
        mask, place = trace.by(author), torch.arange(len(trace))
        for name in ("adv", "returns"):
            trace.streams[name] = torch.full((len(trace),), float("nan"))
        at = int(trace.note[split])
        for scored, part in ((first, mask & (place < at)), (second, mask & (place >= at))):
            if not bool(part.any()):
                continue
            rewards = torch.zeros(int(part.sum()))
            if kl is not None:
                gap = trace.streams["old"][part] - trace.streams["ref"][part]
                rewards = -kl * gap
                step.notes.add("kl", float(gap.sum()), int(part.sum()))
            rewards[-1] += trace.scores[scored]
            adv, returns = advantages_and_returns(rewards, trace.streams["value"][part], gamma, lam)
            trace.streams["adv"][part], trace.streams["returns"][part] = adv, returns

    compared = frozenset({"stream:old", "stream:ref"}) if kl is not None else frozenset()
    unpenalised = partial(gae_of_parts, first, second, split, gamma=gamma, lam=lam, author=author)
    return per_trace(
        write,
        name=f"gae_of_parts({first}, {second})",
        reads=frozenset({f"tokens:{author}", "stream:value", f"score:{first}", f"score:{second}"}) | compared,
        writes=frozenset({"stream:adv", "stream:returns"}),
        idle=unpenalised(kl=None) if is_zero(kl) else None,
    )


MOST = 4  # references of one task
TASKS = 20_000  # tasks whose references are kept; the oldest is forgotten first
START = "refined_at"  # note of a trace: the position of the first token of the refinement


def code_reward(similarity: float, passed: float) -> float:
    """R_code = 5 (S_cb + S_ut) - 5, in [-5, 5]."""
    return 5 * (similarity + passed) - 5


def explanation_reward(similarity: float) -> float:
    """R_ex = (50 S_ex - 35) / 3, at least -5: 0.4 gives -5, 0.7 gives 0, 1 gives 5."""
    return max(-5.0, (50 * similarity - 35) / 3)


class Refinements:
    """The refinements of each task that passed its tests: programs and explanations, the newest MOST of each."""

    def __init__(self) -> None:
        self.name = "refinements"
        self.kept: dict[str, list[list[str]]] = {}

    def of(self, task: Task) -> list[Refinement]:
        """Those of a task; before any, its demonstration."""
        found = self.kept.get(task.key)
        if not found:
            return [read_refinement(str(task.given["demo"]))]
        return [Refinement(explanation, code, 0) for explanation, code in found]

    def add(self, task: Task, good: Refinement) -> None:
        own = self.kept.pop(task.key, [])
        pair = [good.explanation, good.code]
        self.kept[task.key] = [*(one for one in own if one != pair), pair][-MOST:]
        if len(self.kept) > TASKS:
            del self.kept[next(iter(self.kept))]

    def state_dict(self) -> State:
        return {"kept": self.kept}

    def load_state_dict(self, state: State) -> None:
        self.kept = {key: [list(pair) for pair in pairs] for key, pairs in state["kept"].items()}


def _keep(groups: list[Group], memory: Refinements, texts: list[str]) -> None:
    """Remember the replies that pass; texts: of all traces, in order."""
    asked = [(group.task, trace) for group in groups for trace in group.traces]
    for (task, trace), text in zip(asked, texts, strict=True):
        if trace.scores["correct"]:
            memory.add(task, read_refinement(text))


@supplies("score:explanation", "score:reward")
def debugged(source: Debugging, memory: Refinements, *, reader: str = "policy") -> Part:
    """scores["reward"] of the program and scores["explanation"] of every reply, and note["refined_at"].

    S_ut: the share of tests passed, in the sandbox; S_cb: the mean CodeBLEU to the task's good refinements; S_ex: the
    mean cosine to their explanations, by hashed words and characters (score/maths/similarity.py).
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        chat = step.models[reader].chat
        asked = [(group.task, trace) for group in groups for trace in group.traces]
        texts = [reply_text(trace, chat) for _, trace in asked]
        outcomes = source.outcomes([task for task, _ in asked], texts)
        read = [read_refinement(text) for text in texts]
        similar = _codebleu(
            [(one.code, [good.code for good in memory.of(task)]) for (task, _), one in zip(asked, read, strict=True)]
        )
        for (task, trace), one, outcome, alike in zip(asked, read, outcomes, similar, strict=True):
            known = [other.explanation for other in memory.of(task) if other.explanation]
            trace.scores["reward"] = code_reward(alike, outcome.share)
            trace.scores["explanation"] = explanation_reward(explained(one.explanation, known))
            trace.scores["correct"] = float(outcome.correct)
            trace.note[START] = _start(trace, one, chat)
            if outcome.reason:
                trace.note["why"] = outcome.reason
            if outcome.failed:
                mark_failed(trace, outcome.reason)
        _keep(groups, memory, texts)
        return groups

    return Part(
        name=f"debugged({source.name})",
        call=call,
        reads=frozenset({"tokens:policy", "store:refinements"}),
        writes=frozenset({"score:reward", "score:explanation"}),
        state=(memory,),
    )


@supplies("store:refinements")
def keep_refinements(memory: Refinements, *, reader: str = "policy") -> Part:
    """The replies that pass are good refinements of their task from now on; `debugged` keeps those that it scores."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        chat = step.models[reader].chat
        _keep(groups, memory, [reply_text(trace, chat) for group in groups for trace in group.traces])
        return groups

    return Part(
        name="keep_refinements",
        call=call,
        reads=frozenset({"tokens:policy"}),
        writes=frozenset({"store:refinements"}),
        state=(memory,),
    )


def explained(explanation: str, good: list[str]) -> float:
    """The mean cosine of an explanation to good ones; 0.7, which earns 0, where none is known; 0 for none at all."""
    if not good:
        return 0.7
    own = embedded(explanation)
    return statistics.fmean(float(np.dot(own, embedded(other))) for other in good)


def _codebleu(asked: list[tuple[str, list[str]]]) -> list[float]:
    """The mean CodeBLEU of each program to its references, from the sandbox."""
    rows = [{"answer": reference, "prompt": ""} for _, references in asked for reference in references]
    replies = [code for code, references in asked for _ in references]
    verdicts = iter(verifier("verifiers").judge({"kind": "verifier", "call": "codebleu"}, rows, replies))
    return [statistics.fmean(next(verdicts).score for _ in references) for _, references in asked]


def _start(trace: Trace, one: Refinement, chat: Any) -> int:
    """The position in the trace of the first token of the refinement; at the latest the last token."""
    turn, start, end = [*trace.spans()][-1]
    if not one.start or not len(turn):
        return start
    first, _ = tokens_of(turn.tokens, chat, (one.start, one.start + 1))
    return min(start + first, end - 1)


@register(
    papers.SELF_DEBUG,
    family="agents",
    summary="SFT on own corrections that pass, then PPO with rewards for the explanation and the code apart.",
    when="A model writes programs that fail, and should explain and correct them from what running them says.",
    example="burnish train self_debug --task code:1",
    trial={"task": "code", "n": 2, "sft_steps": 1, "updates": 1},
)
def self_debug(
    task: draw.Source,
    *,
    n: opt.Replies = 4,
    sft_steps: Annotated[int, Option("Steps of supervised learning on corrections that pass.", at_least=0)] = 20,
    eps: opt.ClipRange = 0.2,
    value_eps: opt.ValueClipRange = 0.2,
    value_coef: opt.ValueCoef = 0.5,
    kl: opt.KLPenalty = 0.05,
    gamma: opt.Gamma = 1.0,
    lam: opt.Lam = 0.95,
    updates: opt.Updates = 2,
    critic_lr: opt.CriticLR = 1.0,
) -> Method:
    """LeDex: a wrong program and the outcome of its tests are given; the reply explains, then corrects.

    SFT: sampled replies and demonstrations whose program passes all tests are imitated
    PPO: R_code = 5 (S_cb + S_ut) - 5 for the tokens of the program, R_ex = (50 S_ex - 35) / 3 for the explanation's
      S_ut: share of tests passed;  S_cb: mean CodeBLEU to refinements that passed;  S_ex: mean cosine to their
      explanations;  GAE within each of the two parts, from its own reward at its last token and -kl log(pi_old/ref)

    A reply without an explanation has PPO's credit with R_code. Programs run in the sandbox. Departures: wrong programs
    are those of the data (`mistake`), not samples of the policy; refinements come from the policy and from the data
    (`demo`), where the paper asks a larger model or the policy; the embedding is a hash of words and character triples,
    not RoBERTa's, and cosines below 0.4 count as 0.4. The paper trains SFT for two epochs (2e-5) and PPO at 2e-6.
    """
    source, memory = Debugging(task), Refinements()
    draws, sampled = draw.questions(source), rollout.sample(n)
    first = Phase(
        name="sft",
        times=before(sft_steps),
        draw=draws,
        rollout=rollout.join(sampled, rollout.given("demo", author="policy")),
        score=score.verify(source),
        select=chain(select.keep_verified(n + 1), keep_refinements(memory)),
        learn=learn.Learn(learn.imitate(), logp_temperature=1.0),
    )
    main = Phase(
        times=after(sft_steps),
        draw=draws,
        rollout=sampled,
        score=debugged(source, memory),
        credit=chain(
            anchors(),
            gae_of_parts("explanation", "reward", START, kl=kl, gamma=gamma, lam=lam),
            credit.whiten(),
        ),
        learn=learn.Learn(learn.pg_clip(eps), learn.value_clip(value_eps, coef=value_coef), updates=updates),
    )
    return Method(models=ppo_models(critic_lr), phases=(first, main))
