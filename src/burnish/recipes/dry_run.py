"""What a recipe would run: its file with all changes, and the GPU memory of each training stage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from burnish.models.known_models import resolve
from burnish.recipes.maker import Maker
from burnish.recipes.plan import all_options, configured
from burnish.recipes.recipe import Recipe, Stage, filled
from burnish.run.memory_plan import GIB, parts_of
from burnish.run.plan import asked, plan

TASK = "add"  # memory does not depend on the rows, but on --max-length and --max-new-tokens
KV_GIB = 16.0  # of the KV cache, where a recipe says nothing: replies wait for one another
OF_MODELS = {"reward_model", "preference"}  # options that load what an earlier stage makes
OF_ROWS = ("draw", "reward", "shape", "critic", "epochs")  # they need the data and the models of earlier stages


def written(recipe: Recipe) -> str:
    """The recipe as a file."""
    import yaml

    text: str = yaml.safe_dump(recipe.to_dict(), sort_keys=False, width=100, allow_unicode=True)
    return text


def memory_of(recipe: Recipe, makers: Mapping[str, Maker]) -> Iterator[str]:
    """A line for each training stage. Raises ValueError for an option or a value that a stage does not take."""
    try:
        model = str(resolve(recipe.model, loads=False))
    except (ValueError, OSError):
        model = ""
    for stage in recipe.stages:
        options = all_options(recipe, stage, makers)
        if stage.command != "train":
            continue
        ready = filled({**options, "task": TASK}, dict.fromkeys(recipe.names(), recipe.model))
        entry, config = configured(stage, ready)  # checks every value
        if OF_MODELS & stage.options.keys():
            yield f"{stage.name}: not predicted, because it needs a model that an earlier stage makes"
        elif model:
            yield f"{stage.name}: {_gib(stage, ready, model):.1f} GiB"
    if model:
        yield f"predicted for one GPU, with recomputed activations and a KV cache of {KV_GIB:g} GiB: burnish plan"
    else:
        yield f"memory: {recipe.model} is not on this machine; --model DIR with its config.json predicts it"


def _gib(stage: Stage, options: Mapping[str, object], model: str) -> float:
    """The peak that `burnish plan` predicts with recomputed activations."""
    kept = {key: value for key, value in options.items() if key not in OF_ROWS}
    small = {"checkpoint_activations": "recompute", "kv_gib": KV_GIB}
    entry, config = configured(stage, {**small, **kept, "model": model, "task": TASK})
    planned = plan(entry, config, loads=False)
    shapes, batch, how = asked(planned.config, planned.method, planned.base)
    how = replace(how, token_budget=max(planned.settings.token_budget, config.options.max_length or 0))
    return sum(parts_of(shapes, planned.method.models, planned.lora, batch, how).values()) / GIB
