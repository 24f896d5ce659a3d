"""All of GRPO (arXiv 2402.03300), top to bottom, in one file: sample, score, compare, update.

    python examples/grpo_from_scratch.py --steps 16

It uses burnish's types and loss functions, and transformers for the model. What it leaves out is what burnish adds:
packed rows and a sampling engine (so this is much slower), micro-batches, checkpoints and resume, evaluation, reward
models, the run store. One step of it equals one step of `burnish train grpo`: tests/e2e/test_from_scratch.py compares
the weights.
"""

from __future__ import annotations

import argparse
import copy

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, AutoTokenizer

from burnish.core.randomness import key_of, uniform
from burnish.core.types import Group, Task, Trace, Turn
from burnish.learn.maths.divergence import k3
from burnish.learn.maths.policy import clipped_surrogate
from burnish.models.known_models import resolve
from burnish.tasks.source import Source
from burnish.tasks.table import source


def prompt_tokens(task: Task, tokenizer) -> Tensor:
    """[t]: the task as the chat template writes it, ending where the assistant's reply begins."""
    messages = [{"role": "user", "content": task.prompt}] if isinstance(task.prompt, str) else list(task.prompt)
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return torch.tensor(tokenizer.encode(text, add_special_tokens=False))


@torch.no_grad()
def rollout(model: nn.Module, tokenizer, task: Task, n: int, longest: int, seed: int, step: int) -> Group:
    """n replies to one task. The noise of a token depends on (seed, step, task, reply, position) alone."""
    prompt = prompt_tokens(task, tokenizer)
    keys = torch.tensor([key_of(seed, "sample", step, 0, task.key, i) for i in range(n)])
    tokens, logps = torch.zeros(n, 0, dtype=torch.long), torch.zeros(n, 0)
    ended = torch.zeros(n, dtype=torch.bool)
    lengths = torch.full((n,), longest)
    while tokens.shape[1] < longest and not ended.all():
        rows = torch.cat([prompt.expand(n, -1), tokens], dim=1)
        logits = model(rows).logits[:, -1].float()  # no KV cache: the whole row again for each token
        logp = torch.log_softmax(logits, -1)
        u = uniform(keys, torch.full((n,), rows.shape[1]))
        token = torch.searchsorted(logp.exp().double().cumsum(-1), u[:, None], right=True)[:, 0]
        tokens = torch.cat([tokens, token[:, None]], 1)
        logps = torch.cat([logps, logp.gather(-1, token[:, None])], 1)
        stops = (token == tokenizer.eos_token_id) & ~ended
        lengths[stops] = tokens.shape[1]
        ended |= stops
    asked = Turn(prompt, "task")
    turns = [Turn(tokens[i, : lengths[i]], "policy", logps[i, : lengths[i]], parent=asked) for i in range(n)]
    return Group(task, [Trace((asked, turn), i) for i, turn in enumerate(turns)])


def score(group: Group, tasks: Source, tokenizer) -> None:
    """The reward of each reply: the verdict of the task's own verifier."""
    for trace in group.traces:
        reply = tokenizer.decode(trace.turns[1].tokens, skip_special_tokens=True)
        trace.scores["reward"] = tasks.verify(group.task, reply).score


def credit(group: Group) -> None:
    """A_i = (r_i - mean r) / (std r + 1e-6), for all tokens of reply i; 0 where all replies score the same."""
    rewards = torch.tensor([trace.scores["reward"] for trace in group.traces], dtype=torch.float64)
    std = rewards.std()
    for trace, reward in zip(group.traces, rewards, strict=True):
        advantage = float((reward - rewards.mean()) / (std + 1e-6)) if std > 0 else 0.0
        trace.streams["adv"] = torch.full((len(trace.turns[1]),), advantage)


def reply_logp(model: nn.Module, trace: Trace) -> Tensor:
    """[t]: the model's log-probs of the reply's tokens."""
    asked, reply = trace.turns
    logits = model(trace.tokens[None]).logits[0, len(asked) - 1 : -1].float()
    return torch.log_softmax(logits, -1).gather(-1, reply.tokens[:, None])[:, 0]


def update(policy: nn.Module, reference: nn.Module, optimiser, groups: list[Group], eps: float, beta: float) -> float:
    """One AdamW step on the mean over replies of the mean over tokens of [clipped surrogate + beta k3]."""
    traces = [trace for group in groups for trace in group.traces]
    optimiser.zero_grad()
    total = 0.0
    for trace in traces:
        logp = reply_logp(policy, trace)
        with torch.no_grad():
            ref = reply_logp(reference, trace)
        loss = clipped_surrogate(logp, trace.turns[1].logp, trace.streams["adv"], eps, eps) + beta * k3(logp, ref)
        share = loss.mean() / len(traces)
        share.backward()
        total += float(share.detach())
    torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
    optimiser.step()
    return total


def grpo_step(policy, reference, optimiser, tokenizer, tasks: Source, batch: list[Task], o) -> tuple[float, float]:
    """Sample, score, credit, update. Returns the mean reward and the loss. `o` holds n, longest, seed,
    step, eps, beta.
    """
    groups = [rollout(policy, tokenizer, task, o.n, o.longest, o.seed, o.step) for task in batch]
    for group in groups:
        score(group, tasks, tokenizer)
        credit(group)
    loss = update(policy, reference, optimiser, groups, o.eps, o.beta)
    rewards = [trace.scores["reward"] for group in groups for trace in group.traces]
    return sum(rewards) / len(rewards), loss


def main() -> None:
    parser = argparse.ArgumentParser(description="GRPO in one file.")
    parser.add_argument("--model", default="tiny", help="a named model or a directory that transformers loads")
    parser.add_argument("--task", default="add", help="a built-in task: burnish tasks lists them")
    for name, default in {"steps": 16, "prompts": 8, "n": 8, "longest": 24, "seed": 0}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    for name, default in {"lr": 1e-4, "eps": 0.2, "beta": 0.04}.items():
        parser.add_argument(f"--{name}", type=float, default=default)
    o = parser.parse_args()
    path = resolve(o.model)
    tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=False)
    policy = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, trust_remote_code=False).eval()
    reference = copy.deepcopy(policy).requires_grad_(False)
    optimiser = torch.optim.AdamW(policy.parameters(), lr=o.lr, weight_decay=0.0)
    tasks = source(o.task)
    for step in range(o.steps):
        o.step = step
        batch = [tasks.task("train", step * o.prompts + i) for i in range(o.prompts)]
        reward, loss = grpo_step(policy, reference, optimiser, tokenizer, tasks, batch, o)
        print(f"step {step + 1}/{o.steps}  reward {reward:.3f}  loss {loss:+.4f}", flush=True)


if __name__ == "__main__":
    main()
