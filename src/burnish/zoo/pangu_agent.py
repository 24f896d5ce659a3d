"""Pangu-Agent: A Fine-Tunable Generalist Agent with Structured Reasoning (arXiv 2312.14878).

Intrinsic functions (Pangu-Agent): before it acts, an agent writes to its memory; the environment sees the act.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

from burnish import draw, learn, rollout, select
from burnish.core.schedules import after, before
from burnish.core.task import Message, Task
from burnish.envs.protocol import Observed, Outcome, read_observation, read_outcome, reset_arguments
from burnish.method import Method, Option, Phase
from burnish.methods import opt, register
from burnish.methods.actor_critic import ppo_credit, ppo_models
from burnish.papers import Paper
from burnish.tasks.source import Source
from burnish.tasks.task_set import MadeTasks

PANGU_AGENT = Paper(
    "pangu-agent", "2312.14878", "Pangu-Agent: A Fine-Tunable Generalist Agent with Structured Reasoning"
)


FUNCTIONS: Mapping[str, str] = {
    "think": "Think.",
    "plan": "Plan.",
    "reflect": "Reflect.",
    "act": "Act.",
}  # what each function is asked; "act" is the extrinsic one


class Intrinsic(MadeTasks):
    """The tasks of a source with an environment; each action comes after replies to these intrinsic functions.

    The memory of the agent is the conversation: every function reads all of it and adds its reply. Without functions
    the tasks are unchanged.
    """

    def __init__(self, source: Source, functions: Sequence[str]) -> None:
        if "env" not in source.gives:
            raise ValueError(f"task {source.name!r} has no environment to act in; choose one with several turns")
        unknown = [name for name in functions if name not in FUNCTIONS or name == "act"]
        if unknown:
            known = ", ".join(name for name in FUNCTIONS if name != "act")
            raise ValueError(f"there is no intrinsic function {unknown[0]!r}; there are {known}")
        super().__init__(source)
        self.functions = tuple(functions)

    def task(self, split: str, index: int) -> Task:
        found = self.source.task(split, index)
        if not self.functions:
            return found
        given = {**found.given, "env": partial(Thinking, found.given["env"], self.functions)}
        asked = FUNCTIONS[self.functions[0]]
        prompt = f"{found.prompt}\n{asked}" if isinstance(found.prompt, str) else _asking(found.prompt, asked)
        return Task(found.kind, prompt, given, found.key)


class Thinking:
    """An environment behind intrinsic functions: their replies earn nothing and change nothing in it."""

    def __init__(self, make: Any, functions: Sequence[str]) -> None:
        self.inner, self.functions = make(), tuple(functions)
        self.asked = 0  # functions answered since the last action

    def reset(self, task: Any = None, seed: int = 0) -> Observed:
        """What the environment says, and the first function."""
        self.asked = 0
        seen = read_observation(self.inner.reset(**reset_arguments(self.inner.reset, task, seed)))
        return self._with(seen)

    def step(self, action: str) -> Outcome:
        """A reply to an intrinsic function is followed by the next one; the last of them is the action."""
        if self.asked < len(self.functions):
            self.asked += 1
            return Outcome(self._question(), 0.0)
        self.asked = 0
        found = read_outcome(self.inner.step(action))
        return Outcome(self._with(found.observation), found.reward, found.terminated, found.truncated, found.info)

    def key(self) -> str | None:
        """The environment's state, and how many functions are answered."""
        known = getattr(self.inner, "key", None)
        return f"{known()} | {self.asked}" if callable(known) else None

    def close(self) -> None:
        """Close the environment."""
        ended = getattr(self.inner, "close", None)
        if callable(ended):
            ended()

    def _question(self) -> str:
        return FUNCTIONS[self.functions[self.asked] if self.asked < len(self.functions) else "act"]

    def _with(self, seen: Observed) -> Observed:
        return f"{seen}\n{self._question()}" if isinstance(seen, str) else _asking(seen, self._question())


def _asking(messages: Sequence[Message], asked: str) -> tuple[Message, ...]:
    """The messages with a question behind the last."""
    *before, last = messages
    return (*before, {**last, "content": f"{last['content']}\n{asked}"})


@register(
    PANGU_AGENT,
    family="agents",
    summary="Intrinsic functions (think, plan, reflect) before each action; SFT on won episodes, then PPO.",
    when="An agent should reason in steps of its own before it acts, and you can tell which episodes were won.",
    example="burnish train pangu_agent --task guess:1 --n 8 --lr 5e-4 --max-new-tokens 6",
    trial={"task": "guess", "n": 2, "sft_steps": 0, "updates": 1, "functions": "think"},
)
def pangu_agent(
    task: draw.Source,
    *,
    n: opt.Replies = 4,
    functions: Annotated[str, Option("Intrinsic functions in order: think, plan, reflect; with commas.")] = "think",
    sft_steps: Annotated[int, Option("Steps of SFT on won episodes before PPO.", at_least=0)] = 20,
    most: Annotated[int, Option("Won episodes of a task that SFT takes.", at_least=1)] = 4,
    eps: opt.ClipRange = 0.2,
    value_eps: opt.ValueClipRange = 0.2,
    value_coef: opt.ValueCoef = 0.5,
    kl: opt.KLPenalty = 0.05,
    gamma: opt.Gamma = 1.0,
    lam: opt.Lam = 0.95,
    updates: opt.Updates = 2,
    critic_lr: opt.CriticLR = 1.0,
) -> Method:
    """Pangu-Agent: pi(a | s) = pi_ext(a | mu_k o ... o mu_1 (memory)), one model for all functions.

    Each intrinsic function mu_i is asked in a turn of its own; its reply goes to the memory (the conversation), not to
    the environment. Then the extrinsic function acts.
      first  episodes of the policy that were won are imitated: rejection sampling
      then   PPO over all tokens that the policy wrote, intrinsic replies included; the reward at the last token

    functions = "" is the direct policy. A limit of turns (--turns) counts intrinsic replies too. The paper trains LoRA
    adapters: --lora 16. Left out: functions of communication and tools (--tools has those), and adapters of its own for
    each function. Constants of the paper could not be read; PPO's are ours.
    """
    source = Intrinsic(task, [name.strip() for name in functions.split(",") if name.strip()])
    draws = replace(draw.prompts(source, "env"), source=source)  # held-out episodes think too
    played = rollout.play(n)
    first = Phase(
        name="sft",
        times=before(sft_steps),
        draw=draws,
        rollout=played,
        select=select.keep_verified(most),
        learn=learn.Learn(learn.imitate(), logp_temperature=1.0),
    )
    main = Phase(
        times=after(sft_steps),
        draw=draws,
        rollout=played,
        credit=ppo_credit(kl, lam, gamma=gamma),
        learn=learn.Learn(learn.pg_clip(eps), learn.value_clip(value_eps, coef=value_coef), updates=updates),
    )
    return Method(models=ppo_models(critic_lr), phases=(first, main))
