"""The check of a model when it is loaded: which paths give the log-probs of transformers' own forward.

A decoder may do what code for decoders in general does not expect: layers that drop arguments on the way to their
attention, an attention or a mask of their own, two attentions in a layer, a cache that differs from a full forward. So
the log-probs of a few short rows are computed on every path and compared with those of transformers' eager forward of
each row alone. A path that disagrees, or raises, is not used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from textwrap import shorten

import torch
from torch import Tensor, nn

from burnish.engine.local import LocalEngine
from burnish.engine.request import Request, Sample
from burnish.engine.transformers_engine import TransformersEngine
from burnish.engine.vocabulary import Vocabulary
from burnish.forward import attention, plain
from burnish.forward.denoise import denoising_of
from burnish.forward.masked import masked_of
from burnish.forward.module import bare, wide
from burnish.forward.outputs import outputs, packable
from burnish.forward.packing import on_gpu
from burnish.forward.paths import Paths, evaluating, note, noted
from burnish.forward.runner import ModelRunner
from burnish.forward.sight import sight_of
from burnish.media.ids import FIRST, media_in
from burnish.media.store import Ready

KNOWN = frozenset({"llama", "mistral", "qwen2", "qwen3"})  # types whose every path has tests of its own
LIMIT = {torch.float32: 1e-3, torch.float64: 1e-3}  # of the largest difference of log-probs that counts as none
HALF_LIMIT = 0.1  # of the mean difference, in half precision: rounding may change an expert, and so a log-prob
REPLY = 3  # tokens sampled for a request


def check(
    model: nn.Module, runner: ModelRunner, context: int, samples: bool = True, picture: Ready | None = None
) -> str:
    """Find and note the paths that are right for a model; a sentence about those that are not ("": all are).

    runner   of the model itself or of its compute copy (models/mixed_precision.py)
    samples  whether it is sampled from in this process
    picture  one that the model's processor has read, for a model that sees
    A model on which not even padded rows are right under burnish's attention gets transformers' own, for good.
    """
    inner, compute = bare(model), runner.module
    before = noted(model)
    if before is not None:
        note(compute, before)
    if before is not None or inner.config.model_type in KNOWN:
        return ""
    if masked_of(model) is not None or denoising_of(model) is not None:  # one path, which has tests of its own
        for module in (model, compute):
            note(module, Paths(packed=False, padded=True, engine=False, cached=False))
        return ""
    # what compiling found out for the check's few tokens would be found out again for the first real ones
    with torch.no_grad(), evaluating([model, compute]), torch.compiler.set_stance("force_eager"):
        paths, sentence = _Check(model, runner, context, picture).run(samples)
    note(model, paths)
    note(compute, paths)
    return sentence


class _Tokens:
    """The part of a tokenizer that engines use: here no token ends a reply."""

    stops = (-1,)

    def text(self, tokens: Tensor) -> str:
        return ""


NO_STOPS: Vocabulary = _Tokens()


@dataclass
class _Check:
    """The comparison of one model's paths.

    troubles  by path, why it is not used
    read      by row, the reference's numbers
    """

    model: nn.Module
    runner: ModelRunner
    context: int
    picture: Ready | None = None
    troubles: dict[str, str] = field(default_factory=dict)
    read: dict[tuple[int, ...], Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        inner = bare(self.model)
        self.compute = self.runner.module
        self.kind = str(inner.config.model_type)
        self.speaks = inner.get_output_embeddings() is not None
        self.vocabulary: int = inner.get_input_embeddings().weight.shape[0]
        self.limit = LIMIT.get(next(self.compute.parameters()).dtype)
        start = self._draw(4, 0)
        self.rows = [torch.cat([start, self._draw(5, 1)]), torch.cat([start, self._draw(2, 2)]), self._draw(3, 3)]
        self.masks = [torch.arange(len(row)) >= min(len(row) - 1, 4) for row in self.rows]
        if self.picture is not None and len(self.picture.tokens) + 2 * len(start) + REPLY < self.context:
            self._show(start, torch.tensor(self.picture.tokens))

    def _show(self, start: Tensor, picture: Tensor) -> None:
        """Two rows that begin with a picture, and go on differently."""
        for seed in (4, 5):
            self.rows.append(torch.cat([start[:2], picture, self._draw(4, seed)]))
            self.masks.append(torch.arange(len(self.rows[-1])) >= len(picture) + 3)

    def run(self, samples: bool) -> tuple[Paths, str]:
        wanted = self._reference(self.rows, self.masks)

        def right(path: str, packed: bool) -> bool:
            return self._agrees(path, lambda: (self._outputs(packed), wanted))

        ours, padded = packable(self.compute), right("padded rows", packed=False)
        if not padded and sight_of(self.model) is None and attention.dispatches(type(bare(self.model))):
            self.troubles["burnish's attention"] = self.troubles.pop("padded rows")
            for model in (self.model, self.compute):
                bare(model).config._attn_implementation = "eager"
            ours, padded = False, right("padded rows", packed=False)
        packed = ours and right("packed rows", packed=True)
        if not padded and self.picture is not None:
            self._require_right(wanted)
        if not samples or not self.speaks:
            return Paths(packed, padded), "" if packed else self._sentence(Paths(packed, padded))
        prompts = (None,) if on_gpu(next(self.compute.parameters()).device) else (1, None)  # shared in place, copied
        engine = ours and all(self._samples("the engine", partial(self._by_engine, n)) for n in prompts)
        paths = Paths(packed, padded, engine)
        if not engine and not self._samples("transformers' cache", partial(self._by_transformers, paths)):
            paths = Paths(packed, padded, engine, cached=False)
        return paths, "" if packed and engine else self._sentence(paths)

    def _require_right(self, wanted: Tensor) -> None:
        """Refuse a model whose pictures cannot be read as transformers reads them, not even row by row."""
        name = "logp" if self.speaks else "value"
        path = "rows read one at a time"
        if not self._agrees(
            path, lambda: (plain.outputs(self.model, self.rows, self.masks, {name})[name].cpu(), wanted)
        ):
            raise ValueError(
                f"model type {self.kind!r} reads pictures in a way that burnish does not compute: compared with "
                f"transformers' own log-probs, {path} {self.troubles[path]}; docs/pictures.md lists the types that work"
            )

    def _draw(self, length: int, seed: int) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        return torch.randint(0, self.vocabulary, (length,), generator=generator)[: self.context]

    def _agrees(self, path: str, numbers: Callable[[], tuple[Tensor, Tensor]]) -> bool:
        """Whether a path gives the numbers that are wanted of it; where not, its trouble is noted."""
        try:
            computed, wanted = numbers()
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # whatever a model's code raises on a path says that it is not made for it
            line = str(error).strip().partition("\n")[0]
            self.troubles[path] = f"failed ({type(error).__name__}: {shorten(line, 100)})"
            return False
        apart = (computed.float() - wanted.float()).abs()
        if not self.speaks:  # the outputs of a fresh head are small
            apart = apart / wanted.abs().mean().clamp(min=1e-12)
        agrees = bool(apart.max() <= self.limit) if self.limit is not None else bool(apart.mean() <= HALF_LIMIT)
        if not agrees:  # also where a number is NaN
            self.troubles[path] = f"came out up to {float(apart.max()):.2g} off"
        return agrees

    def _reference(self, rows: list[Tensor], masks: list[Tensor]) -> Tensor:
        """transformers' eager forward of each row alone; the same row is read once."""
        name = "logp" if self.speaks else "value"
        for row in rows:
            if tuple(row.tolist()) not in self.read:
                with attention.by_transformers(bare(self.model)):
                    self.read[tuple(row.tolist())] = self._alone(row, name).cpu()
        whole = [self.read[tuple(row.tolist())] for row in rows]
        return torch.cat([logps[mask[1:]] for logps, mask in zip(whole, masks, strict=True)])

    def _alone(self, row: Tensor, name: str) -> Tensor:
        """The numbers of a row but its first token, as transformers computes them from the processor's own tensors."""
        sight = sight_of(self.model)
        if sight is None or not media_in(row):
            return plain.outputs(self.model, [row], [torch.arange(len(row)) > 0], {name})[name]
        if not self.speaks:
            mask = (torch.arange(len(row)) > 0) & (row < FIRST)
            values = torch.zeros(len(row))
            values[mask] = plain.outputs(self.model, [row], [mask], {name})[name].float().cpu()
            return values[1:]
        logps = torch.log_softmax(wide(sight.whole(row)[:-1]), -1)
        return logps.gather(-1, row[1:, None].clamp(max=self.vocabulary - 1).to(logps.device))[:, 0]

    def _outputs(self, packed: bool) -> Tensor:
        name = "logp" if self.speaks else "value"
        return outputs(self.runner, self.rows, self.masks, {name}, packed=packed)[name].cpu()

    def _samples(self, path: str, generate: Callable[[list[Request]], list[Sample]]) -> bool:
        """Whether sampled tokens have the reference's log-probs."""
        room = self.context - REPLY
        seen = range(3, len(self.rows))
        requests = [Request(self.rows[i][:room], i, REPLY, float(i > 0)) for i in (0, 2, 2, *seen)]

        def numbers() -> tuple[Tensor, Tensor]:
            samples = generate(requests)
            rows = [torch.cat([r.prompt, sample.tokens]) for r, sample in zip(requests, samples, strict=True)]
            masks = [torch.arange(len(row)) >= len(r.prompt) for r, row in zip(requests, rows, strict=True)]
            return torch.cat([sample.logp for sample in samples]), self._reference(rows, masks)

        return self._agrees(path, numbers)

    def _by_engine(self, share_from: int | None, requests: list[Request]) -> list[Sample]:
        engine = LocalEngine(self.runner, NO_STOPS, self.context)
        engine.share_from = share_from
        try:
            return engine.generate(requests)
        finally:
            if engine.workspace is not None:
                engine.workspace.release()

    def _by_transformers(self, paths: Paths, requests: list[Request]) -> list[Sample]:
        return TransformersEngine(self.runner, NO_STOPS, self.context, paths).generate(requests)

    def _sentence(self, paths: Paths) -> str:
        """What the model does instead of taking the fast paths, and why: one sentence."""
        slower = [] if paths.packed else [f"trained on {paths.training}"]
        slower += [] if paths.engine else [f"sampled with {paths.sampling}"]
        why = " and ".join(f"{path} {trouble}" for path, trouble in self.troubles.items())
        return f"model type {self.kind!r} is {' and '.join(slower)}, which is slower: " + (
            f"compared with transformers' own log-probs, {why}" if why else "its layers cannot read packed rows"
        )
