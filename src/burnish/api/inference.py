"""Evaluate a model, and have it answer, outside of a run."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import torch

from burnish.api.objects import passed_rewards, passed_task
from burnish.core.randomness import key_of
from burnish.core.roles import Role
from burnish.core.step import Settings
from burnish.core.types import Message, Task
from burnish.engine.request import Request
from burnish.evals.evaluate import Evaluation
from burnish.evals.evaluate import evaluate as evaluate_loaded
from burnish.models.build import Models, build
from burnish.models.known_models import resolve
from burnish.models.load import stored_outputs
from burnish.models.template import Style, read_template
from burnish.run.lengths import Needs, fit
from burnish.run.reply_length import reply_length
from burnish.tasks.resolve import resolve_task


def evaluate(
    model: str | Path,
    task: object = "sort",
    *,
    reward: object = None,
    tasks: int = 200,
    k: int = 1,
    temperature: float = 1.0,
    max_new_tokens: int | None = None,
    seed: int = 0,
    device: str = "auto",
    chat_template: str | None = None,
    system_prompt: str | None = None,
    template_option: str | None = None,
) -> Evaluation:
    """k replies to each held-out task: evaluate("runs/first/model", "sort", k=8).pass_at(8)."""
    source, named = passed_task(task, {})
    rewards, named = passed_rewards(reward, named)
    spelled = named.get("reward")
    heldout = resolve_task(source or str(named["task"]), rewards or (None if spelled is None else str(spelled)))
    style = Style(read_template(chat_template), system_prompt, template_option)
    settings = Settings(max_new_tokens=max_new_tokens or reply_length(heldout, resolve(str(model)), style))
    models = _loaded(str(model), device, style, settings)
    fit(heldout, Needs((), conversations=False, samples=True), models, "policy", settings, splits=("heldout",))
    return evaluate_loaded(models, heldout, settings, tasks=tasks, k=k, seed=seed, temperature=temperature)


def generate(
    model: str | Path,
    prompts: str | Sequence[str | Sequence[Message]],
    *,
    n: int = 1,
    temperature: float = 0.7,
    max_new_tokens: int = 256,
    seed: int = 0,
    device: str = "auto",
    chat_template: str | None = None,
    system_prompt: str | None = None,
    template_option: str | None = None,
) -> str | list[str] | list[list[str]]:
    """The replies of a model to prompts, which are texts or conversations: generate("tiny", "17 + 25 = ?").

    A text for one prompt; a list of texts for a list of prompts; with n > 1, n texts in place of each text.
    Temperature 0 is greedy. The same seed gives the same replies.
    """
    if n < 1 or max_new_tokens < 1:
        raise ValueError(f"n is {n} and max_new_tokens {max_new_tokens}; both must be at least 1")
    style = Style(read_template(chat_template), system_prompt, template_option)
    policy = _loaded(str(model), device, style, Settings())["policy"]
    several = [prompts] if isinstance(prompts, str) else list(prompts)
    requests = []
    for i, prompt in enumerate(several):
        asked = prompt if isinstance(prompt, str) else tuple(prompt)
        tokens = policy.chat.prompt(Task("question", asked, {}, str(i)))
        if len(tokens) >= policy.context:
            raise ValueError(f"prompt {i} has {len(tokens)} tokens, and the model's context holds {policy.context}")
        requests += [Request(tokens, key_of("generate", seed, i, j), max_new_tokens, temperature) for j in range(n)]
    texts = [policy.chat.text(sample.tokens) for sample in policy.generate(requests)]
    each: list[str] | list[list[str]] = texts if n == 1 else [texts[i * n : (i + 1) * n] for i in range(len(several))]
    return each[0] if isinstance(prompts, str) else each


def _loaded(model: str, device: str, style: Style, settings: Settings) -> Models:
    """A model as a frozen policy. The last one is kept, so that a second question does not load it again, until its
    files change."""
    path = resolve(model)
    files = tuple((file.name, file.stat().st_mtime_ns, file.stat().st_size) for file in sorted(path.glob("*")))
    return _of_files(model, path, files, device, style, settings)


@lru_cache(maxsize=1)
def _of_files(
    model: str, path: Path, files: tuple[tuple[str, int, int], ...], device: str, style: Style, settings: Settings
) -> Models:
    if stored_outputs(path):
        raise ValueError(
            f"{model} is a reward model: it scores replies but cannot generate them; use it as reward_model={model!r}"
        )
    with torch.no_grad():
        return build({"policy": Role("frozen", "base")}, path, settings, device=device, style=style)
