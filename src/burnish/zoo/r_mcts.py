"""Improving Autonomous AI Agents with Reflective Tree Search and Self-Learning (arXiv 2410.02052)."""

from __future__ import annotations

from typing import Annotated

from burnish import draw, learn, select
from burnish.method import Method, Option, Rollout, frozen, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper
from burnish.rollout.reflective import Memory, judged, played_out, reflective

R_MCTS = Paper("r-mcts", "2410.02052", "Improving Autonomous AI Agents with Reflective Tree Search and Self-Learning")

Rounds = Annotated[int, Option("Visits to the tree before each action.", at_least=1)]
Width = Annotated[int, Option("Replies that are proposed in each state.", at_least=2)]
Explore = Annotated[float, Option("How strongly the search prefers what it has visited less.", at_least=0)]
Values = Annotated[
    str,
    Option(
        "What a state is worth: judge: a model's verdict; reward: what the episode pays that the policy plays from it.",
        choices=("judge", "reward"),
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
    temperature: float,
) -> tuple[Rollout, dict]:
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
        temperature=temperature,
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
    temperature: opt.Temperature = 1.0,
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
    found, judges = _searched(rounds, width, c, value, judge, debate, reflections, threshold, temperature)
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
    temperature: opt.Temperature = 1.0,
) -> Method:
    """R-MCTS's self-learning: SFT on the paths that the search of `r_mcts` took, where they earned enough.

    L = -(1/N) sum over the N tokens of the policy in those episodes of log pi

    Without a memory: the prompts are those that the policy will see alone. Departure: the paper's second form, SFT on
    the whole traversal with its backtracks, is left out: a policy of an environment cannot go back in it.
    """
    found, judges = _searched(rounds, width, c, value, judge, debate, 0, 0.0, temperature)
    return method(
        draw=draw.prompts(task, "env"),
        rollout=found,
        select=select.above(above),
        learn=learn.Learn(learn.imitate(), logp_temperature=1.0),
        models=roles(**judges),
    )
