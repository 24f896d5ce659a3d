"""Pre-train `tiny`, the model that ships inside burnish: corpus, tokenizer, training, Hugging Face directory.

    PYTHONPATH=src python scripts/pretrain_tiny.py --out build/tiny                       # one GPU, a few minutes
    PYTHONPATH=src python scripts/pretrain_tiny.py --out build/smoke --tokens 1e5 --corpus 5e4 --rows 4   # CPU

The corpus is written by burnish's own tasks (train split only) with writers who err: see burnish.tasks.corpus.
Documents are packed whole into rows; attention does not cross documents. The same seed gives the same corpus, the
same tokenizer and the same order of rows.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from burnish.core.types import Message
from burnish.tasks.corpus import document

PAD, END, SYSTEM, USER, ASSISTANT = SPECIALS = ("<|pad|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>")
ROW = 512  # tokens in a row, and the model's context
CHUNK = 4000  # documents one worker writes at a time
CHAT_TEMPLATE = """{%- for message in messages -%}
{%- if message['role'] not in ['system', 'user', 'assistant'] -%}
{{- raise_exception("role " + message['role'] + " is unknown to tiny; use system, user or assistant") -}}
{%- endif -%}
{{- '<|' + message['role'] + '|>' -}}
{%- if message['role'] == 'assistant' -%}
{%- generation -%}{{- message['content'] + '<|end|>' -}}{%- endgeneration -%}
{%- else -%}
{{- message['content'] + '<|end|>' -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- endif -%}
"""


def rendered(messages: list[Message]) -> str:
    """What CHAT_TEMPLATE makes of the messages, without its cost."""
    return "".join(f"<|{message['role']}|>{message['content']}{END}" for message in messages)


def train_tokenizer(seed: int, vocab: int, documents: int) -> Tokenizer:
    """Byte-level BPE in which every digit is a token of its own; any text encodes and decodes without loss."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab, special_tokens=list(SPECIALS), initial_alphabet=sorted(alphabet), show_progress=False
    )
    texts = (message["content"] for index in range(documents) for message in document(seed, index))
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def as_transformers(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    """The tokenizer with its special tokens and chat template, as transformers keeps it."""
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END,
        pad_token=PAD,
        additional_special_tokens=[SYSTEM, USER, ASSISTANT],
        chat_template=CHAT_TEMPLATE,
        model_max_length=ROW,
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )


def pack(job: tuple[int, int, int, str]) -> tuple[np.ndarray, np.ndarray]:
    """Documents start..stop as rows of tokens and, beside them, which document of its row each token is in (0: pad)."""
    seed, start, stop, tokenizer_json = job
    tokenizer = Tokenizer.from_str(tokenizer_json)
    texts = [rendered(document(seed, index)) for index in range(start, stop)]
    rows, owners, row, owner = [], [], [], []
    for encoding in [*tokenizer.encode_batch(texts, add_special_tokens=False), None]:
        ids = encoding.ids if encoding else []
        if len(ids) > ROW:
            continue
        if encoding is None or len(row) + len(ids) > ROW:
            room = ROW - len(row)
            rows.append(row + [0] * room)
            owners.append(owner + [0] * room)
            row, owner = [], []
        if ids:
            owner = owner + [(owner[-1] if owner else 0) + 1] * len(ids)
            row = row + ids
    return np.array(rows, dtype=np.int16), np.array(owners, dtype=np.uint8)


def write_corpus(seed: int, tokenizer: Tokenizer, tokens: float, workers: int) -> tuple[Tensor, Tensor]:
    """About `tokens` tokens of packed rows [rows, ROW] and their owners, the same whatever the number of workers."""
    sample = tokenizer.encode_batch([rendered(document(seed, index)) for index in range(500)], add_special_tokens=False)
    mean = sum(len(encoding.ids) for encoding in sample) / len(sample)
    count = max(1, math.ceil(tokens / mean))
    text = tokenizer.to_str()
    jobs = [(seed, start, min(start + CHUNK, count), text) for start in range(0, count, CHUNK)]
    with multiprocessing.get_context("fork").Pool(workers) as pool:
        parts = list(pool.imap(pack, jobs))
    print(f"corpus: {count} documents of {mean:.0f} tokens", flush=True)
    rows, owners = (torch.from_numpy(np.concatenate(column)) for column in zip(*parts, strict=True))
    return rows, owners


def new_model(vocab: int, hidden: int, layers: int, heads: int, kv: int, ff: int) -> LlamaForCausalLM:
    """A Llama of the given shape with tied embeddings, weights drawn afresh."""
    config = LlamaConfig(
        vocab_size=vocab,
        hidden_size=hidden,
        intermediate_size=ff,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv,
        max_position_embeddings=ROW,
        tie_word_embeddings=True,
        pad_token_id=SPECIALS.index(PAD),
        eos_token_id=SPECIALS.index(END),
        bos_token_id=None,
        attn_implementation="sdpa",
    )
    return LlamaForCausalLM(config)


def loss_of(model: nn.Module, tokens: Tensor, owners: Tensor) -> Tensor:
    """Mean negative log-likelihood of every token that follows another of its own document.

    tokens, owners [B, ROW]; the mask keeps attention causal and inside each document.
    """
    causal = torch.ones(ROW, ROW, dtype=torch.bool, device=tokens.device).tril()
    mask = (owners[:, None, :, None] == owners[:, None, None, :]) & causal  # [B, 1, ROW, ROW]
    logits = model(input_ids=tokens, attention_mask=mask, use_cache=False).logits  # [B, ROW, V]
    follows = (owners[:, 1:] == owners[:, :-1]) & (owners[:, 1:] > 0)
    target = torch.where(follows, tokens[:, 1:], -100)
    return F.cross_entropy(logits[:, :-1].float().flatten(0, 1), target.flatten(), ignore_index=-100)


def optimiser_of(model: nn.Module, device: torch.device) -> torch.optim.Optimizer:
    """AdamW with decay on matrices only."""
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() <= 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=0.0, betas=(0.9, 0.95), fused=device.type == "cuda")


def train(model: LlamaForCausalLM, rows: Tensor, owners: Tensor, args: argparse.Namespace) -> dict[str, float]:
    """Cosine schedule with a warm-up over --tokens tokens; fresh order of rows in every epoch."""
    device = next(model.parameters()).device
    run = torch.compile(model) if args.compile else model
    optimiser = optimiser_of(model, device)
    steps = max(1, int(args.tokens / (args.rows * ROW)))
    warm = max(1, min(200, steps // 10))
    order, generator = torch.empty(0, dtype=torch.long), torch.Generator().manual_seed(args.seed)
    start = time.time()
    for step in range(steps):
        if len(order) < args.rows:
            order = torch.cat([order, torch.randperm(len(rows), generator=generator)])
        batch, order = order[: args.rows].to(rows.device), order[args.rows :]
        rate = min((step + 1) / warm, 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * step / steps)))
        for group in optimiser.param_groups:
            group["lr"] = args.lr * rate
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda"):
            loss = loss_of(run, rows[batch].long(), owners[batch].int())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        if step % args.log == 0 or step == steps - 1:
            spent = time.time() - start
            rate_now = (step + 1) * args.rows * ROW / spent
            print(f"step {step}/{steps} loss {loss.item():.4f} {rate_now / 1e6:.2f}M tokens/s {spent:.0f}s", flush=True)
    return {"steps": steps, "seconds": round(time.time() - start, 1), "loss": round(loss.item(), 4)}


def save(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, out: Path, facts: dict[str, object]) -> None:
    """The Hugging Face directory, weights in bf16, with the facts of its making."""
    model.generation_config.do_sample = True
    model.generation_config.temperature = 1.0
    model.generation_config.max_new_tokens = 96
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.to(torch.bfloat16).save_pretrained(out)
    tokenizer.save_pretrained(out)
    (out / "model.safetensors").chmod(0o644)
    (out / "pretraining.json").write_text(json.dumps(facts, indent=1) + "\n")


def parser() -> argparse.ArgumentParser:
    shape = argparse.ArgumentDefaultsHelpFormatter
    flags = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0], formatter_class=shape)
    flags.add_argument("--out", type=Path, required=True, help="directory to write the model to")
    flags.add_argument("--tokens", type=float, default=8e8, help="tokens to train on, all epochs together")
    flags.add_argument("--corpus", type=float, default=2e8, help="tokens of corpus to write")
    flags.add_argument("--rows", type=int, default=256, help="rows of 512 tokens in a step")
    flags.add_argument("--lr", type=float, default=2e-3, help="peak learning rate")
    flags.add_argument("--seed", type=int, default=0, help="seed of corpus, weights and order")
    flags.add_argument("--vocab", type=int, default=512, help="largest vocabulary, special tokens included")
    flags.add_argument("--hidden", type=int, default=256, help="width")
    flags.add_argument("--layers", type=int, default=4, help="depth")
    flags.add_argument("--heads", type=int, default=8, help="attention heads")
    flags.add_argument("--kv", type=int, default=4, help="key-value heads")
    flags.add_argument("--ff", type=int, default=704, help="width of the feed-forward layers")
    flags.add_argument("--workers", type=int, default=2, help="processes that write the corpus")
    flags.add_argument("--compile", action="store_true", help="compile the model (worth it on a GPU)")
    flags.add_argument("--log", type=int, default=100, help="steps between two lines of progress")
    return flags


def main() -> None:
    args = parser().parse_args()
    if args.corpus < 1 or args.tokens < 1:
        raise ValueError(f"--tokens {args.tokens} and --corpus {args.corpus} must be at least 1")
    torch.manual_seed(args.seed)
    start = time.time()
    tokenizer = train_tokenizer(args.seed, args.vocab, documents=min(20_000, int(args.corpus // 20) + 500))
    hf_tokenizer = as_transformers(tokenizer)
    example = document(args.seed, 0)
    assert hf_tokenizer.apply_chat_template(example, tokenize=False) == rendered(example)
    rows, owners = write_corpus(args.seed, tokenizer, args.corpus, args.workers)
    written = time.time() - start
    print(f"{rows.numel() / 1e6:.1f}M tokens in rows, {(owners == 0).float().mean():.3f} padding, {written:.0f}s")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_float32_matmul_precision("high")
    model = new_model(len(hf_tokenizer), args.hidden, args.layers, args.heads, args.kv, args.ff).to(device)
    print(
        f"{sum(p.numel() for p in model.parameters()) / 1e6:.2f}M parameters, {len(hf_tokenizer)} tokens in vocabulary"
    )
    made = train(model, rows.to(device), owners.to(device), args)
    facts = {
        "flags": {name: value for name, value in vars(args).items() if name not in ("out", "workers", "log")},
        "parameters": sum(p.numel() for p in model.parameters()),
        "corpus_seconds": round(written, 1),
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        **made,
    }
    save(model, hf_tokenizer, args.out, facts)
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
