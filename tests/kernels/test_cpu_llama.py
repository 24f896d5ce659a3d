"""burnish's own Llama and tokenizer: the same numbers, the same tokens and the same files as transformers', and no
import of it.
"""

from __future__ import annotations

import copy
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from conftest import CHAT, make_model
from guards import guards
from transformers import AutoModelForCausalLM, AutoTokenizer

from burnish.core.step import Settings
from burnish.core.types import Clock
from burnish.engine.local import LocalEngine, Request
from burnish.forward.runner import runner_of
from burnish.kernels.cpu import c_layer, torch_layer
from burnish.kernels.cpu.build import kernels
from burnish.kernels.cpu.config import shape_of
from burnish.kernels.cpu.llama import Llama
from burnish.kernels.cpu.weight_layout import WeightLayout, steady
from burnish.models.known_models import TINY
from burnish.models.load import load_chat, load_model
from burnish.models.optimiser import Optimiser
from burnish.models.template import Template
from burnish.models.tokenizer import tokenizer_of

pytestmark = guards("kernels", "forward")

CPU = torch.device("cpu")
SHAPES = {
    "tied": {},
    "untied, wide heads": {"tie_word_embeddings": False, "head_dim": 16},
    "for kernels": {"head_dim": 32, "intermediate_size": 64},  # where there is a compiler
    "Qwen2": {"kind": "Qwen2", "sliding_window": 64},  # which it does not use
    "Qwen2 for kernels": {"kind": "Qwen2", "head_dim": 32, "intermediate_size": 64},
    "Qwen3": {"kind": "Qwen3", "head_dim": 16},
    "Qwen3 for kernels": {"kind": "Qwen3", "head_dim": 32, "intermediate_size": 64},
}


@pytest.fixture(scope="module", params=list(SHAPES))
def directory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("llama"), seed=3, **SHAPES[request.param])


def rows(vocabulary: int = 200) -> torch.Tensor:
    return torch.randint(4, vocabulary, (3, 11), generator=torch.Generator().manual_seed(0))


def test_logits_are_those_of_transformers(directory: Path) -> None:
    ours, theirs = load_model(directory, 0, CPU), AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    assert type(ours) is Llama and type(theirs) is not Llama
    with torch.no_grad():
        assert torch.allclose(ours(rows()).logits, theirs(rows()).logits, atol=2e-5)


def test_gradients_are_those_of_transformers(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In fp64, tokens cut into chunks of uneven sizes; the norms of transformers go through fp32 and are replaced."""
    monkeypatch.setattr(torch_layer, "CHUNK", 7)
    ours = load_model(directory, 0, CPU).double()
    theirs = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float64)
    for module in list(theirs.modules()):
        for name, norm in module.named_children():
            if type(norm).__name__.endswith("RMSNorm"):
                wide = torch.nn.RMSNorm(norm.weight.shape[0], norm.variance_epsilon)
                wide.weight = norm.weight
                setattr(module, name, wide)
    told = torch.randn(3, 11, 260, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for model in (ours, theirs):
        logits = model(rows()).logits
        (logits.log_softmax(-1) * told[..., : logits.shape[-1]]).sum().backward()
    wanted = dict(theirs.named_parameters())
    assert {name for name, _ in ours.named_parameters()} == set(wanted)
    for name, p in ours.named_parameters():
        assert p.grad is not None and torch.allclose(p.grad, wanted[name].grad, rtol=1e-9, atol=1e-9), name


def test_frozen_weights_get_no_gradient_and_pass_it_on(directory: Path) -> None:
    model = load_model(directory, 0, CPU).requires_grad_(False)
    read = model.get_input_embeddings()(rows()).requires_grad_()
    model.model(inputs_embeds=read).last_hidden_state.square().sum().backward()
    assert read.grad is not None and bool((read.grad != 0).any())
    assert all(p.grad is None for p in model.parameters())


def test_recomputed_activations_change_no_gradient(directory: Path) -> None:
    found = []
    for recompute in (False, True):
        model = load_model(directory, 0, CPU).train()
        if recompute:
            model.gradient_checkpointing_enable()
        model(rows()).logits.square().sum().backward()
        found.append([p.grad for p in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_each_reads_what_the_other_wrote(directory: Path, tmp_path: Path) -> None:
    ours = load_model(directory, 0, CPU)
    with torch.no_grad():
        ours.model.norm.weight.mul_(1.5)
    ours.save_pretrained(tmp_path / "ours")
    theirs, told = AutoModelForCausalLM.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not told["missing_keys"] and not told["unexpected_keys"]
    assert all(torch.equal(p, theirs.state_dict()[name]) for name, p in ours.state_dict().items())
    theirs.save_pretrained(tmp_path / "theirs")
    again = load_model(tmp_path / "theirs", 0, CPU)
    assert type(again) is Llama
    assert all(torch.equal(p, again.state_dict()[name]) for name, p in ours.state_dict().items())


@pytest.mark.parametrize(
    "change",
    [
        {"model_type": "mistral"},
        {"attention_bias": True},
        {"hidden_act": "gelu"},
        {"pretraining_tp": 2},
        {"use_sliding_window": True},
        {"layer_types": ["full_attention", "sliding_attention"]},
        {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}},
        {"rope_scaling": {"type": "dynamic"}},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}},
        {"architectures": ["LlamaForSequenceClassification"]},
        {"auto_map": {"AutoModel": "code.Model"}},
        {"hidden_size": None},
    ],
)
def test_what_is_not_plain_is_left_to_transformers(change: dict, directory: Path, tmp_path: Path) -> None:
    told = json.loads((directory / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(told))
    assert shape_of(tmp_path) is not None
    (tmp_path / "config.json").write_text(json.dumps({**told, **change}))
    assert shape_of(tmp_path) is None


def test_a_weight_of_another_shape_is_refused_in_a_sentence(directory: Path, tmp_path: Path) -> None:
    shutil.copytree(directory, tmp_path / "m")
    told = json.loads((tmp_path / "m" / "config.json").read_text())
    (tmp_path / "m" / "config.json").write_text(json.dumps({**told, "intermediate_size": 65}))
    with pytest.raises(ValueError, match=r"the model in .* cannot be loaded \(.*shape.*\); write it again"):
        load_model(tmp_path / "m", 0, CPU)


@pytest.mark.parametrize(
    ("dtype", "compiled"), [(torch.float32, True), (torch.float32, False), (torch.float64, False)]
)  # in panels of the C kernels; ordered by MKL, where there is one; as they are
def test_laid_weights_give_the_product_for_any_number_of_rows_and_follow_the_weights(
    dtype: torch.dtype, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not compiled:
        monkeypatch.setattr("burnish.kernels.cpu.weight_layout.kernels", lambda: None)
    one, two = (torch.randn(*shape, dtype=dtype) for shape in ((773, 24), (59, 24)))
    laid = WeightLayout()
    for _ in range(2):
        whole = torch.cat([one, two])
        for rows in (1, 2, 7, 64, 65, 200):
            x = torch.randn(rows, 24, dtype=dtype)
            found = laid.of(one, two).times(x)
            assert torch.allclose(found, x @ whole.t(), atol=1e-4)
            if dtype == torch.float32 and (compiled and kernels() or steady()):
                assert torch.equal(laid.times(x[:1]), found[:1]), "a row alone has the bits that it has among others"
        one.mul_(2)
        laid.weights_moved()


@pytest.mark.skipif(kernels() is None, reason="no C compiler")
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    ("rows", "terms", "columns"),
    [
        (0, 3, 4),
        (3, 0, 4),
        (1, 1, 1),
        (13, 31, 33),
        (15, 1, 64),
        (257, 1025, 31),
        (500, 2500, 100),
        (228, 40, 96),
        (40, 3000, 70),
    ],
)
def test_our_product_is_that_of_torch(
    rows: int, terms: int, columns: int, turned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = torch.Generator().manual_seed(rows)
    a = torch.randn(terms, rows, generator=dice).t() if turned else torch.randn(rows, terms, generator=dice)
    b = torch.randn(terms, columns, generator=dice)
    wanted = a.double() @ b.double()
    for intel in (True, False):
        monkeypatch.setattr(c_layer, "made_by_intel", lambda intel=intel: intel)
        for parts in ([b], [b[: terms // 2], b[terms // 2 :]], [b[: terms // 3], b[terms // 3 : -1], b[-1:]]):
            assert torch.allclose(c_layer.product(a, *parts).double(), wanted, rtol=0, atol=1e-6 * terms)


@pytest.mark.skipif(kernels() is None, reason="no C compiler")
def test_who_multiplies_changes_no_gradient(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, found = load_model(directory, 0, CPU), []
    for intel in (True, False):
        monkeypatch.setattr(c_layer, "made_by_intel", lambda intel=intel: intel)
        model.zero_grad()
        model(rows()).logits.log_softmax(-1)[..., 5].sum().backward()
        found.append([p.grad for p in model.parameters() if p.grad is not None])
    assert all(torch.allclose(one, other, atol=1e-5, rtol=1e-4) for one, other in zip(*found, strict=True))


def test_sampling_follows_every_move_of_the_weights(directory: Path) -> None:
    """After an update, a load and in a copy: the sampler's log-probs are those of the weights as they are now."""
    model, chat = load_model(directory, 0, CPU), load_chat(directory)
    engine = LocalEngine(runner_of(model), chat, 256)
    asked = [Request(rows()[0], key, 12) for key in range(4)]
    optimiser = Optimiser(model, Settings(lr=0.05))

    def apart(engine: LocalEngine) -> float:
        worst = 0.0
        for sample in engine.generate(asked):
            whole = torch.cat([rows()[0], sample.tokens])
            with torch.no_grad():
                logp = engine.model(whole[None]).logits.log_softmax(-1)[0, :-1].gather(-1, whole[1:, None])[:, 0]
            worst = max(worst, float((logp[-len(sample.tokens) :] - sample.logp).abs().max()))
        return worst

    assert apart(engine) < 1e-5
    for p in model.parameters():
        p.grad = torch.randn(p.shape, generator=torch.Generator().manual_seed(p.numel()))
    optimiser.on_step = engine.runner.weights_moved
    optimiser.step(Clock(0, 1))
    assert apart(engine) < 1e-5
    twin = LocalEngine(runner_of(copy.deepcopy(model)), chat, 256)
    with torch.no_grad():
        twin.model.model.norm.weight.mul_(2)
        twin.model.lm_head.weight.mul_(0.5)
    twin.runner.weights_moved()
    assert apart(twin) < 1e-5 and apart(engine) < 1e-5
    model.load_state_dict(twin.model.state_dict())
    engine.runner.weights_moved()
    assert apart(engine) < 1e-5


def test_adamw_is_that_of_torch() -> None:
    """Bit for bit, over several steps, decay and parameters that rest included; its state can be put back."""
    torch.manual_seed(0)
    one, two = (torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 3)) for _ in range(2))
    two.load_state_dict(one.state_dict())
    ours = Optimiser(one, Settings(lr=1e-2, weight_decay=0.1))
    groups = [
        {"params": [p for p in two.parameters() if p.ndim >= 2], "weight_decay": 0.1},
        {"params": [p for p in two.parameters() if p.ndim < 2], "weight_decay": 0.0},
    ]
    theirs = torch.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.999), fused=True)
    for step in range(4):
        x = torch.randn(5, 8)
        for model in (one, two):
            model.zero_grad()
            model(x).square().sum().backward()
            if step == 2:
                model[0].weight.grad = None
        ours.step(Clock(step, 4))
        theirs.step()
        assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
        state = {name: value.clone() for name, value in ours.state_dict().items()}
        ours = Optimiser(one, ours.settings)
        ours.load_state_dict(state.items())


# --------------------------------------------------------------------------------------------------------- tokenizer

TEXTS = ["2 + 2 = ?", "", " lead", "a\n\nb  c", "<|user|>hi<|end|>", "naïve Ω 数", "tab\tend "]


@pytest.mark.parametrize("which", ["small", "tiny"])
def test_tokens_are_those_of_transformers(which: str, small_model: Path, tmp_path: Path) -> None:
    path = small_model if which == "small" else TINY
    ours, theirs = tokenizer_of(path), AutoTokenizer.from_pretrained(path)
    assert ours is not None
    for text in TEXTS:
        for special in (False, True):
            ids = theirs.encode(text, add_special_tokens=special)
            assert ours.encode(text, add_special_tokens=special) == ids
            for skip in (False, True):
                assert ours.decode(ids, skip_special_tokens=skip) == theirs.decode(ids, skip_special_tokens=skip)
    for name in ("eos_token_id", "pad_token_id", "mask_token_id", "chat_template"):
        assert getattr(ours, name) == getattr(theirs, name)
    assert set(ours.all_special_ids) == set(theirs.all_special_ids)
    for messages in (
        [{"role": "user", "content": "?"}],
        [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}],
    ):
        for ask in (False, True):
            told = {"tokenize": False, "add_generation_prompt": ask}
            assert ours.apply_chat_template(messages, **told) == theirs.apply_chat_template(messages, **told)
    ours.save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    assert again.encode(TEXTS[0]) == theirs.encode(TEXTS[0]) and again.chat_template == theirs.chat_template
    twin = copy.deepcopy(ours)
    assert twin.encode(TEXTS[0]) == ours.encode(TEXTS[0]) and twin.inner is not ours.inner


@pytest.mark.parametrize(
    "change",
    [
        {"tokenizer_class": "Qwen2Tokenizer"},
        {"add_bos_token": True},
        {"eos_token": "<|nowhere|>"},
        {"clean_up_tokenization_spaces": True},
        {"chat_template": [{"name": "default", "template": CHAT}]},
    ],
)
def test_tokenizers_that_say_more_are_left_to_transformers(change: dict, small_model: Path, tmp_path: Path) -> None:
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(small_model / file, tmp_path)
    told = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert tokenizer_of(tmp_path) is not None
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({**told, **change}))
    assert tokenizer_of(tmp_path) is None


def test_templates_have_the_helpers_of_transformers() -> None:
    template = "{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}{{ m | tojson }}{% endfor %}"
    assert Template(template, {}).render([{"a": "é"}, {"b": 2}], generation=False) == '{"a": "é"}'
    with pytest.raises(ValueError, match="no such role"):
        Template("{{ raise_exception('no such role') }}", {}).render([], generation=False)


def test_the_first_rollout_imports_no_transformers() -> None:
    """It would take longer than everything else together; nor the compiler, nor the optimisers of torch
    that import it.
    """
    program = (
        "import sys\nfrom pathlib import Path\nfrom burnish.core.roles import roles\n"
        "from burnish.models.build import build\n"
        "from burnish.engine.local import Request\nfrom burnish.core.types import Task\n"
        "from burnish.core.step import Settings\n"
        f"policy = build(roles(), Path({str(TINY)!r}), Settings(), device='cpu')['policy']\n"
        "asked = policy.chat.prompt(Task('question', '1 + 1 = ?', {}, 'k'))\n"
        "assert len(policy.generate([Request(asked, 0, 4)])) == 1\n"
        "print([name for name in ('transformers', 'torch._dynamo', 'sympy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "[]"
