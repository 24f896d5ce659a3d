"""Per-token outputs of a model at chosen tokens, and only there.

Conventions, for token t of a trace with hidden states h:
  logp[t], entropy[t], logits[t]   from h[t-1]: what the model thought of token t before reading it (t >= 1)
  greedy[t]                        the token that it found likeliest there
  value[t]                         head(h[t-1]): the value of the state in which token t was chosen
  score[t]                         head(h[t]): the number given after token t was read
Rows are padded on the right (with causal attention a real token never looks at padding, so no mask is needed) or packed.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

CHUNK = 1 << 24  # logits (tokens x vocabulary) worked on at once
FROM_LOGITS = {"logp", "entropy", "logits", "greedy"}


def outputs(
    model: nn.Module,
    tokens: list[Tensor],
    masks: list[Tensor],
    want: set[str],
    temperature: float = 1.0,
    packed: bool = False,
    embedded: list[Tensor] | None = None,
) -> dict[str, Tensor]:
    """The wanted outputs at the masked tokens of every row, flat in row order: each [N] or [N, ...].

    tokens  rows of token ids; masks  rows of bool, the tokens that are asked about
    packed  rows laid end to end, attention kept inside each, instead of padded to one width
    embedded  input embeddings [T, H] of each row, to be read in place of those of its tokens
    """
    device = next(model.parameters()).device
    states, starts = (_packed if packed else _padded)(model, tokens, device, embedded)
    places = [_places(mask) + start for mask, start in zip(masks, starts, strict=True)]
    at = torch.cat(places).to(device)
    found: dict[str, Tensor] = {}
    if want & FROM_LOGITS:
        chosen = torch.cat([row[mask] for row, mask in zip(tokens, masks, strict=True)]).to(device)
        found |= _from_logits(model, states[at - 1], chosen, want & FROM_LOGITS, temperature)
    if "value" in want:
        found["value"] = _head(model, states[at - 1])
    if "score" in want:
        found["score"] = _head(model, states[at])
    return found


def _places(mask: Tensor) -> Tensor:
    if bool(mask[0]):
        raise ValueError(
            "the first token of a trace has no log-prob and no value: nothing comes before it; leave it out of the members"
        )
    return mask.nonzero()[:, 0]


Embedded = list[Tensor] | None


def _padded(
    model: nn.Module, tokens: list[Tensor], device: torch.device, embedded: Embedded
) -> tuple[Tensor, list[int]]:
    """[B x T, H] hidden states of right-padded rows, and where each row starts."""
    width = max(len(row) for row in tokens)
    if embedded is not None:
        inputs = {"inputs_embeds": nn.utils.rnn.pad_sequence(embedded, batch_first=True)}
    else:
        inputs = {"input_ids": nn.utils.rnn.pad_sequence(tokens, batch_first=True).to(device)}
    hidden = _hidden(model, device, **inputs)
    return hidden.reshape(-1, hidden.shape[-1]), [i * width for i in range(len(tokens))]


def _packed(
    model: nn.Module, tokens: list[Tensor], device: torch.device, embedded: Embedded
) -> tuple[Tensor, list[int]]:
    """[sum T, H] hidden states of rows laid end to end: positions that start over tell transformers where one ends."""
    if embedded is not None:
        inputs = {"inputs_embeds": torch.cat(embedded)[None]}
    else:
        inputs = {"input_ids": torch.cat(tokens)[None].to(device)}
    positions = torch.cat([torch.arange(len(row)) for row in tokens])[None].to(device)
    starts = torch.tensor([0, *(len(row) for row in tokens[:-1])]).cumsum(0).tolist()
    return _hidden(model, device, **inputs, position_ids=positions)[0], starts


def _hidden(model: nn.Module, device: torch.device, **inputs: Tensor) -> Tensor:
    """The last hidden states, in at least fp32, from the decoder under the head."""
    with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
        return wide(decoder(model)(**inputs, use_cache=False).last_hidden_state)


def wide(x: Tensor) -> Tensor:
    """At least fp32: sums over tokens and softmaxes are never taken in half precision."""
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


def decoder(model: nn.Module) -> nn.Module:
    """The transformer under the head, adapters included."""
    inner = model.get_base_model() if "peft" in type(model).__module__ else model  # type: ignore[operator]
    return inner.base_model if inner.base_model is not inner else inner.get_decoder()  # type: ignore[operator, return-value]


def head(model: nn.Module, states: Tensor) -> Tensor:
    """Logits from hidden states, with the scalings that some architectures apply after the matrix."""
    inner = model.get_base_model() if "peft" in type(model).__module__ else model  # type: ignore[operator]
    config = inner.config
    logits = wide(inner.get_output_embeddings()(states))  # type: ignore[operator]
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
    return wide(inner.score(states)).squeeze(-1)  # type: ignore[operator, union-attr]


def _from_logits(
    model: nn.Module, states: Tensor, chosen: Tensor, want: set[str], temperature: float
) -> dict[str, Tensor]:
    """Log-prob, entropy, logits in chunks of tokens, so that the whole [N, V] matrix never exists at once."""
    if "logits" in want:
        logits = head(model, states) / temperature
        return {"logits": logits, **_reduce(logits, chosen, want - {"logits"})}
    vocabulary: int = model.get_input_embeddings().weight.shape[0]  # type: ignore[operator, union-attr]
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
    if "greedy" in want:
        found["greedy"] = logits.argmax(-1)
    if "entropy" in want:
        found["entropy"] = logz - (torch.softmax(logits, -1) * logits).sum(-1)
    return found
