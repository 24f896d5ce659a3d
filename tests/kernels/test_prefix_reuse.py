"""Prefill of conversations that go on computes what is new, and nothing changes by it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from burnish.core.roles import roles
from burnish.core.step import Settings, Step
from burnish.core.types import Clock, Group
from burnish.forward.packing import pack
from burnish.forward.prefix_tree import Tree
from burnish.kernels.cpu import build, prefix_reuse
from burnish.kernels.cpu.activation_cache import NOBODY
from burnish.models.build import Models
from burnish.models.build import build as build_models
from burnish.models.known_models import TINY
from burnish.rollout.play import play
from burnish.tasks.environment import EnvSource

pytestmark = pytest.mark.skipif(build.kernels() is None, reason="no C kernels on this machine")
SETTINGS = Settings(max_new_tokens=6)
NEVER = 2.0  # a share of known tokens that no pack has


class Talk:
    """Five turns; what it says depends on what it was told."""

    def reset(self, task: Any, seed: int) -> str:
        self.steps = 0
        return f"Guess a number from {seed % 7} to {seed % 7 + 20}, in few steps."

    def step(self, action: str) -> tuple[str, float, bool]:
        self.steps += 1
        return f"It is not {len(action)}, guess again.", 0.0, self.steps == 5


@pytest.fixture
def models() -> Models:
    return build_models(roles(), TINY, SETTINGS, device="cpu")


def memory(models: Models) -> Any:
    return models["policy"].engine.runner.module.model.remembered  # type: ignore[attr-defined]


def played(models: Models) -> list[Group]:
    source = EnvSource(Talk)
    memory(models).forget()
    tasks = [source.task("train", i) for i in range(3)]
    return play(2).call(tasks, Step(Clock(0, 1), models, SETTINGS))


def numbers(groups: list[Group]) -> list[bytes]:
    turns = [turn for group in groups for trace in group.traces for turn in trace.turns]
    return [x.numpy().tobytes() for turn in turns for x in (turn.tokens, turn.logp) if x is not None]


def test_episodes_are_the_same_bit_for_bit(models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[tuple[int, int]] = []
    made = prefix_reuse.new_tokens

    def seen(memory: Any, rows: Any) -> Any:
        found = made(memory, rows)
        if found is not None:
            computed.append((found.number, len(found.numbers)))
        return found

    monkeypatch.setattr("burnish.kernels.cpu.decoder.new_tokens", seen)
    with_it = numbers(played(models))
    assert len(computed) >= 3  # all prefills after the first: one a turn, or more where episodes drift apart
    assert sum(new for new, _ in computed) < 0.5 * sum(of for _, of in computed)
    computed.clear()
    monkeypatch.setattr(prefix_reuse, "WORTH_IT", NEVER)
    assert numbers(played(models)) == with_it
    assert not computed


def test_a_trainer_finds_all_tokens_of_an_episode(models: Models) -> None:
    groups = played(models)
    rows = [torch.cat([turn.tokens for turn in trace.turns]).numpy() for group in groups for trace in group.traces]
    packed = pack(rows, None, torch.device("cpu"))
    known = memory(models).known(packed.input_keys, packed.tree)
    for i, row in enumerate(rows):  # the last token of an episode is sampled and never read
        mine = known[packed.starts[i] : packed.starts[i + 1]]
        assert (mine[: len(row) - 1] != NOBODY).all()


def test_a_stretch_is_cut_where_its_known_tokens_end() -> None:
    tree = Tree(np.array([[0, 4, -1], [4, 7, 0], [7, 9, 0], [9, 12, -1]]), np.array([0, 3, 4]))
    numbers = np.array([5, 6, 7, 8, 20, NOBODY, NOBODY, NOBODY, NOBODY, 30, 31, 32])
    cut, known = prefix_reuse._cut(tree, numbers)
    assert cut.stretches.tolist() == [[0, 4, -1], [4, 5, 0], [5, 7, 1], [7, 9, 0], [9, 12, -1]]
    assert cut.begins.tolist() == [0, 4, 5]
    assert known.tolist() == [1, 1, 0, 0, 1]
    assert prefix_reuse._before(tree, 12).tolist() == [-1, 0, 1, 2, 3, 4, 5, 3, 7, -1, 9, 10]


def test_a_prompt_that_is_known_whole_is_not_computed_again(models: Models) -> None:
    engine = models["policy"].engine
    decoder_memory = memory(models)
    groups = played(models)
    turns = groups[0].traces[0].turns
    row = torch.cat([turn.tokens for turn in turns[:3]]).numpy()
    packed = pack([row], None, torch.device("cpu"))
    before = decoder_memory.count
    new = prefix_reuse.new_tokens(decoder_memory, packed)
    assert new is not None and new.number == 0 and decoder_memory.count == before
    model = engine.runner.module.model  # type: ignore[attr-defined]
    kept: list[int] = []
    with torch.no_grad():
        states = prefix_reuse.Reuse(model, model.kernels, new).states(packed, lambda a, k, v: kept.append(len(k)))
        plain = model(torch.from_numpy(row)[None]).last_hidden_state[0]
    assert kept == [len(row)] * len(model.layers)
    assert torch.equal(states, plain)
