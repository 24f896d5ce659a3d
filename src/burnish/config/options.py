"""The configuration of a run: options that every method has, and the method's own, taken from its signature."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from burnish.config.denoising import Denoising
from burnish.config.filling import Filling
from burnish.config.groups import (
    Agents,
    Common,
    Data,
    Evaluation,
    LoraOptions,
    Memory,
    Optimisation,
    Records,
    Rewards,
    SamplingReplies,
    Saving,
    Template,
)
from burnish.config.sampling_groups import Engines, RayOptions, SamplingAhead
from burnish.config.values import coerce
from burnish.config.words import answer, elsewhere, nearest
from burnish.core.method import Method
from burnish.core.step import Settings
from burnish.core.types import Sampling
from burnish.methods.table import Entry
from burnish.models.lora import Lora
from burnish.models.template import Style, read_template
from burnish.reward_functions.resolve import read_rewards, reward_text
from burnish.tasks.data.spec import spell_columns, spell_task


@dataclass(frozen=True)
class Options(
    RayOptions,
    Engines,
    Denoising,
    Filling,
    SamplingAhead,
    Memory,
    Records,
    Agents,
    Rewards,
    Template,
    LoraOptions,
    Saving,
    Evaluation,
    Optimisation,
    Data,
    SamplingReplies,
    Common,
):  # dataclasses begin with the fields of the last base
    """Options that mean the same for every method, by group."""

    def adapters(self) -> Lora | None:
        """The LoRA adapters of the run; None if all weights are trained."""
        if self.lora is None:
            if self.quantization is not None:
                raise ValueError("--quantization nf4 is for frozen weights under LoRA adapters; add --lora 16")
            return None
        targets, whole = _listed(self.lora_targets), _listed(self.lora_save or "")
        return Lora(self.lora, self.lora_alpha, self.lora_dropout, targets, self.lora_variant, whole, self.quantization)

    def style(self) -> Style:
        """The chat template of the run, with its system prompt and values."""
        return Style(read_template(self.chat_template), self.system_prompt, self.template_option, self.tool_parser)

    def settings(self, method: Method) -> Settings:
        """The run's Settings, of options whose defaults a plan has resolved."""
        assert self.lr is not None and self.token_budget is not None and self.max_new_tokens is not None
        lr, token_budget = self.lr, self.token_budget
        resolved = ("lr", "token_budget", "sampling")
        shared = {f.name: getattr(self, f.name) for f in dataclasses.fields(Settings) if f.name not in resolved}
        return Settings(lr=lr, token_budget=token_budget, sampling=self.sampling(method), **shared)

    def sampling(self, method: Method) -> Sampling:
        """How the run samples replies: as the user says, or else as the method does."""
        given = {f.name: getattr(self, f.name) for f in dataclasses.fields(SamplingReplies)}
        return method.sampled(**{name: value for name, value in given.items() if value is not None})


def _listed(names: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in names.split(",") if name.strip())


@dataclass(frozen=True)
class Config:
    """A method's name, the run's options, and the method's own arguments."""

    method: str
    options: Options
    arguments: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, object]:
        """One flat mapping, as in config.yaml."""
        return {"method": self.method, **dataclasses.asdict(self.options), **self.arguments}


def method_fields(entry: Entry) -> dict[str, inspect.Parameter]:
    """The method's own options: the keyword arguments of its function."""
    parameters = list(inspect.signature(entry.build).parameters.values())[1:]
    return {p.name: p for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)}


def method_types(entry: Entry) -> dict[str, object]:
    """The types of the method's own options, by name, with their Options."""
    return typing.get_type_hints(inspect.unwrap(entry.build), include_extras=True)


def renamed(entry: Entry, stored: dict[str, object]) -> dict[str, object]:
    """The options in a run's config.yaml under their present names: `updates` was `epochs` in some methods before, and
    `shard: optimiser` was `shard_optimiser`."""
    divided = stored.get("shard_optimiser")  # the flag of older versions, now one value of --shard
    if divided is not None:
        rest = {key: value for key, value in stored.items() if key != "shard_optimiser"}
        return renamed(entry, {**rest, "shard": "optimiser" if divided else "off"})
    if "updates" in method_fields(entry) and "epochs" in stored and "updates" not in stored:
        return {**{key: value for key, value in stored.items() if key != "epochs"}, "updates": stored["epochs"]}
    return stored


# Options that YAML and Python may write as lists and mappings: the types, and how they become the text of the flag.
SPELLED: dict[str, tuple[Any, Callable[[Any], str]]] = {
    "task": ((list, tuple, dict), spell_task),
    "columns": (dict, spell_columns),
    "reward": ((list, tuple, dict), lambda value: reward_text(read_rewards(value))),
}


def one_length(given: dict[str, Any]) -> dict[str, Any]:
    """Raise ValueError if a run is given both a number of steps and a number of epochs."""
    if given.get("steps") is not None and given.get("epochs") is not None:
        raise ValueError("--steps and --epochs both say how long the run is; leave out one of them")
    return given


def unknown(method: str, key: str, known: Collection[str], *, flag: bool = False) -> str:
    """The error message for an unknown option: its name in burnish if another library has it, else the nearest one."""
    if ours := answer(key, {*known, "resume"}, method=method, flag=flag):
        return ours
    hint = elsewhere(key) or nearest(key, known)
    return f"{method} has no option {key!r}{hint} (`burnish show {method}` lists them)"


def _with_reward_model(given: dict[str, object], own: Collection[str]) -> dict[str, object]:
    """--reward-model DIR of a method that has no such option is --reward "rm(DIR)", beside other rewards."""
    key = next((key for key in given if key.replace("-", "_") == "reward_model"), None)
    if key is None or "reward_model" in own or not isinstance(given[key], str) or not given[key]:
        return given
    scored = f"rm({given[key]})"
    reward = given.get("reward")
    if reward is not None and not isinstance(reward, str):
        reward = [*(reward if isinstance(reward, list | tuple) else [reward]), scored]
    else:
        reward = f"{reward},{scored}" if reward else scored
    return {**{name: value for name, value in given.items() if name != key}, "reward": reward}


def configure(entry: Entry, name: str, given: dict[str, Any]) -> Config:
    """Sort given values into options and arguments; raise ValueError for an unknown name (with the nearest one) or
    type.
    """
    own = method_fields(entry)
    shared = {f.name: f for f in dataclasses.fields(Options)}
    clash = own.keys() & shared.keys() - {f.name for f in dataclasses.fields(SamplingReplies)}
    if clash:
        raise ValueError(f"method {name!r} has an argument {clash.pop()!r}, which is an option of every run; rename it")
    option_types, own_types = typing.get_type_hints(Options, include_extras=True), method_types(entry)
    options: dict[str, Any] = {}
    arguments = {key: p.default for key, p in own.items() if p.default is not p.empty}
    for key, value in _with_reward_model(given, own).items():
        key = key.replace("-", "_")
        if key in SPELLED and not isinstance(value, str) and isinstance(value, SPELLED[key][0]):
            value = SPELLED[key][1](value)
        if key in shared and key not in own:
            options[key] = coerce(key, value, option_types[key])
        elif key in own:
            arguments[key] = coerce(key, value, own_types.get(key, Any))
        else:
            raise ValueError(unknown(name, key, [*shared, *own]))
    for key, p in own.items():
        if p.default is p.empty and key not in arguments:
            raise ValueError(
                f"{name} needs --{key.replace('_', '-')}; for example: {entry.example or 'see burnish show ' + name}"
            )
    return Config(name, Options(**options), arguments)
