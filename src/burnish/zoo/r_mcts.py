"""Improving Autonomous AI Agents with Reflective Tree Search and Self-Learning (arXiv 2410.02052).

Reflective tree search over episodes (R-MCTS): an action is chosen by a search, and reflections are remembered.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

from burnish import draw, learn, select
from burnish.core.messages import text_of
from burnish.core.parts import Part
from burnish.core.state import State
from burnish.core.step import Step
from burnish.core.types import Group, Task
from burnish.method import Method, Option, Role, Rollout, frozen, method, roles
from burnish.methods import register
from burnish.papers import Paper
from burnish.rollout.conditioned import conditioned
from burnish.rollout.intents import written
from burnish.rollout.play import note_episodes, of_episodes
from burnish.rollout.search_tree import Node, Rule, Value, nodes, running_mean, search, value_of
from burnish.rollout.searched import Branch, EpisodeTrees
from burnish.score.maths.similarity import embedded
from burnish.score.words import told, word_logps

R_MCTS = Paper("r-mcts", "2410.02052", "Improving Autonomous AI Agents with Reflective Tree Search and Self-Learning")

METRICS = (("tree/reflections", "What was kept", "episodes of a search after which a reflection was written"),)


SCALE = {"done": 1.0, "likely": 0.5, "maybe": 0.2, "unlikely": -0.2, "failed": -1.0}
VERDICT = f"Will the agent fulfil its task from here? Answer with one word: {', '.join(SCALE)}."
FOR = "Write in one sentence why the agent is on the way to fulfil its task."
AGAINST = "Write in one sentence why the agent is not on the way to fulfil its task."
REFLECT = "The last step turned out {how} than it seemed. Write in one sentence what to do in such a state."

Visit = Callable[
    [EpisodeTrees, list[Branch]], list[tuple[Branch, float]]
]  # what is found, and from where it is backed up


def puct(c: float, value: Value = value_of) -> Rule:
    """Q + c p sqrt(N) / (1 + n), p the prior (AlphaZero's rule without its slow growth of c); before the first visit of
    the parent Q + c p (R-MCTS, arXiv 2410.02052).
    """
    return lambda parent, child: value(child) + c * child.prior * math.sqrt(max(1, parent.visits)) / (1 + child.visits)


def above_part(threshold: float, score: str = "reward") -> Part:
    """Only traces that score more than the threshold; groups left with none are dropped."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            kept = [trace for trace in group.traces if trace.scores[score] > threshold]
            step.notes.add("dropped/below_threshold", len(group.traces) - len(kept), len(group.traces))
            group.traces = kept
        return [group for group in groups if group.traces]

    return Part(
        name=f"above({threshold:g})",
        call=call,
        reads=frozenset({f"score:{score}"}),
        updates=frozenset({"tokens:policy"}),
    )


class Memory:
    """The newest reflections, at most `capacity`, each with the prompt of the task that it was written for."""

    def __init__(self, capacity: int, name: str = "reflections") -> None:
        self.name, self.capacity = name, capacity
        self.rows: list[tuple[str, str]] = []

    def add(self, prompt: str, reflection: str) -> None:
        self.rows = [*self.rows, (prompt, reflection)][-self.capacity :]

    def nearest(self, prompt: str, k: int) -> list[str]:
        """The reflections on the k tasks with the nearest prompts, the nearest first, of equals the newer."""
        here = embedded(prompt)
        near = [float(embedded(known) @ here) for known, _ in self.rows]
        ranked = sorted(range(len(near)), key=lambda i: (-near[i], -i))
        return [self.rows[i][1] for i in ranked[:k]]

    def state_dict(self) -> State:
        return {"rows": [list(row) for row in self.rows]}

    def load_state_dict(self, state: State) -> None:
        self.rows = [(prompt, reflection) for prompt, reflection in state["rows"]]


# ------------------------------------------------------------------------------------------------ what states are worth


def played_out(trees: EpisodeTrees, found: list[Branch]) -> list[tuple[Branch, float]]:
    """The reward of the episode that the policy plays from each node, backed up from its end."""
    ends = trees.play_on(found)
    for node, end in zip(found, ends, strict=True):
        node.facts.setdefault("own", end.state.earned)
    return [(end, end.state.earned) for end in ends]


def judged(critic: str, debate: int) -> Visit:
    """A model's verdict on the state: sum of p(word) x its number over five words, between 1 (done) and -1 (failed).

    debate: so many sentences for and against are written first, which the judge reads. p is the model's probability of
    the word among the five: the mean over many samples of its answer.
    """

    def visit(trees: EpisodeTrees, found: list[Branch]) -> list[tuple[Branch, float]]:
        step = trees.step
        chat = step.models[critic].chat
        stories = [told(node.state.turns, chat) for node in found]
        for number in range(debate):
            for side in (FOR, AGAINST):
                asked = [(node.state.task, f"{story}\n{side}") for node, story in zip(found, stories, strict=True)]
                said = written(asked, critic, step, tag=f"debate {number} {side}")
                stories = [f"{story}\n{chat.text(one.tokens)}" for story, one in zip(stories, said, strict=True)]
        logps = word_logps([f"{story}\n{VERDICT}" for story in stories], list(SCALE), critic, step)
        values = [on_scale(each) for each in logps]
        for node, value in zip(found, values, strict=True):
            node.facts.setdefault("own", value)
        return list(zip(found, values, strict=True))

    return visit


def on_scale(logps: Sequence[float]) -> float:
    """sum p v over the five words, p their probabilities divided by their sum."""
    weights = [math.exp(logp - max(logps)) for logp in logps]
    return sum(weight * value for weight, value in zip(weights, SCALE.values(), strict=True)) / sum(weights)


# ----------------------------------------------------------------------------------------------------------- the search


def merge(leaf: Branch) -> None:
    """Children with one state are one child; a child's prior is its share of the proposals.

    A state is known by what was earned and by the environment's name of it, or by the reply that led there where it has
    none.
    """
    for child in leaf.children:
        episode = child.state
        named = episode.player.keys[-1] if not episode.over and episode.player.keys else None
        last = next(turn for turn in reversed(episode.turns) if turn.author not in ("task", "env"))
        child.key = (named or tuple(last.tokens.tolist()), episode.earned)
    times = Counter(child.key for child in leaf.children)
    kept: dict[Any, Branch] = {}
    for child in leaf.children:
        kept.setdefault(child.key, child)
    for child in kept.values():
        child.prior = times[child.key] / len(leaf.children)
    leaf.children = list(kept.values())


def surprise(path: Sequence[Node[Any]]) -> tuple[Node[Any], float] | None:
    """The step at which what was expected of an action, its Q after the search, differs most from what its state was
    worth when it was reached first; and how much the latter was more. None where no step has both.
    """
    known = [(node, node.facts["own"] - node.value) for node in path[1:] if node.visits and "own" in node.facts]
    return max(known, key=lambda one: abs(one[1]), default=None)


def reflective(
    rounds: int,
    width: int,
    *,
    c: float,
    visit: Visit,
    memory: Memory,
    reflections: int,
    threshold: float,
    who: str = "policy",
    reads: Sequence[str] = (),
) -> Rollout:
    """One episode per task, each action of which is chosen by a search of `rounds` visits from the state of then.

    The visited action with the largest value is taken, and its subtree is kept for the next search. With reflections,
    the nearest ones of the memory stand before the prompt, and after the episode the policy writes one where the
    largest surprise is above the threshold.
    """

    def call(tasks: list[Task], step: Step) -> list[Group]:
        prompts = [_text(task) for task in tasks]
        words = ["\n".join(memory.nearest(prompt, reflections)) for prompt in prompts]
        asked = [conditioned(task, some) for task, some in zip(tasks, words, strict=True)]
        trees = EpisodeTrees(asked, step, who=who)

        def propose(leaves: list[Branch]) -> None:
            trees.expand(leaves, width)
            for leaf in leaves:
                merge(leaf)

        at = list(trees.roots)
        while going := [i for i, node in enumerate(at) if not node.over]:
            search(
                [at[i] for i in going],
                rounds,
                propose=propose,
                evaluate=lambda found: visit(trees, found),
                rule=puct(c),
                backup=running_mean,
            )
            for i in going:
                visited = [child for child in at[i].children if child.visits]
                if visited:
                    at[i] = max(visited, key=lambda child: child.value)
                else:
                    at[i].over = True
        note_episodes([node.state for node in at], step)
        for root in trees.roots:
            step.notes.add("tree/nodes", sum(node.visits > 0 for node in nodes(root)) - 1)
            step.notes.add("tree/tokens", trees.spent[root])
        if reflections:
            _reflect(at, prompts, memory, threshold, who, step)
        return [Group(task, [node.state.trace(True)]) for task, node in zip(tasks, at, strict=True)]

    made = of_episodes(f"reflective({rounds} x {width})", call, who, reads=reads)
    return Rollout(name=made.name, call=call, reads=made.reads, writes=made.writes, state=(memory,))


def _reflect(
    ends: Sequence[Branch], prompts: Sequence[str], memory: Memory, threshold: float, who: str, step: Step
) -> None:
    """Write and remember a reflection on the largest surprise of each episode, where it is above the threshold."""
    chat = step.models[who].chat
    found = [(prompt, end, surprise(end.path())) for prompt, end in zip(prompts, ends, strict=True)]
    kept = [(prompt, end, *most) for prompt, end, most in found if most is not None and abs(most[1]) > threshold]
    step.notes.add("tree/reflections", len(kept), max(1, len(ends)))
    asked = [
        (end.state.task, f"{told(node.state.turns, chat)}\n{REFLECT.format(how='better' if gap > 0 else 'worse')}")
        for _, end, node, gap in kept
    ]
    for (prompt, *_), turn in zip(kept, written(asked, who, step, tag="reflection") if asked else [], strict=True):
        memory.add(prompt, chat.text(turn.tokens).strip())


def _text(task: Task) -> str:
    return task.prompt if isinstance(task.prompt, str) else "\n".join(map(text_of, task.prompt))


Rounds = Annotated[int, Option("Visits to the tree before each action.", at_least=1)]
Width = Annotated[int, Option("Replies that are proposed in each state.", at_least=2)]
Explore = Annotated[float, Option("How strongly the search prefers what it has visited less.", at_least=0)]
Values = Annotated[
    Literal["judge", "reward"],
    Option(
        "What a state is worth: judge: a model's verdict; reward: what the episode pays that the policy plays from it.",
    ),
]
Judge = Annotated[str | None, Option("The model that judges states; unset: the starting model.")]
Debate = Annotated[int, Option("Sentences for and against that the judge reads first.", at_least=0)]
Reflections = Annotated[
    int, Option("Reflections on the nearest tasks that stand before the prompt; 0: no memory.", at_least=0)
]
Threshold = Annotated[float, Option("How large the surprise has to be that is reflected on.", at_least=0)]
CAPACITY = 1000
_TRIAL = {"task": "guess", "rounds": 3, "width": 2}


def _searched(
    rounds: int,
    width: int,
    c: float,
    value: str,
    judge: str | None,
    debate: int,
    reflections: int,
    threshold: float,
) -> tuple[Rollout, dict[str, Role]]:
    """The search, and the models that it asks."""
    judges = {"judge": frozen(judge or "policy")} if value == "judge" else {}
    found = reflective(
        rounds,
        width,
        c=c,
        visit=judged("judge", debate) if judges else played_out,
        memory=Memory(CAPACITY),
        reflections=reflections,
        threshold=threshold,
        reads=[f"model:{name}.{can}" for name in judges for can in ("logp", "generate")],
    )
    return found, judges


@register(
    R_MCTS,
    family="decoding",
    summary="Each action of an episode is chosen by a tree search with priors; reflections are remembered.",
    when="The environment can return to a state, and an episode may cost as many tokens as a search; no training.",
    example="burnish train r_mcts --task guess --steps 1",
    trial={**_TRIAL, "reflections": 1, "threshold": 0.0, "debate": 0},
)
def r_mcts(
    task: draw.Source,
    *,
    rounds: Rounds = 5,
    width: Width = 5,
    c: Explore = 1.0,
    value: Values = "judge",
    judge: Judge = None,
    debate: Debate = 1,
    reflections: Reflections = 2,
    threshold: Threshold = 0.1,
) -> Method:
    """R-MCTS: PUCT over states of an environment, with a memory of reflections.

    select argmax Q + c p sqrt(N) / (1 + n), p = share of the proposals that led to the child's state; before the first
    visit of the parent Q + c p.  backup: running mean
    V(s) = sum p(word) v(word) over five words, v in 1, .5, .2, -.2, -1: a judge's verdict after a debate
    after an episode: the action with the largest |V(s') - Q(s, a)| above the threshold gets a reflection, which stands
    before the prompts of the nearest tasks

    The action with the largest Q is taken, and its subtree kept. c = 0 without a memory is greedy best-first search.
    The judge needs a model that can judge; value = reward plays each visit to its end and asks the environment instead,
    as `agent_q` does. Departures: the probabilities of the five words stand for the mean of sampled answers; the
    judge's prompt has no reflections; tasks are near by a hash of words and characters, where the paper has an
    embedding model.
    """
    found, judges = _searched(rounds, width, c, value, judge, debate, reflections, threshold)
    return method(
        draw=draw.prompts(task, "env"),
        rollout=found,
        select=select.keep_best(1),
        learn=learn.Learn(),
        models=roles(**judges),
    )


@register(
    R_MCTS,
    family="decoding",
    summary="Imitate the episodes that a tree search has won.",
    when="`r_mcts` works for you and you want its episodes at the price of one.",
    example="burnish train r_mcts_distill --task guess",
    trial={**_TRIAL, "debate": 0},
)
def r_mcts_distill(
    task: draw.Source,
    *,
    rounds: Rounds = 5,
    width: Width = 5,
    c: Explore = 1.0,
    value: Values = "judge",
    judge: Judge = None,
    debate: Debate = 1,
    above: Annotated[float, Option("Episodes that earn more than this are imitated.")] = 0.5,
) -> Method:
    """R-MCTS's self-learning: SFT on the paths that the search of `r_mcts` took, where they earned enough.

    L = -(1/N) sum over the N tokens of the policy in those episodes of log pi

    Without a memory: the prompts are those that the policy will see alone. Departure: the paper's second form, SFT on
    the whole traversal with its backtracks, is left out: a policy of an environment cannot go back in it.
    """
    found, judges = _searched(rounds, width, c, value, judge, debate, 0, 0.0)
    return method(
        draw=draw.prompts(task, "env"),
        rollout=found,
        select=above_part(above),
        learn=learn.Learn(learn.imitate(), logp_temperature=1.0),
        models=roles(**judges),
    )
