"""A trained model and others: how far from another policy it is, and how a reward model does on other pairs."""

from __future__ import annotations

from burnish.core.roles import Role
from burnish.evals.evaluate import held_out_tasks
from burnish.evals.measures import as_pair
from burnish.evals.probed import Asked, Measures, replies_of
from burnish.models.build import build
from burnish.models.known_models import resolve
from burnish.rollout.given import given_trace
from burnish.score.reading import end_scores
from burnish.tasks.resolve import resolve_task


def divergence(asked: Asked, *, model: str, name: str, k: int = 2, tasks: int = 60) -> Measures:
    """KL to the model in a directory, nats a token, over k own samples of each of some held-out tasks: `kl_NAME`.

    The mean of log pi(y_t) - log q(y_t) over sampled tokens, which estimates KL(pi || q) without bias. An item for
    each task.
    """
    device = str(asked.models[asked.who].device)
    other = build({"policy": Role("frozen", "base")}, resolve(model), asked.settings, device=device)["policy"]
    kls = []
    for group, _ in replies_of(asked, k, tasks):
        masks = [trace.by(asked.who) for trace in group.traces]
        streams = [
            one.streams(group.traces, masks, {"logp"}, asked.settings.token_budget)
            for one in (asked.models[asked.who], other)
        ]
        each = [
            float((a["logp"][mask] - b["logp"][mask]).double().mean())
            for a, b, mask in zip(*streams, masks, strict=True)
        ]
        kls.append(sum(each) / len(each))
    return {f"kl_{name}": tuple(kls)}


def pairs_ranked(asked: Asked, *, task: str, name: str, tasks: int = 200) -> Measures:
    """The share of held-out pairs of another task that a reward model ranks rightly: `ranked_NAME`.

    A pair is a task's chosen and rejected reply, or its demonstration and its mistake. Equal scores count half.
    """
    model = asked.models[asked.who]
    rows = [as_pair(row) for row in held_out_tasks(resolve_task(task), tasks)]
    limit = min(asked.settings.max_length or model.context, model.context)

    def scores(which: str) -> list[float]:
        traces = [given_trace(row, which, "demo", model.chat, limit, i, True) for i, row in enumerate(rows)]
        return [float(score) for score in end_scores(traces, model, asked.settings.token_budget)]

    return {f"ranked_{name}": tuple(map(_ahead, scores("chosen"), scores("rejected")))}


def _ahead(chosen: float, rejected: float) -> float:
    return 1.0 if chosen > rejected else 0.5 if chosen == rejected else 0.0
