"""What a run is told: the options every method has, and the method's own, which are its signature."""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import inspect
import json
import typing
from dataclasses import dataclass, field
from typing import Any

from burnish.methods.table import Entry
from burnish.run.values import coerce
from burnish.step import Settings


@dataclass(frozen=True)
class Options:
    """Options that mean the same for every method."""

    model: str = "tiny"
    """A model's name (`burnish models`) or any Hugging Face causal LM directory with safetensors."""
    task: str = "add"
    """A built-in task (`burnish tasks`; sort:3 is level 3), gym:NAME (options after commas:
    gym:chain_sum,max_terms=2), or a dataset: a file, a folder, a hub name."""
    steps: int = 40
    """Steps: each draws `prompts` tasks and walks them through the rooms."""
    seed: int = 0
    """The root of all randomness: the same seed repeats the run."""
    out: str | None = None
    """The run folder; by default runs/METHOD-TASK-DATE."""
    prompts: int = 16
    """Tasks per step. The batch is prompts x samples per prompt; micro-batches follow from the token budget."""
    max_new_tokens: int = 64
    """The longest reply that is sampled, in tokens."""
    lr: float | None = None
    """The learning rate; by default chosen by the size of the model (printed at the start)."""
    lr_schedule: str = "constant"
    """constant, linear or cosine, after the warm-up."""
    lr_warmup: int = 0
    """Steps of linear learning-rate warm-up."""
    weight_decay: float = 0.0
    """AdamW's weight decay, on matrices only."""
    clip: float = 1.0
    """The largest norm of the gradient; 0 turns clipping off."""
    token_budget: int | None = None
    """Tokens in one micro-batch: lower it when memory runs out. By default 8192, on a GPU what a quarter of its free memory
    holds. It cannot change the gradient."""
    packed: bool = True
    """Lay the rows of a micro-batch end to end, beginnings that they share once, instead of padding them. It cannot change
    the gradient."""
    kv_gib: float | None = None
    """Memory for keys and values while sampling, in GiB; by default 40% of a GPU's free memory, or a quarter of the machine's."""
    exact: bool = False
    """Sampler and trainer agree on every log-prob bit for bit, and a reply does not depend on who is sampled beside it. For
    plain Llamas, Qwen2 and Qwen3 on a CPU, Llama, Mistral and Qwen2 on a GPU (docs/performance.md); the run stops where a single bit
    differs."""
    checkpoint_activations: bool = False
    """Recompute activations in the backward pass: less memory, more time."""
    lag: int = 0
    """Sample and score this many steps ahead, beside learning: replies of step t come from the weights after step t - 1 - lag.
    0: one after the other. Exactly repeatable either way (docs/async.md)."""
    chunk: int | None = None
    """Write at most this many tokens of a reply in one step; what is not finished goes on in the next step, by the newer weights,
    and a group is learned from when its last reply has ended (docs/async.md)."""
    on: str = "here"
    """Where the run runs: here, in this process; or ray: samplers, graders and the trainer are Ray actors (docs/async.md)."""
    samplers: int = 1
    """On Ray: actors that sample."""
    graders: int = 1
    """On Ray: actors that score."""
    spares: int = 1
    """On Ray: actors of each kind, the trainer's too, that stand ready to take the place of one that is lost."""
    unit: int = 4
    """On Ray: tasks in one unit of work. How the batch is cut decides the last bits of the log-probs, who works does not."""
    order: str = "fixed"
    """On Ray: fixed learns from the replies of step t in step t, repeatable bit for bit; free samples from the newest weights and
    learns from what is ready first, at most `lag` steps old."""
    ray_address: str | None = None
    """On Ray: the cluster to join (host:port, or auto); by default one is started on this machine, for the time of the run."""
    replacements: int = 20
    """On Ray: how many lost actors are replaced before the run stops."""
    recover_within: float = 30.0
    """On Ray: seconds without anybody in a role, or without the trainer, after which the run stops and says what was lost."""
    call_timeout: float = 600.0
    """On Ray: seconds that one unit may take an actor that lives; it is then replaced."""
    threads: int | None = None
    """On Ray: threads that each actor computes with; by default the cores divided by those who work, as the run begins."""
    lora: int | None = None
    """Train LoRA adapters of this rank instead of all weights."""
    merge: bool = False
    """Save the final model with the LoRA adapters merged into the weights."""
    reward: str | None = None
    """A reward function path/to/file.py:function, f(completions, **columns) -> list[float], in place of the verifier."""
    reward_timeout: float | None = None
    """Seconds that the reward function may take: it then runs in a process of its own, which is killed when they are over."""
    reward_workers: int = 0
    """Judge each group as soon as it is written, while others still are, in this many calls of the reward function at once; for
    functions that wait for something and judge every reply for itself. 0: one call a step, after all is written."""
    on_reward_failure: str = "zero"
    """A reply whose reward failed or took too long: zero scores it 0, drop takes it out of the batch."""
    swap: str | None = None
    """Another part in the place of one of the method's: "group_relative=group_relative(std=False); pg=pg_clip(0.2, 0.28)"."""
    eval_tasks: int = 200
    """Held-out tasks for the evaluations before and after; 0 turns them off."""
    eval_every: int = 10
    """Steps between the smaller held-out evaluations during the run; 0 turns them off."""
    save_every: int = 20
    """Steps between checkpoints; the end of the run and Ctrl-C always save one."""
    keep: int = 2
    """Checkpoints that are kept: the last ones."""
    keep_every: int = 0
    """Keep the checkpoints at multiples of this number of steps as well, for good; 0 keeps none."""
    on_nan: str = "skip"
    """A batch with NaN or infinity in a reward, loss or gradient moves no weight and is kept in the run folder. skip: go on,
    but stop after three such steps in a row; stop: stop at once."""
    engine: str = "local"
    """Who samples the policy's replies: local (burnish, with the trained weights themselves), process (the same in another
    process, on a copy), vllm (a vLLM in an environment of its own)."""
    vllm_python: str | None = None
    """The Python that has vLLM; by default that of an environment `vllm` beside this one, or this one."""
    on_mismatch: str = "stop"
    """An engine whose log-probs show that it does not run the trained weights: stop the run, or warn and go on."""
    record: int = 256
    """Traces of each step that are kept in the run store, whole groups from the first on; 0 keeps none."""
    log: str | None = None
    """Other places for the numbers, besides the run store: tensorboard, wandb, trackio, mlflow (several with commas)."""
    device: str = "auto"
    """cpu, cuda, or auto."""

    def settings(self, lr: float, token_budget: int) -> Settings:
        """The numbers of the run; lr and token_budget are those that were asked for, or the defaults for the model."""
        told = ("lr", "token_budget")
        shared = {f.name: getattr(self, f.name) for f in dataclasses.fields(Settings) if f.name not in told}
        return Settings(lr=lr, token_budget=token_budget, **shared)


RESUMABLE = (  # options that may change when a run is resumed: they cannot change what it learns, or only from then on
    "steps", "device", "token_budget", "packed", "checkpoint_activations", "save_every", "keep", "keep_every", "eval_every",
    "on_nan", "reward_timeout", "reward_workers", "on_reward_failure", "record", "log", "vllm_python", "on_mismatch", "samplers",
    "graders", "spares", "ray_address", "replacements", "recover_within", "call_timeout",
)  # fmt: skip


def identity(stored: dict[str, Any]) -> str:
    """What makes a run this run and no other: a hash of its configuration as config.yaml holds it, place and pace apart."""
    kept = {key: value for key, value in stored.items() if key not in RESUMABLE and key != "out"}
    return hashlib.sha256(json.dumps(kept, sort_keys=True, default=str).encode()).hexdigest()


@dataclass(frozen=True)
class Config:
    """A method's name, the run's options, and the method's own arguments."""

    method: str
    options: Options
    arguments: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """One flat mapping, as in config.yaml."""
        return {"method": self.method, **dataclasses.asdict(self.options), **self.arguments}


def method_fields(entry: Entry) -> dict[str, inspect.Parameter]:
    """The method's own options: the keyword arguments of its function."""
    parameters = list(inspect.signature(entry.build).parameters.values())[1:]
    return {p.name: p for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)}


def method_types(entry: Entry) -> dict[str, Any]:
    return typing.get_type_hints(inspect.unwrap(entry.build))


def configure(entry: Entry, name: str, given: dict[str, Any]) -> Config:
    """Sort given values into options and arguments; an unknown or ill-typed one is refused with its nearest neighbour."""
    own = method_fields(entry)
    shared = {f.name: f for f in dataclasses.fields(Options)}
    clash = own.keys() & shared.keys()
    if clash:
        raise ValueError(f"method {name!r} has an argument {clash.pop()!r}, which is an option of every run; rename it")
    option_types, own_types = typing.get_type_hints(Options), method_types(entry)
    options: dict[str, Any] = {}
    arguments = {key: p.default for key, p in own.items() if p.default is not p.empty}
    for key, value in given.items():
        key = key.replace("-", "_")
        if key in shared:
            options[key] = coerce(key, value, option_types[key])
        elif key in own:
            arguments[key] = coerce(key, value, own_types.get(key, Any))
        else:
            near = difflib.get_close_matches(key, [*shared, *own], 1, 0.5)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"{name} has no option {key!r}{hint} (`burnish show {name}` lists them)")
    for key, p in own.items():
        if p.default is p.empty and key not in arguments:
            raise ValueError(
                f"{name} needs --{key.replace('_', '-')}; for example: {entry.example or 'see burnish show ' + name}"
            )
    return Config(name, Options(**options), arguments)
