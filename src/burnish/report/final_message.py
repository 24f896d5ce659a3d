"""The output at the end of a run: held-out result, sample answers, paths, and commands to continue with."""

from __future__ import annotations

import inspect
import re
import shlex
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from burnish.compose.own_seats import SEATS
from burnish.compose.seats import read_opponent
from burnish.config.options import Options
from burnish.evals.best import Score
from burnish.evals.better import ACCURACY, better_is_lower
from burnish.evals.evaluate import can_evaluate
from burnish.methods.table import find
from burnish.models.template import NAMES
from burnish.report.measured import cut, estimate, measured
from burnish.reward_functions.resolve import IN_PYTHON, read_rewards, reward_text
from burnish.rewards.read import split_rewards
from burnish.run.lengths import Needs
from burnish.run.reply_length import SHORT
from burnish.tasks.resolve import datasets_of

if TYPE_CHECKING:
    from burnish.evals.evaluate import Interval, Shown
    from burnish.evals.heldout import Outcome
    from burnish.run.observed import ObservedRun
    from burnish.run.train import Result

GUIDED_BY = {"vas_value": "vas", "q_sharp_value": "q_sharp"}  # methods -> those that decode with their product
REWARDS = {  # methods -> the reward that reads their product, where that is not rm
    "armorm": "armorm",
    "brme": "brme",
    "maxmin_rm": "maxmin",
    "polar": "polar",
    "reward_ensemble": "ensemble",
    "seq2seq_rm": "corrector",
    "themis": "themis",
    "vpl": "vpl",
}
ANSWERS = 5
# What a next training command takes over from the run: the model's memory, and how replies are sampled and judged.
LORA = ("lora", "lora_alpha", "lora_variant", "lora_targets", "quantization")
PLAYED = (
    "tools",
    "tool_parser",
    "tool_timeout",
    "agent",
    "opponent",
    "seat",
    "turns",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
)


def verdict(result: Result, tasks: int, longest: int = 0) -> list[str]:
    """Held-out measure before and after training with 95% intervals, the gain, and what `_ending` says.

    longest: --max-new-tokens, at which replies are cut
    """
    before, after = result.before, result.after
    if after is None:
        return []
    if result.model is None:
        return _chosen(before, after)
    before = before and before.like(after.measure)
    if before is None or before.name != after.name:
        before = None
    lines = [*measured(before, after), *cut(before, after, longest)]
    if before is None:
        return [*lines, *_ending(result)]
    gain = after.value.mean - before.value.mean
    worse = gain > 0 if better_is_lower(after.name) else gain < 0
    if after.value.low < after.value.high and not better_is_lower(after.name) and _overlap(before.value, after.value):
        lines.append(
            f"The 95% intervals overlap: on {tasks} task{'' if tasks == 1 else 's'} this may be chance. More --steps "
            "or held-out tasks (--eval-tasks) will tell."
        )
    elif worse:
        lines.append("The model got worse: try a smaller --lr, or fewer --steps.")
    return [*lines, *_ending(result)]


def _chosen(before: Outcome | None, after: Outcome) -> list[str]:
    """The score of the replies of a method that trains nothing, and that of the model's own replies."""
    lines = [f"held-out {after.measure} of the method's replies: {estimate(after)}"]
    if before is not None and before.name == after.name:
        several = before.sampled if before.measure == ACCURACY else None
        beside = f"; sampled at temperature {several.temperature:g}: {several.accuracy}" if several else ""
        lines.append(f"of the model's own replies, greedy: {estimate(before)}{beside}")
    return lines


def _overlap(one: Interval, other: Interval) -> bool:
    return one.low <= other.high and other.low <= one.high


def _ending(result: Result) -> list[str]:
    """Why the run ended early, and which checkpoint is the best."""
    done, best = result.metrics[-1]["step"] if result.metrics else 0, result.best
    lines = [f"Stopped early after step {done}: {result.ended}."] if result.ended else []
    after = Score(best.name, done, result.after.value.mean) if best and result.after else None
    if best is not None and best.step != done and best.better(after):
        lines.append(
            f"The best checkpoint is that of step {best.step}, held-out {best.told()}: "
            f"{result.folder / 'best'} (--product best makes it the model)"
        )
    return lines


def answers(before: Outcome | None, after: Outcome | None) -> Table | None:
    """The first held-out prompts with the answers before and after, marked right or wrong."""
    if after is None or not after.shown:
        return None
    table = Table(title="The first held-out tasks", title_justify="left", title_style="bold", expand=True)
    table.add_column("prompt", ratio=3)
    earlier = {shown.prompt: shown for shown in before.shown} if before else {}
    if before:
        table.add_column("before", ratio=3)
    table.add_column("after", ratio=3)
    for now in after.shown[:ANSWERS]:
        was = [marked(earlier[now.prompt]) if now.prompt in earlier else Text()] if before else []
        table.add_row(one_line(now.prompt), *was, marked(now))
    return table


def marked(shown: Shown) -> Text:
    """A reply on one line, after a tick or a cross."""
    mark, colour = ("✓ ", "green") if shown.correct else ("✗ ", "red")
    return Text.assemble((mark, colour), one_line(shown.reply))


def one_line(text: str, longest: int = 120) -> Text:
    """Text on one line, truncated, without control characters."""
    flat = " ⏎ ".join(line for line in text.strip().splitlines() if line.strip())
    clean = "".join(c if c.isprintable() else "�" for c in flat)
    return Text(clean if len(clean) <= longest else clean[: longest - 1] + "…", overflow="fold")


def places(result: Result) -> list[tuple[str, str]]:
    """The paths of the model, of those of other seats, and of the run folder, each with a label."""
    seats = sorted((result.folder / SEATS).glob("*")) if result.model else []
    folder = [*((f"seat {place.name}", str(place)) for place in seats), ("run", str(result.folder))]
    return [("model", str(result.model)), *folder] if result.model else folder


def next_steps(run: ObservedRun, result: Result) -> list[tuple[str, str]]:
    """Commands to run next, each with a description."""
    options, folder = run.config.options, shlex.quote(str(result.folder))
    if options.task.startswith(IN_PYTHON) or IN_PYTHON in (options.reward or ""):
        return _next_in_python(options.steps, result)
    resume = f"burnish train --resume {folder}"
    if result.stopped:
        return [(resume, "resume from here")]
    more = (f"{resume} --steps {2 * options.steps}", "train for more steps")
    if result.ended:
        off = (options.patience, " --patience 0"), (options.stop_at is not None, " --stop-at none")
        more = (resume + "".join(flag for given, flag in off if given), "train to the last step")
    if result.model is None:
        return []
    model = shlex.quote(str(result.model))
    again = [more] if _named(run) else []
    rows = _data(run)
    untrained = f"{rows}{_same_model(run, result)}{_same(run)}"
    start = untrained + _adapters(run)
    if run.config.method in REWARDS and rows is not None:
        reward = shlex.quote(f"{REWARDS[run.config.method]}({result.model})")
        return [
            (f"burnish eval-reward {reward} {rows}", "whether it can be trusted"),
            (f"burnish train grpo {start} --reward {reward}", "train with it"),
            *again,
        ]
    if not run.method.generates:
        if rows is None:
            return again
        if run.method.product == "prm":
            reward = shlex.quote(f"prm({result.model})")
            chosen = f"burnish train best_of_n {untrained} --reward {reward}"
            return [(chosen, "choose replies with it"), *again]
        if run.config.method == "refusal_classifier":
            return [(f"burnish refusals {model} {rows}{_categories(run)} --split heldout", "what it finds"), *again]
        if run.config.method in GUIDED_BY:
            guided = f"{GUIDED_BY[run.config.method]} {untrained}{_same_reward(run)} --value-model {model}"
            return [(f"burnish train {guided}", "guide the model with it"), *again]
        if run.method.product == "value":
            trained = f"burnish train dvpo {start}{_same_reward(run)} --value-model {model}"
            return [(trained, "train with it"), *again]
        return [
            (f"burnish eval {model} {rows}", "how many pairs it puts in the right order"),
            (f"burnish train grpo {start} --reward-model {model}", "train with it"),
            *again,
        ]
    if run.config.method == "genarm_rm":
        ordered = [(f"burnish eval {model} {rows}", "how many pairs it puts in the right order")] if rows else []
        guided = f"burnish train genarm {untrained} --reward-lm {model}"
        return [*ordered, *([(guided, "guide a model with it")] if rows and can_evaluate(run.source) else []), *again]
    return [(f"burnish chat {model}", "talk to it"), *_evaluation(run, model), *again]


def _same_model(run: ObservedRun, result: Result) -> str:
    """The flags that name the model that the run started from, with the chat template that the run gave it."""
    options = run.config.options
    words = [f"--model {shlex.quote(options.model)}"] if options.model != Options.model else []
    if options.chat_template is not None and result.model is not None:
        named = options.chat_template in NAMES
        kept = str(result.model / "chat_template.jinja")  # config.yaml has the whole text, which is no flag
        words.append(f"--chat-template {shlex.quote(options.chat_template if named else kept)}")
    for name in ("system_prompt", "template_option"):
        value = getattr(options, name)
        words += [f"--{name.replace('_', '-')} {shlex.quote(value)}"] if value else []
    return "".join(f" {word}" for word in words)


def _same(run: ObservedRun) -> str:
    """The flags of the run that the next one on its data needs: tools, and how replies are sampled."""
    options = run.config.options
    given = {name: getattr(options, name) for name in PLAYED}
    if run.method.samples and (datasets_of(run.source) or options.max_new_tokens != SHORT):
        given["max_new_tokens"] = options.max_new_tokens
    return _flags({name: value for name, value in given.items() if value != getattr(Options, name)})


def _adapters(run: ObservedRun) -> str:
    """The flags of the run's adapters, for a next run that trains the model, too."""
    options = run.config.options
    given = {name: getattr(options, name) for name in LORA}
    return _flags({name: value for name, value in given.items() if value != getattr(Options, name)})


def _same_reward(run: ObservedRun) -> str:
    """The flags of what scored the run's replies."""
    options = run.config.options
    given = {"reward": options.reward, "reward_model": run.config.arguments.get("reward_model"), "shape": options.shape}
    return _flags({name: value for name, value in given.items() if value})


def _flags(given: dict[str, object]) -> str:
    return "".join(f" --{name.replace('_', '-')} {shlex.quote(str(value))}" for name, value in given.items())


def _categories(run: ObservedRun) -> str:
    """The flags of `burnish refusals` that name the labels of a classifier, where they are unusual."""
    usual = inspect.signature(find(run.config.method).build).parameters
    given = {name: run.config.arguments.get(name) for name in ("column", "cannot", "should_not")}
    changed = {name: value for name, value in given.items() if value not in (None, usual[name].default)}
    return _flags(changed)


def _named(run: ObservedRun) -> bool:
    """Whether a command can name the run's method: not where it was passed as a Python object."""
    try:
        find(run.config.method)
    except ValueError:
        return False
    return True


def _data(run: ObservedRun) -> str | None:
    """The flags that name the run's data; None where nothing is held out."""
    options = run.config.options
    if run.source.size("heldout") == 0:
        return None
    columns = f" --columns {shlex.quote(options.columns)}" if options.columns else ""
    return f"--task {shlex.quote(options.task)}{columns}"


def _text_rewards(reward: str | None) -> str:
    """Those of --reward that read texts alone, which `burnish eval` takes; scorers need a run."""
    return reward_text(split_rewards(read_rewards(reward))[0]) if reward else ""


def _one_reward_model(reward: str | None) -> str | None:
    """The directory of a --reward that is one reward model: rm(DIR)."""
    alone = re.fullmatch(r"\s*rm\(([^(),=]+)\)\s*", reward or "")
    return alone[1].strip().strip("'\"") if alone else None


def _evaluation(run: ObservedRun, model: str) -> list[tuple[str, str]]:
    """The command that measures the product as the run did; none for an agent, which `burnish eval` does not run."""
    rows = _data(run)
    if rows is None or run.config.options.agent:
        return []
    options = run.config.options
    rewards = run.config.arguments.get("reward_model") or _one_reward_model(options.reward)
    words = ["burnish eval", model, rows]
    what = "greedy accuracy, pass@k and majority@k"
    if options.reward or rewards:
        what = "mean reward"
        measured = _text_rewards(options.reward)
        if not measured and not rewards:  # a judge or a mixture, which only a run asks
            if not can_evaluate(run.source):
                return []
            what = "greedy accuracy, pass@k and majority@k"
        words += [f"--reward {shlex.quote(measured)}"] if measured else []
        words += [f"--reward-model {shlex.quote(str(rewards))}"] if rewards and not measured else []
    elif not can_evaluate(run.source) or options.eval_measure == "loss":
        needs = Needs.of(run.method)
        what = "perplexity of held-out demonstrations"
        if can_evaluate(run.source):
            words.append(f"--measure {'preference' if 'chosen' in needs.replies else 'likelihood'}")
        if "chosen" in needs.replies:
            what = "held-out pairs in the right order, and margins"
            relative = "ref" in run.method.models and run.method.models["ref"].follows == "policy"
            words += [f"--reference {shlex.quote(options.model)}"] if relative else []
        elif options.train_on != "all":
            words.append(f"--train-on {options.train_on}")
    if options.opponent:
        words.append(f"--opponent {shlex.quote(_heldout_opponent(options.opponent, options.model))}")
        words += [f"--seat {options.seat}"] if options.seat else []
    for name in ("max_new_tokens", "max_length", "on_long", "tools", "turns"):
        value, usual = getattr(options, name), getattr(Options, name)
        if name == "max_new_tokens" and not datasets_of(run.source):
            usual = SHORT  # what `burnish eval` takes for the tasks in the box
        words += [f"--{name.replace('_', '-')} {shlex.quote(str(value))}"] if value != usual else []
    return [(" ".join(words), what)]


def _heldout_opponent(opponent: str, model: str) -> str:
    """What `burnish eval` has at the other seats in place of what moves: the models that held-out games were played
    against."""
    who = read_opponent(opponent)
    source = {name: model if role.source == "base" else role.source for name, role in who.roles.items()}
    if isinstance(who.heldout, str):
        return source[who.heldout]
    return ",".join(f"{seat}={source[name]}" for seat, name in who.heldout.items())


def _next_in_python(steps: int, result: Result) -> list[tuple[str, str]]:
    """Calls to make next, where objects were passed that no command can name."""
    if result.stopped:
        return [("result.resume()", "resume from here")]
    more = (f"result.resume(steps={2 * steps})", "train for more steps")
    return [] if result.model is None else [("result.load()", "the model and its tokenizer"), more]
