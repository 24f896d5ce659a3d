"""burnish's own engine as the sampler, in another process on a copy of the weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from burnish.engine.local import LocalEngine
from burnish.engine.protocol import GenerateOptions
from burnish.engine.request import Request, Sample
from burnish.engine.subprocess.messages import Sampled, Settings, Wanted
from burnish.forward.module import decoder
from burnish.forward.outputs import outputs, packable
from burnish.forward.runner import runner_of
from burnish.models.load import load_chat, load_model
from burnish.models.path_check import check


class Sampler:
    """The embedded engine on a model directory."""

    about = "burnish"

    def __init__(self, folder: str, settings: Settings, progress: Callable[[], None]) -> None:
        torch.set_num_threads(
            settings["threads"]
        )  # the parent's number, so that its arithmetic is repeated bit for bit
        budget = int(settings["kv_gib"] * 2**30) if settings["kv_gib"] is not None else None
        self.model = load_model(Path(folder), 0, torch.device("cpu"))
        decoder(self.model).register_forward_hook(lambda *_: progress())
        self.runner = runner_of(self.model)
        check(self.model, self.runner, settings["context"])
        self.engine = LocalEngine(self.runner, load_chat(Path(folder)), settings["context"], budget)

    def load(self, folder: str) -> None:
        """New weights, in place of the old."""
        self.model.load_state_dict(load_model(Path(folder), 0, torch.device("cpu")).state_dict())
        self.runner.weights_moved()

    def sample(self, requests: list[Wanted], send: Callable[[Sampled], None]) -> None:
        """Each reply as it is finished; every pass of the model is progress."""

        def on_sample(i: int, sample: Sample) -> None:
            reply: Sampled = {
                "id": requests[i]["id"],
                "tokens": sample.tokens.tolist(),
                "logp": sample.logp.tolist(),
                "stopped": sample.stopped,
            }
            if sample.allowed is not None:
                reply["allowed"] = sample.allowed.ids.tolist(), sample.allowed.sizes.tolist()
            send(reply)

        self.engine.generate([_request(request) for request in requests], GenerateOptions(on_sample=on_sample))

    @torch.no_grad()
    def score(self, rows: list[list[int]]) -> list[list[float]]:
        """The log-prob of every token of each row but its first, at temperature 1."""
        tokens = [torch.tensor(row) for row in rows]
        masks = [torch.arange(len(row)) > 0 for row in rows]
        logps = outputs(self.runner, tokens, masks, {"logp"}, 1.0, packable(self.model), None)["logp"]
        return [part.tolist() for part in logps.split([len(row) - 1 for row in rows])]


def _request(wanted: Wanted) -> Request:
    return Request(
        torch.tensor(wanted["prompt"]),
        wanted["key"],
        wanted["max_new"],
        temperature=wanted["temperature"],
        top_k=wanted["top_k"],
        top_p=wanted["top_p"],
        min_p=wanted["min_p"],
        repetition_penalty=wanted["repetition_penalty"],
        as_drawn=wanted["as_drawn"],
        stop=tuple(wanted["stop"]),
    )
