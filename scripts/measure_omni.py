"""Measure `tiny-omni` on the tasks it was pre-trained on: pass@1 and pass@16 on held-out problems, and its model card.

    PYTHONPATH=src python scripts/measure_omni.py --model build/tiny-omni --json benchmarks/tiny_omni_pass_rates.json

Plain transformers generation from the vectors of the tower, temperature 1, no truncation of the distribution. With
--card, README.md is written into the model directory from the file of rates and its pretraining.json, and nothing is
measured; with --pack FOLDER the directory is written there as the package holds it.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from measure_tiny import as_table
from pretrain_omni import SHOWN, pixels_of, seen
from transformers import AutoTokenizer, Idefics3ForConditionalGeneration, LlamaForCausalLM

from burnish.core.messages import Message, as_messages, pictures_of
from burnish.envs.games.game import GameFamily
from burnish.models.packed_model import pack
from burnish.tasks.codes.code import TOKENS
from burnish.tasks.family import Family
from burnish.tasks.seen_corpus import WALKS
from burnish.tasks.table import BUILTIN, CODED, SEEN, source

TEXT = tuple(name for name in BUILTIN if name != "guess")
LONGEST = {"draw": 72, "frames": 44, "detect": 56, "melody": 20, "speak": 24, **dict.fromkeys(TEXT, 80)}
USUAL, OF_A_MOVE, DEFAULT_LEVEL = 24, 8, 2


@dataclass(frozen=True)
class Player:
    """A model that sees, as its tower and as a decoder that generates."""

    model: Idefics3ForConditionalGeneration
    decoder: LlamaForCausalLM
    tokenizer: Any

    @torch.no_grad()
    def replies(self, talks: list[list[Message]], longest: int, batch: int) -> tuple[list[str], list[int]]:
        """One sampled reply to each conversation, and its length in tokens with the end token."""
        texts: list[str] = []
        lengths: list[int] = []
        device = self.model.device
        for at in range(0, len(talks), batch):
            some = talks[at : at + batch]
            prompts = [self._rendered(talk) for talk in some]
            given = self.tokenizer(prompts, return_tensors="pt", padding=True, add_special_tokens=False)
            ids, mask = given["input_ids"].to(device), given["attention_mask"].to(device)
            names = [one for talk in some for one in pictures_of(talk)]
            table = self.decoder.get_input_embeddings()(ids)
            if names:
                known = {name: i for i, name in enumerate(dict.fromkeys(names))}
                pixels = torch.stack([torch.from_numpy(pixels_of(name)) for name in known]).to(device)
                vectors = torch.cat([seen(self.model, part) for part in pixels.split(8192)])
                vectors = vectors[torch.tensor([known[name] for name in names], device=device)]
                table = table.masked_scatter((ids == self.model.config.image_token_id)[..., None], vectors)
            out = self.decoder.generate(
                inputs_embeds=table,
                attention_mask=mask,
                do_sample=True,
                temperature=1.0,
                top_k=0,
                top_p=1.0,
                max_new_tokens=longest,
                eos_token_id=self.tokenizer.eos_token_id,
                pad_token_id=self.tokenizer.pad_token_id,
            )
            lengths += (out != self.tokenizer.pad_token_id).sum(1).tolist()
            texts += self.tokenizer.batch_decode(out, skip_special_tokens=True)
        return texts, lengths

    def _rendered(self, talk: list[Message]) -> str:
        text = ""
        for message in talk:
            content = message["content"]
            if not isinstance(content, str):
                content = "".join(SHOWN if part["type"] == "image" else part["text"] for part in content)
            text += f"<|{message['role']}|>{content}<|end|>"
        return text + "<|assistant|>"


def played(player: Player, family: GameFamily, count: int, samples: int, batch: int) -> tuple[list[bool], list[int]]:
    """Whether each game is won, and the lengths of all actions together; games go on turn by turn, side by side."""
    positions = [family.position("heldout", index) for index in range(count) for _ in range(samples)]
    games = [family.game(position) for position in positions]
    talks: list[list[Message]] = [[*as_messages(game.reset())] for game in games]
    won, lengths, going = [False] * len(games), [0] * len(games), list(range(len(games)))
    while going:
        said, counts = player.replies([talks[i] for i in going], OF_A_MOVE, batch)
        still = []
        for i, reply, tokens in zip(going, said, counts, strict=True):
            outcome = games[i].step(reply)
            won[i], lengths[i] = won[i] or (outcome.reward or 0) > 0, lengths[i] + tokens
            talks[i] += [{"role": "assistant", "content": reply}, *as_messages(outcome.observation)]
            still += [] if outcome.over else [i]
        going = still
    return won, lengths


def measure(player: Player, name: str, level: int, problems: int, samples: int, batch: int) -> dict[str, float]:
    """pass@1 (mean over samples) and pass@samples (any of them) over held-out problems; the mean score."""
    family: Any = source(name, level=level)
    if isinstance(family, GameFamily):
        right, lengths = played(player, family, problems, samples, batch)
        scores = [float(one) for one in right]
        talks = [list(as_messages(family.game(family.position("heldout", 0)).reset()))]
    else:
        assert isinstance(family, Family)
        drawn = [family.problem("heldout", index) for index in range(problems)]
        talks = [[{"role": "user", "content": family.ask(problem)}] for problem in drawn]
        each = [talk for talk in talks for _ in range(samples)]
        replies, lengths = player.replies(each, LONGEST.get(name, USUAL), batch)
        found = [family.verdict(drawn[i // samples], reply) for i, reply in enumerate(replies)]
        right, scores = [one.correct for one in found], [one.score for one in found]
    table = torch.tensor(right).view(problems, samples)
    prompts = player.tokenizer([player._rendered(talk) for talk in talks[:64]], add_special_tokens=False)["input_ids"]
    return {
        "pass@1": round(table.float().mean().item(), 4),
        f"pass@{samples}": round(table.any(1).float().mean().item(), 4),
        "score": round(sum(scores) / len(scores), 4),
        "reply_tokens": round(sum(lengths) / len(lengths), 1),
        "prompt_tokens": round(sum(map(len, prompts)) / len(prompts), 1),
    }


def loaded(path: Path, device: torch.device) -> Player:
    model = Idefics3ForConditionalGeneration.from_pretrained(path, dtype=torch.float32).eval().to(device)
    decoder = LlamaForCausalLM(model.config.text_config).eval().to(device)
    decoder.model.load_state_dict(model.model.text_model.state_dict())
    decoder.lm_head.weight = decoder.model.embed_tokens.weight
    tokenizer = AutoTokenizer.from_pretrained(path)
    tokenizer.padding_side = "left"
    return Player(model, decoder, tokenizer)


def levels_of(name: str, wanted: list[int]) -> list[int]:
    most = 3 if name in WALKS else 4
    return [level for level in wanted if level <= most and (name not in TEXT or level == DEFAULT_LEVEL)]


CARD = """---
library_name: transformers
license: apache-2.0
pipeline_tag: image-text-to-text
---
# tiny-omni

The model that sees which comes with burnish: `tiny`'s Llama with a tower (4 layers of width 128, pictures of 64 x 64
in patches of 8) and a connector, as an Idefics3 of {millions:.1f} million parameters. A picture is 16 tokens and 3
marks. It knows burnish's drawn tasks badly on purpose: so that every method can be tried on pictures in minutes, on a
CPU, without a download. It ships in eight bits a weight and is unpacked to bf16 when it is first used.

## How it was made

It begins with `tiny`'s weights. The corpus (`burnish.tasks.seen_corpus`, train splits) is drawn and written by
burnish's own tasks: careful writers first, from whom it learns to see, then writers who err, whom it imitates.

    PYTHONPATH=src python scripts/pretrain_omni.py --out build/tiny-omni --workers 16 \\
        --documents {documents} --epochs {epochs:g} --seconds {limit:g}

- corpus: {corpus:.0f}M tokens and {pictures:.1f}M pictures, drawn in {corpus_seconds:.0f} seconds
- training: {steps} steps, {seconds:.0f} seconds on one {device}; the loss is that of replies
- torch {torch}, transformers {transformers}

Tokenizer and template are `tiny`'s, with `<image>` and its marks, and {codes} tokens for codes: 16 colours, 48 notes,
24 sounds of speech.

## Measured

{problems} held-out problems a task, {samples} samples each, temperature 1, default level {level}; before it was
packed:

{table}

## Limits

It knows these tasks and nothing else, and no picture that was not drawn by them. It is a test article: never deploy it
for anything.
"""


def card(model: Path, told: dict[str, Any]) -> str:
    """The model card, from pretraining.json and the rates."""
    made = json.loads((model / "pretraining.json").read_text())
    names = ("steps", "seconds", "device", "corpus_seconds", "torch", "transformers")
    return CARD.format(
        millions=made["parameters"] / 1e6,
        documents=made["flags"]["documents"],
        epochs=made["flags"]["epochs"],
        limit=made["flags"]["seconds"],
        corpus=made["corpus_tokens"] / 1e6,
        pictures=made["corpus_pictures"] / 1e6,
        codes=len(TOKENS),
        table=as_table(told["rates"], told["samples"]),
        problems=told["problems"],
        samples=told["samples"],
        level=DEFAULT_LEVEL,
        **{name: made[name] for name in names},
    )


def parser() -> argparse.ArgumentParser:
    shape = argparse.ArgumentDefaultsHelpFormatter
    flags = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0], formatter_class=shape)
    flags.add_argument("--model", type=Path, required=True, help="model directory")
    flags.add_argument("--json", type=Path, required=True, help="file of the rates; cells that it has are kept")
    flags.add_argument("--card", action="store_true", help="write README.md from the rates that are there")
    flags.add_argument("--pack", type=Path, help="folder to write the packed model to")
    flags.add_argument("--tasks", nargs="*", default=[*SEEN, *WALKS, *CODED, *TEXT], help="which tasks to measure")
    flags.add_argument("--levels", nargs="*", type=int, default=[2, 1, 3, 4], help="levels; text: the default one")
    flags.add_argument("--problems", type=int, default=256, help="held-out problems a task")
    flags.add_argument("--samples", type=int, default=16, help="samples a problem")
    flags.add_argument("--batch", type=int, default=4096, help="replies generated at a time")
    flags.add_argument("--seed", type=int, default=0, help="seed of the sampling")
    return flags


def main() -> None:
    args = parser().parse_args()
    if args.card:
        (args.model / "README.md").write_text(card(args.model, json.loads(args.json.read_text())))
    if args.pack is not None:
        pack(args.model, args.pack)
    if args.card or args.pack is not None:
        return
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    player, start = loaded(args.model, device), time.time()
    known = json.loads(args.json.read_text())["rates"] if args.json.is_file() else {}
    rates: dict[str, dict[str, dict[str, float]]] = known
    for level in args.levels:
        for name in args.tasks:
            if level not in levels_of(name, args.levels) or str(level) in rates.get(name, {}):
                continue
            torch.manual_seed(args.seed)
            cell = measure(player, name, level, args.problems, args.samples, args.batch)
            rates.setdefault(name, {})[str(level)] = cell
            print(f"{name}:{level} {cell} {time.time() - start:.0f}s", flush=True)
            facts = {
                "problems": args.problems,
                "samples": args.samples,
                "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
                "torch": torch.__version__,
                "transformers": transformers.__version__,
                "rates": rates,
            }
            args.json.write_text(json.dumps(facts, indent=1) + "\n")
    print(as_table(rates, args.samples))


if __name__ == "__main__":
    main()
