"""How long a step takes on GPUs that are not at hand: a cost model with numbers from one H200, and from data sheets.

Times are sums of what is computed, read and sent, each divided by what a GPU does a second, times a factor:

    learn     MATMUL (1 + WIDTH / hidden) matmul FLOPs / peak  +  ATTENTION attention FLOPs / peak
    decode    per token: LAUNCH seconds a layer (ADAPTERS more with LoRA), and the larger of weight bytes / (READ
              bandwidth) and FLOPs / (BATCHED peak), and key and value bytes / (KEYS bandwidth)
    exchange  bytes of `--shard` / the slowest link, less what the backward pass hides

The factors of the first two were fitted to six runs on an H200 and compared with others that they were not fitted to
(tests/run/test_step_time.py has both, with the misses). Exchanges were not measured: there was one GPU.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from burnish.core.roles import Role
from burnish.models.decoder_shape import HALF, NF4, DecoderShape
from burnish.models.lora import Lora
from burnish.run.memory_plan import Choices

MATMUL, WIDTH, ATTENTION = 1.466, 710.0, 8.38
FORWARD, WHOLE, FROZEN, AGAIN = 1, 3, 2, 1  # passes of matmuls: forward; with both gradients; without those of weights
ATTENTION_PASSES = 3.5  # forward, and backward with scores computed again
LAUNCH, ADAPTERS = 23e-6, 22e-6
READ, BATCHED, KEYS = 0.68, 0.42, 0.43
HIDDEN_SHARE = 2 / 3  # of the learn time: the backward pass, behind which gradients travel
TERA, GIGA = 1e12, 1e9


@dataclass(frozen=True)
class Gpu:
    """A GPU of a data sheet: dense bf16 FLOP/s, bytes/s of its memory, bytes of it, bytes/s to a neighbour in its
    machine and to another machine (one way), and how many GPUs share the fast links."""

    peak: float
    bandwidth: float
    memory: float
    link: float
    network: float
    domain: int = 8


GPUS = {
    "a100": Gpu(312 * TERA, 2.04 * TERA, 80 * GIGA, 300 * GIGA, 25 * GIGA),
    "h100": Gpu(989 * TERA, 3.35 * TERA, 80 * GIGA, 450 * GIGA, 50 * GIGA),
    "h800": Gpu(989 * TERA, 3.35 * TERA, 80 * GIGA, 200 * GIGA, 50 * GIGA),
    "h20": Gpu(148 * TERA, 4.0 * TERA, 96 * GIGA, 450 * GIGA, 50 * GIGA),
    "h200": Gpu(989 * TERA, 4.8 * TERA, 141 * GIGA, 450 * GIGA, 50 * GIGA),
    "b200": Gpu(2250 * TERA, 8.0 * TERA, 180 * GIGA, 900 * GIGA, 50 * GIGA),
    "gb200": Gpu(2450 * TERA, 8.0 * TERA, 186 * GIGA, 900 * GIGA, 50 * GIGA, 64),
    "l40s": Gpu(362 * TERA, 0.864 * TERA, 48 * GIGA, 32 * GIGA, 12.5 * GIGA),
    "4090": Gpu(165 * TERA, 1.008 * TERA, 24 * GIGA, 32 * GIGA, 12.5 * GIGA),
}


@dataclass(frozen=True)
class Cluster:
    """Machines with GPUs of one kind."""

    name: str
    gpu: Gpu
    per_node: int
    nodes: int = 1

    @property
    def ranks(self) -> int:
        return self.per_node * self.nodes

    @property
    def link(self) -> float:
        """Bytes a second between neighbours in a ring of all GPUs: its slowest part."""
        return self.gpu.network if self.nodes > 1 else self.gpu.link

    @classmethod
    def read(cls, text: str, nodes: int = 1) -> Cluster:
        """From 8xH100: the GPUs of each machine."""
        parts = re.fullmatch(r"(?:(\d+)x)?([a-z0-9]+)", text.strip().lower())
        if parts is None or parts[2] not in GPUS or int(parts[1] or 1) < 1 or nodes < 1:
            raise ValueError(
                f"--cluster is {text!r} with --nodes {nodes}; it is the GPUs of one machine, such as 8xH100, of the "
                f"kinds {', '.join(name.upper() for name in GPUS)}"
            )
        return cls(parts[2].upper(), GPUS[parts[2]], int(parts[1] or 1), nodes)


@dataclass(frozen=True)
class Work:
    """What a step does on all GPUs: rows with a prompt and a reply of so many tokens, `shared` rows to a prompt."""

    rows: int
    prompt: int
    reply: int
    shared: int = 1
    samples: bool = True

    def on(self, ranks: int) -> Work:
        """The part of one of so many ranks."""
        return Work(-(-self.rows // ranks), self.prompt, self.reply, self.shared, self.samples)

    @property
    def tokens(self) -> float:
        """Tokens that a pass computes: prompts once."""
        return self.rows * self.reply + self.rows / self.shared * self.prompt


@dataclass(frozen=True)
class StepTime:
    """Seconds of a step by what they are for."""

    rollout: float
    others: float
    learn: float
    exchange: float

    @property
    def total(self) -> float:
        return self.rollout + self.others + self.learn + self.exchange


def pass_seconds(shape: DecoderShape, work: Work, gpu: Gpu, matmuls: float, attentions: float) -> float:
    """Passes over all rows. matmuls, attentions: how often each is computed, a backward pass counting as its share."""
    length = work.prompt + work.reply
    products = matmuls * 2 * shape.linear * work.tokens + min(matmuls, 3) * 2 * shape.vocabulary * shape.hidden * (
        work.rows * work.reply
    )
    scores = attentions * work.rows * 2 * shape.layers * shape.heads * shape.head_dim * length**2
    return (MATMUL * (1 + WIDTH / shape.hidden) * products + ATTENTION * scores) / gpu.peak


def decode_seconds(shape: DecoderShape, work: Work, gpu: Gpu, adapted: bool, quantised: bool) -> float:
    """Sampling: all rows at once, as many steps as a reply has tokens."""
    weights = HALF * (shape.weights - shape.linear) + (NF4 if quantised else HALF) * shape.linear
    layers = shape.layers * (LAUNCH + (ADAPTERS if adapted else 0.0))
    computed = work.rows * 2 * shape.weights / (BATCHED * gpu.peak)
    keys = (work.rows * work.reply / 2 + work.rows / work.shared * work.prompt) * shape.kv_bytes()
    step = layers + max(weights / (READ * gpu.bandwidth), computed) + keys / (KEYS * gpu.bandwidth)
    return work.reply * step


def step_time(
    shapes: Mapping[str, DecoderShape],
    roles: Mapping[str, Role],
    product: str,
    lora: Lora | None,
    work: Work,
    how: Choices,
    cluster: Cluster,
    context: int = 1,
) -> StepTime:
    """Seconds of one step with these choices, `context` ranks dividing the tokens of a pass."""
    gpu, mine = cluster.gpu, work.on(cluster.ranks)
    again = AGAIN if how.activations == "recompute" else 0
    learn = others = exchange = 0.0
    for name, role in roles.items():
        shape = shapes[name]
        if role.liveness == "frozen":
            others += pass_seconds(shape, mine, gpu, FORWARD, 1)
        if role.liveness == "trained":
            matmuls = (WHOLE if lora is None else FROZEN) + again
            learned = pass_seconds(shape, mine, gpu, matmuls, ATTENTION_PASSES + again)
            learn += learned
            exchange += max(0.0, exchange_seconds(shape, lora, mine, how, cluster) - _hidden(learned, how))
    rollout = 0.0
    if work.samples:
        shape = shapes[product]
        rollout = decode_seconds(shape, mine, gpu, lora is not None, how.quantised)
        rollout += pass_seconds(shape, Work(mine.rows // work.shared or 1, work.prompt, 0), gpu, FORWARD, 1)
        if how.shard == "full":
            rollout += _gathered(HALF * shape.linear, cluster)
    if context > 1:  # queries, keys, values and outputs of a layer change hands, forwards and backwards
        moved = 4 * HALF * 2 * shapes[product].layers * shapes[product].hidden * mine.tokens * context
        exchange += moved / context / cluster.gpu.link
    return StepTime(rollout, others, learn, exchange)


def exchange_seconds(shape: DecoderShape, lora: Lora | None, mine: Work, how: Choices, cluster: Cluster) -> float:
    """What `--shard` sends for one update of a model."""
    trained = shape.weights if lora is None else shape.lora_weights(lora.rank)
    if cluster.ranks == 1:
        return 0.0
    if how.shard != "full":
        back = {"off": 4.0, "optimiser": HALF, "states": HALF}[how.shard]  # all-gather: fp32 sums, or bf16 weights
        return _gathered(4 * trained, cluster) + _gathered(back * trained, cluster)
    passes = max(1.0, mine.tokens / max(1, how.token_budget))
    return passes * (2 * _gathered(HALF * shape.linear, cluster) + _gathered(4 * trained, cluster))


def _hidden(learned: float, how: Choices) -> float:
    """Seconds of an exchange that go on behind the passes."""
    return {"off": 0.0, "optimiser": 0.0, "states": HIDDEN_SHARE * learned, "full": learned}[how.shard]


def _gathered(size: float, cluster: Cluster) -> float:
    """All-gather, or reduce-scatter, of so many bytes over a ring of all ranks."""
    return size * (cluster.ranks - 1) / cluster.ranks / cluster.link
