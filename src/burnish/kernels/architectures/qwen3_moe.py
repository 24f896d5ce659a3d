"""Qwen3-MoE: Qwen3's layer, in which a mixture of experts takes the place of the MLP in some layers or in all."""

from __future__ import annotations

from burnish.kernels.architectures.spec import Config, DecoderSpec, Experts, asks_for, decoder_of, like_llama


def spec(config: Config) -> DecoderSpec | None:
    """The spec of a Qwen3-MoE; None where its config asks for more."""
    if asks_for(config, attention_bias=False):
        return None
    window = config.get("sliding_window") if config.get("use_sliding_window") else None
    experts = Experts(
        int(config.get("num_experts") or config["num_local_experts"]),
        int(config["num_experts_per_tok"]),
        int(config["moe_intermediate_size"]),
        bool(config["norm_topk_prob"]),
    )
    dense, every = set(config.get("mlp_only_layers") or ()), int(config["decoder_sparse_step"])
    layers = [
        like_llama(
            config,
            head_norms=True,
            window=window,
            experts=experts if experts.count and number not in dense and (number + 1) % every == 0 else None,
        )
        for number in range(config["num_hidden_layers"])
    ]
    return decoder_of(config, "Qwen3MoeDecoderLayer", layers)
