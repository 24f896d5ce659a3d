"""Tokens are chosen by their probabilities, in vocabularies that are searched at once and in those that are searched by
blocks.
"""

from __future__ import annotations

import pytest
import torch

from burnish.core.randomness import uniform
from burnish.engine.sampling import choose, logp_of

ROWS = 4000


@pytest.mark.parametrize("vocabulary", [8, 1000, 2048])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_frequencies_are_the_probabilities(vocabulary: int, dtype: torch.dtype, temperature: float) -> None:
    """A few tokens, spread over the vocabulary, hold all the weight, and their total is far from 1 before it is
    normalised.
    """
    some = torch.tensor([0, 1, vocabulary // 3, vocabulary // 2, vocabulary - 2, vocabulary - 1])
    weights = torch.tensor([0.05, 0.2, 0.1, 0.3, 0.25, 0.1], dtype=dtype)
    logits = torch.full((vocabulary,), -torch.inf, dtype=dtype)
    logits[some] = weights.log() + 3.0
    keys, positions = torch.arange(ROWS) * 7919 + 13, torch.full((ROWS,), 5)
    factor = torch.full((ROWS,), 1 / temperature, dtype=dtype)
    greedy = torch.zeros(ROWS, dtype=torch.bool)
    greedy[0] = True
    tokens, logp = choose(logits.repeat(ROWS, 1), factor, keys, positions, greedy)
    p = weights.double() ** (1 / temperature)
    p = p / p.sum()
    assert int(tokens[0]) == vocabulary // 2
    assert set(tokens.tolist()) <= set(some.tolist())
    found = torch.stack([(tokens[1:] == token).double().mean() for token in some])
    assert ((found - p).abs() < 5 * (p * (1 - p) / ROWS).sqrt()).all()
    wanted = p[(tokens[:, None] == some).int().argmax(1)].log()
    assert torch.allclose(logp.double(), wanted, atol=1e-5)
    assert torch.allclose(logp_of(logits.repeat(ROWS, 1), factor, tokens).double(), wanted, atol=1e-5)


@pytest.mark.parametrize("vocabulary", [8, 2048])
def test_the_token_is_where_the_cumulative_probability_passes_the_noise(vocabulary: int) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(50, vocabulary, generator=generator, dtype=torch.float64)
    keys, positions = torch.arange(50) + 100, torch.arange(50)
    none = torch.zeros(50, dtype=torch.bool)
    tokens, _ = choose(logits, torch.ones(50, dtype=torch.float64), keys, positions, none)
    cumulative = logits.softmax(-1).cumsum(-1)
    noise = uniform(keys, positions).double()
    for row, token, u in zip(cumulative, tokens.tolist(), noise.tolist(), strict=True):
        assert float(row[token]) >= u - 1e-6 and (token == 0 or float(row[token - 1]) <= u + 1e-6)
