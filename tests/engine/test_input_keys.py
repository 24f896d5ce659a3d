"""Prefixes are shared by what the model reads, not by token ids: equal ids with different keys share nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import SMALL
from torch import Tensor

from burnish.core.roles import roles
from burnish.core.step import Step
from burnish.core.types import Clock, Group, Task, Trace, Turn, input_keys
from burnish.core.types_json import group_from_record, group_to_record
from burnish.engine.request import Request, prompts_of
from burnish.forward.packing import pack
from burnish.learn.learn import Learn, accumulate
from burnish.learn.terms import imitate
from burnish.models.build import Models, build
from burnish.models.known_models import TINY
from burnish.rollout.starts import Reply, Start, write_on

CPU = torch.device("cpu")
PROMPT = torch.tensor([5, 6, 7, 8])
CAT, DOG = 3 << 40, 9 << 50  # hashes of two pictures


def rows(*keys: int | None) -> list[Trace]:
    """Traces of the same tokens, behind whose prompt the model reads these contents."""
    found = []
    for i, content in enumerate(keys):
        prompt = Turn(PROMPT, "task", content=content)
        found.append(Trace((prompt, Turn(torch.tensor([9, 10 + i]), "demo", parent=prompt)), i))
    return found


def packed(traces: list[Trace]) -> Any:
    keys = [input_keys(trace.turns) for trace in traces]
    numbers = None if keys[0] is None else [its.numpy() for its in keys if its is not None]
    return pack([trace.tokens.numpy() for trace in traces], [4] * len(traces), CPU, input_keys=numbers)


def test_the_keys_of_a_turn_are_its_tokens_and_its_content() -> None:
    plain, cat = rows(None, CAT)
    assert input_keys(plain.turns) is None and plain.turns[0].input_keys is PROMPT
    assert input_keys(cat.turns).tolist() == [*(PROMPT + CAT).tolist(), 9, 11]  # type: ignore[union-attr]
    assert cat.turns[0].first(2).input_keys.tolist() == (PROMPT + CAT)[:2].tolist()


def test_a_pack_shares_equal_keys_and_no_others() -> None:
    same, other = packed(rows(CAT, CAT)), packed(rows(CAT, DOG))
    assert same.shared and len(same.tokens) == 4 + 1 + 1 + 1
    assert not other.shared and other.tokens.tolist() == [5, 6, 7, 8, 9, 10, 5, 6, 7, 8, 9, 11]
    assert other.input_keys.tolist() == [*(PROMPT + CAT).tolist(), 9, 10, *(PROMPT + DOG).tolist(), 9, 11]
    plain = packed(rows(None, None))
    assert plain.tokens.tolist() == same.tokens.tolist() and plain.input_keys is plain.tokens
    mixed = packed([*rows(CAT, CAT), *rows(DOG)])
    assert mixed.shared and len(mixed.tokens) == 7 + 6


def test_a_gpus_pack_goes_by_keys_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("burnish.forward.packing.on_gpu", lambda device: True)
    assert packed(rows(CAT, CAT)).shared and not packed(rows(CAT, DOG)).shared


def test_requests_share_a_prompt_by_its_keys() -> None:
    asked = [Request(PROMPT, i, 4, input_keys=keys) for i, keys in enumerate([None, PROMPT + CAT, PROMPT + DOG])]
    prompts, of = prompts_of([*asked, replace(asked[1], input_keys=PROMPT + CAT), asked[0]])
    assert [prompt.requests for prompt in prompts] == [[0, 4], [1, 3], [2]]
    assert [prompts.index(prompt) for prompt in of] == [0, 1, 2, 1, 0]


@pytest.fixture(scope="module")
def models() -> Models:
    return build(roles(), TINY, SMALL, device="cpu")


def learnt(models: Models, traces: list[Trace]) -> list[Tensor]:
    """The gradient of imitating these replies."""
    group = Group(Task("demo", "?", {}, "?"), traces)
    models["policy"].optimiser.zero()
    accumulate([group], Learn(imitate(on="demo")), Step(Clock(0, 1), models, SMALL))
    return [p.grad.clone() for p in models["policy"].module.parameters() if p.grad is not None]


def test_sampling_and_learning_take_the_keys_along(models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    """As no model reads contents yet, keys change what is shared and nothing else: samples and gradients stay."""
    seen: list[list[bool]] = []

    def sampled(*contents: int | None) -> list[list[int]]:
        starts = [
            Start(Task("question", "?", {}, "?"), (Turn(PROMPT, "task", content=content),), i, 7 + i)
            for i, content in enumerate(contents)
        ]
        replies = [Reply(start) for start in starts]
        write_on(replies, Step(Clock(0, 1), models, SMALL))
        return [reply.said.tokens.tolist() for reply in replies if reply.said is not None]

    def noted(requests: Any) -> Any:
        prompts, of = prompts_of(requests)
        seen.append([len(prompt.requests) for prompt in prompts])  # type: ignore[arg-type]
        return prompts, of

    monkeypatch.setattr("burnish.engine.scheduler.prompts_of", noted)
    assert sampled(None, None) == sampled(CAT, DOG) == sampled(CAT, CAT)
    assert seen == [[2], [1, 1], [2]]
    for one, other in zip(learnt(models, rows(None, None)), learnt(models, rows(CAT, DOG)), strict=True):
        assert torch.allclose(one, other, atol=1e-5)


def test_the_activation_cache_goes_by_keys(models: Models) -> None:
    """What the sampler computed behind one picture is not the trainer's forward behind another."""
    compiled = pytest.importorskip("burnish.kernels.cpu.build")
    if compiled.kernels() is None:
        pytest.skip("no compiled kernels here")
    policy = models["policy"]
    memory = policy.module.model.remembered  # type: ignore[union-attr]
    memory.forget()
    asked = [Request(PROMPT, i, 5, input_keys=PROMPT + CAT) for i in range(3)]
    said = policy.generate(asked)

    def known(content: int | None) -> bool:
        traces = []
        for sample in said:
            prompt = Turn(PROMPT, "task", content=content)
            traces.append(Trace((prompt, Turn(sample.tokens[:-1], "policy", parent=prompt))))
        pack_of_all = packed(traces)
        memory.asked = 1  # one pack in 32 is computed all the same: not this one
        return memory.recall(pack_of_all.input_keys, pack_of_all.tree) is not None

    assert known(CAT) and not known(DOG) and not known(None)


def test_records_keep_contents() -> None:
    group = Group(Task("demo", "?", {}, "?"), rows(None, CAT))
    again = group_from_record(json.loads(json.dumps(group_to_record(group))))
    assert [trace.turns[0].content for trace in again.traces] == [None, CAT]
    assert "content" not in group_to_record(group)["traces"][0]["turns"][0]


def test_an_engine_elsewhere_refuses_contents(small_model: Path) -> None:
    from burnish.engine.subprocess.engine import _written

    assert _written(0, Request(PROMPT, 1, 4))["prompt"] == PROMPT.tolist()
    with pytest.raises(ValueError, match="reads tokens only"):
        _written(0, Request(PROMPT, 1, 4, input_keys=PROMPT + CAT))


def test_numbers_that_wrap_around_stay_apart() -> None:
    high = np.iinfo(np.int64).max
    one, other = Turn(PROMPT, "task", content=high), Turn(PROMPT, "task", content=high - 100)
    assert len({*one.input_keys.tolist(), *other.input_keys.tolist()}) == 2 * len(PROMPT)
