"""A sparse autoencoder of the last hidden states of a model, for `fpo --sae`.

    z = relu((x - c) W_enc + b);  of a batch of N states the N k largest entries of z are kept, the others are 0
    x' = z W_dec + c;  L = mean |x - x'|^2 / mean |x - mean x|^2        (BatchTopK, arXiv 2412.06410)

For use the k largest of a batch become a threshold, the mean over batches of the smallest entry that was kept, so that
a state is encoded by itself (JumpReLU, arXiv 2407.14435). The rows of W_dec have length 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from burnish.core.step import Settings
from burnish.core.types import Task
from burnish.models.build import Models
from burnish.rollout.given import given_trace
from burnish.tasks.source import Source

AT_ONCE = 16  # replies that are read together


@dataclass(frozen=True)
class Autoencoder:
    """W_enc [H, F], b_enc [F], W_dec [F, H], b_dec [H], threshold [F]; unexplained: the share of the variance of states
    that it leaves; active: features of a state above the threshold.
    """

    weights: dict[str, Tensor]
    unexplained: float
    active: float


def hidden_states(models: Models, source: Source, count: int, settings: Settings) -> Tensor:
    """[N, H]: the last hidden states that predict the tokens of `count` training replies, both of pairs."""
    model = models["policy"]
    states: list[Tensor] = []
    for tasks in _batches([source.task("train", i) for i in range(count)]):
        columns = [("chosen", "rejected") if "chosen" in one.given else ("demo",) for one in tasks]
        traces = [
            given_trace(task, column, "demo", model.chat, model.context, i, cut=True)
            for task, names in zip(tasks, columns, strict=True)
            for i, column in enumerate(names)
        ]
        masks = [trace.by("demo") for trace in traces]
        streams = model.streams(traces, masks, {"hidden"}, settings.token_budget)
        states += [stream["hidden"][mask].float() for stream, mask in zip(streams, masks, strict=True)]
    return torch.cat(states)


def _batches(tasks: list[Task]) -> Iterator[list[Task]]:
    for start in range(0, len(tasks), AT_ONCE):
        yield tasks[start : start + AT_ONCE]


def train_autoencoder(
    states: Tensor, features: int, k: int, *, steps: int = 400, batch: int = 512, lr: float = 2e-3, seed: int = 0
) -> Autoencoder:
    """An autoencoder of states [N, H] with `features` features, k of which are active on average."""
    dice = torch.Generator().manual_seed(seed)
    centre = states.mean(0)
    spread = (states - centre).square().sum(-1).mean()
    decoder = torch.randn(features, states.shape[1], generator=dice)
    decoder /= decoder.norm(dim=-1, keepdim=True)
    weights = [one.clone().requires_grad_() for one in (decoder.T, torch.zeros(features), decoder, centre)]
    encoder, bias, decoder, middle = weights
    optimiser = torch.optim.Adam(weights, lr=lr)
    least: list[float] = []
    for _ in range(steps):
        some = states[torch.randint(len(states), (min(batch, len(states)),), generator=dice)]
        z = ((some - middle) @ encoder + bias).relu()
        kept = z.flatten().topk(len(some) * k)
        least.append(float(kept.values[-1].detach()))
        sparse = torch.zeros_like(z.flatten()).scatter(0, kept.indices, kept.values).view_as(z)
        loss = (some - sparse @ decoder - middle).square().sum(-1).mean() / spread
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        with torch.no_grad():
            decoder /= decoder.norm(dim=-1, keepdim=True)
    return _finished([one.detach() for one in weights], states, spread, sum(least[-50:]) / len(least[-50:]))


def _finished(weights: list[Tensor], states: Tensor, spread: Tensor, threshold: float) -> Autoencoder:
    """The weights as `fpo` reads them: z = x W_enc + b_enc, with the centre inside b_enc."""
    encoder, bias, decoder, middle = weights
    offset = bias - middle @ encoder
    z = states @ encoder + offset
    z = torch.where(z > threshold, z, torch.zeros_like(z))
    left = (states - z @ decoder - middle).square().sum(-1).mean() / spread
    named = {"W_enc": encoder, "b_enc": offset, "W_dec": decoder, "b_dec": middle}
    named["threshold"] = torch.full_like(offset, threshold)
    tensors = {name: one.contiguous() for name, one in named.items()}
    return Autoencoder(tensors, float(left), float((z > 0).sum(-1).float().mean()))
