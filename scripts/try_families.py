"""Try every causal language model of transformers on small random weights, and write what became of it.

    export PYTHONPATH=src:tests
    python scripts/try_families.py --json benchmarks/results/families.json --docs docs/models-families.md
    python scripts/try_families.py --only mamba,zamba2

Of each type: does it load, which paths does it run on (burnish/forward/paths.py), are its log-probs and gradients those
of transformers, and are the log-probs of sampled tokens those of the trainer? The shapes of tests/decoders.py are
tested in full by tests/engine/test_decoders.py; the others are tried with the first of a few common shapes that their
configuration takes. A type whose smallest model of these shapes is large, or which is no language model by itself, is
listed with the reason.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from conftest import make_model
from decoders import DECODERS, ENGINE, EXPERTS, GPT2, HEADS, LATENT, LINEAR, PACKED, STATE_SPACE, WIDE
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from burnish.core.roles import trained
from burnish.core.step import Settings
from burnish.engine.request import Request
from burnish.forward.paths import paths_of
from burnish.models.build import build
from burnish.models.model import Model
from burnish.models.sanity import ENCODERS

LARGEST = 20_000_000  # weights of a model that is tried
EXACT = 1e-3  # largest difference of a log-prob, and of a gradient as a share of its norm
SHAPES: tuple[dict[str, Any], ...] = (
    HEADS | EXPERTS,
    HEADS | EXPERTS | LINEAR,
    LATENT | EXPERTS,
    LATENT | EXPERTS | {"head_dim": 8, "n_group": 1},
    HEADS | EXPERTS | {"layer_types": ["conv", "full_attention"], "num_dense_layers": 1},
    LATENT | EXPERTS | {"layer_types": ["full_attention", "full_attention"], "head_dim": 8},
    WIDE,
    STATE_SPACE,
    GPT2,
)


@dataclass(frozen=True)
class Found:
    """What became of one type. status: fast, slow, wrong, refused by burnish, or untried: no small model was made."""

    type: str
    status: str
    training: str = ""
    sampling: str = ""
    logp: float | None = None  # the largest difference from transformers' own log-probs
    gradient: float | None = None  # of the gradient, as a share of its norm
    sampler: float | None = None  # between the sampler's log-probs and the trainer's
    why: str = ""
    weights: int = 0


def names() -> list[str]:
    """The model types that AutoModelForCausalLM knows."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    return sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)


def attempts(name: str) -> Iterator[dict[str, Any]]:
    """The shapes to try, the one of the tests first."""
    own = next((decoder.config for key, decoder in DECODERS.items() if key.split(",")[0] == name), None)
    causal = {"causal": True} if name == "xlm" else {"is_decoder": True} if name in ENCODERS else {}
    yield from ([own] if own is not None else ({**shape, **causal} for shape in SHAPES))


def saved(name: str, folder: Path, tokenizer: Path) -> int:
    """A model of this type in a directory like any other, and how many weights it has; ValueError if none is small."""
    why = ""
    for shape in attempts(name):
        try:
            torch.manual_seed(0)
            config = AutoConfig.for_model(name, **{"initializer_range": 0.3, **shape})
            if getattr(config, "is_encoder_decoder", False):
                raise ValueError("an encoder with a decoder")
            if config.get_text_config() is not config:
                raise ValueError(f"several modalities; its language model is {config.get_text_config().model_type!r}")
            with torch.device("meta"):
                size = sum(p.numel() for p in AutoModelForCausalLM.from_config(config).parameters())
            if size > LARGEST:
                why = f"its smallest model of these shapes has {size / 1e6:.0f}M weights"
                continue
            model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
            break
        except Exception as error:  # noqa: BLE001 - configurations and modules raise all kinds
            why = why or str(error).strip().partition("\n")[0][:160] or type(error).__name__
    else:
        raise ValueError(why)
    for p in model.parameters():
        if p.ndim == 1:
            p.data += 0.1 * torch.randn_like(p)
    for file in tokenizer.iterdir():
        if "token" in file.name or file.suffix == ".jinja":
            (folder / file.name).write_bytes(file.read_bytes())
    model.save_pretrained(folder)
    return size


def rows() -> tuple[list[Tensor], list[Tensor]]:
    """Rows of several lengths, two of which begin alike, and the tokens that are asked about."""
    draw = [torch.randint(3, 256, (n,), generator=torch.Generator().manual_seed(n)) for n in (6, 9, 4, 7)]
    found = [torch.cat([draw[0], draw[1]]), torch.cat([draw[0], draw[2]]), draw[3]]
    return found, [torch.arange(len(row)) >= 3 for row in found]


def compared(policy: Model, folder: Path) -> tuple[float, float, float]:
    """Largest differences: log-probs and gradients from those of transformers, the sampler's from the trainer's."""
    reference: Any = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32)
    reference.eval()
    tokens, masks = rows()
    wanted = torch.cat([_plain(reference, row)[mask[1:]] for row, mask in zip(tokens, masks, strict=True)])
    found = policy.outputs(tokens, masks, {"logp"})["logp"]
    weights = torch.linspace(-1, 2, len(wanted))
    for logp in (found, wanted):
        (weights * logp).sum().backward()
    theirs = {key: p.grad for key, p in reference.named_parameters() if p.grad is not None}
    ours = {key: p.grad for key, p in policy.module.named_parameters() if p.grad is not None}
    if theirs.keys() != ours.keys():
        raise ValueError(f"gradients reach {len(ours)} weights, and {len(theirs)} of transformers' own")
    norm = sum(float(grad.square().sum()) for grad in theirs.values()) ** 0.5
    apart = sum(float((ours[key] - theirs[key]).square().sum()) for key in ours) ** 0.5 / max(norm, 1e-12)
    sampler = 0.0
    requests = [Request(tokens[0], 0, 6, 0.0), Request(tokens[2], 1, 8)]
    for request, sample in zip(requests, policy.generate(requests), strict=True):
        whole = torch.cat([request.prompt, sample.tokens])
        said = torch.arange(len(whole)) >= len(request.prompt)
        with torch.no_grad():
            again = policy.outputs([whole], [said], {"logp"}, request.temperature or 1.0)["logp"]
        sampler = max(sampler, float((sample.logp - again).abs().max()))
    return float((found - wanted).detach().abs().max()), apart, sampler


def _plain(model: Any, row: Tensor) -> Tensor:
    """[T - 1]: log-probs of all tokens of a row but its first, by the model's own forward of it alone."""
    logp = torch.log_softmax(model(row[None], use_cache=False).logits[0].float(), -1)
    return logp[:-1].gather(-1, row[1:, None])[:, 0]


def tried(name: str, tokenizer: Path) -> Found:
    """One type, tried."""
    with tempfile.TemporaryDirectory() as place:
        try:
            size = saved(name, Path(place), tokenizer)
        except ValueError as error:
            return Found(name, "untried", why=" ".join(str(error).split())[:200])
        try:
            policy = build({"policy": trained()}, Path(place), Settings(token_budget=4096), device="cpu")["policy"]
            paths = paths_of(policy.module)
            logp, gradient, sampler = compared(policy, Path(place))
        except Exception as error:  # noqa: BLE001 - every kind of failure is a row of the table
            return Found(name, "refused", why=" ".join(str(error).split()).replace(place, "DIR")[:200])
    fast = (paths.training, paths.sampling) == (PACKED, ENGINE)
    right = max(logp, gradient, sampler) < EXACT
    status = ("fast" if fast else "slow") if right else "wrong"
    return Found(name, status, paths.training, paths.sampling, logp, gradient, sampler, weights=size)


def page(found: list[Found]) -> str:
    """docs/models-families.md."""
    count = {
        status: sum(one.status == status for one in found) for status in ("fast", "slow", "wrong", "refused", "untried")
    }
    lines = [
        "# Families of models",
        "",
        f"Every type of causal language model of transformers {transformers.__version__}, tried with small random",
        "weights by `scripts/try_families.py`, which writes this page. *Exact*: log-probs and gradients equal those of",
        f"transformers to {EXACT:g}, and the sampler's log-probs the trainer's. *Fast* types train on packed rows and",
        "are sampled by burnish's engine; *slow* ones take",
        "[the general paths](models.md#which-decoders-run-on-which-path).",
        "",
        "Encoders with a head for the next token (`bert`, `xlm`, ...) were tried as decoders: `is_decoder: true` in",
        "config.json, for XLM `causal: true`. Without it burnish refuses them where replies are to be written.",
        "",
        f"{count['fast']} are exact and fast, {count['slow']} exact and slow, {count['wrong']} differ, "
        f"{count['refused']} failed at the shape that the script made up, and\n{count['untried']} were not tried.",
        "",
        "| type | exact | speed | training | sampling | largest difference |",
        "|---|---|---|---|---|--:|",
    ]
    for one in found:
        if one.training:
            apart = max(one.logp or 0.0, one.gradient or 0.0, one.sampler or 0.0)
            exact, speed = ("no" if one.status == "wrong" else "yes"), ("fast" if one.status == "fast" else "slow")
            lines.append(f"| `{one.type}` | {exact} | {speed} | {one.training} | {one.sampling} | {apart:.1e} |")
    failed = "Failed at the small shape that the script made up, which says nothing about real ones:"
    for status, title in (("refused", failed), ("untried", "Not tried, because no small model was made of them:")):
        chosen = [one for one in found if one.status == status]
        lines += ["", title, "", "| type | why |", "|---|---|"] if chosen else []
        lines += [f"| `{one.type}` | {one.why.replace('|', '/')[:96]} |" for one in chosen]
    return "\n".join(lines) + "\n"


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reader.add_argument("--json", type=Path)
    reader.add_argument("--docs", type=Path)
    reader.add_argument("--only", default="", help="types, several with commas")
    asked = reader.parse_args()
    chosen = [one for one in asked.only.split(",") if one] or names()
    found: list[Found] = []
    if asked.only and asked.json and asked.json.is_file():  # those types again, beside what is known of the others
        known = [Found(**row) for row in json.loads(asked.json.read_text())["types"]]
        found = [one for one in known if one.type not in chosen]
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = make_model(Path(folder) / "tokenizer")
        for name in chosen:
            began = time.perf_counter()
            found.append(tried(name, tokenizer))
            last = found[-1]
            print(f"{name}: {last.status} {last.why[:90]} ({time.perf_counter() - began:.1f} s)", flush=True)
            if asked.json:  # after each, so that a run that is stopped has what it found
                about = {"transformers": transformers.__version__, "torch": torch.__version__}
                found.sort(key=lambda one: one.type)
                told = {"about": about, "types": [asdict(one) for one in found]}
                asked.json.write_text(json.dumps(told, indent=1) + "\n")
    if asked.docs:
        asked.docs.write_text(page(found))


if __name__ == "__main__":
    main()
