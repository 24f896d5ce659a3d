"""Regressing the Relative Future: Efficient Policy Optimization for Multi-turn RLHF (arXiv 2410.04612)."""

from __future__ import annotations

from typing import Annotated

import torch

from burnish import credit, draw, learn, score, select
from burnish.core import randomness
from burnish.core.parts import Part, Rollout, per_trace, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Task, Trace
from burnish.method import Method, Option, Sampling, chain, everything, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper
from burnish.rollout.episode import Episode
from burnish.rollout.play import note_episodes, of_episodes, play_on
from burnish.rollout.replays import branched

REFUEL = Paper(
    "refuel", "2410.04612", "Regressing the Relative Future: Efficient Policy Optimization for Multi-turn RLHF"
)


@supplies("claim:*")
def claim_where_they_part(term: str) -> Part:
    """The term trains on the turn at which two episodes part (note "turn") and on nothing else."""

    def write(trace: Trace, group: Group, step: Step) -> None:
        mask = torch.zeros(len(trace), dtype=torch.bool)
        mask[slice(*_parting(trace))] = True
        trace.streams[f"claim:{term}"] = mask

    return per_trace(
        write,
        name=f"claim_where_they_part({term})",
        reads=frozenset({"tag:branched"}),
        writes=frozenset({f"claim:{term}"}),
    )


@supplies("stream:reward")
def reward_where_they_part(score: str = "reward") -> Part:
    """Stream "reward": the episode's score at the last token of the turn at which two episodes part, else 0 (REFUEL,
    arXiv 2410.04612). Its sum over that turn is the score.
    """

    def write(trace: Trace, group: Group, step: Step) -> None:
        trace.streams["reward"] = torch.zeros(len(trace))
        trace.streams["reward"][_parting(trace)[1] - 1] = trace.scores[score]

    return per_trace(
        write,
        name="reward_where_they_part",
        reads=frozenset({"tag:branched", f"score:{score}"}),
        writes=frozenset({"stream:reward"}),
    )


def _parting(trace: Trace) -> tuple[int, int]:
    start = sum(len(turn) for turn in trace.turns[: trace.note["turn"]])
    return start, start + len(trace.turns[trace.note["turn"]])


@supplies("tag:branched")
def second_tries(longest: int, shortest: int = 1, *, temperature: float | None = None, who: str = "policy") -> Rollout:
    """Two episodes per task that part at one turn: the same turns before it, then each goes its own way to the end.

    The number of turns H is uniform in shortest .. longest. One episode is played for H turns (fewer where it ends);
    the turn h is uniform among those that it has; the other is played from the state before h. note["turn"] is where h
    stands among the turns of the trace, whose tag is "branched".
    """
    if not 1 <= shortest <= longest:
        raise ValueError(f"episodes of {shortest} to {longest} turns; give shortest from 1 to longest")

    def call(tasks: list[Task], step: Step) -> list[Group]:
        clock = step.clock
        dice = [randomness.rng(clock.seed, "second try", clock.step, clock.tick, task.key) for task in tasks]
        limits = [die.randint(shortest, longest) for die in dice]
        firsts = [Episode(task, 0, step, who, keep=True) for task in tasks]
        for episode in firsts:
            episode.begin()
        _play_to(firsts, limits, step, temperature)
        kept = [(i, e, dice[i].randrange(e.replies)) for i, e in enumerate(firsts) if e.replies and not e.failure]
        seconds = branched([(episode, 1, h) for _, episode, h in kept])
        _play_to(seconds, [limits[i] for i, _, _ in kept], step, temperature)
        note_episodes([*firsts, *seconds], step)
        groups = []
        for (i, first, h), second in zip(kept, seconds, strict=True):
            if second.replies > h and not second.failure:
                groups.append(Group(tasks[i], [_parted(episode, h) for episode in (first, second)]))
        return groups

    return of_episodes(f"second_tries({longest})", call, who, writes={"tag:branched"})


def _play_to(episodes: list[Episode], limits: list[int], step: Step, temperature: float | None) -> None:
    """Play each episode on to its own limit of turns."""
    for turns in range(1, max(limits, default=0) + 1):
        going = [episode for episode, limit in zip(episodes, limits, strict=True) if limit >= turns]
        play_on(going, step, turns, temperature=temperature)


def _parted(episode: Episode, h: int) -> Trace:
    trace = episode.trace(True)
    places = [i for i, turn in enumerate(trace.turns) if turn.author == episode.who]
    trace.note["turn"] = places[h]
    trace.tags |= {"branched"}
    return trace


@register(
    REFUEL,
    family="agents",
    summary="Regress the difference of two futures on the log-ratios of the turns at which they part.",
    when="Dialogues of several turns with a reward at the end, and neither a critic nor a clip is wanted.",
    example="burnish train refuel --task guess",
    trial={"task": "guess", "longest": 3},
)
def refuel(
    task: draw.Source,
    *,
    longest: Annotated[int, Option("The most turns of an episode; the number is drawn.", at_least=1)] = 5,
    shortest: Annotated[int, Option("The fewest turns of an episode.", at_least=1)] = 1,
    eta: Annotated[float, Option("The step size.", above=0)] = 1.0,
    updates: opt.Updates = 1,
    reward_model: opt.RewardModel = None,
) -> Method:
    """REFUEL: REBEL over turns.

    H uniform in shortest .. longest, h uniform among the turns; from the state before turn h two replies y, y' ~ pi_t
    are each continued by pi_t to turn H, with rewards R, R' of the whole episodes
    L = mean over pairs of ( (1/eta) [log pi(y)/pi_t(y) - log pi(y')/pi_t(y')] - (R - R') )^2

    Only turn h is trained; log-probs are whole-turn sums at the sampling temperature. longest = 1 is REBEL without its
    KL. The released code minimises eta^2 times this with eta = 1000 and a learning rate of 3e-7, which differs by the
    scale of the loss. With one update for each batch, pi is pi_t where the gradient is taken, the log-ratios are 0, and
    the learning rate alone is the step size; eta acts from the second update on. Episodes that end before H draw h
    among the turns that they have. The environment is the simulated user; the paper's reward is a reward model's at the
    end (--reward-model), else the environment pays. A game that pays only when it is over should not be cut: there set
    shortest = longest = its turns.
    """
    by_model = (score.reward_model(name="judged"),) if reward_model else ()
    paid = "judged" if reward_model else "reward"
    return method(
        draw=draw.prompts(task, "env"),
        rollout=second_tries(longest, shortest),
        score=chain(*by_model) if by_model else everything,
        select=select.every_contrast(paid),
        credit=chain(credit.behaviour(), reward_where_they_part(paid), claim_where_they_part("pair")),
        learn=learn.Learn(learn.regress_rewards(1 / eta, anchor="old", on=learn.CLAIMED), updates=updates),
        models=roles(**score.rm_role(reward_model)),
        lr_share=0.1,
        sampling=Sampling(0.8),
    )
