"""Which method for which data: the rules behind `burnish choose` and docs/choose.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

DATA = {  # what the rows have -> in words
    "answers": "prompts with a right answer",
    "prompts": "prompts alone",
    "demos": "prompts with a reply to imitate, or conversations",
    "pairs": "prompts with a better and a worse reply",
    "labels": "replies marked good or bad",
    "ranked": "prompts with several replies and their scores or ranks",
    "steps": "solutions whose steps are marked right or wrong",
    "environment": "an environment or tools, in several turns",
}
SIGNALS = {  # what says that a reply is good -> in words
    "verifier": "a program can check a reply: an answer, tests, rules",
    "reward": "a function of mine gives a number",
    "reward-model": "a reward model, trained or to be trained",
    "judge": "a language model that judges",
    "teacher": "a better model to learn from",
    "none": "nothing but the data",
}
LORA_BYTES, FULL_BYTES, NF4_BYTES = 2.6, 16.0, 1.1  # a weight costs about this, activations apart (docs/performance.md)
GIB = 2**30


@dataclass(frozen=True)
class Asked:
    """The answers: what the rows have, what says that a reply is good, the model, and the GPU's memory.

    weights: of the model, where they are known; memory: in GiB, where there is a limit
    """

    data: str
    signal: str
    model: str = "tiny"
    task: str = ""
    memory: float | None = None
    weights: int | None = None


@dataclass(frozen=True)
class Choice:
    """What is recommended: a method, why, the commands in order, and what else is worth a look."""

    method: str
    why: str
    commands: tuple[str, ...]
    others: tuple[str, ...] = ()


def choose(asked: Asked) -> Choice:
    """The method for these answers. Methods are those that people use most."""
    method, why, extra, others = _method(asked)
    task = asked.task or _task(asked.data)
    train = f"burnish train {method} --model {asked.model} --task {task}{extra}{_memory(asked)}"
    first = _before(asked, task)
    return Choice(method, why, (*first, train), others)


def _method(asked: Asked) -> tuple[str, str, str, tuple[str, ...]]:
    """Method, reason, further flags, and other methods."""
    if asked.data not in DATA or asked.signal not in SIGNALS:
        raise ValueError(f"--data takes {', '.join(DATA)}; --signal takes {', '.join(SIGNALS)}")
    offline: Mapping[str, tuple[str, str, tuple[str, ...]]] = {
        "pairs": ("dpo", "the data say which reply is better; no sampling, no reward model", ("simpo", "ipo", "orpo")),
        "labels": ("kto", "single replies with labels, no pairs needed", ("bco",)),
        "ranked": ("lipo", "it learns from whole lists, not only from the best and the worst", ("pro", "dpo")),
        "steps": ("process_reward_model", "it learns to score steps, for search and dense rewards", ()),
    }
    if asked.signal == "teacher":
        why = "the model writes, the teacher scores every token: a dense signal on its own mistakes"
        return "opd", why, " --teacher path/to/teacher", ("gkd", "minillm", "sft")
    if asked.data == "environment":
        why = "whole episodes are compared with others of the same task; no critic"
        return "grpo", why, " --turns 8", ("ppo", "gigpo", "archer")
    if asked.signal in ("none", "verifier") and asked.data in offline:  # a verifier reads answers, which they lack
        method, why, others = offline[asked.data]
        return method, why, "", others
    if asked.signal == "none":
        why = "there are replies to imitate, and nothing that says how good another one is"
        return "sft", why, "", ("dft", "neftune")
    rewards = {
        "verifier": "",
        "reward": " --reward my_reward.py:score",
        "reward-model": ' --reward "rm(runs/reward/model)"',
        "judge": " --reward my_judge.py:score",
    }
    why = "replies to one prompt are compared with each other: no critic, no reward model to train"
    others = ("dapo", "rloo", "gspo")
    if asked.signal in ("reward-model", "judge"):
        why = "a learned score can be fooled: the KL to the starting model holds the policy near it"
        return "grpo", why, f"{rewards[asked.signal]} --beta 0.04", ("rloo", "ppo", "online_dpo")
    if asked.data == "demos":
        return "grpo", f"{why}; begin from SFT on the demonstrations", rewards[asked.signal], ("luffy", "chord")
    return "grpo", why, rewards[asked.signal], others


def _before(asked: Asked, task: str) -> tuple[str, ...]:
    """Runs that come first: the reward model, or SFT before RL."""
    if asked.signal == "reward-model" and asked.data == "pairs":
        return (f"burnish train reward_model --model {asked.model} --task {task} --out runs/reward",)
    return ()


def _task(data: str) -> str:
    """A file name that says what is meant; a built-in task where there are no rows yet."""
    names = {"environment": "my_env.py:Env", "pairs": "pairs.jsonl"}
    return names.get(data, "data.jsonl")


def _memory(asked: Asked) -> str:
    """LoRA where all weights do not fit, four bits where the frozen ones do not fit either."""
    if asked.memory is None:
        return ""
    flag = f" --memory {asked.memory:g}GiB"
    if asked.weights is None:
        return f" --lora 16{flag}"
    room = 0.7 * asked.memory * GIB  # the rest is for activations and the KV cache
    if FULL_BYTES * asked.weights <= room:
        return flag
    return f" --lora 16{flag}" if LORA_BYTES * asked.weights <= room else f" --lora 16 --quantization nf4{flag}"


def data_of(gives: frozenset[str]) -> str:
    """What the rows of a source have, as one of DATA."""
    if {"chosen", "rejected"} <= gives:
        return "pairs"
    if "label" in gives:
        return "labels"
    if "responses" in gives:
        return "ranked"
    if "answer" in gives:
        return "answers"
    return "demos" if "demo" in gives else "prompts"
