"""Per-token outputs of a model at chosen tokens, and only there.

Conventions, for token t of a trace with hidden states h:
  logp[t], entropy[t], logits[t]   from h[t-1]: what the model thought of token t before reading it (t >= 1)
  greedy[t]                        the token that it found likeliest there
  value[t]                         head(h[t-1]): the value of the state in which token t was chosen
  score[t]                         head(h[t]): the number given after token t was read
A row is read as far as somebody asks, and no further. Rows are packed end to end, beginnings that they share read once
(cast/packing.py); or padded on the right (with causal attention a real token never looks at padding, so no mask is needed),
for models whose attention cannot be packed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from burnish.cast import attention
from burnish.cast.fused import Fused
from burnish.cast.logprob import logits_of, logp_entropy
from burnish.cast.native.llama import Llama, Matrix
from burnish.cast.packing import pack, send, trues
from burnish.cast.tree import Numbers

CHUNK = 1 << 24  # logits (tokens x vocabulary) worked on at once where the head is not a plain matrix
SHARED = 0.9  # of the tokens asked about: with fewer different ones, they are told apart
FROM_LOGITS = {"logp", "entropy", "logits", "greedy"}


def outputs(
    model: nn.Module,
    tokens: Sequence[Tensor | Numbers],
    masks: list[Tensor],
    want: set[str],
    temperature: float = 1.0,
    packed: bool = True,
    embedded: list[Tensor] | None = None,
    recorded: bool = False,
) -> dict[str, Tensor]:
    """The wanted outputs at the masked tokens of every row, flat in row order: each [N] or [N, ...].

    tokens  rows of token ids; masks  rows of bool, the tokens that are asked about
    packed  rows laid end to end, attention kept inside each, instead of padded to one width
    embedded  input embeddings [T, H] of each row, to be read in place of those of its tokens
    recorded  on a GPU the pass may be replayed (cast/recorded.py): one backward follows, straight into the weights' gradients
    """
    device = next(model.parameters()).device
    asked = Asked.of(masks)
    rows = [row.numpy() if isinstance(row, Tensor) else row for row in tokens]
    read = [row[:end] for row, end in zip(rows, asked.ends("score" in want), strict=True)]
    if embedded is not None:
        embedded = [row[: len(short)] for row, short in zip(embedded, read, strict=True)]
    if packed and packable(model):
        states, places = _packed(model, read, asked, device, embedded, recorded)
    else:
        states, places = _padded(model, read, device, embedded)
    found: dict[str, Tensor] = {}
    if want & FROM_LOGITS:
        found |= _at_tokens(
            model, states, np.concatenate(rows)[asked.flat], asked, places, want & FROM_LOGITS, temperature
        )
    if "value" in want:
        found["value"] = _head(model, _lines(states, places(asked.row, asked.at - 1)))
    if "score" in want:
        found["score"] = _head(model, _lines(states, places(asked.row, asked.at)))
    return found


def _at_tokens(
    model: nn.Module, states: Tensor, chosen: Numbers, asked: Asked, places: Places, want: set[str], temperature: float
) -> dict[str, Tensor]:
    """What the head says of the tokens that are asked about. On a CPU, rows share tokens too: each is looked at once."""
    row, at, again = asked.row, asked.at, None
    vocabulary: int = model.get_input_embeddings().weight.shape[0]  # type: ignore[operator, union-attr]
    if chosen.min(initial=0) < 0 or chosen.max(initial=0) >= vocabulary:  # the last of a row is looked up nowhere else
        strange = int(chosen[(chosen < 0) | (chosen >= vocabulary)][0])
        raise ValueError(f"a trace has the token {strange}, but the model's vocabulary ends at {vocabulary - 1}")
    if not states.is_cuda:  # the same token, after the same ones
        same = places(row, at - 1) * vocabulary + chosen
        _, first, again = np.unique(same, return_index=True, return_inverse=True)
        if len(first) < SHARED * len(row):
            row, at, chosen = row[first], at[first], chosen[first]
        else:
            again = None
    before = _lines(states, places(row, at - 1))
    found = _from_logits(model, before, send(torch.from_numpy(chosen), states.device), want, temperature)
    return found if again is None else {name: _lines(x, again) for name, x in found.items()}


@dataclass(frozen=True)
class Asked:
    """The tokens that are asked about, row after row.

    flat, row, at  [N] their numbers among the tokens of all rows, their rows, their numbers there
    first, last    for each row: the first one and the last one; where there is none, 1 and 0
    """

    flat: Numbers
    row: Numbers
    at: Numbers
    first: list[int]
    last: list[int]

    def ends(self, themselves: bool) -> list[int]:
        """How many tokens of each row are read, one at least: all before the last that is asked about, or (themselves) that one, too."""
        return [max(1, last + themselves) for last in self.last]

    @classmethod
    def of(cls, masks: list[Tensor]) -> Asked:
        lengths = np.array([mask.shape[0] for mask in masks])
        ends = np.cumsum(lengths)
        starts = ends - lengths
        flat, cuts = trues(masks, ends)
        counts = np.diff(cuts)
        row = np.repeat(np.arange(len(masks)), counts)
        at = flat - np.repeat(starts, counts)
        if not at.all():
            raise ValueError(
                "the first token of a trace has no log-prob and no value: nothing comes before it; leave it out of the members"
            )
        some = counts > 0
        first, last = np.ones_like(lengths), np.zeros_like(lengths)
        first[some], last[some] = at[cuts[:-1][some]], at[cuts[1:][some] - 1]
        return cls(flat, row, at, first.tolist(), last.tolist())


def _lines(states: Tensor, places: Numbers) -> Tensor:
    """states[places]. The replies of a group all ask about the end of their prompt, so its gradient is a sum; indexing on a
    CPU adds it up in whatever order its threads come, this always in the same; on a GPU it is the other way round."""
    at = send(torch.from_numpy(places), states.device)
    return states[at] if states.is_cuda else states.index_select(0, at)


def packable(model: nn.Module) -> bool:
    """Whether the model's attention is ours throughout, and does nothing that packs do not know."""
    config = decoder(model).config
    kinds = set(getattr(config, "layer_types", None) or ())
    plain = getattr(config, "attn_logit_softcapping", None) is None  # type: ignore[arg-type]
    return config._attn_implementation == attention.NAME and plain and kinds <= {"full_attention", "sliding_attention"}  # type: ignore[union-attr]


Embedded = list[Tensor] | None
Places = Callable[[Numbers, Numbers], Numbers]  # (rows, numbers of tokens there) -> where their states are


def _padded(model: nn.Module, tokens: list[Numbers], device: torch.device, embedded: Embedded) -> tuple[Tensor, Places]:
    """[B x T, H] hidden states of right-padded rows."""
    width = max(len(row) for row in tokens)
    if embedded is not None:
        inputs = {"inputs_embeds": nn.utils.rnn.pad_sequence(embedded, batch_first=True)}
    else:
        rows = [torch.from_numpy(row) for row in tokens]
        inputs = {"input_ids": nn.utils.rnn.pad_sequence(rows, batch_first=True).to(device)}
    states = _hidden(model, **inputs)
    return states.reshape(-1, states.shape[-1]), lambda row, at: at + row * width


def _packed(
    model: nn.Module,
    tokens: list[Numbers],
    asked: Asked,
    device: torch.device,
    embedded: Embedded,
    recorded: bool = False,
) -> tuple[Tensor, Places]:
    """[N, H] hidden states of rows laid end to end; beginnings are shared where rows are read as they are."""
    window = getattr(decoder(model).config, "sliding_window", None) or float("inf")  # type: ignore[arg-type]
    shared = embedded is None and max(map(len, tokens)) <= window  # type: ignore[operator]
    firsts = asked.first if shared else None
    recorder = getattr(model, "recorder", None) if recorded and embedded is None else None
    replayed = recorder.states(tokens, firsts) if recorder is not None else None
    if replayed is not None:
        return replayed[0], replayed[1].places
    rows = pack(tokens, firsts, device)
    given = rows.tokens[None] if embedded is None else torch.cat(embedded)[None]
    return hidden(model, given, rows.positions[None], rows)[0], rows.places


def hidden(model: nn.Module, given: Tensor, positions: Tensor, layout: attention.Layout) -> Tensor:
    """[1, N, H]: the last hidden states of tokens [1, N], or of their embeddings [1, N, H], that see each other as `layout` says."""
    fused: Fused | None = getattr(model, "fused", None)
    tokens = given.ndim == 2
    recomputes = torch.is_grad_enabled() and getattr(model, "recomputes", False)  # its modules know how
    if fused is not None and not recomputes and getattr(layout, "read_by_tiles", False):
        x = nn.functional.embedding(given[0], fused.embedding) if tokens else given[0]
        return fused.states(x, positions[0], layout)[None]
    inputs = {"input_ids" if tokens else "inputs_embeds": given}
    return _hidden(
        model, **inputs, position_ids=positions, attention_mask=attention.no_mask(given.device), layout=layout
    )


def _hidden(model: nn.Module, **inputs: Any) -> Tensor:
    """The last hidden states, from the decoder under the head."""
    return decoder(model)(**inputs, use_cache=False).last_hidden_state  # type: ignore[no-any-return]


def wide(x: Tensor) -> Tensor:
    """At least fp32: sums over tokens and softmaxes are never taken in half precision."""
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


def _bare(model: nn.Module) -> nn.Module:
    """The transformers model, without the wrapper that adapters put around it."""
    return model.get_base_model() if "peft" in type(model).__module__ else model  # type: ignore[operator, return-value]


def decoder(model: nn.Module) -> nn.Module:
    """The transformer under the head, adapters included."""
    inner = _bare(model)
    return inner.base_model if inner.base_model is not inner else inner.get_decoder()  # type: ignore[operator, return-value]


def head(model: nn.Module, states: Tensor) -> Tensor:
    """Logits from hidden states, with the scalings that some architectures apply after the matrix."""
    inner = _bare(model)
    config = inner.config
    logits = wide(inner.get_output_embeddings()(states))  # type: ignore[operator]
    if scaling := getattr(config, "logits_scaling", None):  # Granite
        logits = logits / scaling
    if scale := getattr(config, "logit_scale", None):  # Cohere
        logits = logits * scale
    if cap := getattr(config, "final_logit_softcapping", None):  # Gemma
        logits = cap * torch.tanh(logits / cap)
    return logits


def logits_at(model: nn.Module, states: Tensor) -> Tensor:
    """[N, V] logits from hidden states, without gradient, in at least fp32."""
    if isinstance(model, Llama):
        return model.logits(states)
    found = plain_head(model)
    return logits_of(states, *found) if found is not None else head(model, states)


def _head(model: nn.Module, states: Tensor) -> Tensor:
    """[N, k], or [N] for a single output."""
    inner = _bare(model)
    matrix: Tensor = inner.score.weight  # type: ignore[union-attr, assignment]
    return (wide(states) @ wide(matrix).t()).squeeze(-1)


def plain_head(model: nn.Module) -> tuple[Tensor, float] | None:
    """The matrix of a head that is only a matrix, and the factor that follows it; None for any other head."""
    inner = _bare(model)
    matrix, config = inner.get_output_embeddings(), inner.config  # type: ignore[operator, union-attr]
    if (
        type(matrix) not in (nn.Linear, Matrix)
        or matrix.bias is not None
        or getattr(config, "final_logit_softcapping", None)
    ):
        return None
    return matrix.weight, (getattr(config, "logit_scale", None) or 1.0) / (
        getattr(config, "logits_scaling", None) or 1.0
    )


def _from_logits(
    model: nn.Module, states: Tensor, chosen: Tensor, want: set[str], temperature: float
) -> dict[str, Tensor]:
    """Log-prob, entropy, logits in chunks of tokens, so that the whole [N, V] matrix never exists at once."""
    if "logits" in want:
        logits = head(model, states) / temperature
        return {"logits": logits, **_reduce(logits, chosen, want - {"logits"})}
    found = plain_head(model)
    if found is not None and "greedy" not in want:
        weight, factor = found
        product = model.logits if isinstance(model, Llama) else None
        logp, entropy = logp_entropy(states, weight, chosen, factor / temperature, "entropy" in want, product)
        return {name: x for name, x in (("logp", logp), ("entropy", entropy)) if name in want}
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
