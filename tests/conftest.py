"""What tests share: a small random model, small settings, and a table of every registered method with a task it works
on.
"""

from __future__ import annotations

import gc
import os
import shutil
import sys
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import guards
import pytest
import shards
import torch
import torch.multiprocessing

from burnish.core.loop import run_phase
from burnish.core.method import Method, Phase
from burnish.core.randomness import key_of
from burnish.core.step import Settings, Step
from burnish.core.task import Task, Verdict
from burnish.core.types import Clock, Group
from burnish.forward.accelerate import kernels
from burnish.forward.prefix_tree import Numbers
from burnish.forward.runner import ModelRunner
from burnish.learn.batch import write_claims
from burnish.learn.learn import Learn
from burnish.methods.table import METHODS, load_all
from burnish.models.build import Models, build
from burnish.models.lora import Lora
from burnish.store.reader import open_store
from burnish.tasks.source import Source
from burnish.tasks.table import source
from burnish.tasks.task_set import MadeTasks, rewarded

gc.disable()  # until all tests are collected
load_all()
torch.set_num_threads(1)
# Tests use helpers of other tests by their plain names: `from test_learn import TASK`.
sys.path += [str(folder) for folder in sorted(Path(__file__).parent.iterdir()) if folder.is_dir()]

if kernels() is None:  # files that import the optional package test it: without it they are not collected
    collect_ignore = [
        str(file)
        for file in Path(__file__).parent.rglob("test_*.py")
        if any(line.startswith(("from burnish.kernels", "import burnish.kernels")) for line in file.open())
    ]


def pytest_addoption(parser: pytest.Parser) -> None:
    shards.add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    shards.configure(config)
    if not hasattr(config, "workerinput"):  # with xdist, the process that hears of all reports
        config.pluginmanager.register(guards.Verifier(config))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    shards.split(config, items)
    guards.split(config, items)


def pytest_collection_finish() -> None:
    """What was imported and collected, a million objects, is searched for garbage no more: it took 0.3 s in each run
    that a test starts.
    """
    gc.enable()
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    return no_skip_for_a_missing_package((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, Any]:
    return no_skip_for_a_missing_package((yield))


def no_skip_for_a_missing_package(report: Any) -> Any:
    """In CI a test that skips because a package is missing has failed: it tests nothing, and nobody would notice."""
    if os.environ.get("CI") and report.skipped and "could not import" in str(report.longrepr):
        report.outcome = "failed"
        report.longrepr = f"a package is missing, so this tests nothing: {report.longrepr}"
    return report


CHAT = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
OF_THE_RUN = ("task", "lora")  # options of a trial that every run has; the others are the method's own
SMALL = Settings(prompts=3, max_new_tokens=10, token_budget=4096, lr=1e-3)


def make_model(path: Path, seed: int = 0, kind: str = "Llama", **changed: Any) -> Path:
    """A random model of 60k weights with a byte tokenizer and a chat template, in a directory like any other."""
    import transformers
    from tokenizers import Tokenizer, decoders, models
    from tokenizers.pre_tokenizers import ByteLevel
    from transformers import PreTrainedTokenizerFast

    specials = ["<|pad|>", "<|end|>", "<|user|>", "<|assistant|>"]
    vocabulary = {token: i for i, token in enumerate([*specials, *sorted(ByteLevel.alphabet())])}
    inner = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    inner.pre_tokenizer, inner.decoder = ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="<|pad|>", eos_token="<|end|>", additional_special_tokens=specials[2:]
    )
    tokenizer.chat_template = CHAT
    tokenizer.save_pretrained(path)
    shape: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    shape |= {"num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": True}
    config = getattr(transformers, f"{kind}Config")(
        bos_token_id=None,
        eos_token_id=vocabulary["<|end|>"],
        pad_token_id=vocabulary["<|pad|>"],
        initializer_range=0.2,
        **{"vocab_size": len(vocabulary), "max_position_embeddings": 256, **shape, **changed},
    )
    torch.manual_seed(seed)
    model = getattr(transformers, f"{kind}ForCausalLM")(config)
    for name, p in model.named_parameters():
        if name.endswith("bias") or "q_norm" in name or "k_norm" in name:  # which begin as zeros and ones
            torch.nn.init.normal_(p, mean=float(p.detach().mean()), std=0.5)
    model.save_pretrained(path)
    return path


def numbers(rows: list[torch.Tensor]) -> list[Numbers]:
    """Rows of tokens as packs take them."""
    return [row.numpy() for row in rows]


def trainers_logp(
    model: torch.nn.Module | ModelRunner, requests: list[Any], samples: list[Any], at_once: int
) -> list[torch.Tensor]:
    """The trainer's log-probs of an engine's samples, from packs of so many rows."""
    from burnish.forward.outputs import outputs
    from burnish.forward.runner import runner_of

    runner = runner_of(model) if isinstance(model, torch.nn.Module) else model
    found: list[torch.Tensor] = []
    for i in range(0, len(requests), at_once):
        some = list(zip(requests[i : i + at_once], samples[i : i + at_once], strict=True))
        rows = [torch.cat([request.prompt, sample.tokens]) for request, sample in some]
        masks = [torch.arange(len(row)) >= len(r.prompt) for row, (r, _) in zip(rows, some, strict=True)]
        with torch.no_grad():
            logp = outputs(runner, rows, masks, {"logp"}, some[0][0].temperature)["logp"].cpu()
        found += logp.split([len(sample.tokens) for _, sample in some])
    return found


@pytest.fixture(scope="session")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="session")
def other_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Different weights, the same tokenizer: a teacher."""
    return make_model(tmp_path_factory.mktemp("other"), seed=1)


def coin(completions: list[str]) -> list[float]:
    """A reward that differs between replies of a random model: a fair coin, tossed by the text itself."""
    return [float(key_of(text) % 2) for text in completions]


class Tossed(MadeTasks):
    """A game whose replies are paid by a coin: a random model never wins it, and then nothing moves."""

    def task(self, split: str, index: int) -> Task:
        found = self.source.task(split, index)
        return replace(found, given={**found.given, "env": partial(TossedGame, found.given["env"])})

    def verify(self, task: Task, reply: str) -> Verdict:
        return self.source.verify(task, reply)


class TossedGame:
    """An environment of `Tossed`."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.game = make()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.game, name)

    def fork(self) -> TossedGame:
        copy = self.game.fork()
        return TossedGame(lambda: copy)

    def step(self, action: str) -> tuple[str, float, bool]:
        said, _, over = self.game.step(action)
        return said, coin([action])[0], over


def task_for(name: str) -> Source:
    """The task of a method's trial: games are played and paid by a coin, other replies are scored by one."""
    found = source(METHODS[name].trial.get("task", "sort"))
    return Tossed(found) if "env" in found.gives else rewarded(found, coin)


def arguments_for(name: str, teacher: Path) -> dict[str, Any]:
    """The small arguments of a method's trial; wherever it wants the model tiny, a random model stands in."""
    given = {key: value for key, value in METHODS[name].trial.items() if key not in OF_THE_RUN}
    found = {key: str(teacher) if value == "tiny" else value for key, value in given.items()}
    return found | {key: str(scoring_model(teacher)) for key in ("prm", "value_model") if key in found}


def run_options_for(name: str) -> dict[str, Any]:
    """The run's options of a method's trial, apart from its task: adapters, where it needs them."""
    return {key: value for key, value in METHODS[name].trial.items() if key in OF_THE_RUN and key != "task"}


def scoring_model(start: Path) -> Path:
    """The model with a random head of one output in the place of its logits, made once."""
    path = start.with_name(f"{start.name}-scoring")
    if start.exists() and not path.exists():
        from transformers import AutoModelForSequenceClassification

        made = start.with_name(f"{start.name}-scoring-{os.getpid()}")
        shutil.copytree(start, made)
        model = AutoModelForSequenceClassification.from_pretrained(start, num_labels=1, trust_remote_code=False)
        torch.manual_seed(0)
        torch.nn.init.normal_(model.score.weight)
        model.save_pretrained(made)
        made.rename(path)
    return path


def build_method(name: str, teacher: Path) -> Method:
    return METHODS[name].build(task_for(name), **arguments_for(name, teacher))


def build_cast(method: Method, base: Path, settings: Settings = SMALL) -> Models:
    name = method.name if isinstance(method, Method) else ""
    rank = run_options_for(name).get("lora") if name in METHODS else None
    return build(method.models, base, settings, device="cpu", lora=Lora(rank) if rank else None)


def run_ranks(work: Callable[..., None], arguments: tuple[Any, ...], world: int, seconds: float) -> None:
    """work(rank, *arguments) in `world` processes. What one of them raises is raised here; none outlives its time."""
    running = torch.multiprocessing.spawn(work, arguments, nprocs=world, join=False)
    assert running is not None
    try:
        deadline = time.monotonic() + seconds
        while not running.join(timeout=1):  # true once all have ended
            assert time.monotonic() < deadline, f"the ranks were not done after {seconds} s"
    finally:
        for process in running.processes:
            process.kill()


def doubled(models: Models) -> Models:
    """The same members in fp64 throughout, for comparing gradients beyond rounding."""
    for model in models:
        model.module.double()
        for module in list(model.module.modules()):
            for name, norm in module.named_children():
                if type(norm).__name__.endswith("RMSNorm"):  # transformers' own goes through fp32
                    wide = torch.nn.RMSNorm(norm.weight.shape[0], norm.variance_epsilon)
                    wide.weight = norm.weight
                    setattr(module, name, wide)
        model.weights_moved()
    return models


def credited(
    method: Method, models: Models, settings: Settings = SMALL, step: int = 0
) -> Iterator[tuple[Phase, list[Group], Step]]:
    """The groups that each phase with terms would learn from, its stages passed up to credit."""
    for phase in method.phases:
        now = Step(Clock(step, 10), models, settings)
        groups = run_phase(replace(phase, learn=Learn()), now, {}, [])
        if phase.learn.terms:
            write_claims(groups, phase.learn.terms)
            yield phase, groups, now


def recorded(folder: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Everything that a rerun repeats of what a run recorded, row by row: numbers, groups, traces, tokens, streams."""
    tables = ("metrics", "groups", "traces", "tokens", "vocabulary")
    with open_store(folder) as store:
        found = {table: [tuple(row.values()) for row in store.sql(f"SELECT * FROM {table}")] for table in tables}
    assert found["metrics"]
    return found


@pytest.fixture(params=sorted(METHODS))
def name(request: pytest.FixtureRequest) -> str:
    """Every registered method in turn."""
    return request.param
