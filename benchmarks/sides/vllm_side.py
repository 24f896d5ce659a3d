"""vLLM on a CPU, in an environment of its own. It returns no log-probs here, which is its fastest mode."""

from __future__ import annotations

from typing import Any

from vllm import LLM, SamplingParams
from worker import Turns


def generation(work: dict[str, Any], turns: Turns) -> None:
    """Sample replies of given lengths; prompts that a group shares are cached."""
    rows = [ids for ids in work["prompts"] for _ in range(work["group"])]
    engine = LLM(
        model=work["model"],
        dtype="float32",
        max_model_len=max(map(len, rows)) + max(work["lengths"]) + 8,
        max_num_seqs=len(rows),
        enable_prefix_caching=True,
        disable_log_stats=True,
        seed=0,
    )
    asked = [{"prompt_token_ids": row} for row in rows]
    how = [
        SamplingParams(temperature=1.0, max_tokens=length, ignore_eos=True, detokenize=False)
        for length in work["lengths"]
    ]
    while turns.begin():
        found = engine.generate(asked, how, use_tqdm=False)
        turns.end(samples=len(found), sampled_tokens=sum(len(reply.outputs[0].token_ids) for reply in found))
