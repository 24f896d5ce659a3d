"""The embedded engine: its log-probs are the trainer's, its samples depend on nothing but themselves."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from conftest import SMALL, make_model
from transformers import AutoModelForCausalLM

from burnish.core.roles import roles, trained
from burnish.core.types import Task
from burnish.engine.local import Request
from burnish.forward.accelerate import kernels
from burnish.forward.outputs import outputs
from burnish.forward.packing import Packed, pack
from burnish.forward.prefix_tree import Numbers
from burnish.forward.runner import runner_of
from burnish.models.build import build

PROMPTS = ["ab", "a longer prompt here", "mid one"]


@pytest.fixture(scope="module")
def policy(small_model: Path):
    return build(roles(), small_model, SMALL, device="cpu")["policy"]


def ask(policy, text: str, key: int, **more: object) -> Request:
    return Request(policy.chat.prompt(Task("question", text, {}, text)), key, **{"max_new": 12, **more})  # type: ignore[arg-type]


def test_the_engines_log_probs_are_the_trainers(policy) -> None:
    requests = [ask(policy, text, key, temperature=t) for key, text in enumerate(PROMPTS) for t in (1.0, 0.7)]
    for request, sample in zip(requests, policy.generate(requests), strict=True):
        tokens = torch.cat([request.prompt, sample.tokens])
        mask = torch.arange(len(tokens)) >= len(request.prompt)
        with torch.no_grad():
            again = policy.outputs([tokens], [mask], {"logp"}, request.temperature)["logp"]
        assert float((again - sample.logp).abs().max()) < 1e-5


def test_a_sample_does_not_depend_on_its_neighbours(policy) -> None:
    requests = [ask(policy, text, key) for text in PROMPTS for key in range(4)]
    together = policy.generate(requests)
    for request, sample in zip(requests, together, strict=True):
        assert torch.equal(policy.generate([request])[0].tokens, sample.tokens)
    backwards = policy.generate(requests[::-1])[::-1]
    assert all(torch.equal(a.tokens, b.tokens) for a, b in zip(together, backwards, strict=True))


def test_greedy_equals_transformers(policy, small_model: Path) -> None:
    plain = AutoModelForCausalLM.from_pretrained(small_model)
    for text in PROMPTS:
        request = ask(policy, text, 0, temperature=0.0)
        stops = list(policy.chat.stops)
        wanted = plain.generate(
            request.prompt[None], max_new_tokens=12, do_sample=False, eos_token_id=stops, pad_token_id=0
        )
        assert policy.generate([request])[0].tokens.tolist() == wanted[0, len(request.prompt) :].tolist()


def test_samples_follow_the_distribution(policy) -> None:
    """The first token of 4000 samples against its probabilities: every frequency within five standard errors."""
    n = 4000
    prompt = ask(policy, "ab", 0).prompt
    with torch.no_grad():
        p = torch.softmax(policy.module(prompt[None]).logits[0, -1], -1)
    firsts = torch.tensor([int(s.tokens[0]) for s in policy.generate([Request(prompt, key, 1) for key in range(n)])])
    frequency = torch.bincount(firsts, minlength=len(p)) / n
    assert ((frequency - p).abs() < 5 * (p * (1 - p) / n).sqrt() + 1e-9).all()


def test_top_k_and_top_p_stay_inside_and_keep_the_whole_log_probs(policy) -> None:
    prompt = ask(policy, "ab", 0).prompt
    with torch.no_grad():
        logp = torch.log_softmax(policy.module(prompt[None]).logits[0, -1], -1)
    order = logp.argsort(descending=True)
    nucleus = int((logp.exp()[order].cumsum(0) < 0.3).sum()) + 1
    for options, allowed in (({"top_k": 3}, order[:3]), ({"top_p": 0.3}, order[:nucleus])):
        for sample in policy.generate([Request(prompt, key, 1, **options) for key in range(200)]):
            assert sample.tokens[0] in allowed
            assert float(sample.logp[0]) == pytest.approx(float(logp[sample.tokens[0]]), abs=1e-5)


def test_stops_end_a_reply_and_length_cuts_it(policy) -> None:
    samples = policy.generate([ask(policy, "ab", key, max_new=40) for key in range(64)])
    for sample in samples:
        inside = [int(token) in policy.chat.stops for token in sample.tokens]
        assert not any(inside[:-1])
        assert inside[-1] == (sample.stopped == "stop")
        assert sample.stopped == "stop" or len(sample.tokens) == 40
    assert {sample.stopped for sample in samples} == {"stop", "length"}


def test_a_prompt_that_does_not_fit_is_refused_in_a_sentence(policy) -> None:
    with pytest.raises(ValueError, match="has 300 tokens, but the model's context holds 256"):
        policy.generate([Request(torch.ones(300, dtype=torch.long), 0, 5)])


def test_a_reply_never_leaves_the_context(policy) -> None:
    (sample,) = policy.generate([Request(torch.full((250,), 9), 3, 50)])
    assert len(sample.tokens) <= 6


def test_logits_in_chunks_give_the_same_values_and_gradients(policy, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [torch.randint(4, 200, (30,), generator=torch.Generator().manual_seed(k)) for k in range(3)]
    masks = [torch.arange(30) >= 5 for _ in rows]

    def run() -> tuple[torch.Tensor, torch.Tensor]:
        policy.module.zero_grad()
        found = policy.outputs(rows, masks, {"logp", "entropy"})
        (found["logp"].sum() + found["entropy"].square().sum()).backward()
        return found["logp"].detach(), torch.cat([p.grad.flatten() for p in policy.module.parameters()])

    whole = run()
    monkeypatch.setattr("burnish.forward.logprob.CHUNK", {"cpu": 260 * 7})
    cut = run()
    monkeypatch.setattr("burnish.forward.logprob.HOLD", 0)
    again = run()
    assert torch.equal(cut[0], again[0]) and torch.allclose(cut[1], again[1], rtol=1e-6, atol=1e-7)
    assert torch.allclose(whole[0], cut[0], atol=1e-6)
    assert torch.allclose(whole[1], cut[1], rtol=1e-4, atol=1e-5)


def test_value_is_read_before_a_token_and_score_after_it(small_model: Path) -> None:
    critic = build(roles("critic", critic=trained(outputs=2)), small_model, SMALL, device="cpu")["critic"]
    row, mask = torch.arange(5, 12), torch.tensor([False, True, True, True, True, True, True])
    with torch.no_grad():
        found = critic.outputs([row], [mask], {"value", "score"})
    assert found["value"].shape == (6, 2)
    assert torch.allclose(found["value"][1:], found["score"][:-1])
    assert not torch.allclose(found["value"], found["score"])


def test_entropy_by_hand(tmp_path: Path) -> None:
    """A model whose weights are all zero says every token is equally likely: logp = -log V, entropy = log V."""
    make_model(tmp_path)
    model = AutoModelForCausalLM.from_pretrained(tmp_path)
    for p in model.parameters():
        p.data.zero_()
    vocabulary = torch.tensor(float(model.config.vocab_size))
    with torch.no_grad():
        found = outputs(runner_of(model), [torch.arange(6)], [torch.arange(6) > 0], {"logp", "entropy"})
    assert torch.allclose(found["logp"], -vocabulary.log())
    assert torch.allclose(found["entropy"], vocabulary.log())


def test_a_row_is_read_as_far_as_somebody_asks(policy, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [torch.arange(4, 12), torch.arange(4, 24), torch.arange(30, 35), torch.arange(4, 6)]
    masks = [torch.zeros(len(row), dtype=torch.bool) for row in rows]
    masks[0][[5, 7]], masks[1][5:9], masks[3][1] = True, True, True  # nothing of the third
    read: list[int] = []

    def noted(numbers: list[Numbers], *more: object, **named: object) -> Packed:
        read.extend(map(len, numbers))
        return pack(numbers, *more, **named)  # type: ignore[arg-type]

    monkeypatch.setattr("burnish.forward.outputs.pack", noted)
    logp = policy.outputs(rows, masks, {"logp"})["logp"]
    assert read == [7, 8, 1, 1] and len(logp) == 7
    apart = [
        policy.outputs([row], [mask], {"logp"})["logp"] for row, mask in zip(rows, masks, strict=True) if mask.any()
    ]
    assert torch.allclose(logp, torch.cat(apart), rtol=0, atol=1e-5 if kernels() is None else 0)
    longer = [torch.cat([row, torch.arange(40, 60)]) for row in rows]
    wider = [torch.cat([mask, torch.zeros(20, dtype=torch.bool)]) for mask in masks]
    assert torch.equal(logp, policy.outputs(longer, wider, {"logp"})["logp"])


def test_a_token_that_the_model_does_not_know_is_refused(policy) -> None:
    with pytest.raises(ValueError, match=r"the token 1000000, but the model's vocabulary ends at \d+"):
        policy.outputs([torch.tensor([5, 6, 10**6])], [torch.tensor([False, True, True])], {"logp"})
