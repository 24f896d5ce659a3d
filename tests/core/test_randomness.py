"""Counter-based randomness: no state, no order, and as even as it should be."""

from __future__ import annotations

import torch

from burnish.core import randomness


def test_splitmix_by_hand() -> None:
    """The first output of splitmix64 seeded with 0 is 0xE220A8397B1DCDAF: key 0 at counter 1, in its top 53 bits."""
    found = randomness.uniform(torch.tensor([0]), torch.tensor([1]))
    assert float(found) == (0xE220A8397B1DCDAF >> 11) * 2.0**-53


def test_uniform_is_even_and_uncorrelated() -> None:
    keys = torch.arange(200)[:, None].expand(200, 500)
    u = randomness.uniform(keys, torch.arange(500)[None, :].expand(200, 500))
    assert float(u.min()) >= 0 and float(u.max()) < 1
    assert abs(float(u.mean()) - 0.5) < 0.005
    counts = torch.histc(u.float(), 20, 0, 1)
    assert float((counts - 5000).abs().max()) < 5 * 5000**0.5
    lagged = torch.corrcoef(torch.stack([u[:, :-1].flatten(), u[:, 1:].flatten()]))[0, 1]
    assert abs(float(lagged)) < 0.02


def test_keys_and_permutations_depend_on_what_they_are_for() -> None:
    assert randomness.key_of("a", 1) == randomness.key_of("a", 1) != randomness.key_of("a", 2)
    assert randomness.key_of("a", "b") != randomness.key_of("ab")
    order = randomness.shuffled(50, "x")
    assert sorted(order) == list(range(50)) and order == randomness.shuffled(50, "x") != randomness.shuffled(50, "y")
