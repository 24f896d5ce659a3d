"""Tasks of the LM Evaluation Harness (lm-eval), answered by burnish's engine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from burnish.bench.likelihood import Pair, likelihoods, pair_of
from burnish.bench.run import until
from burnish.core.randomness import key_of
from burnish.engine.request import Request

if TYPE_CHECKING:
    from burnish.models.model import Model

TOKENS = 256  # of a reply, where a task does not say


def harness_model(model: Model) -> Any:
    """The model as an `lm_eval.api.model.LM`: loglikelihood, loglikelihood_rolling, generate_until, chat templates."""
    language_model = type("BurnishLM", (_Answers, _lm_eval("lm_eval.api.model").LM), {})()
    language_model.model = model
    return language_model


class _Answers:
    """burnish's engine behind the interface of the harness, whose class is put below when it is installed."""

    model: Model

    @property
    def tokenizer_name(self) -> str:
        return f"burnish-{self.model.chat.identity}"

    def chat_template(self, chat_template: bool | str = False) -> str:
        return str(self.model.chat.tokenizer.chat_template or "") if chat_template else ""

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        return self.model.chat.template.render(chat_history, add_generation_prompt)

    def loglikelihood(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        pairs = [
            pair_of(self.model.chat, context, continuation, self.model.context)
            for context, continuation in (request.args for request in requests)
        ]
        return [(one.logp, one.greedy) for one in likelihoods(self.model, pairs)]

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
        return [_rolling(self.model, request.args[0]) for request in requests]

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        asked = [_request(self.model, i, *request.args) for i, request in enumerate(requests)]
        samples = self.model.generate([one for one, _ in asked])
        pairs = zip(samples, asked, strict=True)
        return [until(self.model.chat.text(sample.tokens), stop) for sample, (_, stop) in pairs]


def run_harness(
    model: Model, tasks: Sequence[str], *, data: str | None, shots: int | None, most: int | None, chat: bool
) -> dict[str, Any]:
    """The results of tasks, as `lm_eval.simple_evaluate` returns them, with what the model said.

    data: a folder with TASK.jsonl (and TASK_train.jsonl, for examples) in place of the tasks' datasets of the hub
    """
    evaluate = _lm_eval("lm_eval").simple_evaluate
    asked: list[Any] = [_with_data(task, Path(data)) if data else task for task in tasks]
    results: dict[str, Any] = evaluate(
        model=harness_model(model),
        tasks=asked,
        num_fewshot=shots,
        limit=most,
        apply_chat_template=chat,
        log_samples=True,
        bootstrap_iters=0,
        verbosity="ERROR",
    )
    return results


def _with_data(task: str, folder: Path) -> dict[str, Any]:
    """The configuration of a task with its rows from files; its splits keep their names."""
    entry = _lm_eval("lm_eval.tasks").TaskManager().task_index.get(task)
    if entry is None or entry.yaml_path is None:
        raise ValueError(f"lm-eval has no task {task!r}; `lm_eval ls tasks` lists them")
    config = _lm_eval("lm_eval.tasks._yaml_loader").load_yaml(entry.yaml_path)
    file = folder / f"{task}.jsonl"
    if not file.is_file():
        raise ValueError(f"{folder} holds no {task}.jsonl with rows as the task's dataset has them")
    splits = {config[key] for key in ("test_split", "validation_split") if config.get(key)} or {"test"}
    files = {split: str(file) for split in splits}
    examples = folder / f"{task}_train.jsonl"
    names = (config.get("fewshot_split"), config.get("training_split"))
    files |= {str(split): str(examples if examples.is_file() else file) for split in names if split}
    return {
        **config,
        "task": task,
        "dataset_path": "json",
        "dataset_name": None,
        "dataset_kwargs": {"data_files": files},
    }


def _request(model: Model, number: int, context: str, how: dict[str, Any]) -> tuple[Request, tuple[str, ...]]:
    """A request of the harness as one of the engine; sampling settings are those of the task."""
    until_ = how.get("until") or []
    stop = tuple([until_] if isinstance(until_, str) else until_)
    most = min(int(how.get("max_gen_toks") or how.get("max_new_tokens") or TOKENS), model.context - 1)
    tokens = model.chat.ids(model.chat.tokenizer.encode(context))[-max(1, model.context - most) :]
    temperature = float(how.get("temperature") or 0.0) if how.get("do_sample") else 0.0
    request = Request(
        tokens, key_of("lm-eval", number), most, temperature, top_p=float(how.get("top_p") or 1.0), stop=stop
    )
    return request, stop


def _rolling(model: Model, said: str) -> float:
    """log pi of a whole text: in windows of the context, each token predicted once, after as much as fits."""
    whole = pair_of(model.chat, "", said, 1 << 30).tokens
    total, at = 0.0, 1
    while at < len(whole):
        end = min(len(whole), at + model.context - 1 if at == 1 else at + model.context // 2)
        start = max(0, end - model.context)
        total += likelihoods(model, [Pair(whole[start:end], end - at)])[0].logp
        at = end
    return total


def _lm_eval(name: str) -> ModuleType:
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError:
        raise ValueError("tasks of lm-eval need it: pip install 'burnish[lm-eval]'") from None
