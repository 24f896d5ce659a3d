"""Preference oracles, `--preference NAME`: P(y > y' | x) for the pairs of a group, where no score explains it.

An oracle that compares replies writes the chances of each pair, and each reply's mean chance against the others as its
reward, so methods that rank replies rank by it. An oracle that goes by scores leaves the reward as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Annotated

from burnish.core.call_syntax import read_call
from burnish.core.messages import prompt_shown
from burnish.core.option import Option
from burnish.core.parts import Part
from burnish.core.preferences import FromScores, by_bradley_terry, by_comparison, cycles, mean_wins, write_chances
from burnish.core.scorer import Named, Scorer, ScoringStops, mark_failed
from burnish.core.step import Step
from burnish.core.types import Group, Task
from burnish.judges.master_keys import is_master_key
from burnish.judges.templates import GRADED_PAIR, GRADED_PAIR_BRIEF, PAIRWISE, PAIRWISE_BRIEF
from burnish.reward_functions.reward import Failed
from burnish.reward_functions.timed import SECONDS, TimedReward
from burnish.rewards.compared import Words
from burnish.rewards.encoders import PAIRRM, filled
from burnish.rewards.judged import JudgeText
from burnish.rewards.preference_table import read_table
from burnish.rewards.table import build_scorer, load_scorers, register_preference
from burnish.score.encoders import Encoder, first_wins
from burnish.score.judge import reply_text
from burnish.score.judges import read_judge
from burnish.score.judges.judge import Judge
from burnish.score.judges.pairs import spoken_chances, win_chances
from burnish.tasks.source import Source

REWARD = "score:reward"


@dataclass(frozen=True)
class Duel:
    """Two different replies to one task."""

    task: Task
    first: str
    second: str

    @property
    def prompt(self) -> str:
        return prompt_shown(self.task.prompt)


Found = tuple[float | None, str]  # P(first > second), or None and why it is not known
Ask = Callable[[list[Duel], Step], Sequence[Found]]


def comparing(name: str, ask: Ask, *, judge: Judge | None = None) -> Scorer:
    """A scorer that has each pair of different replies of a group compared once, and writes what was found.

    Equal replies are at 1/2 and are not asked about; so is a pair that could not be compared. A reply of which no pair
    could be compared has failed.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        texts = [[reply_text(trace, step.models["policy"].chat) for trace in group.traces] for group in groups]
        duels = [
            Duel(group.task, a, b)
            for group, said in zip(groups, texts, strict=True)
            for a, b in combinations(dict.fromkeys(said), 2)
        ]
        found = dict(zip(((id(duel.task), duel.first, duel.second) for duel in duels), ask(duels, step), strict=True))
        for group, said in zip(groups, texts, strict=True):
            own = {(a, b): found[key, a, b] for key, a, b in found if key == id(group.task)}
            _write(name, group, said, own, step)
        return groups

    reads = frozenset({"tokens:policy", REWARD}) | (judge.reads if judge else frozenset())
    part = Part(name=f"preference({name})", call=call, reads=reads, updates=frozenset({REWARD}))
    return Scorer(part=part, models=judge.models if judge else {})


def _write(name: str, group: Group, said: list[str], found: dict[tuple[str, str], Found], step: Step) -> None:
    def of(a: str, b: str) -> float:
        if (a, b) in found:
            return 0.5 if found[a, b][0] is None else float(found[a, b][0] or 0.0)
        return 0.5 if (b, a) not in found else 1.0 - of(b, a)

    chances = [[of(a, b) for b in said] for a in said]
    write_chances(group.traces, chances)
    around, triples = cycles([[of(a, b) for b in dict.fromkeys(said)] for a in dict.fromkeys(said)])
    if triples:
        step.notes.add("preference_cycles", around, triples)
    for trace, text, wins in zip(group.traces, said, mean_wins(chances), strict=True):
        trace.scores["reward"] = wins
        asked = [one for pair, one in found.items() if text in pair]
        if asked and all(value is None for value, _ in asked):
            mark_failed(trace, f"{name}: {asked[0][1]}")


def from_scores(name: str, preference: FromScores) -> Scorer:
    """A scorer that writes the chances which the rewards of a group's replies stand for, and changes no reward."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            scores = [trace.scores["reward"] for trace in group.traces]
            write_chances(group.traces, [[preference(mine, other) for other in scores] for mine in scores])
        return groups

    return Scorer(part=Part(name=f"preference({name})", call=call, reads=frozenset({REWARD})))


@register_preference(
    summary="sigmoid(r - r') of the rewards of two replies, whatever scores them.",
    when="Win rates from a --reward that a method would only compare.",
    example="burnish train sppo --task prompts.jsonl --reward 'rm(runs/DIR/model)' --preference bradley_terry",
)
def bradley_terry(task: Source) -> Scorer:
    """P(y > y') = s(r(y) - r(y')): transitive. With --reward-model it is what methods do without an oracle."""
    return from_scores("bradley_terry", by_bradley_terry)


@register_preference(
    summary="1, 1/2 or 0, as the reward of a reply is above, at or below that of the other.",
    when="Preferences without a doubt, from a --reward-model.",
    example="burnish train nash_md --task sort --preference comparison",
)
def comparison(task: Source) -> Scorer:
    """P(y > y') = [r(y) > r(y')] + [r(y) = r(y')] / 2: transitive. By the verifier, methods do so without an oracle."""
    return from_scores("comparison", by_comparison)


@register_preference(
    summary="An encoder that reads two replies at once, as PairRM does, in both orders.",
    when="A trained preference model that compares replies.",
    example="burnish train sppo --task prompts.jsonl --preference 'pair_rm(models/pair)'",
    trial={"model": "tiny"},
)
def pair_rm(
    task: Source,
    model: str,
    *,
    form: Annotated[str, Option("The text that it reads, with {prompt}, {first} and {second}.")] = PAIRRM,
) -> Scorer:
    """P(y > y') = ( p(y, y') + 1 - p(y', y) ) / 2,  p: the chance that the first reply is better

    p is the sigmoid of the model's one output, or of the gap of its two.
    """
    for word in ("{prompt}", "{first}", "{second}"):
        if word not in form:
            raise ValueError(f"pair_rm: form is {form[:60]!r}, which has no {word}")
    reader = Encoder(model)

    def ask(duels: list[Duel], step: Step) -> Sequence[Found]:
        texts = [
            filled(form, prompt=duel.prompt, first=a, second=b)
            for duel in duels
            for a, b in ((duel.first, duel.second), (duel.second, duel.first))
        ]
        found = first_wins(reader(texts, step.models["policy"].device), model).tolist() if texts else []
        return [((p + 1 - q) / 2, "") for p, q in zip(found[::2], found[1::2], strict=True)]

    return comparing("pair_rm", ask)


@register_preference(
    summary="The probability with which a judge names one of two replies, in both orders.",
    when="A model that can say which reply is better, and gives its log-probs.",
    example="burnish train nash_md --task prompts.jsonl --preference 'judge(runs/DIR/model)'",
    trial={"who": "tiny", "words": "brief"},
)
def judge(task: Source, who: JudgeText, *, words: Words = "full") -> Scorer:
    """P(y > y') = ( p(A | y, y') + 1 - p(A | y', y) ) / 2,  p(A | a, b) = P(A) / (P(A) + P(B)) of the first token

    A preference for a position cancels. A reply without content (docs/judges.md) loses to every other unasked.
    """
    asked, template = read_judge(who), {"full": PAIRWISE, "brief": PAIRWISE_BRIEF}[words]
    return comparing("judge", _gated(lambda live, step: win_chances(_texts(live), asked, template, step)), judge=asked)


@register_preference(
    summary="What a judge says of two replies on a scale of -3 to 3, in both orders.",
    when="A judge behind an endpoint without log-probs, or one that thinks before it says.",
    example="burnish train inpo --task prompts.jsonl --preference 'verdicts(endpoint(https://HOST/v1, NAME))'",
    trial={"who": "tiny", "words": "brief"},
)
def verdicts(task: Source, who: JudgeText, *, words: Words = "full") -> Scorer:
    """P(y > y') = 1/2 + (d(y, y') - d(y', y)) / 12,  d in {-3, ..., 3} the judge's lead of the reply shown first

    A verdict that cannot be read does not count; without one in either order the pair is not known.
    """
    asked, template = read_judge(who), {"full": GRADED_PAIR, "brief": GRADED_PAIR_BRIEF}[words]
    said = _gated(lambda live, step: spoken_chances(_texts(live), asked, template, step))
    return comparing("verdicts", said, judge=asked)


def _texts(duels: Sequence[Duel]) -> list[tuple[str, str, str]]:
    return [(duel.prompt, duel.first, duel.second) for duel in duels]


def _gated(ask: Ask) -> Ask:
    """A judge is asked of replies with content alone: one without loses, and of two without neither does."""

    def gated(duels: list[Duel], step: Step) -> Sequence[Found]:
        empty = [(is_master_key(duel.first), is_master_key(duel.second)) for duel in duels]
        live = iter(ask([duel for duel, any_ in zip(duels, empty, strict=True) if not any(any_)], step))
        return [((1 + b - a) / 2, "") if a or b else next(live) for a, b in empty]

    return gated


@register_preference(
    summary="A file that says how often each of a few replies beats each other.",
    when="A game with known chances: trials of methods for general preferences.",
    example="burnish train inpo --task prompts.jsonl --preference 'table(game.json)'",
    trial={"file": "game.json"},
)
def table(
    task: Source,
    file: str,
    *,
    unlisted: Annotated[
        float, Option("Chance of a reply that is not in the file against one that is.", at_least=0, at_most=1)
    ] = 0.0,
) -> Scorer:
    """P(y > y') as the file says: {"rock": {"scissors": 1, "paper": 0.1}, ...}; P(y' > y) = 1 - P(y > y')

    Replies are compared without the white space around them. Two replies that are not in the file are at 1/2.
    """
    chances = read_table(file)

    def ask(duels: list[Duel], step: Step) -> Sequence[Found]:
        return [(chances.of(duel.first.strip(), duel.second.strip(), unlisted), "") for duel in duels]

    return comparing("table", ask)


def function_oracle(spec: str, seconds: float | None = None) -> Scorer:
    """P(y > y') = ( f(y, y') + 1 - f(y', y) ) / 2 of a function f(completions, rival, **columns) -> list of chances.

    It runs in a process of its own, with a time limit, as reward functions do.
    """
    name = spec.rpartition(":")[2]
    function = TimedReward(spec, SECONDS if seconds is None else seconds, name)

    def ask(duels: list[Duel], step: Step) -> Sequence[Found]:
        both = [(d.task, a, b) for d in duels for a, b in ((d.first, d.second), (d.second, d.first))]
        given = sorted({key for task, _, _ in both for key in task.given})
        columns = {key: [task.given.get(key) for task, _, _ in both] for key in given}
        prompts = [task.prompt if isinstance(task.prompt, str) else list(task.prompt) for task, _, _ in both]
        rivals = [b for _, _, b in both]
        found = function.answers(prompts, [a for _, a, _ in both], {**columns, "rival": rivals}) if both else []
        return [_of_function(name, p, q) for p, q in zip(found[::2], found[1::2], strict=True)]

    return comparing(name, ask)


def _of_function(name: str, *both: object) -> Found:
    for one in both:
        if not isinstance(one, float):
            return None, str(one) if isinstance(one, Failed) else f"{name} returned None"
        if not 0 <= one <= 1:
            raise ScoringStops(f"the preference {name} returned {one:g}; return the chance, from 0 to 1, of the reply")
    first, second = (float(one) for one in both if isinstance(one, float))
    return (first + 1 - second) / 2, ""


def named_oracle(text: str | None, task: Source, seconds: float | None = None) -> Named | None:
    """The oracle that --preference names: a name with options, or path/to/file.py:function."""
    if not text:
        return None
    call = read_call(text)
    if call is None:
        return Named(text.rpartition(":")[2], function_oracle(text, seconds))
    known = load_scorers()
    if call.name not in known:
        names = ", ".join(name for name, entry in known.items() if entry.kind == "preference")
        raise ValueError(
            f"there is no preference {text!r}; those by name are {names} (a function of your own is "
            "path/to/file.py:function)"
        )
    return Named(call.name, build_scorer(call, task, "preference"))


def compares(oracle: Named) -> bool:
    """Whether the oracle compares replies, so that their rewards are its own: nothing else scores them."""
    return REWARD in oracle.scorer.part.updates
