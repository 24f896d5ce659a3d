"""How far apart two bf16 computations of the same log-probs end up, by where they round: on any CPU, in fp32
arithmetic.

    python scripts/measure_rounding.py

A Llama of SmolLM2-135M's shape with random weights is run twice. What a GPU would store in bf16 is rounded to bf16; the
second time every product is off by about its own last fp32 bit, as another order of summation would have it. The mean
difference of log-probs is what `mismatch/logp` would show on a GPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

WIDTH, LAYERS, HEADS, SHARED, HEAD, INNER, WORDS, TOKENS = 576, 30, 9, 3, 64, 1536, 49152, 160
LAST_BIT = 2e-7
CASES = {
    "all in bf16": (),
    "residual stream in fp32": ("stream",),
    "residual stream and last norm in fp32": ("stream", "last"),
    "residual stream and all norms in fp32": ("stream", "last", "norm"),
}


def half(x: Tensor) -> Tensor:
    """x rounded to bf16."""
    return x.bfloat16().float()


class Model:
    """Random weights, and a pass over one row of tokens."""

    def __init__(self) -> None:
        sizes = ((HEADS + 2 * SHARED) * HEAD, WIDTH), (WIDTH, HEADS * HEAD), (2 * INNER, WIDTH), (WIDTH, INNER)
        self.layers = [[half(torch.randn(*size) * 0.02) for size in sizes] for _ in range(LAYERS)]
        self.words = half(torch.randn(WORDS, WIDTH) * 0.02)
        self.row = torch.randint(0, WORDS, (TOKENS,))
        angle = torch.arange(TOKENS)[:, None] * 100000.0 ** (-torch.arange(HEAD // 2) / (HEAD // 2))
        self.cos, self.sin = (half(x)[:, None] for x in (angle.cos(), angle.sin()))
        self.hidden = torch.full((TOKENS, TOKENS), -math.inf).triu(1)

    def logp(self, wide: tuple[str, ...], off: float) -> Tensor:
        """[T, V]; wide: what is not rounded; off: how much products are."""
        dice = torch.Generator().manual_seed(1)

        def rounds(name: str) -> Callable[[Tensor], Tensor]:
            return (lambda x: x) if name in wide else half

        def bent(x: Tensor) -> Tensor:
            return x * (1 + off * torch.randn(x.shape, generator=dice)) if off else x

        def norm(x: Tensor) -> Tensor:
            return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5)

        x = self.words[self.row]
        for read, out, inner, down in self.layers:
            seen = self.attend(half(bent(rounds("norm")(norm(x)) @ read.t())), bent)
            for y in (seen.flatten(1) @ out.t(), None):
                if y is None:
                    gate, up = half(bent(rounds("norm")(norm(x)) @ inner.t())).chunk(2, -1)
                    y = half(torch.nn.functional.silu(gate) * up) @ down.t()
                y = bent(y)
                x = rounds("stream")(x + (y if "stream" in wide else half(y)))
        return torch.log_softmax(rounds("last")(norm(x)) @ self.words.t(), -1)

    def attend(self, made: Tensor, bent: Callable[[Tensor], Tensor]) -> Tensor:
        q, k, v = made.view(TOKENS, -1, HEAD).split([HEADS, SHARED, SHARED], 1)
        q, k = self.turn(q), self.turn(k).repeat_interleave(HEADS // SHARED, 1)
        scores = torch.einsum("qhd,khd->hqk", q, k) / HEAD**0.5 + self.hidden
        p = half(torch.exp(scores - scores.amax(-1, keepdim=True)))
        seen = torch.einsum("hqk,khd->qhd", p, v.repeat_interleave(HEADS // SHARED, 1)) / p.sum(-1).t()[..., None]
        return half(bent(seen))

    def turn(self, x: Tensor) -> Tensor:
        a, b = x.chunk(2, -1)
        return half(torch.cat([a * self.cos - b * self.sin, b * self.cos + a * self.sin], -1))


def main() -> None:
    torch.manual_seed(0)
    model = Model()
    for name, wide in CASES.items():
        one, other = model.logp(wide, 0.0), model.logp(wide, LAST_BIT)
        chosen = torch.multinomial(one.exp(), 1, generator=torch.Generator().manual_seed(3))
        apart = (one.gather(1, chosen) - other.gather(1, chosen)).abs()
        print(f"{name:40} mean {apart.mean():.2e}, most {apart.max():.2e}", flush=True)


if __name__ == "__main__":
    main()
