"""The header of a run: what it trains on what, as lines with labels."""

from __future__ import annotations

from burnish.config.options import Options
from burnish.core.step import Settings
from burnish.evals.better import kind_of, sampled_first
from burnish.evals.evaluate import can_evaluate
from burnish.models.template import ASSUMED
from burnish.run.lengths import Needs
from burnish.run.observed import ObservedRun
from burnish.run.passes import passes
from burnish.run.reward_versions import written
from burnish.tasks.replies import left_out
from burnish.tasks.resolve import datasets_of


def _pace(settings: Settings) -> str:
    """How sampling is asynchronous (--lag, --chunk, --train-when); empty if it is not."""
    ahead = f"sampled {settings.lag} step{'s' if settings.lag > 1 else ''} ahead of training" if settings.lag else ""
    chunk = ""
    if settings.chunk:
        chunk = f"at most {settings.chunk} tokens of a reply per step; the next step continues it with newer weights"
    waits = ""
    if settings.train_when is not None:
        waits = (
            f"a step learns when {settings.train_when:.0%} of the open groups are done; the next plays the others on"
        )
    if settings.step_deadline is not None:
        waits += f"{', and ' if waits else 'a step '}waits for environments for {settings.step_deadline:g} s at most"
    return "; ".join(filter(None, (ahead, chunk, waits)))


def derived(run: ObservedRun) -> list[tuple[str, str]]:
    """The header of a run: its configuration as (label, text)."""
    options, settings = run.config.options, run.settings
    about = run.about
    part = f" ({_count(about.moving)} trained)" if 0 < about.moving < about.weights else ""
    precision = "fp32" if about.device == "cpu" else "bf16 autocast over fp32 weights"
    precisions = {"split": "bf16, with the other half of fp32 beside it", "bfloat16": "bf16, rounded at random"}
    precision = precisions.get(settings.master_weights, precision)
    n = run.config.arguments.get("n")
    batch = f"batch size {settings.prompts}"
    if isinstance(n, int):
        batch = f"batch size {settings.prompts * n} ({settings.prompts} prompts x {n} samples)"
    model = f"{options.model}, {_count(about.weights)} weights{part}, {about.device}, {precision}"
    rate = (
        f"{settings.lr:g} {settings.lr_schedule}"
        if any(phase.learn.terms for phase in run.method.phases)
        else "none: weights move by scores alone, without gradients"
        if any(phase.learn.trainees for phase in run.method.phases)
        else "nothing is trained"
    )
    engines = {
        "process": "burnish in another process, with a copy of the weights that is verified at every publish",
        "vllm": "vLLM, with a copy of the weights that is verified at every publish; it takes some seconds to start",
    }
    return [
        ("model", model),
        *([("chat", ASSUMED)] if about.plain else []),
        *([("engine", engines[options.engine])] if options.engine in engines else []),
        *([("on", _on_ray(options))] if options.on == "ray" else []),
        ("task", f"{options.task}: {run.source.summary}"),
        *([("reward", written(run.rewards))] if run.rewards else []),
        (
            "batch",
            f"{batch}, replies up to {settings.max_new_tokens} tokens; gradients accumulate over micro-batches of up "
            f"to {settings.token_budget:,} tokens",
        ),
        ("data", passes(run.config, run.source)),
        *([("same", same)] if (same := _same_replies(run)) else []),
        *([("cut", cut)] if (cut := left_out(run.source)) else []),
        *([("long", long)] if run.lengths and (long := run.lengths.sentence()) else []),
        *([("empty", empty)] if run.lengths and (empty := run.lengths.empty_sentence()) else []),
        *([("eval", judged)] if (judged := _judged(run)) else []),
        *([("pace", pace)] if (pace := _pace(settings)) else []),
        ("lr", f"{rate}, {options.steps} steps" + (f", resumed after step {run.start}" if run.start else "")),
        ("run", str(run.folder.path)),
    ]


def _same_replies(run: ObservedRun) -> str:
    """How many rows are left out because they prefer no reply; empty where none are."""
    rows = sum(dataset.left_out() for dataset in datasets_of(run.source))
    left = "row is left out: its" if rows == 1 else "rows are left out: their"
    return f"{rows:,} {left} replies are equal or ranked the same" if rows else ""


def _judged(run: ObservedRun) -> str:
    """What is measured on how many held-out rows, and how replies are decoded; empty where nothing is."""
    options = run.config.options
    if run.source.size("heldout") == 0:
        return "nothing: no prompt of the data is held out; more rows, or split= and heldout= after a comma, give some"
    if not options.eval_tasks:
        return ""
    kind, sampled = kind_of(run.method, run.source, options.eval_measure), options.eval_k and options.eval_temperature
    rows, s = f"{run.held_out:,} held-out", "" if run.held_out == 1 else "s"
    if kind == "scored":
        return f"{rows} prompt{s}, the mean reward of the replies that the method samples"
    greedy = "one greedy reply each (temperature 0)"
    several = f"{options.eval_k} sampled at temperature {options.eval_temperature:g}"
    if kind == "judged":
        if sampled and sampled_first(run.method, options.eval_measure):
            return f"{rows} task{s}, {several}, by which the best checkpoint is found, and {greedy}"
        return f"{rows} task{s}, {greedy}" + (f", and {several}" if sampled else "")
    what = "likelihood of the replies" if "chosen" not in Needs.of(run.method).replies else "order of the pairs"
    told = f"{rows} row{s}, the {what}" if not run.method.samples else f"{rows} row{s}, the method's own loss"
    judged = options.eval_measure == "auto" and run.method.generates and can_evaluate(run.source)
    return told + (f"; before and after training also {greedy}" if judged else "")


def _on_ray(options: Options) -> str:
    """The Ray cluster and actors of a run."""
    where = f"the Ray cluster at {options.ray_address}" if options.ray_address else "a new Ray cluster on this machine"
    counts = [(options.samplers, "sampler"), (options.graders, "grader"), (1, "trainer")]
    actors = ", ".join(f"{n} {word}{'s' if n > 1 else ''}" for n, word in counts)
    return (
        f"{where}: {actors}, {options.spares} spare of each; {options.order} order, lag {options.lag}, "
        f"units of {options.unit} tasks"
    )


def _count(n: int) -> str:
    return f"{n / 1e9:.2f}B" if n >= 1e9 else f"{n / 1e6:.1f}M" if n >= 1e6 else f"{n / 1e3:.0f}k"
