"""Speed on one GPU, burnish beside its peers in the same run.

    PYTHONPATH=src:build/peers python3 benchmarks/gpu.py                        everything
    ... benchmarks/gpu.py --only generation,step --peers generate,trl           some parts, some peers
    ... benchmarks/gpu.py --quick --device cpu                                  small shapes, to see that all of it
    works

Every single run is kept in benchmarks/results/gpu.json; a run that was stopped goes on where it stopped.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from command import chosen, flags, run
from harness import OURS, SCRATCH, Goal, Part, Side
from workload import PAD, SHAPES, Ceiling, Costs, model_directory, pool, prompts, sweep_points, uneven

CEILINGS = {  # by the name of the card: bytes/s that a large copy reaches, dense bf16 operations/s of the data sheet
    "H200": Ceiling(4.3e12, 989e12),
    "H100": Ceiling(3.0e12, 989e12),
    "A100": Ceiling(1.7e12, 312e12),
}
ENGINE = "sides.burnish_side:generation"


@dataclass(frozen=True)
class Machine:
    """Where the parts run: the device, what it can do at most, whether everything is to be small, settings of peers."""

    device: str
    quick: bool
    top: Ceiling | None = None
    batching: dict[str, Any] = field(default_factory=dict)  # more settings for transformers' continuous batching
    micro: int = 64  # rows of one micro-batch in a whole step, for all sides

    def model(self, shape: str) -> tuple[str, Path]:
        name = "quick" if self.quick else shape
        return name, model_directory(name, SCRATCH / "models")


def machine(device: str, quick: bool, batching: dict[str, Any], micro: int) -> Machine:
    """This machine; the ceilings of a card that is not in the table are not known."""
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("torch sees no GPU here; `--device cpu --quick` shows that the benchmark works")
    name = torch.cuda.get_device_name(0) if device == "cuda" else ""
    known = next((limits for card, limits in CEILINGS.items() if card in name), None)
    return Machine(device, quick, known, batching, 4 if quick else micro)


def _work(on: Machine, shape: str, rows: int, group: int, prompt: int, lengths: list[int]) -> dict[str, Any]:
    name, path = on.model(shape)
    vocabulary = SHAPES[name]["vocab_size"]
    return {
        "model": str(path),
        "device": on.device,
        "vocabulary": vocabulary,
        "pad": PAD,
        "prompts": prompts(rows // group, prompt, vocabulary, "prompts"),
        "group": group,
        "lengths": lengths,
        "max_new": max(lengths),
        "prompts_a_step": rows // group,
    }


def _peers(names: tuple[str, ...], batching: dict[str, Any]) -> list[Side]:
    """Peers of the engine. Those that need no compilation warm up on a few tokens, before their first turn."""
    known = {
        "static": Side("static", "sides.transformers_side:generate_static"),
        "generate": Side("generate", "sides.transformers_side:generate", {"short_warm_up": True}, warmup=0),
        "generate_batch": Side(
            "generate_batch",
            "sides.transformers_side:generate_batch",
            {"short_warm_up": True, "continuous_batching": batching},
            warmup=0,
        ),
    }
    return [known[name] for name in names]


def _generation(
    on: Machine,
    name: str,
    title: str,
    shape: str,
    sizes: tuple[int, int, int, int],
    lengths: list[int] | None = None,
    peers: tuple[str, ...] = ("static", "generate", "generate_batch"),
    goals: tuple[Goal, ...] = (),
) -> Part:
    """Sampling of (rows, group, prompt, new), all rows to the full length unless lengths are given."""
    rows, group, prompt, new = sizes
    lengths = lengths or [new] * rows
    work = _work(on, shape, rows, group, prompt, lengths)
    costs = Costs.of(Path(work["model"]))
    floor = costs.sampling_floor([prompt] * (rows // group), lengths, group, on.top) if on.top else None
    return Part(
        name,
        title,
        (Side(OURS, ENGINE), *_peers(peers, {**pool(rows, prompt + new), **on.batching})),
        work,
        rate="sampled_tokens",
        goals=goals,
        floor=floor,
        facts={"rows": rows, "group": group, "prompt": prompt, "new": new, "shape": shape},
        same={"sampled_tokens": 0.0},
    )


def generation(on: Machine) -> list[Part]:
    """256 prompts, all different."""
    sizes = (8, 1, 16, 12) if on.quick else (256, 1, 128, 256)
    goals = (Goal("rate", 200e3), Goal("rate", 62, "generate"), Goal("rate", 6.5, "static"))
    title = "{0} x ({2}+{3}) tokens, no shared prompts, SmolLM2-135M shape".format(*sizes)
    return [_generation(on, "generation", title, "smollm2-135m", sizes, goals=goals)]


def groups(on: Machine) -> list[Part]:
    """1024 samples in groups of 8, and four times as many for the same slots."""
    sizes = (16, 8, 16, 12) if on.quick else (1024, 8, 128, 256)
    title = "{0} x ({2}+{3}) tokens in groups of {1}, SmolLM2-135M shape"
    many = (4 * sizes[0], *sizes[1:])
    return [
        _generation(on, "groups", title.format(*sizes), "smollm2-135m", sizes, goals=(Goal("rate", 500e3),)),
        _generation(on, "groups-many", title.format(*many), "smollm2-135m", many, peers=()),
    ]


def uneven_lengths(on: Machine) -> list[Part]:
    """The same engine when replies end at different times: all begin at once, or four times as many wait for slots."""
    found = []
    for name, even, times in (("uneven", "groups", 1), ("uneven-many", "groups-many", 4)):
        rows, group, prompt, new = (16, 8, 16, 12) if on.quick else (1024, 8, 128, 256)
        sizes = (times * rows, group, prompt, new)
        title = "{0} samples in groups of {1}, geometric lengths with mean 0.3 x {3}, SmolLM2-135M shape".format(*sizes)
        goal, peers = Goal("rate", 0.85, f"burnish@{even}"), ("static", "generate_batch") if times == 1 else ()
        lengths = uneven(sizes[0], new)
        found.append(_generation(on, name, title, "smollm2-135m", sizes, lengths, peers=peers, goals=(goal,)))
    return found


def _training(
    on: Machine,
    name: str,
    title: str,
    shape: str,
    sizes: tuple[int, int, int, int],
    goals: tuple[Goal, ...],
    lengths: list[int] | None = None,
    micro: int | None = None,
) -> Part:
    """One update on (rows, group, prompt, new), in micro-batches of `micro` rows (all at once if not given)."""
    rows, group, prompt, new = sizes
    work = _work(on, shape, rows, group, prompt, lengths or [new] * rows)
    flops = Costs.of(Path(work["model"])).training_flops([prompt] * (rows // group), work["lengths"], group)
    budget = (micro or rows) * (prompt + new)
    plain = {"micro": micro} if micro else {}
    return Part(
        name,
        title,
        (
            Side(OURS, "sides.burnish_side:training", {"settings": {"token_budget": budget}}),
            Side("transformers", "sides.transformers_side:training", plain),
        ),
        work,
        rate="processed_tokens",
        goals=goals,
        floor=flops / on.top.flops if on.top else None,
        facts={"rows": rows, "group": group, "prompt": prompt, "new": new, "shape": shape},
        same={"processed_tokens": 0.0},
    )


def training(on: Machine) -> list[Part]:
    """The training pass alone: packed, with shared prompts, and with replies of uneven lengths."""
    rows, group, prompt, new = (8, 4, 8, 12) if on.quick else (64, 8, 128, 256)
    alone, shared, shape = (rows, 1, prompt, new), (rows, group, prompt, new), "smollm2-135m"
    what = f"training pass on {rows} x ({prompt}+{new}) tokens"
    uneven_title = f"training pass on {rows} replies in groups of {group}, geometric lengths, mean 0.3 x {new}"
    fast = (Goal("rate", 400e3), Goal("rate", 2.6, "transformers"))
    more = (Goal("rate", 1.35, "burnish@training"),)
    return [
        _training(on, "training", f"{what}, SmolLM2-135M shape", shape, alone, fast),
        _training(on, "training-shared", f"{what}, prompts shared by {group} replies", shape, shared, more),
        _training(on, "training-uneven", uneven_title, shape, shared, (), uneven(rows, new)),
    ]


def step(on: Machine) -> list[Part]:
    """A whole GRPO step, TRL beside burnish."""
    rows, group, prompt, new = (16, 4, 8, 12) if on.quick else (256, 8, 128, 256)
    work = _work(on, "smollm2-135m", rows, group, prompt, [new] * rows) | {"task": "words", "steps_a_turn": 1}
    budget, micro = {"token_budget": on.micro * (prompt + new)}, {"micro": on.micro}
    return [
        Part(
            "step",
            f"a whole GRPO step of {rows // group} prompts x {group} x ({prompt}+{new}) tokens, SmolLM2-135M shape",
            (
                # passes over packs of two sizes are recorded, each when it comes for the second time
                Side(OURS, "sides.burnish_side:step", {"settings": budget}, warmup=4),
                Side("exact", "sides.burnish_side:step", {"settings": {**budget, "exact": True}}, warmup=4),
                Side("trl", "sides.trl_side:step", micro, warmup=1),
                Side("trl-whole", "sides.trl_side:step", {"micro": rows}, warmup=1),  # all rows in one backward
                Side(
                    "trl-batching",
                    "sides.trl_side:step",
                    {**micro, "continuous_batching": {**pool(rows, prompt + new), **on.batching}},
                    warmup=1,
                ),
            ),
            work,
            goals=(
                Goal("seconds", 0.5),
                Goal("seconds", 17, "trl"),
                Goal("peak_bytes", 4, "trl"),
                Goal("peak_bytes", 4, "trl-whole"),
            ),
            facts={"rows": rows, "group": group, "prompt": prompt, "new": new, "shape": "smollm2-135m"},
            same={"samples": 0.0, "prompt_tokens": 0.0, "sampled_tokens": 0.05, "trained_tokens": 0.05},
        )
    ]


def large(on: Machine) -> list[Part]:
    """A 1.5B shape: the share of what the machine could do."""
    rows, group, prompt, new = (8, 4, 16, 12) if on.quick else (256, 8, 256, 512)
    fewer, shape = rows // 4, "qwen2.5-1.5b"
    said = f"{rows} x ({prompt}+{new}) tokens in groups of {group}, Qwen2.5-1.5B shape"
    learnt = f"training pass on {fewer} x ({prompt}+{new}) tokens, Qwen2.5-1.5B shape"
    sampling = _generation(
        on,
        "large-generation",
        said,
        shape,
        (rows, group, prompt, new),
        peers=("static",),
        goals=(Goal("floor", 0.60),),
    )
    micro = max(1, fewer // 8)
    mfu = (Goal("floor", 0.45),)
    return [sampling, _training(on, "large-training", learnt, shape, (fewer, 1, prompt, new), mfu, micro=micro)]


def sweep(on: Machine) -> list[Part]:
    """burnish alone: tokens a second against batch, length, group size and the prompt's length."""
    name, path = on.model("smollm2-135m")
    prompt, new, rows = (8, 8, 8) if on.quick else (128, 256, 256)
    axes = {
        "batch": [(n, (n, 1, prompt, new)) for n in ((2, 8) if on.quick else (16, 64, 256, 512, 1024, 2048))],
        "length": [(n, (rows, 1, prompt, n)) for n in ((4, 8) if on.quick else (64, 128, 256, 512, 1024))],
        "group": [(n, (rows, n, prompt, new)) for n in ((1, 4) if on.quick else (1, 2, 4, 8, 16, 32))],
        "prompt": [(n, (rows, 8, n, new)) for n in ((8, 16) if on.quick else (128, 512, 1024, 2048))],
    }
    points, facts = sweep_points(axes, SHAPES[name]["vocab_size"], Costs.of(path), on.top)
    title = f"sampling against batch, lengths and group size, around {rows} x ({prompt}+{new}), SmolLM2-135M shape"
    side = Side(OURS, "sides.burnish_side:sweep")
    work = {"model": str(path), "device": on.device, "points": points}
    return [Part("sweep", title, (side,), work, rate="sampled_tokens", facts={"points": facts})]


PARTS = {
    "generation": generation,
    "groups": groups,
    "uneven": uneven_lengths,
    "training": training,
    "step": step,
    "large": large,
    "sweep": sweep,
}


def main() -> None:
    reader = flags(__doc__, PARTS)
    reader.add_argument("--device", default="cuda", choices=("cuda", "cpu"), help="cpu only shows that it works")
    reader.add_argument(
        "--micro", type=int, default=64, help="rows of a micro-batch in `step`, all sides (default: 64)"
    )
    reader.add_argument(
        "--batching",
        type=json.loads,
        default={},
        metavar="JSON",
        help="more settings for transformers' continuous batching, such as '{\"default_compile_level\": 1}'",
    )
    told = reader.parse_args()
    names = chosen(told, PARTS)
    on = machine(told.device, told.quick, told.batching, told.micro)
    run(told, "gpu", [part for name in names for part in PARTS[name](on)])


if __name__ == "__main__":
    main()
