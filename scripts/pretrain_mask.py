"""Pre-train `tiny-mask`, a masked diffusion language model: a EuroBERT that begins with `tiny`'s own tensors.

    PYTHONPATH=src python scripts/pretrain_mask.py --out build/tiny-mask --workers 16 --measure 64   # a GPU, 4 minutes
    PYTHONPATH=src python scripts/pretrain_mask.py --out build/smoke --documents 600 --rows 16 --seconds 20   # CPU

The corpus is `tiny`'s own: writers who err on the train splits. Of each conversation one reply is learned. Replies are
filled with ends up to whole blocks. In one half of the rows some block is hidden in part, the blocks before it are
seen, and nothing stands behind it, as the sampler reads; in the other half the whole reply is hidden in part. Each
token of what may be hidden is, with probability u ~ U(0, 1]; the loss is cross entropy / u of hidden tokens, over the
number of tokens that could be hidden (LLaDA, arXiv 2502.09992).
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
import transformers
from torch import Tensor, nn
from transformers import AutoTokenizer, EuroBertConfig, EuroBertForMaskedLM, LlamaForCausalLM

import burnish
from burnish.core.randomness import key_of, rng
from burnish.engine.request import Request
from burnish.engine.unmask import UnmaskEngine
from burnish.forward.masked import masked_of
from burnish.forward.runner import TransformersRunner
from burnish.tasks.corpus import document
from burnish.tasks.table import BUILTIN, source

TINY = Path(burnish.__file__).parent / "models" / "tiny"
MASK, END, BLOCK, WIDTH, CHUNK = "<|mask|>", "<|end|>", 16, 128, 5000
TEXT = tuple(name for name in BUILTIN if name != "guess")


def new_tokenizer() -> Any:
    tokenizer = AutoTokenizer.from_pretrained(TINY)
    tokenizer.add_special_tokens({"mask_token": MASK})
    return tokenizer


def new_model(tokenizer: Any) -> EuroBertForMaskedLM:
    """`tiny`'s tensors, and the mean of its embeddings for the mask."""
    start = LlamaForCausalLM.from_pretrained(TINY, dtype=torch.float32)
    told = start.config
    config = EuroBertConfig(
        vocab_size=len(tokenizer),
        hidden_size=told.hidden_size,
        intermediate_size=told.intermediate_size,
        num_hidden_layers=told.num_hidden_layers,
        num_attention_heads=told.num_attention_heads,
        num_key_value_heads=told.num_key_value_heads,
        rms_norm_eps=told.rms_norm_eps,
        rope_parameters=told.rope_parameters,
        max_position_embeddings=told.max_position_embeddings,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        mask_token_id=tokenizer.mask_token_id,
    )
    config.block_length = BLOCK
    model = EuroBertForMaskedLM(config)
    tensors = dict(start.state_dict())
    table = tensors.pop("model.embed_tokens.weight")
    tensors.pop("lm_head.weight", None)
    model.load_state_dict(tensors, strict=False)
    with torch.no_grad():
        model.model.embed_tokens.weight[: len(table)] = table
        model.model.embed_tokens.weight[len(table) :] = table.mean(0)
    model.tie_weights()
    return model


def write_part(job: tuple[int, int, int, str]) -> tuple[np.ndarray, np.ndarray]:
    """Rows [n, WIDTH] of a prompt and a reply in whole blocks, and where the reply begins and ends [n, 2]."""
    from tokenizers import Tokenizer

    seed, start, stop, text = job
    tokenizer = Tokenizer.from_str(text)
    end = tokenizer.token_to_id(END)
    prompts, replies = [], []
    for index in range(start, stop):
        messages = document(seed, index)
        said = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
        at = rng(seed, "which reply", index).choice(said)
        before = "".join(f"<|{m['role']}|>{m['content']}{END}" for m in messages[:at])
        prompts.append(f"{before}<|assistant|>")
        replies.append(f"{messages[at]['content']}{END}")
    rows, spans = [], []
    for prompt, reply in zip(tokenizer.encode_batch(prompts), tokenizer.encode_batch(replies), strict=True):
        filled = reply.ids + [end] * (-len(reply.ids) % BLOCK)
        whole = prompt.ids + filled
        if len(whole) <= WIDTH:
            rows.append(whole + [0] * (WIDTH - len(whole)))
            spans.append((len(prompt.ids), len(whole)))
    return np.array(rows, dtype=np.int16), np.array(spans, dtype=np.int16)


def write_corpus(args: argparse.Namespace, tokenizer: Any) -> tuple[Tensor, Tensor]:
    text = tokenizer.backend_tokenizer.to_str()
    jobs = [(args.seed, at, min(at + CHUNK, args.documents), text) for at in range(0, args.documents, CHUNK)]
    with multiprocessing.get_context("fork").Pool(args.workers) as pool:
        parts = list(pool.imap(write_part, jobs))
    rows, spans = (torch.from_numpy(np.concatenate(column)) for column in zip(*parts, strict=True))
    return rows, spans


def hidden(rows: Tensor, spans: Tensor, mask: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What is read [B, T], which of it is real, the weight of each hidden token (1 / u), and how many could be hidden.

    rows [B, T] of tokens; spans [B, 2] where replies begin and end
    """
    count, width = rows.shape

    def chance(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator, device=rows.device)

    at = torch.arange(width, device=rows.device)[None]
    begin, end = spans[:, :1], spans[:, 1:]
    blocks = (end - begin) // BLOCK
    block = (chance(count, 1) * blocks).long()
    some = chance(count, 1) < 0.5
    first = torch.where(some, begin + block * BLOCK, begin)
    last = torch.where(some, begin + (block + 1) * BLOCK, end)
    share = 1.0 - chance(count, 1)
    may = (at >= first) & (at < last)
    away = may & (chance(count, width) < share)
    return torch.where(away, mask, rows), at < last, away / share, may.sum()


def train(
    model: EuroBertForMaskedLM, rows: Tensor, spans: Tensor, mask: int, args: argparse.Namespace
) -> dict[str, Any]:
    """A warm-up and a cosine over the seconds given, by the clock, so that it fits any machine."""
    device = rows.device
    optimiser = torch.optim.AdamW(
        model.parameters(), lr=0.0, betas=(0.9, 0.98), weight_decay=0.01, fused=device.type == "cuda"
    )
    generator = torch.Generator(device).manual_seed(args.seed)
    start, step, done, loss = time.time(), 0, 0.0, torch.zeros(())
    while done < 1 and step < args.steps:
        which = torch.randint(len(rows), (args.rows,), generator=generator, device=device)
        some = rows[which].long()
        width = int(spans[which, 1].max())
        read, real, weight, count = hidden(some[:, :width], spans[which].long(), mask, generator)
        rate = min((step + 1) / 200, 0.03 + 0.97 * 0.5 * (1 + math.cos(math.pi * done)))
        for group in optimiser.param_groups:
            group["lr"] = args.lr * rate
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda"):
            states = model.model(input_ids=read, attention_mask=real.long()).last_hidden_state
            asked = weight > 0
            each = F.cross_entropy(model.lm_head(states[asked]).float(), some[:, :width][asked], reduction="none")
        loss = (each * weight[asked]).sum() / count
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        step += 1
        done = (time.time() - start) / args.seconds
        if step % 100 == 0 or done >= 1:
            print(f"step {step} loss {loss.item():.4f} {time.time() - start:.0f}s", flush=True)
    return {"steps": step, "seconds": round(time.time() - start, 1), "loss": round(loss.item(), 4)}


class Words:
    """The part of a tokenizer that the sampler uses."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer, self.stops = tokenizer, (tokenizer.eos_token_id,)

    def text(self, tokens: Tensor) -> str:
        said: str = self.tokenizer.decode(tokens.tolist(), skip_special_tokens=True)
        return said


def measured(model: EuroBertForMaskedLM, tokenizer: Any, problems: int, samples: int) -> dict[str, dict[str, float]]:
    """pass@1 and pass@samples on held-out problems of level 2, sampled at temperature 1, a token a step."""
    known = masked_of(model)
    assert known is not None
    engine, rates = UnmaskEngine(TransformersRunner(model), known, Words(tokenizer), 512), {}
    for name in TEXT:
        family: Any = source(name)
        drawn = [family.problem("heldout", index) for index in range(problems)]
        prompts = [tokenizer.encode(f"<|user|>{family.ask(one)}{END}<|assistant|>") for one in drawn]
        requests = [
            Request(torch.tensor(ids), key_of(name, i, k), 80) for i, ids in enumerate(prompts) for k in range(samples)
        ]
        start = time.time()
        said = [engine.chat.text(sample.tokens) for sample in engine.generate(requests)]
        right = torch.tensor([family.verdict(drawn[i // samples], text).correct for i, text in enumerate(said)])
        table = right.view(problems, samples).float()
        rates[name] = {
            "pass@1": round(table.mean().item(), 4),
            f"pass@{samples}": round(table.amax(1).mean().item(), 4),
        }
        print(f"{name} {rates[name]} {time.time() - start:.0f}s", flush=True)
    return rates


def parser() -> argparse.ArgumentParser:
    shape = argparse.ArgumentDefaultsHelpFormatter
    flags = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0], formatter_class=shape)
    flags.add_argument("--out", type=Path, required=True, help="directory to write the model to")
    flags.add_argument("--documents", type=int, default=2_000_000, help="conversations of the corpus")
    flags.add_argument("--rows", type=int, default=1024, help="conversations in a step")
    flags.add_argument("--steps", type=int, default=20_000, help="steps at most")
    flags.add_argument("--seconds", type=float, default=120.0, help="the longest that training takes")
    flags.add_argument("--lr", type=float, default=1e-3, help="peak learning rate")
    flags.add_argument("--workers", type=int, default=2, help="processes that write the corpus")
    flags.add_argument("--measure", type=int, default=0, help="held-out problems a task that are tried at the end")
    flags.add_argument("--samples", type=int, default=16, help="replies to each of them")
    flags.add_argument("--seed", type=int, default=0, help="of the corpus, the hidden tokens and the order")
    return flags


def main() -> None:
    args = parser().parse_args()
    torch.manual_seed(args.seed)
    start = time.time()
    tokenizer = new_tokenizer()
    rows, spans = write_corpus(args, tokenizer)
    written = time.time() - start
    print(f"corpus: {len(rows)} conversations, {float((spans[:, 1]).float().mean()):.0f} tokens each, {written:.0f}s")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_float32_matmul_precision("high")
    model = new_model(tokenizer).to(device)
    made = train(model, rows.to(device), spans.to(device), tokenizer.mask_token_id, args)
    model = model.to(torch.bfloat16)
    model.save_pretrained(args.out)
    (args.out / "model.safetensors").chmod(0o644)
    tokenizer.save_pretrained(args.out)
    facts: dict[str, Any] = {
        "flags": {name: value for name, value in vars(args).items() if name not in ("out", "workers")},
        "parameters": sum(p.numel() for p in model.parameters()),
        "corpus_seconds": round(written, 1),
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        **made,
    }
    if args.measure:
        facts["rates"] = measured(model.float().eval(), tokenizer, args.measure, args.samples)
    (args.out / "pretraining.json").write_text(json.dumps(facts, indent=1) + "\n")
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
