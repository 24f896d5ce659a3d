"""Learning Strategic Language Agents in the Werewolf Game with Iterative Latent Space Policy Optimization (arXiv
2502.04686).

Latent actions: replies clustered by what they say, and the values of the clusters by regret matching.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from typing import Annotated

import numpy as np

from burnish import credit, draw, learn, rollout, select
from burnish.core import randomness
from burnish.core.parts import Part, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Trace
from burnish.method import Method, Option, chain, frozen, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper
from burnish.score.maths.similarity import embedded

LSPO = Paper(
    "lspo",
    "2502.04686",
    "Learning Strategic Language Agents in the Werewolf Game with Iterative Latent Space Policy Optimization",
)

METRICS = (("latents", "What was kept", "clusters of replies that have a member"),)


State = Hashable
Outcomes = Sequence[tuple[float, State | None]]  # (reward, next state or None at the end), each as likely
Game = Mapping[State, Mapping[int, Outcomes]]

NOTES = {"latent": "the latent action of each of its replies"}


def k_means(points: np.ndarray, k: int, dice: np.random.Generator, rounds: int = 25) -> list[int]:
    """The cluster of each point [n, d]: k-means++ starts, then Lloyd's iteration; at most k clusters."""
    distinct = np.unique(points, axis=0)
    centres = distinct[dice.integers(len(distinct))][None]
    while len(centres) < min(k, len(distinct)):
        far = ((distinct[:, None] - centres[None]) ** 2).sum(-1).min(1)
        centres = np.concatenate([centres, distinct[dice.choice(len(distinct), p=far / far.sum())][None]])
    label = np.zeros(len(points), dtype=int)
    for _ in range(rounds):
        label = ((points[:, None] - centres[None]) ** 2).sum(-1).argmin(1)
        moved = np.stack([points[label == j].mean(0) if (label == j).any() else c for j, c in enumerate(centres)])
        if np.allclose(moved, centres):
            break
        centres = moved
    return [int(j) for j in label]


def regret_matching(game: Game, iterations: int) -> tuple[dict[State, dict[int, float]], dict[State, dict[int, float]]]:
    """The mean strategy after so many iterations, and the values Q(s, z) of actions under it. States have no cycles.

    sigma(s, z) = max(R, 0) / sum of max(R, 0), uniform where none is positive;  Q(s, z) = mean of r + V(s');
    V(s) = sum_z sigma Q;  R(s, z) += Q(s, z) - V(s)
    """
    regret = {s: dict.fromkeys(actions, 0.0) for s, actions in game.items()}
    total = {s: dict.fromkeys(actions, 0.0) for s, actions in game.items()}
    for _ in range(iterations):
        sigma = {s: _matched(own) for s, own in regret.items()}
        found = action_values(game, sigma)
        for s, own in found.items():
            value = sum(sigma[s][z] * q for z, q in own.items())
            for z, q in own.items():
                regret[s][z] += q - value
                total[s][z] += sigma[s][z]
    mean = {s: {z: x / iterations for z, x in own.items()} for s, own in total.items()}
    return mean, action_values(game, mean)


def action_values(game: Game, sigma: Mapping[State, Mapping[int, float]]) -> dict[State, dict[int, float]]:
    """Q(s, z) of every action under a strategy; a state that the game does not have is worth 0."""
    known: dict[State, dict[int, float]] = {}

    def values(s: State) -> dict[int, float]:
        if s not in known:
            known[s] = {}
            for z, outcomes in game[s].items():
                worth = [r + (worth_of(after) if after is not None else 0.0) for r, after in outcomes]
                known[s][z] = sum(worth) / len(worth)
        return known[s]

    def worth_of(s: State) -> float:
        return sum(sigma[s][z] * q for z, q in values(s).items()) if s in game else 0.0

    for s in game:
        values(s)
    return known


def _matched(regret: Mapping[int, float]) -> dict[int, float]:
    positive = {z: max(0.0, x) for z, x in regret.items()}
    whole = sum(positive.values())
    return {z: x / whole if whole else 1 / len(regret) for z, x in positive.items()}


@supplies("tag:latent")
def latent_values(clusters: int, iterations: int, *, author: str = "policy") -> Part:
    """The score of each reply of a searched tree becomes Q(state, its latent action); the traces get the tag "latent".

    Latent actions are clusters of all replies of the step. The abstract game of a task has one outcome for each
    visited reply: what the environment paid for it, and the state after it, if any. LSPO (arXiv
    2502.04686), reconstructed.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        traces = [trace for group in groups for trace in group.traces]
        if not traces:
            return groups
        chat, clock = step.models[author].chat, step.clock
        texts = [chat.text(trace.turns[-1].tokens) for trace in traces]
        dice = randomness.generator(clock.seed, "latents", clock.step, clock.tick)
        label = dict(zip(map(id, traces), k_means(np.stack([embedded(t) for t in texts]), clusters, dice), strict=True))
        step.notes.add("latents", len(set(label.values())))
        for group in groups:
            _, values = regret_matching(_game(group.traces, label), iterations)
            for trace in group.traces:
                trace.scores["reward"] = values[_state(trace)][label[id(trace)]]
                trace.tags |= {"latent"}
                trace.note["latent"] = label[id(trace)]
        return groups

    return Part(
        name=f"latent_values({clusters})",
        call=call,
        whole=True,  # clusters of the replies of all tasks
        reads=frozenset({"score:reward", "turn_score:reward", "tag:node", f"tokens:{author}"}),
        writes=frozenset({"tag:latent"}),
        updates=frozenset({"score:reward"}),
    )


def _state(trace: Trace) -> State:
    """The state in which the last reply of a trace was made: the turn's number and the environment's key, if any."""
    keys = trace.note.get("keys") or [None]
    return (len(trace.turns), keys[-1] if keys[-1] is not None else id(trace.turns[-2]))


def _game(traces: Sequence[Trace], label: Mapping[int, int]) -> Game:
    after: dict[int, State] = {}  # by the id of a reply: the state that followed it
    for trace in traces:
        if len(trace.turns) > 3:
            after[id(trace.turns[-3])] = _state(trace)
    game: dict[State, dict[int, list[tuple[float, State | None]]]] = defaultdict(lambda: defaultdict(list))
    for trace in traces:
        outcome = (trace.turn_scores["reward"][-1], after.get(id(trace.turns[-1])))
        game[_state(trace)][label[id(trace)]].append(outcome)
    return game


Rounds = Annotated[int, Option("Visits to each tree.", at_least=1)]
Width = Annotated[int, Option("Replies that are proposed in each state.", at_least=2)]
_TREE = {"task": "guess", "rounds": 4, "width": 3}


@register(
    LSPO,
    family="agents",
    summary="Replies grouped into latent actions; regret matching values these; DPO follows the better ones.",
    when="A strategic dialogue whose replies differ in words more than in what they do.",
    example="burnish train lspo --task guess",
    trial={**_TREE, "clusters": 64},
)
def lspo(
    task: draw.Source,
    *,
    rounds: Rounds = 16,
    width: Width = 4,
    clusters: Annotated[int, Option("Latent actions: clusters of replies.", at_least=1)] = 8,
    iterations: Annotated[int, Option("Iterations of regret matching.", at_least=1)] = 100,
    beta: opt.Beta = 0.1,
) -> Method:
    """Latent space policy optimisation, reconstructed from the abstract.

    Replies of the step are embedded and clustered by k-means: cluster z is the latent action. The searched episodes
    are an abstract game: states by the environment's key and the number of the turn, actions z, outcomes as sampled.
    Regret matching: R(s, z) += Q(s, z) - V(s),  sigma(s, z) = max(R, 0) / sum, V(s) = sum_z sigma Q, `iterations` times
    pairs: two replies in the same state, the one whose latent action has the larger Q under the mean sigma preferred
    L = -log s( beta [lr_w - lr_l] ),  lr = log pi/ref over the reply,  mean over pairs

    One cluster gives no pairs. Reconstructed: the number of clusters, the rule of the pairs, and tabular regret
    matching where the paper has deep CFR. One seat: other players are part of the environment. The embedding is a
    hash of words and characters, where the paper has an embedding model. Latent actions are found anew in each step.
    """
    return method(
        draw=draw.prompts(task, "env"),
        rollout=rollout.searched(rounds, width, rule=rollout.uct(1.0), take=rollout.replies_with()),
        score=latent_values(clusters, iterations),
        select=select.sibling_pairs(0.0, tag="latent"),
        credit=chain(credit.ref(), credit.last_turn("reply", "node")),
        learn=learn.Learn(learn.dpo(beta, on=learn.CLAIMED)),
        models=roles(ref=frozen("policy")),
        lr_share=0.1,
    )
