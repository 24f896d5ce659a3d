"""An engine in another process, on a copy of the weights: asked as the local one is, sent every publish, and proved to
have got it.

A sample depends on its request's key alone. So a worker that died or hung is started again on the weights it had, and
only what it had not answered is asked again: nothing is lost, nothing comes twice.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from burnish.core import randomness
from burnish.core.types import Allowed
from burnish.engine.protocol import ALONE, GenerateOptions
from burnish.engine.request import Request, Sample
from burnish.engine.subprocess.messages import Line, Order, Settings, Wanted
from burnish.engine.subprocess.probe import TOLERANCE, Difference, WrongWeights, difference, probe_rows
from burnish.engine.subprocess.process import Failed, Lost, Process
from burnish.engine.subprocess.vllm_python import vllm_python
from burnish.engine.vocabulary import Prompter
from burnish.media.ids import media_in

KINDS = ("process", "vllm")
VLLM_SAMPLER = Path(__file__).with_name("vllm_sampler.py")
RESTARTS = 3  # of a worker in one call, before the run stops
_MEMORY = Path("/dev/shm")


@dataclass(frozen=True)
class EngineSpec:
    """Which engine, and what becomes of a run whose sampler has other weights. sampler: the file of its class
    `Sampler`.
    """

    kind: str
    python: str
    sampler: Path
    on_mismatch: str = "stop"
    kv_gib: float | None = None

    @classmethod
    def of(cls, kind: str, python: str | None, on_mismatch: str, kv_gib: float | None, own: Path) -> EngineSpec:
        """A checked spec: a Python without vLLM is refused now. own: the sampler of the kind "process"."""
        if kind == "vllm":
            return cls(kind, vllm_python(python), VLLM_SAMPLER, on_mismatch, kv_gib)
        return cls(kind, sys.executable, own, on_mismatch, kv_gib)


@dataclass
class SubprocessEngine:
    """Samples replies in another process.

    scored    the trainer's log-probs of rows of tokens, for the proof
    save      writes the present weights as a model directory
    warnings  a worker that was started again, weights that differ
    """

    how: EngineSpec
    model: nn.Module
    chat: Prompter
    context: int
    scored: Callable[[list[Tensor]], list[list[float]]]
    save: Callable[[Path], None]
    warnings: list[str] = field(default_factory=list)
    about: str = ""
    sent: int = 0
    restarts: int = 0
    process: Process | None = None

    def generate(self, requests: list[Request], options: GenerateOptions = ALONE) -> list[Sample]:
        """A sample for each request, in order. on_sample: called with each as it arrives."""
        if options.feed is not None:
            return options.in_rounds(self.generate, requests)
        if options.others or options.mix is not None or options.stop_rule is not None:
            raise ValueError(
                f"the engine {self.how.kind!r} samples from one model and to the end: it can neither mix models nor "
                "stop "
                "early; use --engine local"
            )
        for request in requests:
            self._check(request)
        self.start()
        samples: dict[int, Sample] = {}

        def take(line: Line) -> None:
            sample = line.get("sample")
            if sample is None:
                return
            number = sample["id"]
            if number in samples or not 0 <= number < len(requests):
                raise RuntimeError(f"the sampler answered request {number} twice or unasked; please report this")
            tokens, logp = torch.tensor(sample["tokens"], dtype=torch.long), torch.tensor(sample["logp"])
            pair = sample.get("allowed")
            allowed = None if pair is None else Allowed(torch.tensor(pair[0], dtype=torch.int32), torch.tensor(pair[1]))
            samples[number] = Sample(tokens, logp, sample["stopped"], allowed)
            if options.on_sample is not None:
                options.on_sample(number, samples[number])

        def missing() -> list[Wanted]:
            return [_written(i, request) for i, request in enumerate(requests) if i not in samples]

        before = self.restarts
        if requests:
            self._ask("sampling", lambda: {"do": "sample", "requests": missing()}, take)
        if self.restarts > before:
            self.prove()  # another worker than the one that had proved it
        if len(samples) != len(requests):
            raise RuntimeError(f"the sampler answered {len(samples)} of {len(requests)} requests; please report this")
        return [samples[i] for i in range(len(requests))]

    def start(self) -> Difference | None:
        """Write the present weights, start a worker on them, and have it prove that it runs them. None where one runs
        already.
        """
        if self.process is not None:
            return None
        self.place = _private_folder(self.model)
        self.close = weakref.finalize(self, shutil.rmtree, self.place, ignore_errors=True)
        self._write()
        self._launch()
        return self.prove()

    def publish(self) -> Difference | None:
        """Send the weights as they are now, and have the proof; None where no worker has been started yet."""
        if self.process is None:
            return None
        self.send()
        return self.prove()

    def send(self) -> None:
        """The present weights into the running engine."""
        before = self._folder
        self._write()
        self._ask("loading weights", lambda: {"do": "load", "folder": str(self._folder)})
        shutil.rmtree(before, ignore_errors=True)

    def prove(self) -> Difference:
        """Compare log-probs of the probe. A mean beyond the tolerance stops the run, or is said, as was asked."""
        rows = probe_rows(self.chat, self.context)
        answer = self._ask("scoring the probe", lambda: {"do": "score", "rows": [row.tolist() for row in rows]})
        gap, most = difference(self.scored(rows), answer), TOLERANCE[self._dtype]
        if gap.mean <= most:
            return gap
        sentence = (
            f"the sampler ({self.about}) does not run the trained weights: after sending them {self.sent} times, the "
            f"log-probs of the probe differ by {gap} (tolerance {most:g})"
        )
        if self.how.on_mismatch == "stop":
            raise WrongWeights(f"{sentence}; use --engine local, or --on-mismatch warn to go on regardless")
        self.warnings.append(sentence)
        return gap

    def end(self) -> None:
        """Stop the worker and remove its copy of the weights. A later call starts another."""
        process, self.process = self.process, None
        if process is not None:
            process.end()
            self.close()

    def _ask(
        self,
        what: str,
        message: Callable[[], Order],
        take: Callable[[Line], None] = lambda _: None,
    ) -> Any:
        """Have something done, by as many workers as it takes. The message is made anew for each."""
        lost = 0
        while True:
            process = self.process
            assert process is not None
            try:
                for line in process.ask(what, message()):
                    take(line)
                return line["done"]
            except Failed as failure:
                raise ValueError(f"the sampler ({self.about}) failed at {what}: {failure}") from None
            except Lost as why:
                if self.process is None:
                    raise  # the run has ended it, in another thread: no caller waits for an answer any more
                lost += 1
                if lost > RESTARTS:
                    raise ValueError(
                        f"the sampler ({self.about}) was lost {lost} times in a row, last because {why}; "
                        f"its last words: {self.process.last_words()}"
                    ) from None
                self.restarts += 1
                self.warnings.append(f"the sampler ({self.about}) was lost: {why}; another takes its place")
                self._launch()

    def _launch(self) -> None:
        if self.process is not None:
            self.process.end()
        settings: Settings = {
            "folder": str(self._folder),
            "stops": list(self.chat.stops),
            "context": self.context,
            "dtype": self._dtype,
            "kv_gib": self.how.kv_gib,
            "threads": torch.get_num_threads(),
            "eager": self._dtype == "float32",  # compiling takes longer than it saves on a CPU
        }
        device = next(self.model.parameters()).device
        gpu = (device.index or 0) if device.type == "cuda" else None  # each rank samples on its own
        self.process = Process(self.how.python, self.how.sampler, self.place, settings, gpu)
        try:
            self.about = self.process.started()
        except (Lost, Failed) as why:
            words = self.process.last_words()
            self.end()
            raise ValueError(f"the engine {self.how.kind!r} did not start: {why}; its last words: {words}") from None

    def _write(self) -> None:
        self.sent += 1
        self.save(self._folder)

    @property
    def _folder(self) -> Path:
        """The directory of the weights that were last written."""
        return self.place / f"weights-{self.sent}"

    @property
    def _dtype(self) -> str:
        """What the trainer computes in: fp32 on a CPU, bf16 on a GPU."""
        return "float32" if next(self.model.parameters()).device.type == "cpu" else "bfloat16"

    def _check(self, request: Request) -> None:
        if media_in(request.prompt):
            raise ValueError(
                f"a prompt has a picture, and the engine {self.how.kind!r} gets token ids alone; use --engine local"
            )
        if len(request.prompt) >= self.context:
            raise ValueError(
                f"a prompt has {len(request.prompt)} tokens, but the model's context holds {self.context}: "
                "shorten the prompt or drop such rows from the dataset"
            )
        if request.shaped:
            raise ValueError(
                "an engine in another process takes no presence or frequency penalty and no JSON schema; use "
                "--engine local, or leave them out of the request"
            )
        if self.how.kind == "vllm" and (request.repetition_penalty != 1 or (request.truncated and request.as_drawn)):
            raise ValueError(
                "vLLM does not tell which tokens a reply was drawn among, which the trainer needs under --top-k, "
                "--top-p, --min-p and --repetition-penalty; leave them out, or use --engine local"
            )
        if self.how.kind == "vllm" and request.truncated and request.temperature not in (0.0, 1.0):
            raise ValueError(
                f"vLLM tells no log-probs of the whole distribution where top_k, top_p or min_p cut it at temperature "
                f"{request.temperature:g}; sample at temperature 1, leave them out, or use --engine local"
            )


def _written(number: int, request: Request) -> Wanted:
    """A request as the worker reads it.

    vLLM takes seeds of 63 bits, and counts its noise from the request's first token: a reply that goes on needs another
    seed.
    """
    if request.input_keys is not None:
        raise ValueError(
            "an engine in another process reads tokens only, but a prompt has other content; use --engine local"
        )
    key = randomness.key_of(request.key, request.said) if request.said else request.key
    return {
        "id": number,
        "prompt": request.prompt.tolist(),
        "seed": key % 2**63,
        "stop": list(request.stop),
        "key": request.key,
        "max_new": request.max_new,
        "temperature": request.temperature,
        "top_k": request.top_k,
        "top_p": request.top_p,
        "min_p": request.min_p,
        "repetition_penalty": request.repetition_penalty,
        "as_drawn": request.as_drawn,
    }


def _private_folder(model: nn.Module) -> Path:
    """A folder that no other user can read: in memory where two copies of the weights fit, else where
    temporary files go.
    """
    size = sum(p.numel() * p.element_size() for p in model.parameters())
    roomy = _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > 3 * size
    return Path(tempfile.mkdtemp(prefix="burnish-weights-", dir=_MEMORY if roomy else None))
