"""Per-token outputs of a model at chosen tokens, and only there.

Conventions, for token t of a trace with hidden states h:
  logp[t], entropy[t], logits[t]   from h[t-1]: what the model thought of token t before reading it (t >= 1)
  value[t]                         head(h[t-1]): the value of the state in which token t was chosen
  score[t]                         head(h[t]): the number given after token t was read
Rows are padded on the right: with causal attention a real token never looks at padding, so no mask is needed.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

CHUNK = 1 << 24  # logits (tokens x vocabulary) worked on at once
AFTER = {"score"}  # outputs read after the token; all others are read before it
FROM_LOGITS = {"logp", "entropy", "logits"}


def outputs(model: nn.Module, tokens: list[Tensor], masks: list[Tensor], want: set[str], temperature: float = 1.0) -> dict[str, Tensor]:
    """The wanted outputs at the masked tokens of every row, flat in row order: each [N] or [N, ...].

    tokens  rows of token ids; masks  rows of bool, the tokens that are asked about
    """
    device = next(model.parameters()).device
    hidden = _hidden(model, tokens, device)
    lengths = [len(row) for row in tokens]
    found: dict[str, Tensor] = {}
    before = torch.cat([_flat(mask, row, hidden.shape[1], shift=1) for row, mask in enumerate(masks)]).to(device)
    states = hidden.reshape(-1, hidden.shape[-1])
    assert max(lengths) <= hidden.shape[1]
    if want & FROM_LOGITS:
        chosen = torch.cat([row[mask] for row, mask in zip(tokens, masks, strict=True)]).to(device)
        found |= _from_logits(model, states[before], chosen, want & FROM_LOGITS, temperature)
    if "value" in want:
        found["value"] = _head(model, states[before])
    if "score" in want:
        at = torch.cat([_flat(mask, row, hidden.shape[1], shift=0) for row, mask in enumerate(masks)]).to(device)
        found["score"] = _head(model, states[at])
    return found


def _flat(mask: Tensor, row: int, width: int, shift: int) -> Tensor:
    where = mask.nonzero()[:, 0] - shift
    if len(where) and int(where[0]) < 0:
        raise ValueError("the first token of a trace has no log-prob and no value: nothing comes before it; leave it out of the members")
    return where + row * width


def _hidden(model: nn.Module, tokens: list[Tensor], device: torch.device) -> Tensor:
    """[B, T, H]: the last hidden states of right-padded rows, from the decoder under the head."""
    width = max(len(row) for row in tokens)
    ids = torch.zeros(len(tokens), width, dtype=torch.long)
    for i, row in enumerate(tokens):
        ids[i, : len(row)] = row
    with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
        return decoder(model)(input_ids=ids.to(device), use_cache=False).last_hidden_state.float()


def decoder(model: nn.Module) -> nn.Module:
    """The transformer under the head, adapters included."""
    inner = model.get_base_model() if "peft" in type(model).__module__ else model  # type: ignore[operator]
    return inner.base_model if inner.base_model is not inner else inner.get_decoder()  # type: ignore[operator, return-value]


def head(model: nn.Module, states: Tensor) -> Tensor:
    """Logits from hidden states, with the scalings that some architectures apply after the matrix."""
    inner = model.get_base_model() if "peft" in type(model).__module__ else model  # type: ignore[operator]
    config = inner.config
    logits = inner.get_output_embeddings()(states).float()  # type: ignore[operator]
    if scaling := getattr(config, "logits_scaling", None):  # Granite
        logits = logits / scaling
    if scale := getattr(config, "logit_scale", None):  # Cohere
        logits = logits * scale
    if cap := getattr(config, "final_logit_softcapping", None):  # Gemma
        logits = cap * torch.tanh(logits / cap)
    return logits


def _head(model: nn.Module, states: Tensor) -> Tensor:
    """[N, k], or [N] for a single output."""
    inner = model.get_base_model() if "peft" in type(model).__module__ else model  # type: ignore[operator]
    return inner.score(states).float().squeeze(-1)  # type: ignore[operator, union-attr]


def _from_logits(model: nn.Module, states: Tensor, chosen: Tensor, want: set[str], temperature: float) -> dict[str, Tensor]:
    """Log-prob, entropy, logits in chunks of tokens, so that the whole [N, V] matrix never exists at once."""
    if "logits" in want:
        logits = head(model, states) / temperature
        return {"logits": logits, **_reduce(logits, chosen, want - {"logits"})}
    vocabulary = model.config.vocab_size  # type: ignore[union-attr]
    size = max(1, CHUNK // vocabulary)

    def part(some: Tensor, ids: Tensor) -> tuple[Tensor, ...]:
        found = _reduce(head(model, some) / temperature, ids, want)
        return tuple(found[name] for name in sorted(want))

    if len(states) <= size:
        return dict(zip(sorted(want), part(states, chosen), strict=True))
    grad = torch.is_grad_enabled()
    done = [
        checkpoint(part, some, ids, use_reentrant=False) if grad else part(some, ids)
        for some, ids in zip(states.split(size), chosen.split(size), strict=True)
    ]
    return {name: torch.cat([values[k] for values in done]) for k, name in enumerate(sorted(want))}


def _reduce(logits: Tensor, chosen: Tensor, want: set[str]) -> dict[str, Tensor]:
    found = {}
    if want:
        logz = torch.logsumexp(logits, -1)
    if "logp" in want:
        found["logp"] = logits.gather(-1, chosen[:, None])[:, 0] - logz
    if "entropy" in want:
        found["entropy"] = logz - (torch.softmax(logits, -1) * logits).sum(-1)
    return found
