"""Measure a model on burnish's built-in tasks: pass@1 and pass@16 on held-out problems, and the model card of `tiny`.

    PYTHONPATH=src python scripts/measure_tiny.py --model src/burnish/models/tiny --json benchmarks/tiny_pass_rates.json

Plain transformers generation, temperature 1, no truncation of the distribution. With --card, README.md is written
into the model directory from the numbers measured and from the pretraining.json beside the weights.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from burnish.core.types import Message, Task
from burnish.envs.guess import Guess
from burnish.tasks.source import Source
from burnish.tasks.table import BUILTIN, source

DEFAULT_LEVEL = 2
TURN_TOKENS = 8  # a guess is a number


@dataclass(frozen=True)
class Player:
    """A model with its tokenizer: says one reply to each conversation."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase

    @torch.no_grad()
    def replies(self, talks: list[list[Message]], longest: int, batch: int) -> tuple[list[str], list[int]]:
        """One sampled reply per conversation, and its length in tokens with the end token."""
        texts, lengths = [], []
        for start in range(0, len(talks), batch):
            prompts = [
                self.tokenizer.apply_chat_template(talk, tokenize=False, add_generation_prompt=True)
                for talk in talks[start : start + batch]
            ]
            inputs = self.tokenizer(prompts, return_tensors="pt", padding=True, add_special_tokens=False)
            inputs = {name: inputs[name].to(self.model.device) for name in ("input_ids", "attention_mask")}
            out = self.model.generate(
                **inputs, do_sample=True, temperature=1.0, top_k=0, top_p=1.0, max_new_tokens=longest
            )[:, inputs["input_ids"].shape[1] :]
            lengths += (out != self.tokenizer.pad_token_id).sum(1).tolist()
            texts += self.tokenizer.batch_decode(out, skip_special_tokens=True)
        return texts, lengths


def answered(player: Player, family: Source, tasks: list[Task], batch: int) -> tuple[list[bool], list[int]]:
    """Whether one reply to each task is right, and the lengths of the replies."""
    replies, lengths = player.replies([list(task.prompt) for task in tasks], 96, batch)
    return [family.verify(task, reply).correct for task, reply in zip(tasks, replies, strict=True)], lengths


def played(player: Player, tasks: list[Task], batch: int) -> tuple[list[bool], list[int]]:
    """Whether each game is won, and the lengths of all guesses together; games go on turn by turn, side by side."""
    games = [task.given["env"]() for task in tasks]
    talks: list[list[Message]] = [[{"role": "user", "content": game.reset()}] for game in games]
    won, lengths, going = [False] * len(tasks), [0] * len(tasks), list(range(len(tasks)))
    while going:
        replies, counts = player.replies([talks[i] for i in going], TURN_TOKENS, batch)
        still = []
        for i, reply, count in zip(going, replies, counts, strict=True):
            text, reward, over = games[i].step(reply)
            won[i], lengths[i] = won[i] or reward > 0, lengths[i] + count
            talks[i] += [{"role": "assistant", "content": reply}, {"role": "user", "content": text}]
            still += [] if over else [i]
        going = still
    return won, lengths


def measure(player: Player, name: str, level: int, problems: int, samples: int, batch: int) -> dict[str, float]:
    """pass@1 (mean over samples) and pass@samples (any of them) over held-out problems."""
    family = source(name, level=level)
    tasks = [family.task("heldout", index) for index in range(problems) for _ in range(samples)]
    is_game = isinstance(family, Guess)
    right, lengths = played(player, tasks, batch) if is_game else answered(player, family, tasks, batch)
    table = torch.tensor(right).view(problems, samples)
    prompt = player.tokenizer([task.prompt[0]["content"] for task in tasks[::samples]])["input_ids"]
    return {
        "pass@1": round(table.float().mean().item(), 4),
        f"pass@{samples}": round(table.any(1).float().mean().item(), 4),
        "reply_tokens": round(sum(lengths) / len(lengths), 1),
        "longest_reply": max(lengths),
        "prompt_tokens": round(sum(map(len, prompt)) / len(prompt), 1),
    }


def as_table(rates: dict[str, dict[str, dict[str, float]]], samples: int) -> str:
    """The measured rates as Markdown: one row a task, the default level first, the other levels' pass@1 after."""
    others = [level for level in (1, 3, 4) if any(str(level) in by_level for by_level in rates.values())]
    head = [
        "task",
        "pass@1",
        f"pass@{samples}",
        "prompt tokens",
        "reply tokens",
        *(f"pass@1, level {n}" for n in others),
    ]
    lines = [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}"]
    for name, by_level in rates.items():
        row = by_level[str(DEFAULT_LEVEL)]
        cells = [f"`{name}`", f"{row['pass@1']:.2f}", f"{row[f'pass@{samples}']:.2f}"]
        cells += [f"{row['prompt_tokens']:.0f}", f"{row['reply_tokens']:.0f}"]
        cells += [f"{by_level[str(n)]['pass@1']:.2f}" if str(n) in by_level else "" for n in others]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


CARD = """---
library_name: transformers
license: apache-2.0
pipeline_tag: text-generation
---
# tiny

The language model that ships inside burnish: a Llama of {millions:.1f} million parameters ({layers} layers of width
{hidden}, context 512, bf16) that knows burnish's built-in tasks badly on purpose. It is there so that every method
can be tried, tested and watched to learn in minutes, on a CPU, without a download.

## How it was made

Pre-trained from nothing on text that burnish's own task generators wrote, on their train splits alone
(`burnish.tasks.corpus`). The writers err: each reply is right with a probability that depends on the task and its
level, and otherwise holds a real slip (a forgotten carry, two items swapped, a dead end taken for a path). The model
imitates them, so at temperature 1 it is right some of the time on every task, rarely at the harder levels:
something to sharpen, and something to discover.

    PYTHONPATH=src python scripts/pretrain_tiny.py {flags}

- corpus: {corpus:.0f}M tokens, written in {corpus_seconds:.0f} seconds
- training: {tokens:.0f}M tokens, {steps} steps, {seconds:.0f} seconds on one {device}
- loss on all tokens; documents packed into rows of 512, attention inside each document
- torch {torch}, transformers {transformers}

## Tokenizer and chat template

Byte-level BPE of {vocab} tokens; every digit is one token; any text decodes to itself. A turn is `<|role|>`, the text,
`<|end|>` (the end-of-sequence token); roles are system, user and assistant. `<|pad|>` pads.

## Measured

{problems} held-out problems a task, {samples} samples each, temperature 1, default level {level}:

{table}

For `guess` the reply tokens are those of all guesses of a game. The same numbers with their environment:
`benchmarks/tiny_pass_rates.json`; measured by `scripts/measure_tiny.py`.

## Limits

It speaks no language and knows nothing but these tasks. Prompts in another form get nonsense. Conversations beyond
some 250 tokens are longer than nearly all it was trained on. It is a test article: never deploy it for anything.
"""


def card(model_dir: Path, rates: dict[str, dict[str, dict[str, float]]], problems: int, samples: int) -> str:
    """The model card, from pretraining.json, config.json and the rates."""
    made = json.loads((model_dir / "pretraining.json").read_text())
    config = json.loads((model_dir / "config.json").read_text())
    flags = made["flags"]
    said = [f"--{name} {flags[name]:g}" for name in ("tokens", "corpus", "seed")]
    said += ["--compile"] if flags["compile"] else []
    return CARD.format(
        millions=made["parameters"] / 1e6,
        layers=config["num_hidden_layers"],
        hidden=config["hidden_size"],
        vocab=config["vocab_size"],
        flags=" ".join(["--out src/burnish/models/tiny", *said]),
        corpus=flags["corpus"] / 1e6,
        tokens=flags["tokens"] / 1e6,
        table=as_table(rates, samples),
        problems=problems,
        samples=samples,
        level=DEFAULT_LEVEL,
        **{name: made[name] for name in ("steps", "seconds", "device", "corpus_seconds", "torch", "transformers")},
    )


def parser() -> argparse.ArgumentParser:
    shape = argparse.ArgumentDefaultsHelpFormatter
    flags = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0], formatter_class=shape)
    flags.add_argument("--model", type=Path, required=True, help="model directory")
    flags.add_argument("--json", type=Path, help="file to write the rates to")
    flags.add_argument("--card", action="store_true", help="write README.md into the model directory")
    flags.add_argument("--tasks", nargs="*", default=list(BUILTIN), help="which tasks to measure")
    flags.add_argument("--levels", nargs="*", type=int, default=[2, 1, 3, 4], help="which levels")
    flags.add_argument("--problems", type=int, default=256, help="held-out problems a task")
    flags.add_argument("--samples", type=int, default=16, help="samples a problem")
    flags.add_argument("--batch", type=int, default=4096, help="replies generated at a time")
    flags.add_argument("--seed", type=int, default=0, help="seed of the sampling")
    return flags


def main() -> None:
    args = parser().parse_args()
    torch.manual_seed(args.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32).to(device).eval()
    player = Player(model, AutoTokenizer.from_pretrained(args.model, padding_side="left"))
    rates: dict[str, dict[str, dict[str, float]]] = {}
    for name in args.tasks:
        for level in args.levels:
            start = time.time()
            row = measure(player, name, level, args.problems, args.samples, args.batch)
            rates.setdefault(name, {})[str(level)] = row
            print(f"{name}:{level} {row} {time.time() - start:.1f}s", flush=True)
    report: dict[str, object] = {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "dtype": "float32",
        "temperature": 1.0,
        "split": "heldout",
        "problems": args.problems,
        "samples": args.samples,
        "seed": args.seed,
        "default_level": DEFAULT_LEVEL,
        "rates": rates,
    }
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(report, indent=1) + "\n")
    if args.card:
        (args.model / "README.md").write_text(card(args.model, rates, args.problems, args.samples))
    print(as_table(rates, args.samples))


if __name__ == "__main__":
    main()
