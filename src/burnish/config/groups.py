"""The options of every run, each declared once: type, range, default, help text below it.

The class of an option is its group in --help-all, in the order below; the docstring is the group's title. A default in
`may_change(...)` marks one that a resumed run may change. `Options` (options.py) has them all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from burnish.config.denoising import Denoising
from burnish.config.filling import Filling
from burnish.config.option_kinds import Amount, AmountOrNone, Count, CountOrNone, CountOrZero, Seconds, may_change
from burnish.config.sampling_groups import Engines, RayOptions, SamplingAhead
from burnish.core.option import Option
from burnish.core.step import ACTIVATIONS
from burnish.models.conversation import TRAIN_ON
from burnish.models.lora import ALL_LINEAR, QUANTIZATIONS, VARIANTS
from burnish.models.optimiser import MASTER_WEIGHTS, OPTIMISERS, SHARDS
from burnish.models.precision import DTYPES
from burnish.tool_calls.table import NAMES as CALL_FORMATS


@dataclass(frozen=True)
class Common:
    """Common"""

    model: str = "tiny"
    """A model's name (`burnish models`), any Hugging Face causal LM directory with safetensors, or a model of the
    Hugging Face hub: owner/name, or owner/name@revision."""
    task: str = "add"
    """A built-in task (`burnish tasks`; sort:3 is level 3), gym:NAME (options after commas:
    gym:chain_sum,max_terms=2), or a dataset: a file, a folder or a hub name (owner/name@revision:config). Several with
    weights: a.jsonl*0.7,b.jsonl*0.3 (docs/data.md)."""
    steps: Count = may_change(40)
    """Steps: each draws `prompts` tasks and passes them through the stages. Or say --epochs."""
    epochs: Annotated[float | None, Option(above=0)] = may_change(None)
    """Passes over the training rows, in place of --steps: 2 draws every row twice, in another order each time."""
    prompts: Count = 16
    """Tasks per step. The batch is prompts x samples per prompt; micro-batches follow from the token budget."""
    max_new_tokens: CountOrNone = None
    """The longest reply that is sampled, in tokens; by default as long as the replies in the data, within the model's
    context, 256 where they have none, and 64 for the tasks in the box (printed at the start)."""
    lr: AmountOrNone = None
    """The learning rate; by default chosen by the size of the model (printed at the start)."""
    lora: CountOrNone = None
    """Train LoRA adapters of this rank instead of all weights. With a --model that holds adapters of this rank, they
    are trained on."""
    reward: str | None = None
    """In place of the task's verifier: a function path/to/file.py:function, f(completions, **columns) -> list[float],
    or a reward by name (burnish rewards): math, rm(runs/DIR/model). Several with weights: a.py:f,f1*0.5
    (docs/rewards.md)."""
    seed: int = 0
    """The root of all randomness: the same seed repeats the run."""
    device: str = may_change("auto")
    """cpu, cuda, or auto."""
    ranks: CountOrZero = may_change(1)
    """Processes that share the run on this machine, each with its own GPU: they divide prompts, rewards and
    micro-batches, with the same result up to rounding. 0: one for each GPU. Several machines: torchrun
    (docs/multi-gpu.md)."""
    out: str | None = None
    """The run folder; by default runs/METHOD-TASK-DATE, or runs/NAME with --run-name."""
    run_name: str | None = may_change(None)
    """A name for the run: in lists, in trackers, and of its folder where there is no --out."""


@dataclass(frozen=True)
class SamplingReplies:
    """Sampling replies"""

    temperature: Annotated[float | None, Option(above=0)] = None
    """The temperature at which training replies are sampled; by default the method's, which is 1 unless its page says
    otherwise."""
    top_p: Annotated[float | None, Option(above=0, at_most=1)] = None
    """Sample from the smallest set of tokens that holds this much probability. The trainer takes log-probs among the
    same tokens, so that the ratio of a reply that was just sampled is 1."""
    top_k: Annotated[int | None, Option(at_least=0)] = None
    """Sample from this many likeliest tokens; 0: all. As --top-p."""
    min_p: Annotated[float | None, Option(at_least=0, at_most=1)] = None
    """Sample from the tokens with at least this share of the likeliest one's probability; as --top-p."""
    repetition_penalty: Annotated[float | None, Option(above=0)] = None
    """Divides the positive logits of tokens that the prompt or the reply has already, and multiplies their negative
    ones: 1.1. The trainer does the same."""


@dataclass(frozen=True)
class Data:
    """Data"""

    max_length: CountOrNone = None
    """The longest row of a dataset, in tokens: prompt and reply, or prompt and max_new_tokens where replies are
    sampled. By default the model's context."""
    on_long: Literal["drop", "truncate", "stop"] = "drop"
    """What to do with longer rows: drop leaves them out, truncate cuts replies at their end and prompts at their
    beginning, stop ends the run before it starts."""
    train_on: Annotated[str, Option(choices=TRAIN_ON)] = "all"
    """What is trained on in a demonstrated conversation: all replies, the last one, or everything (prompts too). A
    message with train: false or a weight says so itself."""
    columns: str | None = None
    """Columns of a dataset that have unusual names: prompt=text,answer=gold (docs/data.md)."""
    allow_urls: bool = False
    """Fetch pictures of a dataset that are URLs (http, https), once, into $BURNISH_HOME/pictures; by default they are
    refused."""
    draw: str | None = None
    """A curriculum that chooses between the sources of a mixture: sec, dump(temperature=0.2) (docs/data.md)."""


@dataclass(frozen=True)
class Optimisation:
    """Learning rate and optimiser"""

    lr_schedule: Literal["constant", "linear", "cosine"] = "constant"
    """constant, linear or cosine, after the warm-up."""
    lr_warmup: Amount = 0
    """Steps of linear learning-rate warm-up; below 1, a share of all steps."""
    lr_min: Annotated[float, Option(at_least=0, at_most=1)] = 0.0
    """Where a linear or cosine schedule ends, as a share of the learning rate: 0.1 ends at a tenth."""
    weight_decay: Amount = 0.0
    """AdamW's weight decay, on matrices only."""
    optimiser: Annotated[str, Option(choices=OPTIMISERS)] = "adamw"
    """adamw; or adamw16bit, adamw8bit, whose moments take 4 or 2 bytes a weight in place of 8."""
    clip: Amount = 1.0
    """The largest gradient norm; 0 turns clipping off."""
    only: str | None = None
    """The parts of a model that sees which learn, with commas: connector, language, tower; by default all of them, and
    with --lora the adapters of the language half (docs/pictures.md)."""
    swap: str | None = None
    """Replace parts of the method by others: "group_relative=group_relative(std=False); pg=pg_clip(0.2, 0.28)"."""


@dataclass(frozen=True)
class Evaluation:
    """Held-out evaluation and early stopping"""

    eval_tasks: CountOrZero = 200
    """Held-out tasks for the evaluations before and after; 0 turns them off."""
    eval_every: CountOrZero = may_change(10)
    """Steps between the smaller held-out evaluations during the run; 0 turns them off."""
    eval_measure: Literal["auto", "accuracy", "sampled", "reward", "loss"] = "auto"
    """The held-out score, by which early stopping and the best checkpoint go. auto follows what is learned from: the
    accuracy of sampled replies, their mean reward where it is graded or learned, the NLL of demonstrations, the pairs
    in the right order. accuracy: that of the greedy reply; sampled; reward; or loss, the method's own measure of given
    replies, for which nothing is sampled."""
    eval_k: CountOrZero = 1
    """Replies sampled for each held-out task (during the run one): their accuracy, and of several also pass@k and
    majority@k; 0: only the greedy reply is measured."""
    eval_temperature: Amount = 1.0
    """Temperature of the held-out replies that are sampled beside the greedy one; 0: none are."""
    patience: CountOrZero = may_change(0)
    """Stop early after this many held-out evaluations in a row without a better score; 0: never. The best step is
    saved."""
    stop_at: float | None = may_change(None)
    """Stop early when the held-out score is this good: 0.95. The step is saved."""


@dataclass(frozen=True)
class Saving:
    """Checkpoints and the final model"""

    save_every: CountOrZero = may_change(20)
    """Steps between checkpoints; the end of the run and Ctrl-C always save one."""
    keep: Count = may_change(2)
    """How many of the newest checkpoints are kept."""
    keep_every: CountOrZero = may_change(0)
    """Also keep, permanently, the checkpoints at multiples of this number of steps; 0 keeps none."""
    keep_best: bool = may_change(True)
    """Also keep the checkpoint with the best held-out score of those that are saved; RUN/best is a link to its
    model."""
    product: Literal["last", "best"] = may_change("last")
    """Which weights the final model has: last, those of the last step; or best, those of the best held-out score."""
    merge: bool = False
    """Save the final model with the LoRA adapters merged into the weights."""
    dtype: Annotated[str, Option(choices=DTYPES)] = may_change("auto")
    """The number format of the saved model: bfloat16, float16 or float32; auto: that of the model that it came from.
    Training itself keeps fp32 master weights (--master-weights)."""


@dataclass(frozen=True)
class LoraOptions:
    """LoRA"""

    lora_alpha: Annotated[float | None, Option(above=0)] = None
    """LoRA: the adapters are scaled by alpha / rank; by default alpha is twice the rank."""
    lora_dropout: Annotated[float, Option(at_least=0, below=1)] = 0.0
    """LoRA: the share of an adapter's inputs that an update leaves out, for methods that learn from given replies."""
    lora_targets: str = ALL_LINEAR
    """LoRA: the layers that get adapters, by name, several with commas (q_proj,v_proj); all-linear: every linear layer
    of the decoder."""
    lora_variant: Annotated[str, Option(choices=VARIANTS)] = "lora"
    """LoRA: lora; rslora, which scales by alpha / sqrt(rank); or dora, which also trains the norm of each column."""
    lora_save: str | None = None
    """LoRA: modules that are trained and saved whole beside the adapters, several with commas: embed_tokens,lm_head."""
    quantization: Annotated[str | None, Option(choices=QUANTIZATIONS)] = None
    """LoRA: nf4 holds the frozen weights in four bits (QLoRA): a quarter of the memory of bf16."""


@dataclass(frozen=True)
class Template:
    """Chat template"""

    chat_template: str | None = None
    """The chat template: a file with a Jinja template, or chatml, plain (messages line by line), none (prompts are
    unchanged), or tools (the model's own, with tools and their calls in it; also chatml+tools). By default the model's
    own; plain if it has none. Saved with the model."""
    system_prompt: str | None = None
    """The system message of every conversation that has none. Saved in the model's chat template."""
    template_option: str | None = None
    """Values for the chat template, key=value, several with commas: enable_thinking=false. Saved in the model's chat
    template."""


@dataclass(frozen=True)
class Rewards:
    """Rewards"""

    reward_timeout: Annotated[float | None, Option(above=0)] = may_change(None)
    """Time limit in seconds for one call of the reward function (by default 60), or of the task's verifier for one
    reply (by default 10): both run in separate processes, which are killed after it."""
    reward_workers: CountOrZero = may_change(0)
    """Score each group as soon as it is sampled, while others are still being sampled, with this many concurrent calls
    of the reward function; for functions that wait (for a server) and score each reply by itself. 0: one call a step,
    after sampling."""
    on_reward_failure: Literal["zero", "drop"] = may_change("zero")
    """What to do with a reply whose reward failed or took too long: zero scores it 0, drop removes it from the
    batch."""
    max_reward_failures: Annotated[float, Option(at_least=0, at_most=1)] = may_change(0.5)
    """The run stops when more than this share of the replies of the last 5 steps got no reward; 1: never."""
    shape: str | None = None
    """What changes the reward afterwards, in this order: overlong(0.2),alp(beta=1e-4) (burnish rewards)."""
    preference: str | None = None
    """What compares the replies to a prompt, by name (burnish rewards): judge(runs/DIR/model), pair_rm(DIR); or a
    function path/to/file.py:function, f(completions, rival, **columns) -> chances. It takes the place of the reward
    (docs/preference-oracles.md)."""


@dataclass(frozen=True)
class Agents:
    """Environments, tools and agents"""

    tools: str | None = None
    """Functions that the model may call before it answers: my_tools.py:search,my_tools.py:add (docs/agents.md)."""
    tool_parser: Annotated[str | None, Option(choices=CALL_FORMATS)] = None
    """The format in which the model writes tool calls. By default that of its chat template."""
    tool_timeout: Annotated[float | None, Option(above=0)] = may_change(None)
    """Seconds that one call of a tool may take; after that the model reads that it has not answered."""
    agent: str | None = None
    """A program of its own that works on each task and asks the model through an OpenAI-compatible endpoint:
    my_agent.py:run, a function run(task, base_url, api_key) (docs/agents.md)."""
    agent_pays: bool = False
    """The number that the agent returns or posts is the reward, in place of the task's verifier."""
    opponent: str | None = None
    """Who has the other seats of an environment: self, start, snapshot(10), league(4, 10), own (a model that is
    trained, too), a model, or SEAT=MODEL for each seat (docs/environments.md)."""
    seat: str | None = None
    """With --opponent: the policy's seat; by default the environment's first."""
    turns: Count = 16
    """With an environment, tools or an agent: the most replies of one episode."""
    cut_turn: Literal["close", "end"] = "close"
    """What follows a reply of an episode that was cut at --max-new-tokens: close writes the template's end of turn, as
    the environment, and plays on; end lets the environment answer it and ends the episode."""
    env_timeout: Seconds = may_change(60.0)
    """Seconds that one call of an environment, or a whole episode of an agent, may take; it has failed after that."""
    env_process: bool = may_change(True)
    """An environment of a file (my_env.py:Env) runs in processes of its own: one that hangs, or ends Python, costs its
    own episode. Off: in the process of the run, which is faster and shares what its module holds."""


@dataclass(frozen=True)
class Records:
    """Records"""

    tag: str | None = may_change(None)
    """Tags, several with commas: burnish runs --tag and the dashboard filter by them."""
    record: CountOrZero = may_change(256)
    """Traces of each step to keep in the run store, in whole groups from the first; 0 keeps none."""
    log: str | None = may_change(None)
    """Trackers that get the metrics, in addition to the run store: tensorboard, wandb, trackio, mlflow (several with
    commas)."""
    diagnose_every: CountOrZero = may_change(0)
    """Preference methods: every so many steps, measure the entanglement of the gradients of preferred and other
    replies, and the probability of the ten likeliest tokens, on 8 pairs (one forward pass each); 0: never."""
    on_nan: Literal["skip", "stop"] = may_change("skip")
    """A batch with NaN or infinity in a reward, loss or gradient changes no weights and is kept in the run folder.
    skip: continue, but stop after three such steps in a row; stop: stop at once."""


@dataclass(frozen=True)
class Memory:
    """Memory and precision"""

    memory: str | None = None
    """The GPU memory that the run may take: 24GiB. Micro-batches, KV cache and optimiser are chosen to fit."""
    master_weights: Annotated[str, Option(choices=MASTER_WEIGHTS)] = "float32"
    """How weights that are all trained are held: float32; split, the same numbers as bf16 and the bits that this lacks,
    without a copy; or bfloat16, bf16 alone, with stochastic rounding (docs/models.md)."""
    shard: Annotated[str, Option(choices=SHARDS, bare="states")] = may_change("off")
    """What several --ranks divide besides the work. optimiser: AdamW's moments (ZeRO stage 1), bit for bit the same
    weights; states: moments, gradients and fp32 weights (stage 2): 2 bytes a weight stay whole, the compute copy; full:
    the weights, too, layer by layer (stage 3, FSDP2), for a model that does not fit one GPU."""
    shard_ranks: Annotated[int, Option(at_least=0)] = may_change(0)
    """With --shard full, how many ranks divide the layers, such as the GPUs of a machine (HSDP). 0: all ranks."""
    context_ranks: Count = may_change(1)
    """How many of the --ranks divide the tokens of each training pass (Ulysses attention), for rows that are too long
    for one GPU. It cannot change the gradient."""
    elastic: bool = may_change(False)
    """When one of the --ranks of a machine is lost (killed, stopped, hanging), resume from the last checkpoint with
    those that are left; --save-every 1 then loses no more than the step at hand."""
    rank_timeout: Annotated[float | None, Option(above=0)] = may_change(None)
    """Seconds after which a rank that finishes no unit of work while others wait ends the run. By default 30 while it
    samples, an hour elsewhere; one that computes, while it samples: 20 times its longest decode step, at least 30."""
    token_budget: CountOrNone = may_change(None)
    """Tokens in one micro-batch; by default 8192, on a GPU as many as keep it busy. It cannot change the gradient."""
    packed: bool = may_change(True)
    """Pack the rows of a micro-batch end to end, shared prefixes once, instead of padding them. It cannot change the
    gradient."""
    kv_gib: Annotated[float | None, Option(above=0)] = None
    """Size of the KV cache while sampling, in GiB; by default 40% of a GPU's free memory, or a quarter of the
    machine's."""
    checkpoint_activations: Annotated[str, Option(choices=ACTIVATIONS, bare="recompute")] = may_change("off")
    """Less memory for activations: recompute computes them again in the backward pass; offload moves them from the GPU
    to the host while it computes, and back; off keeps them. Without a value: recompute."""
    exact: bool = False
    """Sampler and trainer agree on every log-prob bit for bit, and a reply does not depend on the other replies in its
    batch. For plain Llamas, Qwen2 and Qwen3 on a CPU, Llama, Mistral and Qwen2 on a GPU (docs/performance.md); the run
    stops if a single bit differs."""


GROUPS = (
    *(Common, SamplingReplies, Data, Optimisation, Evaluation, Saving, LoraOptions, Template, Rewards),
    *(Agents, Records, Memory, SamplingAhead, Filling, Denoising, Engines, RayOptions),
)
