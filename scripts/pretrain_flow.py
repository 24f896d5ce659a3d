"""Pre-train `tiny-flow`, a small denoiser that draws figures of 16 x 16 pixels by a caption.

    PYTHONPATH=src python scripts/pretrain_flow.py --out build/tiny-flow --seconds 60 --measure 32     # one GPU
    PYTHONPATH=src python scripts/pretrain_flow.py --out build/smoke --rows 32 --seconds 10            # CPU

Captions are those of the task `paint` (of all levels), pictures those of painters who err in --errors of
them: a figure more or less, of another colour or kind. The loss is that of flow matching, |v_theta(x_t, t) - (noise -
picture)|^2 with t = sigmoid(N(0, 1)) (arXiv 2403.03206); one caption in ten is left out, for guidance. The weights that
are kept are a moving average. The words are `tiny`'s.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import json
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from torch import Tensor, nn
from transformers import AutoTokenizer

import burnish
from burnish.core.randomness import key_of, rng
from burnish.core.splits import in_split
from burnish.engine.denoise import DenoiseEngine
from burnish.engine.request import Request
from burnish.forward.denoise import denoising_of, set_denoising
from burnish.forward.runner import TransformersRunner
from burnish.media.drawn import as_text, pixels_in, pixels_of
from burnish.media.ids import split
from burnish.models.flow_model import FlowConfig, FlowModel
from burnish.tasks.codes.paint import FIGURES, GROUNDS, KINDS, Caption, Paint

TINY = Path(burnish.__file__).parent / "models" / "tiny"
FREE = 0.1  # share of rows without a caption


def captions() -> list[Caption]:
    """The captions of all levels that are trained on; the others are kept for measuring."""
    every = [(n, c, k, g, 0) for n in range(1, 9) for c in FIGURES for k in KINDS for g in GROUNDS]
    return [one for one in every if in_split("train", f"paint {Paint(4).answer(one)}")]


def prompt_ids(tokenizer: Any, caption: Caption) -> list[int]:
    ids: list[int] = tokenizer.encode(f"<|user|>{Paint(4).ask(caption)}<|end|><|assistant|>")
    return ids


def write_pictures(known: list[Caption], each: int, errors: float, seed: int) -> Tensor:
    """[captions, each, 3, 16, 16] of bytes."""
    task, rows = Paint(4), []
    for number, caption in enumerate(known):
        dice = rng(seed, "painter", number)
        for _ in range(each):
            said = task.blunder(caption, dice) if dice.random() < errors else task.solve(caption, dice)
            pixels = pixels_in(said)
            assert pixels is not None
            rows.append(pixels)
    whole = torch.from_numpy(np.stack(rows)).permute(0, 3, 1, 2).contiguous()
    return whole.view(len(known), each, *whole.shape[1:])


def train(model: FlowModel, ids: Tensor, real: Tensor, pictures: Tensor, args: argparse.Namespace) -> dict[str, Any]:
    """Warm-up and cosine over the seconds given, so that it fits any machine. The average takes the model's place."""
    device = ids.device
    optimiser = torch.optim.AdamW(
        model.parameters(), lr=0.0, betas=(0.9, 0.98), weight_decay=0.01, fused=device.type == "cuda"
    )
    generator = torch.Generator(device).manual_seed(args.seed)
    mean = copy.deepcopy(model).requires_grad_(False)
    pairs = list(zip(mean.parameters(), model.parameters(), strict=True))
    free = torch.tensor(denoising_of(model).null, device=device)  # type: ignore[union-attr]
    start, step, done, loss = time.time(), 0, 0.0, torch.zeros(())
    while done < 1 and step < args.steps:
        which = torch.randint(len(pictures), (args.rows,), generator=generator, device=device)
        pick = torch.randint(pictures.shape[1], (args.rows,), generator=generator, device=device)
        x0 = pictures[which, pick].float() / 127.5 - 1
        noise = torch.randn(x0.shape, generator=generator, device=device)
        levels = torch.randn(args.rows, generator=generator, device=device).sigmoid()
        said, shown = ids[which].clone(), real[which].clone()
        without = torch.rand(args.rows, generator=generator, device=device) < FREE
        said[without], shown[without] = 0, 0
        said[without, : len(free)], shown[without, : len(free)] = free, 1
        wide = levels.view(-1, 1, 1, 1)
        for group in optimiser.param_groups:
            group["lr"] = args.lr * min((step + 1) / 100, 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * done)))
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda"):
            v = model((1 - wide) * x0 + wide * noise, levels, said, shown)
        loss = ((v - (noise - x0)) ** 2).mean()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        keep = min(args.average, (1 + step) / (10 + step))
        with torch.no_grad():
            torch._foreach_lerp_([a for a, _ in pairs], [b for _, b in pairs], 1 - keep)
        step += 1
        if device.type == "cuda" and step % 20 == 0:
            torch.cuda.synchronize()
        done = (time.time() - start) / args.seconds
        if step % 200 == 0 or done >= 1:
            print(f"step {step} loss {loss.item():.4f} {time.time() - start:.0f}s", flush=True)
    model.load_state_dict(mean.state_dict())
    return {"steps": step, "seconds": round(time.time() - start, 1), "loss": round(loss.item(), 4)}


def measured(model: FlowModel, tokenizer: Any, problems: int, samples: int, out: Path) -> dict[str, dict[str, float]]:
    """How many held-out captions of each level are drawn right: by the ODE, and by Flow-GRPO's SDE."""
    known, rates = denoising_of(model), {}
    assert known is not None
    for steps, noise in ((10, 0.0), (10, 0.7), (20, 0.7)):
        for level in (1, 2, 3, 4):
            task = Paint(level)
            trained = {caption[:4] for caption in captions()}
            every = (task.draw(rng("measured", level, index)) for index in itertools.count())
            drawn = list(itertools.islice((one for one in every if one[:4] not in trained), problems))
            requests = [
                Request(torch.tensor(prompt_ids(tokenizer, one)), key_of("paint", level, i, k), 64)
                for i, one in enumerate(drawn)
                for k in range(samples)
            ]
            set_denoising(model, type(known)(known.shape, known.null, steps=steps, noise=noise))
            start = time.time()
            said = DenoiseEngine(TransformersRunner(model), denoising_of(model), 512).generate(requests)  # type: ignore
            keys = [int(split(one.tokens.numpy())[0][0]) for one in said]
            verdicts = [task.verdict(drawn[i // samples], as_text(pixels_of(key))) for i, key in enumerate(keys)]
            name = f"paint:{level}, {steps} steps, noise {noise:g}"
            right = torch.tensor([float(one.correct) for one in verdicts]).view(problems, samples)
            rates[name] = {
                "right": round(right.mean().item(), 4),
                f"right in {samples}": round(right.amax(1).mean().item(), 4),
                "score": round(float(np.mean([one.score for one in verdicts])), 4),
            }
            print(name, rates[name], f"{time.time() - start:.1f}s", flush=True)
            if level == 2:
                save_sheet(
                    keys[: 8 * samples : samples] + keys[1 : 8 * samples : samples], out / f"{steps}-{noise:g}.png"
                )
    set_denoising(model, known)
    return rates


def save_sheet(keys: list[int], file: Path) -> None:
    """Some samples side by side, to be looked at."""
    from burnish.media import png

    rows = [np.concatenate([pixels_of(key) for key in keys[a : a + 8]], 1) for a in range(0, len(keys), 8)]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(png.written(np.concatenate(rows).repeat(8, 0).repeat(8, 1)))


def parser() -> argparse.ArgumentParser:
    shape = argparse.ArgumentDefaultsHelpFormatter
    flags = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0], formatter_class=shape)
    flags.add_argument("--out", type=Path, required=True, help="directory to write the model to")
    flags.add_argument("--each", type=int, default=100, help="pictures painted of each caption")
    flags.add_argument("--errors", type=float, default=0.5, help="share of them with a slip")
    flags.add_argument("--rows", type=int, default=512, help="pictures in a step")
    flags.add_argument("--steps", type=int, default=20_000, help="steps at most")
    flags.add_argument("--seconds", type=float, default=60.0, help="the longest that training takes")
    flags.add_argument("--lr", type=float, default=2e-3, help="peak learning rate")
    flags.add_argument("--average", type=float, default=0.995, help="decay of the moving average of the weights")
    flags.add_argument("--width", type=int, default=128, help="of the transformers")
    flags.add_argument("--layers", type=int, default=6, help="of the body")
    flags.add_argument("--measure", type=int, default=0, help="held-out captions a level that are tried at the end")
    flags.add_argument("--samples", type=int, default=8, help="pictures of each of them")
    flags.add_argument("--seed", type=int, default=0, help="of the painters, the noise and the order")
    return flags


def main() -> None:
    args = parser().parse_args()
    torch.manual_seed(args.seed)
    transformers.utils.logging.disable_progress_bar()
    torch.set_float32_matmul_precision("high")
    tokenizer = AutoTokenizer.from_pretrained(TINY)
    known = captions()
    pictures = write_pictures(known, args.each, args.errors, args.seed)
    rows = [prompt_ids(tokenizer, caption) for caption in known]
    width = max(map(len, rows))
    ids = torch.tensor([row + [0] * (width - len(row)) for row in rows])
    real = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    config = FlowConfig(
        vocab_size=len(tokenizer),
        hidden_size=args.width,
        intermediate_size=3 * args.width,
        num_hidden_layers=args.layers,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    model = FlowModel(config).to(device)
    size = sum(p.numel() for p in model.parameters())
    print(f"{len(known)} captions, {pictures.shape[1]} pictures each, {size:,} weights", flush=True)
    made = train(model, ids.to(device), real.to(device), pictures.to(device), args)
    model = model.to(torch.bfloat16)
    model.save_pretrained(args.out)
    (args.out / "model.safetensors").chmod(0o644)
    tokenizer.save_pretrained(args.out)
    facts: dict[str, Any] = {
        "flags": {name: value for name, value in vars(args).items() if name != "out"},
        "parameters": sum(p.numel() for p in model.parameters()),
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        **made,
    }
    if args.measure:
        model = model.float().eval()
        facts["rates"] = measured(model, tokenizer, args.measure, args.samples, args.out / "samples")
    (args.out / "pretraining.json").write_text(json.dumps(facts, indent=1) + "\n")
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
