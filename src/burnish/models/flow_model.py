"""A small denoiser: a bidirectional transformer that reads a caption, a noise level and the patches of a picture.

The caption's tokens are read by an encoder of their own (`text_encoder`). Its states, the level and the patches are one
sequence of the body, whose states at the patches become velocities (U-ViT, arXiv 2209.12152, without its long skip
connections). Both are EuroBERT's layers of transformers. The class is registered with transformers as `burnish_flow`.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, EuroBertConfig, EuroBertModel, PreTrainedConfig, PreTrainedModel

from burnish.forward.denoise import KIND

FREQUENCIES = 64


class FlowConfig(PreTrainedConfig):
    """Sizes of a denoiser.

    side, channels, patch    of a picture in pixels, and of a patch
    text_layers, num_hidden_layers  of the two transformers, which are equally wide
    steps                    from noise to a picture, where nothing else is said
    """

    model_type = KIND

    def __init__(
        self,
        vocab_size: int = 512,
        hidden_size: int = 128,
        intermediate_size: int = 384,
        num_hidden_layers: int = 6,
        text_layers: int = 2,
        num_attention_heads: int = 4,
        side: int = 16,
        channels: int = 3,
        patch: int = 4,
        steps: int = 10,
        max_position_embeddings: int = 512,
        **rest: Any,
    ) -> None:
        self.vocab_size, self.hidden_size, self.intermediate_size = vocab_size, hidden_size, intermediate_size
        self.num_hidden_layers, self.text_layers = num_hidden_layers, text_layers
        self.num_attention_heads = num_attention_heads
        self.side, self.channels, self.patch, self.steps = side, channels, patch, steps
        self.max_position_embeddings = max_position_embeddings
        super().__init__(**rest)

    def body(self, layers: int) -> EuroBertConfig:
        """The configuration of one of the transformers. It has no words of its own."""
        return EuroBertConfig(
            vocab_size=1,
            hidden_size=self.hidden_size,
            intermediate_size=self.intermediate_size,
            num_hidden_layers=layers,
            num_attention_heads=self.num_attention_heads,
            num_key_value_heads=self.num_attention_heads,
            max_position_embeddings=self.max_position_embeddings,
            pad_token_id=None,
            bos_token_id=None,
            mask_token_id=0,
            eos_token_id=None,
        )


class FlowModel(PreTrainedModel):
    """velocity(x, level, caption): what the picture changes by while noise comes in."""

    config_class = FlowConfig
    base_model_prefix = "flow"
    _supports_sdpa = True

    def __init__(self, config: FlowConfig) -> None:
        super().__init__(config)
        wide, inside = config.hidden_size, config.channels * config.patch**2
        count = (config.side // config.patch) ** 2
        self.embed_tokens = nn.Embedding(config.vocab_size, wide)
        self.text_encoder = EuroBertModel(config.body(config.text_layers))
        self.body = EuroBertModel(config.body(config.num_hidden_layers))
        self.patches = nn.Linear(inside, wide)
        self.places = nn.Parameter(torch.zeros(count, wide))
        self.level = nn.Sequential(nn.Linear(2 * FREQUENCIES, wide), nn.SiLU(), nn.Linear(wide, wide))
        self.out = nn.Linear(wide, inside)
        for part in (self.text_encoder, self.body):
            part.set_submodule("embed_tokens", nn.Identity())  # they are given states
        finish: Any = self.post_init
        finish()

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Embedding):
            module.weight.normal_(std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            module.bias.zero_()
        if isinstance(module, FlowModel):
            module.places.normal_(std=0.02)

    def get_input_embeddings(self) -> nn.Embedding:
        return self.embed_tokens

    def encode(self, ids: Tensor, real: Tensor) -> Tensor:
        """[B, T, H]: the states of captions."""
        states: Tensor = self.text_encoder(inputs_embeds=self.embed_tokens(ids), attention_mask=real).last_hidden_state
        return states

    def velocity(self, x: Tensor, levels: Tensor, caption: Tensor, real: Tensor) -> Tensor:
        """[B, C, H, W] fp32: the estimate of noise - picture."""
        weight = self.patches.weight
        at = self.level(_waves(levels).to(weight.dtype))[:, None]
        seen = self.patches(self._cut(x).to(weight.dtype)) + self.places + at
        count = seen.shape[1]
        whole = torch.cat([seen, at, caption.to(weight.dtype)], dim=1)
        mask = torch.cat([real.new_ones(len(x), count + 1), real], dim=1)
        states = self.body(inputs_embeds=whole, attention_mask=mask).last_hidden_state
        return self._joined(self.out(states[:, :count]).float())

    def forward(self, x: Tensor, levels: Tensor, ids: Tensor, real: Tensor) -> Tensor:
        return self.velocity(x, levels, self.encode(ids, real), real)

    def _cut(self, x: Tensor) -> Tensor:
        """[B, N, C p p]: the patches, row by row."""
        p = self.config.patch
        b, c, h, w = x.shape
        return x.reshape(b, c, h // p, p, w // p, p).permute(0, 2, 4, 1, 3, 5).reshape(b, -1, c * p * p)

    def _joined(self, patches: Tensor) -> Tensor:
        p, c, n = self.config.patch, self.config.channels, self.config.side // self.config.patch
        return patches.reshape(-1, n, n, c, p, p).permute(0, 3, 1, 4, 2, 5).reshape(-1, c, n * p, n * p)


def _waves(levels: Tensor) -> Tensor:
    """[B, 2 F]: sines and cosines of a level at frequencies from 1 to 1,000."""
    steps = torch.arange(FREQUENCIES, device=levels.device, dtype=torch.float32) / (FREQUENCIES - 1)
    angles = levels.float()[:, None] * torch.exp(steps * math.log(1000.0))[None]
    return torch.cat([angles.sin(), angles.cos()], dim=1)


AutoConfig.register(KIND, FlowConfig, exist_ok=True)
