"""On a GPU sampler and trainer agree bit for bit, in bf16, and a reply depends on nobody beside it. Runs where there is
a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from conftest import trainers_logp
from guards import guards

from burnish.engine.local import LocalEngine, Request, Sample
from burnish.forward import attention
from burnish.kernels.triton import decoder
from burnish.models.mixed_precision import ComputeCopy

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    guards("kernels", "engine", "forward"),
]

COMMON = {"vocab_size": 5000, "num_hidden_layers": 3, "max_position_embeddings": 2048, "tie_word_embeddings": True}
HEADS = {"num_attention_heads": 9, "num_key_value_heads": 3}
WIDE = {"hidden_size": 1536, "intermediate_size": 8960, "num_attention_heads": 12, "num_key_value_heads": 2}
KINDS = {
    "narrow Llama": ("LlamaConfig", {"hidden_size": 576, "intermediate_size": 1536, "head_dim": 64, **HEADS}),
    "heads of 32": ("LlamaConfig", {"hidden_size": 288, "intermediate_size": 512, "head_dim": 32, **HEADS}),
    "narrow with biases": (
        "Qwen2Config",
        {"hidden_size": 896, "intermediate_size": 2432, "num_attention_heads": 14, "num_key_value_heads": 2},
    ),
    "wide with biases": ("Qwen2Config", WIDE),
    "wide, the library's products": ("Qwen2Config", WIDE),
    "windows": (
        "MistralConfig",
        {
            "hidden_size": 512,
            "intermediate_size": 1024,
            "head_dim": 64,
            "num_attention_heads": 8,
            "num_key_value_heads": 2,
        }
        | {"sliding_window": 48},
    ),
    "norms of heads": (
        "Qwen3Config",
        {
            "hidden_size": 1024,
            "intermediate_size": 3072,
            "head_dim": 128,
            "num_attention_heads": 16,
            "num_key_value_heads": 8,
        },
    ),
    "norms after, two rotations": (
        "Gemma3TextConfig",
        {
            "hidden_size": 640,
            "intermediate_size": 2048,
            "head_dim": 256,
            "num_attention_heads": 4,
            "num_key_value_heads": 1,
        }
        | {"sliding_window": 48, "layer_types": ["sliding_attention", "sliding_attention", "full_attention"]},
    ),
    "experts": (
        "Qwen3MoeConfig",
        {
            "hidden_size": 512,
            "intermediate_size": 1024,
            "head_dim": 64,
            "num_attention_heads": 8,
            "num_key_value_heads": 2,
        }
        | {"num_experts": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 256, "norm_topk_prob": True},
    ),
}


class Talk:
    """Of a chat, what an engine asks for: no token ends a reply, and no text is looked for in it."""

    stops = (-1,)

    def text(self, tokens: torch.Tensor) -> str:
        raise AssertionError(f"nobody asked for the text of {tokens.tolist()}")


ADAPTED = ", LoRA"


@pytest.fixture(scope="module", params=[*KINDS, *(kind + ADAPTED for kind in KINDS)])
def working(request: pytest.FixtureRequest) -> Iterator[ComputeCopy]:
    import transformers

    name, adapted, _ = request.param.partition(ADAPTED)
    kind, shape = KINDS[name]
    config = getattr(transformers, kind)(**COMMON, **shape)
    config._attn_implementation = attention.register()
    torch.manual_seed(0)
    with pytest.MonkeyPatch.context() as patch:
        if "library" in name:
            patch.setattr(decoder, "OURS", 0)
        model = transformers.AutoModelForCausalLM.from_config(config).cuda()
        made = ComputeCopy(with_lora(model) if adapted else model, frozen=not adapted, exact=True)
        assert made.runner.accelerated
        yield made


def with_lora(model: torch.nn.Module) -> torch.nn.Module:
    """Adapters of rank 16 beside all projections that are linear maps, none of whose numbers are zero."""
    from peft import LoraConfig, get_peft_model

    adapted = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear"))  # type: ignore[arg-type]
    for name, parameter in adapted.named_parameters():
        if "lora_B" in name:
            parameter.data = torch.randn_like(parameter) * 0.05
    return adapted.eval()


def asked() -> list[Request]:
    """Prompts short and long (of more than one span of keys, too), groups, uneven lengths and temperatures."""
    dice = torch.Generator().manual_seed(0)
    prompts = [torch.randint(4, 5000, (n,), generator=dice) for n in (1, 2, 9, 40, 70, 130, 300, 480, 1100)]
    return [Request(prompts[k % 9], k, 1 + (k * 7) % 120, temperature=1.0 if k % 4 else 0.7) for k in range(300)]


def sampled(working: ComputeCopy, requests: list[Request]) -> list[Sample]:
    working.copy.eval()
    engine = LocalEngine(working.current(), Talk(), 2048, exact=True)
    samples = engine.generate(requests)
    assert engine.workspace is not None
    engine.workspace.release()
    return samples


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("at_once", [1, 20, 300])
def test_the_trainer_finds_the_bits_of_the_sampler(working: ComputeCopy, at_once: int, temperature: float) -> None:
    both = list(zip(asked(), sampled(working, asked()), strict=True))
    requests = [request for request, _ in both if request.temperature == temperature][: 20 * at_once]
    samples = [sample for request, sample in both if request.temperature == temperature][: 20 * at_once]
    for sample, logp in zip(samples, trainers_logp(working.current(), requests, samples, at_once), strict=True):
        assert torch.equal(sample.logp, logp)


@pytest.mark.parametrize("rows", [1, 7, 40])
def test_a_reply_depends_on_nobody_beside_it(working: ComputeCopy, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    together, some = sampled(working, asked()), slice(0, 4 * rows)
    monkeypatch.setattr("burnish.engine.local.MAX_ROWS", {"cuda": rows})
    for one, other in zip(together[some], sampled(working, asked()[some][::-1])[::-1], strict=True):
        assert torch.equal(one.tokens, other.tokens) and torch.equal(one.logp, other.logp)
