"""Per-token outputs of a model at chosen tokens, and only there.

Conventions, for token t of a trace with hidden states h:
  logp[t], entropy[t], logits[t]   from h[t-1]: what the model thought of token t before reading it (t >= 1)
  greedy[t]                        the token that it found likeliest there
  value[t]                         head(h[t-1]): the value of the state in which token t was chosen
  score[t]                         head(h[t]): the number given after token t was read
  drift[t], std[t]                 coordinates of that distribution (forward/asked.py), from h[t-1]
  hidden[t]                        h[t-1] itself, of the last layer: what token t was predicted from
  state[t]                         h[t]: what score[t] is a linear function of
Tokens after the last one that is asked about are not computed. Rows are packed end to end, shared prefixes once
(forward/packing.py); or padded on the right (with causal attention no real token attends to padding, so no mask is
needed), for models whose attention cannot be packed; or, where that gives wrong numbers too, read one at a time
(forward/plain.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from burnish.core.types import Drawn
from burnish.forward import attention, denoise, masked, plain
from burnish.forward.asked import FROM_LOGITS, Asked, reduce_logits
from burnish.forward.context import ContextRunner, drawn_some
from burnish.forward.drawn import Reshape, Temperature, by_temperature, drawn_outputs
from burnish.forward.logprob import live_logits, logp_entropy
from burnish.forward.module import decoder, decoder_states, head, scalar_head, vocabulary_size
from burnish.forward.packing import pack, send
from burnish.forward.paths import paths_of
from burnish.forward.prefix_tree import Numbers
from burnish.forward.runner import ModelRunner
from burnish.forward.sight import Sight, read, sight_of
from burnish.media.ids import has_media, without_media
from burnish.media.store import TEXT_ONLY

CHUNK = 1 << 24  # logits (tokens x vocabulary) worked on at once where the head is not a plain matrix
AFTER = {"score", "state"}  # outputs that are read after the token itself
SHARED = 0.9  # of the tokens asked about: with fewer different ones, they are computed apart


def outputs(
    runner: ModelRunner,
    tokens: Sequence[Tensor | Numbers],
    masks: list[Tensor],
    want: set[str],
    drawn: Drawn | Temperature = 1.0,
    packed: bool = True,
    embedded: list[Tensor] | None = None,
    replayed: bool = False,
    input_keys: Sequence[Numbers] | None = None,
    divided: ContextRunner | None = None,
) -> dict[str, Tensor]:
    """The wanted outputs at the masked tokens of every row, flat in row order: each [N] or [N, ...].

    tokens  rows of token ids; masks  rows of bool, the tokens that are asked about
    drawn  what divides the logits, one for all or one for each masked token; or all of how the tokens were drawn
    packed  rows laid end to end, attention kept inside each, instead of padded to one width
    embedded  input embeddings [T, H] of each row, to be read in place of those of its tokens
    replayed  on a GPU the pass may be the replay of a CUDA graph: one backward follows, into the weights' gradients;
              a pass without gradient always may
    input_keys  what is read at each token, as a number, where it is more than the token; packs share prefixes by them
    divided  the runner again, where ranks divide the tokens of this pass
    """
    draws = denoise.denoising_of(runner.module)
    if draws is not None:
        return denoise.outputs(runner.module, draws, tokens, masks, want, drawn)
    sight = sight_of(runner.module)
    _require_known(tokens, vocabulary_size(runner.module), sight)
    hides = masked.masked_of(runner.module)
    if hides is not None:
        if embedded is not None:
            raise ValueError(
                "what a model reads is changed while it learns, which is not known for one that fills in hidden "
                "tokens; use another method"
            )
        return masked.outputs(runner.module, hides, tokens, masks, want, drawn)
    if not paths_of(runner.module).padded:
        return plain.outputs(runner.module, tokens, masks, want, drawn, embedded)
    device = next(runner.module.parameters()).device
    asked = Asked.of(masks)
    rows = [row.numpy() if isinstance(row, Tensor) else row for row in tokens]
    read = [row[:end] for row, end in zip(rows, asked.ends(bool(want & AFTER)), strict=True)]
    if embedded is not None:
        embedded = [row[: len(short)] for row, short in zip(embedded, read, strict=True)]
    if packed and packable(runner.module):
        if input_keys is not None:
            input_keys = [keys[: len(short)] for keys, short in zip(input_keys, read, strict=True)]
        states, places = _packed(runner, read, asked, device, embedded, replayed, input_keys)
    else:
        states, places = _padded(runner.module, read, device, embedded)
    count = len(asked.flat)
    if divided is not None:
        asked, drawn = asked.some(divided.mine(count)), drawn_some(drawn, divided.mine(count))
    results: dict[str, Tensor] = {}
    if want & FROM_LOGITS:
        chosen = np.concatenate(rows)[asked.flat]
        if sight is not None and has_media(chosen):
            raise ValueError(
                "a term asks for the log-prob of a picture's token, which is read and never written; leave pictures "
                "out of what it trains on"
            )
        reshape = Reshape.of(drawn, rows, asked.row, asked.at)
        results |= by_temperature(
            drawn.temperature if isinstance(drawn, Drawn) else drawn,
            lambda some, t: (
                _at_tokens(runner, states, chosen[some], asked.some(some), places, want & FROM_LOGITS, t)
                if reshape is None
                else _reshaped(runner, states, chosen, asked, places, want & FROM_LOGITS, t, reshape, some)
            ),
        )
    if "hidden" in want:
        results["hidden"] = _lines(states, places(asked.row, asked.at - 1))
    if "value" in want:
        results["value"] = scalar_head(runner.module, _lines(states, places(asked.row, asked.at - 1)))
    if want & AFTER:
        after = _lines(states, places(asked.row, asked.at))
        results |= {"state": after} if "state" in want else {}
        results |= {"score": scalar_head(runner.module, after)} if "score" in want else {}
    return results if divided is None else divided.joined(results, count)


def _require_known(tokens: Sequence[Tensor | Numbers], vocabulary: int, sight: Sight | None) -> None:
    """Raise ValueError for a token without an embedding, which torch would look up beyond the end of the table."""
    each = [row.numpy() if isinstance(row, Tensor) else row for row in tokens]
    rows = np.concatenate(each)
    if has_media(rows):
        if sight is None:
            raise ValueError(TEXT_ONLY)
        sight.check(each)
        rows = without_media(rows)
    if rows.min(initial=0) < 0 or rows.max(initial=0) >= vocabulary:
        strange = int(rows[(rows < 0) | (rows >= vocabulary)][0])
        raise ValueError(f"a trace has the token {strange}, but the model's vocabulary ends at {vocabulary - 1}")


def _at_tokens(
    runner: ModelRunner,
    states: Tensor,
    chosen: Numbers,
    asked: Asked,
    places: Places,
    want: set[str],
    temperature: float,
) -> dict[str, Tensor]:
    """What the head says of the tokens that are asked about. On a CPU, rows share tokens too: each is
    looked at once.
    """
    row, at, again = asked.row, asked.at, None
    vocabulary = vocabulary_size(runner.module)
    if not states.is_cuda:  # the same token, after the same ones
        same = places(row, at - 1) * vocabulary + chosen
        _, first, again = np.unique(same, return_index=True, return_inverse=True)
        if len(first) < SHARED * len(row):
            row, at, chosen = row[first], at[first], chosen[first]
        else:
            again = None
    before = _lines(states, places(row, at - 1))
    results = _from_logits(runner, before, send(torch.from_numpy(chosen), states.device), want, temperature)
    return results if again is None else {name: _lines(x, again) for name, x in results.items()}


def _reshaped(
    runner: ModelRunner,
    states: Tensor,
    chosen: Numbers,
    asked: Asked,
    places: Places,
    want: set[str],
    temperature: float,
    reshape: Reshape,
    some: Numbers | slice,
) -> dict[str, Tensor]:
    """What the head says of some of the tokens, drawn among a part of the vocabulary or under a penalty."""
    which = np.arange(len(asked.at))[some]
    before = _lines(states, places(asked.row[which], asked.at[which] - 1))
    ids = send(torch.from_numpy(chosen[which]), states.device)

    def part(some: Tensor, ids: Tensor, numbers: Numbers) -> dict[str, Tensor]:
        return drawn_outputs(reshape.apply(_logits(runner, some), numbers, 1 / temperature), ids, want)

    return _by_chunks(part, runner, want, before, ids, which)


def _logits(runner: ModelRunner, states: Tensor) -> Tensor:
    """[n, V] before the temperature, by the same product as the sampler's."""
    plain = runner.head()
    if plain is None:
        return head(runner.module, states)
    return live_logits(states, plain.weight, plain.factor, plain.matmul)


def _by_chunks(
    part: Callable[[Tensor, Tensor, Numbers], dict[str, Tensor]],
    runner: ModelRunner,
    want: set[str],
    states: Tensor,
    chosen: Tensor,
    which: Numbers,
) -> dict[str, Tensor]:
    """part's outputs of chunks of tokens, whose logits the backward makes again unless there is one chunk."""
    size = max(1, CHUNK // vocabulary_size(runner.module))
    if len(states) <= size or "logits" in want:
        return part(states, chosen, which)
    pieces = zip(states.split(size), chosen.split(size), np.split(which, range(size, len(which), size)), strict=True)
    grad = torch.is_grad_enabled()
    done = [checkpoint(part, *piece, use_reentrant=False) if grad else part(*piece) for piece in pieces]
    return {name: torch.cat([values[name] for values in done]) for name in done[0]}


def _lines(states: Tensor, places: Numbers) -> Tensor:
    """states[places]. The replies of a group all ask about the end of their prompt, so its gradient is a sum; indexing
    on a
    CPU adds it up in whatever order its threads come, this always in the same; on a GPU it is the other way round."""
    at = send(torch.from_numpy(places), states.device)
    return states[at] if states.is_cuda else states.index_select(0, at)


def packable(model: nn.Module) -> bool:
    """Whether the model's attention is ours throughout, does nothing that packs do not know, and passed the check at
    load.
    """
    if not paths_of(model).packed:
        return False
    config = decoder(model).config
    kinds = set(getattr(config, "layer_types", None) or ())
    plain = getattr(config, "attn_logit_softcapping", None) is None
    return config._attn_implementation == attention.NAME and plain and kinds <= {"full_attention", "sliding_attention"}


Embedded = list[Tensor] | None
Places = Callable[[Numbers, Numbers], Numbers]  # (rows, numbers of tokens there) -> where their states are


def _padded(model: nn.Module, tokens: list[Numbers], device: torch.device, embedded: Embedded) -> tuple[Tensor, Places]:
    """[B x T, H] hidden states of right-padded rows."""
    width = max(len(row) for row in tokens)
    rows = nn.utils.rnn.pad_sequence([torch.from_numpy(row) for row in tokens], batch_first=True)
    sight, inputs = sight_of(model), dict[str, object]()
    if embedded is not None:
        inputs["inputs_embeds"] = nn.utils.rnn.pad_sequence(embedded, batch_first=True)
    else:
        inputs |= read(model, rows.to(device))
    if sight is not None and sight.axes and has_media(rows.numpy()):
        inputs["position_ids"] = sight.placed(rows.numpy()).to(device)
    states = decoder_states(model, **inputs)
    return states.reshape(-1, states.shape[-1]), lambda row, at: at + row * width


def _packed(
    runner: ModelRunner,
    tokens: list[Numbers],
    asked: Asked,
    device: torch.device,
    embedded: Embedded,
    replayed: bool = False,
    input_keys: Sequence[Numbers] | None = None,
) -> tuple[Tensor, Places]:
    """[N, H] hidden states of rows laid end to end; prefixes are shared where the input is the tokens themselves."""
    window = getattr(decoder(runner.module).config, "sliding_window", None) or float("inf")
    shared = embedded is None and max(map(len, tokens)) <= window
    firsts = asked.first if shared else None
    sight = sight_of(runner.module)
    by_tokens = embedded is None and input_keys is None and not (sight is not None and any(map(has_media, tokens)))
    replayed = replayed or not torch.is_grad_enabled()
    by_graph = runner.replay(tokens, firsts) if replayed and by_tokens else None
    if by_graph is not None:
        return by_graph[0], by_graph[1].places
    rows = pack(tokens, firsts, device, input_keys=input_keys)
    given = rows.tokens[None] if embedded is None else torch.cat(embedded)[None]
    positions = rows.positions[None]
    if sight is not None:
        positions = sight.in_pack(positions, tokens, rows.lines)
    return runner.hidden(given, positions, rows)[0], rows.places


def _from_logits(
    runner: ModelRunner, states: Tensor, chosen: Tensor, want: set[str], temperature: float
) -> dict[str, Tensor]:
    """Log-prob, entropy, logits in chunks of tokens, so that the whole [N, V] matrix never exists at once."""
    if "logits" in want:
        logits = head(runner.module, states) / temperature
        return {"logits": logits, **reduce_logits(logits, chosen, want - {"logits"})}
    plain = runner.head()
    if plain is not None and not want & {"greedy", "drift", "std"}:
        factor = plain.factor / temperature
        logp, entropy = logp_entropy(states, plain.weight, chosen, factor, "entropy" in want, plain.matmul)
        return {name: x for name, x in (("logp", logp), ("entropy", entropy)) if name in want}

    def part(some: Tensor, ids: Tensor, its: Numbers) -> dict[str, Tensor]:
        return reduce_logits(head(runner.module, some) / temperature, ids, want)

    return _by_chunks(part, runner, want, states, chosen, np.arange(len(states)))
