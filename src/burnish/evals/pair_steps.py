"""One update on one preference pair: does the preferred reply become likelier, and does the inner product foretell it?

With g_w and g_l the gradients of log pi of the two replies over all weights, a margin loss moves the weights along
g_w - g_l. To first order log pi(y_w) changes by eta (|g_w|^2 - <g_w, g_l>): it falls where <g_w, g_l> > |g_w|^2
(gradient entanglement, arXiv 2410.13828). Here the step is made, on the pair alone, and undone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from burnish.core.types import Task, Trace
from burnish.evals.evaluate import held_out_tasks
from burnish.evals.measures import as_pair
from burnish.evals.probed import Asked, Measures
from burnish.models.model import Model
from burnish.rollout.given import given_trace

TAIL = "\nThat is how I see it."  # words that a model of sums has not seen
GAIN = 0.05  # nats by which the step raises the margin, to first order: small beside what a run does
Direction = Callable[[Sequence[Tensor], Sequence[Tensor]], list[Tensor]]


def pair_steps(asked: Asked, *, pairs: int = 100) -> Measures:
    """What one step of gradient descent, and one of AdamW, on each of some held-out pairs does to its two replies.

    Pairs are `near`, the demonstration against the reply with one slip; `far`, against the slip's answer without its
    working; or `tail`, the near pair with the same unfamiliar words behind both replies. An item for each pair:

    share_near_falls       the preferred reply becomes less likely (gradient descent)
    share_near_foretold    its change has the sign that |g_w|^2 - <g_w, g_l> foretells
    share_near_adam_falls, share_near_adam_foretold   the same for the sign of the gradient, AdamW's first step
    near_cosine            of the two gradients
    share_tail_falls, ...  the same for pairs with a tail
    share_falls_gap        share_near_falls - share_far_falls
    share_tail_gap         share_tail_falls - share_far_falls
    """
    model = asked.models[asked.who]
    measures: dict[str, list[float]] = {}
    for task in held_out_tasks(asked.source, pairs):
        pair = as_pair(task)
        chosen, rejected = (str(pair.given[which]) for which in ("chosen", "rejected"))
        kinds = {"near": (chosen, rejected), "far": (chosen, _answer_alone(pair))}
        kinds["tail"] = (chosen + TAIL, rejected + TAIL)
        for kind, texts in kinds.items():
            rows = _traces(pair, texts, model, asked.settings.max_length or model.context)
            for name, value in _pair(model, *rows).items():
                measures.setdefault(f"share_{kind}_{name}" if name != "cosine" else f"{kind}_cosine", []).append(value)
    far = measures["share_far_falls"]
    for kind, name in (("near", "share_falls_gap"), ("tail", "share_tail_gap")):
        measures[name] = [a - b for a, b in zip(measures[f"share_{kind}_falls"], far, strict=True)]
    return {name: tuple(values) for name, values in measures.items()}


def _answer_alone(pair: Task) -> str:
    """The last line of the rejected reply."""
    return str(pair.given["rejected"]).strip().rpartition("\n")[2]


def _traces(pair: Task, texts: tuple[str, str], model: Model, limit: int) -> tuple[Trace, Trace]:
    task = Task("pair", pair.prompt, {**pair.given, "chosen": texts[0], "rejected": texts[1]}, pair.key)
    chosen, other = (
        given_trace(task, name, "demo", model.chat, min(limit, model.context), i, True)
        for i, name in enumerate(("chosen", "rejected"))
    )
    return chosen, other


def _pair(model: Model, chosen: Trace, rejected: Trace) -> dict[str, float]:
    weights = [p for p in model.module.parameters() if p.requires_grad] or list(model.module.parameters())
    asks = [p.requires_grad for p in weights]
    for p in weights:
        p.requires_grad_(True)
    try:
        up, before = _gradient(model, chosen, weights)
        down, _ = _gradient(model, rejected, weights)
        inner, own, other = _dot(up, down), _dot(up, up), _dot(down, down)
        found_by = {"cosine": inner / (own * other) ** 0.5 if own and other else 0.0}
        for name, direction in _DIRECTIONS.items():
            moved = direction(up, down)
            foretold = _dot(up, moved)
            size = GAIN / max(1e-12, foretold - _dot(down, moved))  # the margin rises by GAIN to first order
            change = _after(model, chosen, weights, moved, size) - before
            found_by[f"{name}falls"] = float(change < 0)
            found_by[f"{name}foretold"] = float((change > 0) == (own > inner))
    finally:
        for p, asked_before in zip(weights, asks, strict=True):
            p.requires_grad_(asked_before)
    return found_by


_DIRECTIONS: dict[str, Direction] = {
    "": lambda up, down: [w - r for w, r in zip(up, down, strict=True)],
    "adam_": lambda up, down: [torch.sign(w - r) for w, r in zip(up, down, strict=True)],
}


def _gradient(model: Model, trace: Trace, weights: list[nn.Parameter]) -> tuple[list[Tensor], float]:
    """The gradient of log pi(reply), and its value."""
    with torch.enable_grad():
        total = _logp(model, trace)
        grads = torch.autograd.grad(total, weights, allow_unused=True)
    return [torch.zeros_like(p) if g is None else g for p, g in zip(weights, grads, strict=True)], float(total.detach())


@torch.no_grad()
def _after(model: Model, trace: Trace, weights: list[nn.Parameter], moved: list[Tensor], size: float) -> float:
    """log pi(reply) after a step along `moved`, which is undone."""
    kept = [p.detach().clone() for p in weights]
    for p, d in zip(weights, moved, strict=True):
        p.add_(d, alpha=size)
    model.weights_moved()
    value = float(_logp(model, trace))
    for p, old in zip(weights, kept, strict=True):
        p.copy_(old)
    model.weights_moved()
    return value


def _logp(model: Model, trace: Trace) -> Tensor:
    mask = trace.by("demo")
    return model.outputs([trace.tokens], [mask], {"logp"})["logp"].double().sum()


def _dot(a: Sequence[Tensor], b: Sequence[Tensor]) -> float:
    return float(sum((x.double() * y.double()).sum() for x, y in zip(a, b, strict=True)))
