"""Models that fill in hidden tokens: their views by hand, their sampler, and what becomes of them in the limits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from masked_models import from_tiny, masked_model
from torch import Tensor

from burnish.core.canvas import Canvas
from burnish.core.types import Drawn
from burnish.engine.local import LocalEngine, Request
from burnish.forward.masked import Masked, masked_of, outputs, set_known
from burnish.forward.runner import TransformersRunner
from burnish.models.load import load_chat, load_model

ROW = torch.tensor([3, 40, 41, 42, 4, 50, 51, 52, 53, 1])  # a prompt of five tokens, a reply of five
REPLY = torch.arange(len(ROW)) >= 5


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> torch.nn.Module:
    return load_model(masked_model(tmp_path_factory.mktemp("masked")), 0, torch.device("cpu"))


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> object:
    return load_chat(masked_model(tmp_path_factory.mktemp("masked-chat")))


def known_of(model: torch.nn.Module) -> Masked:
    known = masked_of(model)
    assert known is not None
    return known


def by_hand(model: torch.nn.Module, read: list[int], at: int, token: int, temperature: float = 1.0) -> float:
    """log p(token) at a place of a row that is read, from transformers' own forward; the mask cannot be written."""
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([read])).logits[0, at] / temperature
    logits[known_of(model).mask] = -torch.inf
    return float(torch.log_softmax(logits, -1)[token])


def logps(model: torch.nn.Module, known: Masked, drawn: Drawn | float = 1.0, row: Tensor = ROW) -> Tensor:
    with torch.no_grad():
        return outputs(model, known, [row], [torch.arange(len(row)) >= 5], {"logp"}, drawn)["logp"]


def test_every_tensor_of_tiny_has_its_place() -> None:
    """The head is tied to the embeddings, and is the only tensor that is not there; nothing is left over."""
    model, missing = from_tiny()
    assert missing <= {"lm_head.weight"}
    here = torch.tensor([[5, 6, 7, 8]])
    states = [model.model(input_ids=torch.cat([here, torch.tensor([[k]])], 1)).last_hidden_state[0, 0] for k in (9, 10)]
    assert not torch.equal(*states)  # it reads in both directions


def test_the_trajectory_is_what_each_step_read(model: torch.nn.Module) -> None:
    """Blocks of four. Step 0 writes the third token, 1 the first, 2 the other two; step 3 the end, and behind it."""
    known = known_of(model)
    canvas = Canvas(torch.tensor([50, 51, 52, 53, 1, 60, 61, 62]), torch.tensor([1, 2, 0, 2, 4, 3, 4, 4]), 4)
    m, prompt = known.mask, ROW[:5].tolist()
    wanted = [
        by_hand(model, [*prompt, m, m, 52, m], 5, 50),
        by_hand(model, [*prompt, 50, m, 52, m], 6, 51),
        by_hand(model, [*prompt, m, m, m, m], 7, 52),
        by_hand(model, [*prompt, 50, m, 52, m], 8, 53),
        by_hand(model, [*prompt, 50, 51, 52, 53, m, 60, m, m], 9, 1),
    ]
    found = logps(model, known, Drawn(canvases=[[(5, 10, canvas)]]))
    assert found.tolist() == pytest.approx(wanted, abs=1e-5)


def test_blocks_of_one_token_are_the_autoregressive_log_prob(model: torch.nn.Module) -> None:
    """Each token behind a mask at the end of all before it: the chain rule from left to right."""
    known = known_of(model)
    canvas = Canvas(ROW[5:], torch.arange(5), 1)
    wanted = [by_hand(model, [*ROW[:at].tolist(), known.mask], at, int(ROW[at])) for at in range(5, 10)]
    assert logps(model, known, Drawn(canvases=[[(5, 10, canvas)]])).tolist() == pytest.approx(wanted, abs=1e-5)


def test_with_a_causal_model_one_token_a_step_is_the_autoregressive_log_prob_for_any_block(
    model: torch.nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is hidden behind a token is not read then: blocks of 1 and of 8 give the same numbers."""
    import transformers.models.eurobert.modeling_eurobert as eurobert
    from transformers.masking_utils import create_causal_mask

    monkeypatch.setattr(
        eurobert,
        "create_bidirectional_mask",
        lambda config, inputs_embeds, attention_mask: create_causal_mask(
            config=config, inputs_embeds=inputs_embeds, attention_mask=attention_mask, past_key_values=None
        ),
    )
    monkeypatch.setattr(model.config, "is_causal", True, raising=False)
    known = known_of(model)
    whole = torch.cat([ROW[5:], torch.tensor([60, 61, 62])])
    one = logps(model, known, Drawn(canvases=[[(5, 10, Canvas(ROW[5:], torch.arange(5), 1))]]))
    eight = logps(model, known, Drawn(canvases=[[(5, 10, Canvas(whole, torch.arange(8), 8))]]))
    assert torch.allclose(one, eight, atol=1e-5)


def test_view_all_hides_the_whole_reply(model: torch.nn.Module) -> None:
    known = Masked(known_of(model).mask, 1, view="all", prompt_share=0.0)
    read = [*ROW[:5].tolist(), *[known.mask] * 5]
    wanted = [by_hand(model, read, at, int(ROW[at])) for at in range(5, 10)]
    assert logps(model, known).tolist() == pytest.approx(wanted, abs=1e-5)
    canvas = Canvas(ROW[5:], torch.arange(5), 1)
    assert torch.equal(logps(model, known), logps(model, known, Drawn(canvases=[[(5, 10, canvas)]])))


def test_view_all_hides_a_share_of_the_prompt_and_the_same_one_for_every_model(model: torch.nn.Module) -> None:
    """With share 1 the whole row is hidden; which tokens are is a function of row and step alone."""
    mask = known_of(model).mask
    whole = Masked(mask, 1, view="all", prompt_share=1.0)
    wanted = [by_hand(model, [mask] * 10, at, int(ROW[at])) for at in range(5, 10)]
    assert logps(model, whole).tolist() == pytest.approx(wanted, abs=1e-5)
    some = [logps(model, Masked(mask, 1, view="all", prompt_share=0.5, step=k)) for k in (0, 0, 1, 2, 3)]
    assert torch.equal(some[0], some[1]) and any(not torch.equal(some[0], other) for other in some[2:])


def test_view_random_is_in_the_mean_the_bound(model: torch.nn.Module) -> None:
    """For a reply of one token and a full block the bound is log p(token | prompt) itself, whatever u is: a token is
    hidden with probability u and then counts 1 / u. 4,000 draws have a standard error below 3% here."""
    mask = known_of(model).mask
    row = ROW[:6]
    known = Masked(mask, 999, view="random", draws=4000)
    wanted = by_hand(model, [*ROW[:5].tolist(), mask], 5, 50)
    assert float(logps(model, known, row=row)[0]) == pytest.approx(wanted, rel=0.3)
    again = Masked(mask, 999, view="random", draws=4000, step=1)
    assert float(logps(model, again, row=row)[0]) != float(logps(model, known, row=row)[0])


def test_rows_of_their_own_and_together_have_the_same_log_probs(model: torch.nn.Module) -> None:
    known = Masked(known_of(model).mask, 1, view="all")
    rows = [ROW, ROW[:7], torch.cat([ROW, ROW[5:]])]
    masks = [torch.arange(len(row)) >= 5 for row in rows]
    with torch.no_grad():
        together = outputs(model, known, rows, masks, {"logp", "entropy"})
        alone = [
            outputs(model, known, [row], [mask], {"logp", "entropy"}) for row, mask in zip(rows, masks, strict=True)
        ]
    for name, values in together.items():
        assert torch.allclose(values, torch.cat([one[name] for one in alone]), atol=1e-5)


@pytest.mark.parametrize(("per_step", "by_chance"), [(1, False), (2, False), (3, True)])
def test_what_the_sampler_recorded_is_what_the_trajectory_says(
    model: torch.nn.Module, chat: object, per_step: int, by_chance: bool
) -> None:
    """At two temperatures and greedy, of rows that end early and of rows that are cut; no neighbour matters."""
    before = known_of(model)
    known = Masked(before.mask, before.end, block=4, per_step=per_step, by_chance=by_chance)
    set_known(model, known)
    try:
        engine = LocalEngine(TransformersRunner(model), chat, 512)  # type: ignore[arg-type]
        heats = (1.0, 0.7, 0.0, 1.0)
        requests = [Request(ROW[: 3 + i], 11 * i, 6 + i, heat) for i, heat in enumerate(heats)]
        samples = engine.generate(requests)
        assert [sample.tokens.tolist() for sample in engine.generate(requests[1:3])] == [
            sample.tokens.tolist() for sample in samples[1:3]
        ]
        for request, sample, heat in zip(requests, samples, heats, strict=True):
            canvas = sample.canvas
            assert canvas is not None and torch.equal(canvas.tokens[: len(sample.tokens)], sample.tokens)
            counts = np.bincount(canvas.steps.numpy())
            assert (
                counts.max() <= per_step
                and counts.sum() == len(canvas.tokens)
                and not (canvas.tokens == known.mask).any()
            )
            start, end = len(request.prompt), len(request.prompt) + len(sample.tokens)
            row = torch.cat([request.prompt, sample.tokens])
            drawn = Drawn(heat or 1.0, canvases=[[(start, end, canvas)]])
            with torch.no_grad():
                again = outputs(model, known, [row], [torch.arange(end) >= start], {"logp"}, drawn)["logp"]
            assert torch.allclose(again, sample.logp, atol=1e-5)
    finally:
        set_known(model, before)


def test_the_gradient_of_a_trajectory_is_that_of_its_sum(model: torch.nn.Module) -> None:
    """Finite differences of one weight of the head."""
    known = known_of(model)
    canvas = Canvas(torch.tensor([50, 51, 52, 53, 1, 60, 61, 62]), torch.tensor([1, 2, 0, 2, 4, 3, 4, 4]), 4)
    drawn = Drawn(canvases=[[(5, 10, canvas)]])
    weight = model.lm_head.weight
    model.zero_grad()
    outputs(model, known, [ROW], [REPLY], {"logp"}, drawn)["logp"].sum().backward()
    found, step = float(weight.grad[50, 3]), 1e-2
    sums = []
    for sign in (1, -1):
        with torch.no_grad():
            weight[50, 3] += sign * step
            sums.append(float(outputs(model, known, [ROW], [REPLY], {"logp"}, drawn)["logp"].sum()))
            weight[50, 3] -= sign * step
    assert found == pytest.approx((sums[0] - sums[1]) / (2 * step), rel=0.02)
    model.zero_grad()


def test_what_such_a_model_cannot_do_is_said(model: torch.nn.Module, tmp_path: Path) -> None:
    known = known_of(model)
    with pytest.raises(ValueError, match="has no value"):
        outputs(model, known, [ROW], [REPLY], {"value"})
    with pytest.raises(ValueError, match="leave out --top-p"):
        outputs(model, known, [ROW], [REPLY], {"logp"}, Drawn(penalty=np.ones(5)))
    with pytest.raises(ValueError, match="cannot be a critic"):
        load_model(masked_model(tmp_path / "m"), 1, torch.device("cpu"))
