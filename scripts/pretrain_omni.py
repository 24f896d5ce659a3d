"""Pre-train `tiny-omni`, a small model that sees: `tiny`'s language model, a small tower and a connector (Idefics3).

    PYTHONPATH=src python scripts/pretrain_omni.py --out build/tiny-omni              # one CPU core, about ten minutes
    PYTHONPATH=src python scripts/pretrain_omni.py --out build/smoke --tower 5 --steps 5

First the tower learns to tell how many shapes of each colour and kind a picture has, from a linear map of its mean.
Then the whole model learns from conversations about pictures (task `shapes`, train split) whose replies are right with
probability SKILL, so that post-training has something to improve, and from `tiny`'s own corpus, so that it keeps what
`tiny` can do. The same seed gives the same pictures and replies.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
import transformers
from torch import Tensor, nn
from transformers import Idefics3Config, Idefics3ForConditionalGeneration, LlamaConfig
from transformers.models.idefics3.configuration_idefics3 import Idefics3VisionConfig
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil

import burnish
from burnish.core.randomness import rng
from burnish.tasks.corpus import document
from burnish.tasks.shapes import COLOURS, KINDS, MOST, SIDE, Shapes, drawn

TINY = Path(burnish.__file__).parent / "models" / "tiny"
IMAGE, FAKE, GLOBAL, TURN = "<image>", "<fake_token_around_image>", "<global-img>", "<end_of_utterance>"
SKILL = {1: 0.55, 2: 0.45, 3: 0.45, 4: 0.4}  # by level, the probability that a reply is right
LEVELS = {1: 0.4, 2: 0.25, 3: 0.2, 4: 0.15}
TEXT_SHARE = 0.25  # of documents about text
PATCH, MERGED = 4, 4  # pixels of a patch's side, and patches of a token's side
SEEN = (SIDE // PATCH // MERGED) ** 2  # tokens of a picture
TEMPLATE = (
    "{%- for m in messages -%}{{- '<|' + m['role'] + '|>' -}}{%- if m['role'] == 'assistant' -%}"
    "{%- generation -%}{{- (m['content'] if m['content'] is string else m['content'][0]['text']) + '<|end|>' -}}"
    "{%- endgeneration -%}{%- elif m['content'] is string -%}{{- m['content'] + '<|end|>' -}}{%- else -%}"
    "{%- for p in m['content'] -%}{{- '<image>' if p['type'] == 'image' else p['text'] -}}{%- endfor -%}"
    "{{- '<|end|>' -}}{%- endif -%}{%- endfor -%}{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- endif -%}"
)


def pixels_of(picture: np.ndarray) -> Tensor:
    """[3, SIDE, SIDE] as the processor makes it: values from -1 to 1."""
    return torch.from_numpy(picture).permute(2, 0, 1).float() / 127.5 - 1


def new_tokenizer() -> Any:
    tokenizer = transformers.AutoTokenizer.from_pretrained(TINY)
    tokenizer.add_special_tokens({"additional_special_tokens": [IMAGE, FAKE, TURN, GLOBAL]})
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def new_model(tokenizer: Any) -> Idefics3ForConditionalGeneration:
    """A fresh tower and connector around `tiny`'s weights."""
    told = json.loads((TINY / "config.json").read_text())
    known = LlamaConfig().to_dict()
    skip = ("transformers_version", "architectures", "model_type", "dtype", "torch_dtype")
    text = LlamaConfig(**{k: v for k, v in told.items() if k in known and k not in skip})
    text.vocab_size = len(tokenizer)
    vision = Idefics3VisionConfig(
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=3,
        num_attention_heads=4,
        image_size=SIDE,
        patch_size=PATCH,
    )
    config = Idefics3Config(
        text_config=text,
        vision_config=vision,
        image_token_id=tokenizer.convert_tokens_to_ids(IMAGE),
        scale_factor=MERGED,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = Idefics3ForConditionalGeneration(config)
    start = transformers.LlamaForCausalLM.from_pretrained(TINY, dtype=torch.float32)
    inner = model.model.text_model
    own = {name: tensor for name, tensor in start.model.state_dict().items() if name != "embed_tokens.weight"}
    inner.load_state_dict(own, strict=False)
    with torch.no_grad():
        table = start.model.embed_tokens.weight
        inner.embed_tokens.weight[: len(table)] = table
        inner.embed_tokens.weight[len(table) :] = table.mean(0)
    model.tie_weights()
    return model


def counts(shapes: tuple[tuple[str, str, int], ...]) -> list[int]:
    """How many shapes of each colour, and of each kind."""
    by_colour = [sum(c == colour for _, c, _ in shapes) for colour in COLOURS]
    return by_colour + [sum(k == kind for k, _, _ in shapes) for kind in KINDS]


def train_tower(model: Idefics3ForConditionalGeneration, steps: int, rows: int, seed: int) -> float:
    """Counts of each colour and kind from the mean of the tower's vectors. The last loss."""
    tower = model.model.vision_model
    classes = MOST + 1
    head = nn.Linear(64, 6 * classes)
    optimiser = torch.optim.AdamW([*tower.parameters(), *head.parameters()], lr=0.0, weight_decay=0.05)
    family, start, loss = Shapes(level=1), time.time(), torch.zeros(())
    for step in range(steps):
        problems = [family.problem("train", rng(seed, "tower", step, i).getrandbits(40)) for i in range(rows)]
        pictures = torch.stack([pixels_of(drawn(shapes, grey)) for _, _, shapes, grey in problems])
        wanted = torch.tensor([counts(shapes) for _, _, shapes, _ in problems])
        for group in optimiser.param_groups:
            group["lr"] = 2e-3 * min(1.0, (step + 1) / 50, max(0.05, 2 * (1 - step / steps)))
        vectors = tower(pixel_values=pictures).last_hidden_state.mean(1)
        scores = head(vectors).view(rows, 6, classes)
        loss = F.cross_entropy(scores.flatten(0, 1), wanted.flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if step % 100 == 0 or step == steps - 1:
            right = float((scores.argmax(-1) == wanted).float().mean())
            print(
                f"tower {step}/{steps} loss {loss.item():.3f} right {right:.3f} {time.time() - start:.0f}s", flush=True
            )
    return float(loss)


def conversation(seed: int, index: int, tokenizer: Any) -> tuple[list[int], list[bool], Tensor | None]:
    """The ids of a conversation, which of them are replied, and its picture."""
    dice = rng(seed, "omni", index)
    if dice.random() < TEXT_SHARE:
        messages = document(seed, index)
        text = "".join(f"<|{m['role']}|>{m['content']}<|end|>" for m in messages)
        ids = tokenizer.encode(text, add_special_tokens=False)[:160]
        return ids, [True] * len(ids), None
    level = dice.choices(list(LEVELS), weights=list(LEVELS.values()))[0]
    family = Shapes(level=level)
    problem = family.problem("train", dice.getrandbits(40))
    right = dice.random() < SKILL[level]
    said = family.solve(problem, dice) if right else family.mistake(problem, dice)
    asked = next(part["text"] for part in family.ask(problem) if part["type"] == "text")
    picture = f"{FAKE}{GLOBAL}{IMAGE * SEEN}{FAKE}"
    prompt = tokenizer.encode(f"<|user|>{picture}{asked}<|end|><|assistant|>", add_special_tokens=False)
    reply = tokenizer.encode(f"{said}<|end|>", add_special_tokens=False)
    marked = [False] * len(prompt) + [True] * len(reply)
    return prompt + reply, marked, pixels_of(drawn(problem[2], problem[3]))


def train(model: Idefics3ForConditionalGeneration, tokenizer: Any, args: argparse.Namespace) -> float:
    """Mean negative log-likelihood of the tokens of replies (of whole documents about text)."""
    inside = {id(p) for p in model.model.text_model.parameters()}
    fresh = [p for p in model.parameters() if id(p) not in inside and p.requires_grad]
    groups = [{"params": list(model.model.text_model.parameters()), "peak": 6e-4}, {"params": fresh, "peak": 1.5e-3}]
    optimiser = torch.optim.AdamW(groups, lr=0.0, betas=(0.9, 0.98), weight_decay=0.01)
    start, loss = time.time(), torch.zeros(())
    for step in range(args.steps):
        rows = [conversation(args.seed, step * args.rows + i, tokenizer) for i in range(args.rows)]
        width = max(len(ids) for ids, _, _ in rows)
        ids = torch.full((args.rows, width), tokenizer.pad_token_id)
        target = torch.full((args.rows, width), -100)
        for i, (row, marked, _) in enumerate(rows):
            ids[i, : len(row)] = torch.tensor(row)
            target[i, : len(row)] = torch.where(torch.tensor(marked), ids[i, : len(row)], -100)
        pictures = [picture for _, _, picture in rows if picture is not None]
        for group in optimiser.param_groups:
            group["lr"] = group["peak"] * min(1.0, (step + 1) / 50, max(0.03, 1.5 * (1 - step / args.steps)))
        vectors = model.model.get_image_features(torch.stack(pictures)[None], return_dict=True).pooler_output
        embedded = model.get_input_embeddings()(ids)
        embedded = embedded.masked_scatter((ids == model.config.image_token_id)[..., None], torch.cat(list(vectors)))
        states = model.model.text_model(inputs_embeds=embedded, use_cache=False).last_hidden_state
        asked = target[:, 1:] != -100
        loss = F.cross_entropy(model.lm_head(states[:, :-1][asked]), target[:, 1:][asked])
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        if step % 50 == 0 or step == args.steps - 1:
            print(f"step {step}/{args.steps} loss {loss.item():.3f} {time.time() - start:.0f}s", flush=True)
    return float(loss)


def save(model: Idefics3ForConditionalGeneration, tokenizer: Any, out: Path, facts: dict[str, object]) -> None:
    """The directory, weights in bf16, with the processor and the facts of its making."""
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.to(torch.bfloat16).save_pretrained(out)
    tokenizer.save_pretrained(out)
    size = {"longest_edge": SIDE}
    processor = Idefics3ImageProcessorPil(size=size, max_image_size=size, do_image_splitting=False, resample=0)
    processor.save_pretrained(out)
    told = {"processor_class": "Idefics3Processor", "image_seq_len": SEEN}
    (out / "processor_config.json").write_text(json.dumps(told, indent=1) + "\n")
    (out / "pretraining.json").write_text(json.dumps(facts, indent=1) + "\n")


def main() -> None:
    flags = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    flags.add_argument("--out", type=Path, required=True, help="directory to write the model to")
    flags.add_argument("--tower", type=int, default=1500, help="steps of the tower alone")
    flags.add_argument("--steps", type=int, default=700, help="steps of the whole model")
    flags.add_argument("--rows", type=int, default=64, help="conversations, or pictures, in a step")
    flags.add_argument("--seed", type=int, default=0, help="of pictures, replies and weights")
    args = flags.parse_args()
    torch.manual_seed(args.seed)
    random.seed(args.seed)
    tokenizer = new_tokenizer()
    model = new_model(tokenizer)
    start = time.time()
    tower = train_tower(model, args.tower, args.rows, args.seed)
    whole = train(model, tokenizer, args)
    facts: dict[str, object] = {
        "flags": {name: value for name, value in vars(args).items() if name != "out"},
        "parameters": sum(p.numel() for p in model.parameters()),
        "seconds": round(time.time() - start, 1),
        "tower_loss": round(tower, 4),
        "loss": round(whole, 4),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    save(model, tokenizer, args.out, facts)
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
