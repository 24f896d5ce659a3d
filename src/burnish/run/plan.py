"""The plan of a run: everything resolved and checked before a model is loaded, so that errors come at once."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from pathlib import Path

from burnish.compose.own_seats import models_of_seats
from burnish.compose.passes import Additions, composed
from burnish.compose.rewards import scores_replies
from burnish.compose.seats import read_opponent
from burnish.config.checks import check_engine, check_master_weights, check_options, check_search, check_shard
from burnish.config.options import Config
from burnish.core.method import Method
from burnish.core.scorer import Named
from burnish.core.step import Settings
from burnish.envs.named_tools import read_tools
from burnish.evals.better import kind_of
from burnish.media.fetched import FETCHING
from burnish.methods.table import Entry
from burnish.models.build import device_named
from burnish.models.decoder_shape import DecoderShape
from burnish.models.hub import hub_name, pinned
from burnish.models.known_models import adapted_model, is_adapter, resolve
from burnish.models.lora import Lora, check_rank, check_stored
from burnish.models.precision import stored_weights
from burnish.models.same_tokens import require_same_tokens
from burnish.models.token_budget import busy, token_budget
from burnish.reward_functions.load import load_function
from burnish.reward_functions.resolve import RewardSpec, read_rewards
from burnish.rewards.oracles import compares, named_oracle
from burnish.rewards.read import named_rewards, named_shapes, split_rewards
from burnish.run.lengths import Needs
from burnish.run.memory_plan import (
    GIB,
    Batch,
    Choices,
    batch_of,
    fitted,
    kv_bytes,
    least_kv,
    read_memory,
    shapes_of,
)
from burnish.run.passes import steps_of_epochs
from burnish.run.pipeline import require_pipelined
from burnish.run.placement import check_placing, threads_for, unit_for
from burnish.run.reply_length import reply_length
from burnish.run.reward_versions import Versions, present
from burnish.serve.pulled import read_pulled
from burnish.tasks.resolve import datasets_of, environments_of, pin, resolve_task
from burnish.tasks.source import Source
from burnish.tasks.task_set import unscored, with_agent, with_opponent, with_tools

RISKY = 300  # times the default learning rate: larger ones are warned of


@dataclass(frozen=True)
class RunPlan:
    """A run before its models are loaded: configuration, task source, method, base model, LoRA and settings."""

    config: Config
    source: Source
    method: Method
    base: Path
    lora: Lora | None
    settings: Settings
    rewards: Versions = field(default_factory=dict)  # versions of the rewards and shapes (run/reward_versions.py)


def compose(
    entry: Entry, config: Config, task: Source | None = None, rewards: tuple[RewardSpec, ...] | None = None
) -> tuple[Source, Method]:
    """The task source and the method that a configuration names."""
    options = config.options
    dropped = options.on_reward_failure == "drop"
    seconds, workers = options.reward_timeout, options.reward_workers
    FETCHING.allowed = options.allow_urls
    parts = rewards or (read_rewards(options.reward) if options.reward else ())
    functions, scorers = split_rewards(parts)
    source = resolve_task(
        task or options.task,
        functions,
        columns=options.columns,
        seconds=seconds,
        drop_failed=dropped,
        workers=workers,
        env_process=options.env_process,
    )
    for dataset in datasets_of(source):
        dataset.all_rows()  # another run of this process may have cut conversations
    for environment in environments_of(source):
        environment.seconds = options.env_timeout  # before any is reset
    if scorers and not functions:
        source = unscored(source)
    oracle = _oracle(config, source)
    if oracle is not None and compares(oracle):
        source = unscored(source)
    if options.tools:
        source = with_tools(source, read_tools(options.tools), options.tool_timeout)
    if options.agent:
        agent = read_pulled(options.agent) or load_function(options.agent, "agent")
        source = with_agent(source, agent, options.agent_pays)
    opponent = read_opponent(options.opponent) if options.opponent else None
    if opponent is not None:
        source = with_opponent(source, opponent.train, opponent.heldout, options.seat)
    elif options.seat is not None:
        raise ValueError("--seat gives the policy another seat, and nobody has the first one; add --opponent start")
    additions = Additions(
        name=config.method,
        source=source,
        opponent=opponent,
        draw=options.draw,
        swap=options.swap,
        rewards=named_rewards(scorers, source),
        shapes=named_shapes(options.shape, source),
        oracle=oracle,
        drop=dropped,
        chunk=options.chunk,
        waits=options.train_when is not None or options.step_deadline is not None,
    )
    method = composed(entry.build(source, **config.arguments), additions)
    if functions and not scores_replies(method):
        raise ValueError(
            f"{config.method} does not score sampled replies, so --reward has none to score; leave it out (burnish "
            "eval RUN/model --reward measures what the run makes)"
        )
    source = next((phase.draw.source for phase in method.phases if phase.draw.source is not None), source)
    return source, method


def _oracle(config: Config, source: Source) -> Named | None:
    """The oracle of --preference; raises ValueError where something else scores the replies that it compares."""
    options = config.options
    oracle = named_oracle(options.preference, source, options.reward_timeout)
    scored = {
        "--reward": options.reward,
        "--shape": options.shape,
        "--reward-model": config.arguments.get("reward_model"),
    }
    given = [flag for flag, value in scored.items() if value]
    if oracle is not None and compares(oracle) and given:
        raise ValueError(
            f"--preference {oracle.name} compares the replies itself, and {given[0]} would score them; leave one out "
            "(--preference bradley_terry and comparison go by rewards)"
        )
    return oracle


def _evaluated(config: Config, source: Source) -> Config:
    """The configuration, without evaluations where the task has no held-out rows: one row, say, trains alone."""
    options = config.options
    if not options.eval_tasks or source.size("heldout") != 0:  # None: as many as one wants
        return config
    if options.patience or options.product == "best":
        raise ValueError(
            f"task {source.name!r} has no held-out rows, by which --patience and --product best go; give it more "
            "rows, or leave out these options"
        )
    return replace(config, options=replace(options, eval_tasks=0))


def plan(
    entry: Entry,
    config: Config,
    task: Source | None = None,
    rewards: tuple[RewardSpec, ...] | None = None,
    *,
    loads: bool = True,
) -> RunPlan:
    """Resolve a configuration; raise ValueError for everything that can be checked without loading a model.

    loads: False where the run will not be on this machine (`burnish plan`): the model may be a config.json alone, and
    no GPU is needed for --memory
    """
    options = config.options
    check_options(config)
    base = resolve(options.model, loads=loads)
    # The template goes into config.yaml: a resumed run and remote workers must not read a file that may have changed.
    # So does the commit of a model of the hub: its main branch may have moved on.
    options = replace(options, chat_template=options.style().template, model=pinned(options.model, base))
    config = replace(config, options=options)
    lora = options.adapters()
    if lora is not None:
        check_rank(adapted_model(base), lora)
        if is_adapter(base):
            check_stored(base, lora)
    source, method = compose(entry, config, task, rewards)
    if task is None:
        config = replace(config, options=replace(options, task=pin(options.task)))
    config, method = _pinned_models(steps_of_epochs(config, source), method)
    require_same_tokens(replace(method, name=config.method), base, models_of_seats(method))
    config = _evaluated(config, source)
    options = config.options
    if options.max_new_tokens is None:
        options = replace(options, max_new_tokens=reply_length(source, base, options.style()))
        config = replace(config, options=options)
    if options.eval_tasks:
        kind_of(replace(method, name=config.method), source, options.eval_measure)
    check_engine(config, method)
    check_master_weights(config, method)
    check_shard(config, method)
    check_search(config, method)
    named_method = replace(method, name=config.method)
    require_pipelined(named_method, options.lag, options.steps)
    check_placing(options, named_method)
    if lora is not None and lora.dropout and Needs.of(method).samples:
        raise ValueError(
            f"{config.method} samples replies, whose log-probs the trainer must find again, and dropout would change "
            "them; leave out --lora-dropout"
        )
    # What a default comes to goes into config.yaml: a resumed run, or one from that file, must not choose again.
    if options.lr is None:
        options = replace(options, lr=default_lr(base, lora) * method.lr_share)
    config = replace(config, options=options)
    if options.memory is not None:
        config = _within(config, method, base, lora, loads)
        options = config.options
    budget = options.token_budget
    if budget is None:
        budget = token_budget(adapted_model(base), options.device, Needs.of(method).samples)
        options = replace(options, token_budget=budget)  # not by the memory that is free when it is resumed
    if options.on == "ray" and options.threads is None:  # another number may change the last bits
        options = replace(options, threads=threads_for(options))
    if options.on == "ray" and options.unit is None:
        options = replace(options, unit=unit_for(options, named_method))
    config = replace(config, options=options)
    parts = rewards or (read_rewards(options.reward) if options.reward else ())
    return RunPlan(
        config,
        source,
        method,
        base,
        lora,
        options.settings(named_method),
        present(parts, config.options.shape, config.options.preference),
    )


def _within(config: Config, method: Method, base: Path, lora: Lora | None, loads: bool) -> Config:
    """The configuration with what makes it fit --memory; options that were given stay as they are."""
    options = config.options
    here = loads and options.on == "here"
    if options.device == "cpu" or (here and device_named(options.device).type == "cpu"):
        raise ValueError(
            "--memory plans the memory of a GPU, but the run is on the CPU; leave it out (burnish plan needs no GPU)"
        )
    shapes, batch, start = asked(config, method, base)
    most = options.token_budget or max(busy(shape) for shape in shapes.values())
    sizes = fitted(
        shapes, method.models, lora, batch, replace(start, token_budget=most), read_memory(options.memory or "")
    )
    cache = kv_bytes(shapes[method.product], batch, sizes.kv)
    room = 1.05 * cache / GIB + 0.01 if sizes.kv is None else math.ceil(100 * cache / GIB) / 100
    chosen = replace(
        options,
        token_budget=sizes.token_budget,
        checkpoint_activations=sizes.activations,
        optimiser=sizes.optimiser,
        master_weights=sizes.master_weights,
        kv_gib=options.kv_gib or (round(room, 2) if cache else None),
    )
    return replace(config, options=chosen)


def asked(config: Config, method: Method, base: Path) -> tuple[dict[str, DecoderShape], Batch, Choices]:
    """The shapes of a run's models, what a step samples on one GPU, and what the options say about memory.

    Raises ValueError for a --kv-gib in which no reply fits.
    """
    options = config.options
    shapes = shapes_of(method.models, base)
    longest = options.max_new_tokens or Settings().max_new_tokens
    batch = batch_of(method, options.prompts, longest, options.max_length, options.ranks)
    kv = int(options.kv_gib * GIB) if options.kv_gib is not None else None
    least = least_kv(shapes[method.product], batch)
    if kv is not None and kv < least:
        raise ValueError(
            f"--kv-gib {options.kv_gib:g} holds no reply of {batch.reply:,} tokens after a prompt of {batch.prompt:,}, "
            f"whose keys and values take {least / GIB:.2f} GiB; raise it, or lower --max-new-tokens"
        )
    how = Choices(
        options.token_budget or 0,
        options.checkpoint_activations,
        options.optimiser,
        options.quantization is not None,
        options.master_weights,
        options.shard,
        max(1, options.ranks),
        kv,
    )
    return shapes, batch, how


def _pinned_models(config: Config, method: Method) -> tuple[Config, Method]:
    """The other models of a method (teacher, reward model) fetched from the hub, with their commits in their names."""
    named = {
        name for role in method.models.values() for name in (role.source, role.mixed_with) if name and name != "base"
    }
    exact = {name: pinned(name, resolve(name)) for name in named if hub_name(name) is not None}
    if not exact:
        return config, method
    roles = {
        name: replace(
            role,
            source=exact.get(role.source, role.source),
            mixed_with=exact.get(role.mixed_with or "", role.mixed_with),
        )
        for name, role in method.models.items()
    }
    arguments = {
        key: exact.get(value, value) if isinstance(value, str) else value for key, value in config.arguments.items()
    }
    return replace(config, arguments=arguments), replace(method, models=roles)


def risky_lr(planned: RunPlan) -> str:
    """A warning about a learning rate that is hundreds of times the default; empty where it is not."""
    lr, usual = planned.settings.lr, default_lr(planned.base, planned.lora) * planned.method.lr_share
    told = (
        f"--lr {lr:g} is {lr / usual:,.0f} times the default for this model ({usual:g}): steps of this size undo what "
    )
    return told + "the model knows; leave --lr out, or lower it" if lr > RISKY * usual else ""


def default_lr(base: Path, lora: Lora | None) -> float:
    """The default learning rate by the number of weights: 1e-4 below 10M weights, 1e-5 below 1B, 1e-6 beyond.

    LoRA: ten times that, from 10M weights on.
    """
    size = stored_weights(base)
    lr = 1e-4 if size < 1e7 else 1e-5 if size < 1e9 else 1e-6
    return lr * 10 if lora and size >= 1e7 else lr
