"""Pre-train `tiny-omni`, a small model that sees: `tiny`'s language model, a small tower and a connector (Idefics3).

    PYTHONPATH=src python scripts/pretrain_omni.py --out build/tiny-omni --workers 16          # one GPU, six minutes
    PYTHONPATH=src python scripts/pretrain_omni.py --out build/smoke --documents 400 --rows 4 --epochs 1   # CPU

The corpus (burnish.tasks.seen_corpus, train splits) is written by careful writers first, from whom the model learns to
see, and by writers who err after that, so that post-training has something to improve. Documents are packed whole into
rows; attention does not cross documents. The loss is that of replies. The same seed gives the same corpus. Parts of the
corpus that are there are not written again. Weights are rounded to --mantissa bits, which makes the file compress well.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
import transformers
from tokenizers import AddedToken
from torch import Tensor, nn
from transformers import Idefics3Config, Idefics3ForConditionalGeneration, LlamaConfig, LlamaForCausalLM
from transformers.models.idefics3.configuration_idefics3 import Idefics3VisionConfig

import burnish
from burnish.core.messages import Message, pictures_of
from burnish.media.drawing import SIDE
from burnish.media.store import STORE
from burnish.tasks.codes.code import TOKENS
from burnish.tasks.seen_corpus import document

TINY = Path(burnish.__file__).parent / "models" / "tiny"
IMAGE, FAKE, GLOBAL, TURN = "<image>", "<fake_token_around_image>", "<global-img>", "<end_of_utterance>"
PATCH, MERGED = 8, 2  # pixels of a patch's side, and patches of a token's side
SEEN = (SIDE // PATCH // MERGED) ** 2  # tokens of a picture
SHOWN = f"{FAKE}{GLOBAL}{IMAGE * SEEN}{FAKE}"  # what the processor makes of one placeholder
ROW = 512  # tokens in a row, and the model's context
CHUNK = 2000  # documents that a worker writes at a time
TEMPLATE = (
    "{%- for m in messages -%}{{- '<|' + m['role'] + '|>' -}}{%- if m['role'] == 'assistant' -%}"
    "{%- generation -%}{{- (m['content'] if m['content'] is string else m['content'][0]['text']) + '<|end|>' -}}"
    "{%- endgeneration -%}{%- elif m['content'] is string -%}{{- m['content'] + '<|end|>' -}}{%- else -%}"
    "{%- for p in m['content'] -%}{{- '<image>' if p['type'] == 'image' else p['text'] -}}{%- endfor -%}"
    "{{- '<|end|>' -}}{%- endif -%}{%- endfor -%}{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- endif -%}"
)


def pixels_of(reference: str) -> np.ndarray:
    """[SIDE, SIDE, 3]: a drawn picture as the processor makes it, which doubles pictures of half the size."""
    raw = STORE.raw(reference)
    head, _, body = raw.partition(b" 255\n")
    width, height = map(int, head.split()[1:])
    pixels = np.frombuffer(body, dtype=np.uint8).reshape(height, width, 3)
    times = SIDE // width
    return pixels.repeat(times, 0).repeat(times, 1)


def new_tokenizer() -> Any:
    tokenizer = transformers.AutoTokenizer.from_pretrained(TINY)
    tokenizer.add_special_tokens({"additional_special_tokens": [IMAGE, FAKE, TURN, GLOBAL]})
    tokenizer.add_tokens([AddedToken(one, special=False, normalized=False) for one in TOKENS])
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
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=4,
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
    start = LlamaForCausalLM.from_pretrained(TINY, dtype=torch.float32)
    inner = model.model.text_model
    own = {name: tensor for name, tensor in start.model.state_dict().items() if name != "embed_tokens.weight"}
    inner.load_state_dict(own, strict=False)
    with torch.no_grad():
        table = start.model.embed_tokens.weight
        inner.embed_tokens.weight[: len(table)] = table
        inner.embed_tokens.weight[len(table) :] = table.mean(0) + 0.02 * torch.randn(
            len(inner.embed_tokens.weight) - len(table), table.shape[1]
        )
        nn.init.normal_(model.model.vision_model.embeddings.position_embedding.weight, std=0.02)
    model.tie_weights()
    return model


# ---------------------------------------------------------------------------------------------------------- the corpus


def rendered(messages: list[Message]) -> list[tuple[str, bool]]:
    """Pieces of the text of a conversation, and whether they are a reply."""
    pieces: list[tuple[str, bool]] = []
    for message in messages:
        content = message["content"]
        if not isinstance(content, str):
            content = "".join(SHOWN if part["type"] == "image" else part["text"] for part in content)
        pieces += [(f"<|{message['role']}|>", False), (f"{content}<|end|>", message["role"] == "assistant")]
    return pieces


class Packing:
    """Rows of tokens: documents laid end to end, with what is beside each token, and the pictures in order."""

    def __init__(self) -> None:
        self.rows: list[tuple[list[int], list[int], list[bool], int]] = []
        self.pictures: list[np.ndarray] = []
        self._row: tuple[list[int], list[int], list[bool]] = ([], [], [])
        self._own = self._count = 0

    def add(self, ids: list[int], learned: list[bool], pictures: list[np.ndarray]) -> None:
        if len(ids) > ROW:
            return
        if len(self._row[0]) + len(ids) > ROW:
            self.close()
        self._own += 1
        for column, more in zip(self._row, (ids, [self._own] * len(ids), learned), strict=True):
            column.extend(more)  # type: ignore[arg-type]
        self.pictures += pictures
        self._count += len(pictures)

    def close(self) -> None:
        room = ROW - len(self._row[0])
        ids, own, learned = self._row
        self.rows.append((ids + [0] * room, own + [0] * room, learned + [False] * room, self._count))
        self._row, self._own, self._count = ([], [], []), 0, 0


def write_part(job: tuple[int, int, int, bool, str, str]) -> str:
    """Documents start..stop as a file of rows."""
    seed, start, stop, careful, tokenizer_json, folder = job
    place = Path(folder) / f"{seed}-{'careful' if careful else 'erring'}-{start}-{stop}.npz"
    if place.is_file():
        return str(place)
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(tokenizer_json)
    documents = [document(seed, index, careful) for index in range(start, stop)]
    pieces = [rendered(messages) for messages in documents]
    encoded = iter(tokenizer.encode_batch([text for one in pieces for text, _ in one], add_special_tokens=False))
    packing = Packing()
    for messages, some in zip(documents, pieces, strict=True):
        ids: list[int] = []
        learned: list[bool] = []
        for _, replied in some:
            more = next(encoded).ids
            ids += more
            learned += [replied] * len(more)
        packing.add(ids, learned, [pixels_of(one) for one in pictures_of(messages)])
    packing.close()
    ids, own, learned, counts = zip(*packing.rows, strict=True)
    part = place.with_suffix(".tmp.npz")
    np.savez(
        part,
        ids=np.array(ids, dtype=np.int16),
        own=np.array(own, dtype=np.uint8),
        learned=np.array(learned, dtype=bool),
        counts=np.array(counts, dtype=np.int32),
        pictures=np.stack(packing.pictures) if packing.pictures else np.zeros((0, SIDE, SIDE, 3), np.uint8),
    )
    part.replace(place)
    return str(place)


class Corpus:
    """Packed rows, on the device: ids, owners, learned [rows, ROW]; the pictures of all rows in order."""

    def __init__(self, files: list[str], device: torch.device) -> None:
        parts = [np.load(file) for file in files]
        self.ids, self.own, self.learned, self.counts, self.pictures = (
            torch.cat([torch.from_numpy(part[name]).to(device) for part in parts])
            for name in ("ids", "own", "learned", "counts", "pictures")
        )
        self.starts = self.counts.cumsum(0) - self.counts

    def batch(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """ids, owners, learned, and the pictures in the order of their places."""
        counts = self.counts[rows]
        ends = counts.cumsum(0)
        at = torch.arange(int(ends[-1]), device=rows.device)
        which = torch.searchsorted(ends, at, right=True)
        pictures = self.pictures[self.starts[rows][which] + at - (ends - counts)[which]]
        return self.ids[rows].long(), self.own[rows].int(), self.learned[rows], pictures


def write_corpus(args: argparse.Namespace, tokenizer: Any, careful: bool) -> list[str]:
    """The files of a corpus, the same whatever the number of workers."""
    folder = args.corpus or args.out / "corpus"
    folder.mkdir(parents=True, exist_ok=True)
    count, text = args.documents, tokenizer.backend_tokenizer.to_str()
    jobs = [(args.seed, at, min(at + CHUNK, count), careful, text, str(folder)) for at in range(0, count, CHUNK)]
    start, files = time.time(), []
    with multiprocessing.get_context("fork").Pool(args.workers, maxtasksperchild=4) as pool:
        for file in pool.imap(write_part, jobs):
            files.append(file)
            if len(files) % 50 == 0 or len(files) == len(jobs):
                kind = "careful" if careful else "erring"
                print(f"corpus, {kind}: {len(files)}/{len(jobs)} files {time.time() - start:.0f}s", flush=True)
    return files


# --------------------------------------------------------------------------------------------------------- the training


def seen(model: Idefics3ForConditionalGeneration, pictures: Tensor) -> Tensor:
    """[P, SEEN, H]: the vectors of pictures [P, SIDE, SIDE, 3]. As get_image_features, for square pictures at once."""
    tower = model.model.vision_model
    pixels = pictures.permute(0, 3, 1, 2).float() / 127.5 - 1
    patches = tower.embeddings.patch_embedding(pixels).flatten(2).transpose(1, 2)
    states = patches + tower.embeddings.position_embedding.weight
    states = tower.encoder(inputs_embeds=states, attention_mask=None).last_hidden_state
    vectors: Tensor = model.model.connector(tower.post_layernorm(states))
    return vectors


def embedded(model: Idefics3ForConditionalGeneration, ids: Tensor, pictures: Tensor) -> Tensor:
    """[B, T, H]: the input of the language model."""
    table: Tensor = model.get_input_embeddings()(ids)
    if not len(pictures):
        return table
    vectors = torch.cat([seen(model, some) for some in pictures.split(16384)])
    return table.masked_scatter((ids == model.config.image_token_id)[..., None], vectors.to(table.dtype))


def loss_of(model: Idefics3ForConditionalGeneration, batch: tuple[Tensor, Tensor, Tensor, Tensor]) -> Tensor:
    """Mean negative log-likelihood of the tokens of replies; attention is causal and inside each document."""
    ids, own, learned, pictures = batch
    causal = torch.ones(ROW, ROW, dtype=torch.bool, device=ids.device).tril()
    mask = (own[:, None, :, None] == own[:, None, None, :]) & causal
    whole = embedded(model, ids, pictures)
    states = model.model.text_model(inputs_embeds=whole, attention_mask=mask, use_cache=False).last_hidden_state
    asked = learned[:, 1:] & (own[:, 1:] > 0)
    return F.cross_entropy(model.lm_head(states[:, :-1][asked]).float(), ids[:, 1:][asked])


def orders(rows: int, size: int, steps: int, generator: torch.Generator) -> Iterator[Tensor]:
    """The rows of each step: a fresh order in every epoch."""
    order = torch.empty(0, dtype=torch.long)
    for _ in range(steps):
        while len(order) < size:
            order = torch.cat([order, torch.randperm(rows, generator=generator)])
        yield order[:size]
        order = order[size:]


def train(
    model: Idefics3ForConditionalGeneration, parts: list[Corpus], args: argparse.Namespace, seconds: float
) -> dict[str, Any]:
    """The careful part first, then the erring one; one schedule of the learning rate over both."""
    inside = {id(p) for p in model.model.text_model.parameters()}
    fresh = [p for p in model.parameters() if id(p) not in inside]
    groups: list[dict[str, Any]] = [
        {"params": [*model.model.text_model.parameters()], "peak": args.lr},
        {"params": fresh, "peak": 1.5 * args.lr},
    ]
    device = parts[0].ids.device
    optimiser = torch.optim.AdamW(groups, lr=0.0, betas=(0.9, 0.98), weight_decay=0.01, fused=device.type == "cuda")
    most = max(2, int(sum(len(part.ids) for part in parts) * args.epochs / args.rows))
    counts = [max(1, int(most * share)) for share in (args.careful, 1 - args.careful)]
    generator, start, done, loss = torch.Generator().manual_seed(args.seed), time.time(), 0, torch.zeros(())
    warm = start
    for number, part in enumerate(parts):
        began = done
        for rows in orders(len(part.ids), args.rows, 1 << 40, generator):
            total = sum(counts)
            if done - began >= counts[number]:
                break
            rate = min((done + 1) / min(200, total), 0.03 + 0.97 * 0.5 * (1 + math.cos(math.pi * done / total)))
            for group in optimiser.param_groups:
                group["lr"] = group["peak"] * rate
            with torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda"):
                loss = loss_of(model, part.batch(rows.to(device)))
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
            done += 1
            if done % 100 == 0 or done == total:
                spent = time.time() - start
                print(f"step {done}/{total} loss {loss.item():.4f} {spent:.0f}s", flush=True)
                if done == 100:
                    warm = time.time()
                elif done == 200:  # where the machine is slower than thought, there are fewer steps
                    fits = (seconds - spent) / ((time.time() - warm) / 100) / total
                    counts = [max(1, int(count * min(1.0, fits))) for count in counts]
    return {"steps": done, "seconds": round(time.time() - start, 1), "loss": round(loss.item(), 4)}


def rounded(tensor: Tensor, bits: int) -> Tensor:
    """bfloat16 with this many bits of mantissa of its seven, rounded to nearest."""
    mantissa, exponent = torch.frexp(tensor.float())
    scale = 2.0 ** (bits + 1)
    return torch.ldexp((mantissa * scale).round() / scale, exponent).to(torch.bfloat16)


def save(
    model: Idefics3ForConditionalGeneration, tokenizer: Any, out: Path, facts: dict[str, Any], mantissa: int
) -> None:
    """The directory, weights in bf16, with the processor and the facts of its making."""
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(rounded(p, mantissa).float())
    model.to(torch.bfloat16).save_pretrained(out)
    (out / "model.safetensors").chmod(0o644)
    tokenizer.save_pretrained(out)
    image = {
        "image_processor_type": "Idefics3ImageProcessor",
        "do_convert_rgb": True,
        "do_image_splitting": False,
        "do_normalize": True,
        "do_pad": True,
        "do_rescale": True,
        "do_resize": True,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
        "max_image_size": {"longest_edge": SIDE},
        "resample": 0,
        "rescale_factor": 1 / 255,
        "size": {"longest_edge": SIDE},
    }
    (out / "preprocessor_config.json").write_text(json.dumps(image, indent=1) + "\n")
    told = {"processor_class": "Idefics3Processor", "image_seq_len": SEEN}
    (out / "processor_config.json").write_text(json.dumps(told, indent=1) + "\n")
    (out / "pretraining.json").write_text(json.dumps(facts, indent=1) + "\n")


def parser() -> argparse.ArgumentParser:
    shape = argparse.ArgumentDefaultsHelpFormatter
    flags = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0], formatter_class=shape)
    flags.add_argument("--out", type=Path, required=True, help="directory to write the model to")
    flags.add_argument("--corpus", type=Path, help="folder of the corpus, if not OUT/corpus")
    flags.add_argument("--documents", type=int, default=350_000, help="of careful writers, and as many of erring ones")
    flags.add_argument("--epochs", type=float, default=4.0, help="over each part of the corpus")
    flags.add_argument("--careful", type=float, default=0.65, help="share of the steps on careful writers")
    flags.add_argument("--rows", type=int, default=96, help="rows of 512 tokens in a step")
    flags.add_argument("--lr", type=float, default=1e-3, help="peak learning rate; the tower's is half as much again")
    flags.add_argument("--seconds", type=float, default=240.0, help="the longest that training takes")
    flags.add_argument("--mantissa", type=int, default=5, help="bits of mantissa that are kept, at most 7")
    flags.add_argument("--workers", type=int, default=2, help="processes that write the corpus")
    flags.add_argument("--seed", type=int, default=0, help="of the corpus, the weights and the order")
    return flags


def check_tower(model: Idefics3ForConditionalGeneration) -> None:
    """That `seen` is what transformers' own forward computes."""
    pictures = torch.randint(0, 255, (2, SIDE, SIDE, 3), dtype=torch.uint8)
    pixels = pictures.permute(0, 3, 1, 2).float() / 127.5 - 1
    with torch.no_grad():
        states = model.model.vision_model(pixel_values=pixels).last_hidden_state
        wanted = model.model.connector(states)
        assert torch.allclose(seen(model, pictures), wanted, atol=1e-4), "the tower of transformers computes otherwise"


def main() -> None:
    args = parser().parse_args()
    torch.manual_seed(args.seed)
    start = time.time()
    tokenizer = new_tokenizer()
    model = new_model(tokenizer).eval()
    check_tower(model)
    files = [write_corpus(args, tokenizer, careful) for careful in (True, False)]
    written = time.time() - start
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_float32_matmul_precision("high")
    parts = [Corpus(some, device) for some in files]
    model.to(device)
    made = train(model, parts, args, args.seconds)
    facts: dict[str, Any] = {
        "flags": {name: value for name, value in vars(args).items() if name not in ("out", "corpus", "workers")},
        "parameters": sum(p.numel() for p in model.parameters()),
        "corpus_tokens": sum(int((part.own > 0).sum()) for part in parts),
        "corpus_pictures": sum(len(part.pictures) for part in parts),
        "corpus_seconds": round(written, 1),
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        **made,
    }
    save(model, tokenizer, args.out, facts, args.mantissa)
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
