"""A Mixture-of-Expert Approach to RL-based Dialogue Management (arXiv 2206.00059).

Episodes in which several experts propose each reply and a critic chooses one (MoE-LM, arXiv 2206.00059).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

import torch

from burnish import credit, draw, learn, select
from burnish.core import randomness
from burnish.core.parts import Part, Rollout, names, supplies
from burnish.core.schedules import after
from burnish.core.step import Step
from burnish.core.types import Group, Task, Trace, Turn
from burnish.credit.utterance import trace_tagged, turn_span
from burnish.method import Method, Option, Phase, chain, ema, frozen, roles, trained
from burnish.methods import opt, register
from burnish.papers import Paper
from burnish.rollout.again import past_trace
from burnish.rollout.conditioned import conditioned
from burnish.rollout.episode import PLAY
from burnish.rollout.play import EpisodeStart, run_episodes
from burnish.rollout.sample import continue_from
from burnish.score.reading import end_scores

MOE_LM = Paper(
    "moe-lm-dialogue-management", "2206.00059", "A Mixture-of-Expert Approach to RL-based Dialogue Management"
)

METRICS = (
    ("expert/*", "What was sampled", "share of the turns in which the reply of this expert was chosen, counted from 0"),
)


@supplies("stream:q_target")
def best_candidate_targets(*, gamma: float) -> Part:
    """r + gamma max_j Q'(s', u'_j) at the last token of u on "past" traces, from the target critic's "target_score" on
    "candidate" traces; r alone where the episode ended with u (MoE-LM, arXiv 2206.00059, as reconstructed).
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            past, turn = trace_tagged(group, "past"), trace_tagged(group, "past").note["turn"]
            after = [float(t.streams["target_score"][-1]) for t in group.traces if "candidate" in t.tags]
            target = past.turn_scores["reward"][turn] + (gamma * max(after) if after else 0.0)
            for trace in group.traces:
                trace.streams["q_target"] = torch.full((len(trace),), float("nan"))
            past.streams["q_target"][turn_span(past, turn)[1] - 1] = target
        return groups

    return Part(
        name="best_candidate_targets",
        call=call,
        reads=frozenset({"stream:target_score", "turn_score:reward", "tag:past", "tag:candidate"}),
        writes=frozenset({"stream:q_target"}),
    )


@supplies("tokens:manager", "turn_score:reward", "score:reward")
def reranked(
    experts: Sequence[str],
    n: int = 1,
    *,
    choice: float = 0.0,
    who: str = "ref",
    critic: str = "critic",
    author: str = "manager",
) -> Rollout:
    """n episodes per task. At each turn `who` samples one reply under the words of each expert; the reply with the
    largest score of the critic is said, or with `choice` above 0 one drawn by softmax(score / choice).

    The episode has the plain prompt, without an expert's words, and its replies are by `author`. With one expert there
    is no choice, and no critic is asked.
    """

    def speak(starts: list[EpisodeStart], step: Step) -> list[Trace]:
        offered = candidates(starts, experts, step, who, author)
        found = []
        for (task, _, number), traces in zip(starts, _scored(offered, critic, step), strict=True):
            dice = randomness.rng(step.clock.seed, "reranked", step.clock.step, step.clock.tick, task.key, number)
            picked = chosen([value for _, value in traces], choice, dice)
            found.append(traces[picked][0])
            for j in range(len(experts)):
                step.notes.add(f"expert/{j}", float(j == picked))
        return found

    def call(tasks: list[Task], step: Step) -> list[Group]:
        groups = run_episodes(tasks, n, step, who, None, speak)
        for trace in (trace for group in groups for trace in group.traces):
            step.notes.add("played_return", trace.scores["reward"])
        return groups

    return Rollout(
        name=f"reranked({len(experts)} experts)",
        call=call,
        reads=frozenset({"task:prompt", "given:env", f"model:{who}.generate", f"model:{critic}.score"}),
        writes=names("tokens", ("task", "env", author)) | {"turn_score:reward", "score:reward", f"tag:{PLAY}"},
    )


@supplies("tag:past", "tag:candidate")
def next_candidates(experts: Sequence[str], *, who: str = "ref", author: str = "manager") -> Rollout:
    """Of each drawn transition (s, u, s') a trace "past", which ends with s', and a trace "candidate" for each expert,
    which ends with its reply in s'; none of these where the episode ended with u.
    """

    def call(tasks: list[Task], step: Step) -> list[Group]:
        past = [past_trace(task, k) for k, task in enumerate(tasks)]
        goes_on = [k for k, trace in enumerate(past) if not trace.note["ended"]]
        starts = [(tasks[k], past[k].turns, k) for k in goes_on]
        offered = dict(zip(goes_on, candidates(starts, experts, step, who, author), strict=True))
        groups = []
        for k, task in enumerate(tasks):
            after = [replace(trace, tags=frozenset({"candidate"})) for trace in offered.get(k, [])]
            groups.append(Group(task, [past[k], *after]))
        return groups

    return Rollout(
        name=f"next_candidates({len(experts)} experts)",
        call=call,
        whole=True,  # the noise of a candidate is keyed by its place in the batch
        reads=names("given", ("trace", "turn")) | {f"model:{who}.generate"},
        writes=names("tokens", ("task", "env", author)) | {"turn_score:reward", "tag:past", "tag:candidate"},
    )


def candidates(
    starts: Sequence[EpisodeStart], experts: Sequence[str], step: Step, who: str, author: str
) -> list[list[Trace]]:
    """A reply of each expert to each start, after the turns as they were, without the expert's words."""
    chat, asked = step.models[who].chat, []
    for task, turns, number in starts:
        for j, words in enumerate(experts):
            prompt = Turn(chat.prompt(conditioned(task, words)), "task") if words else turns[0]
            asked.append((task, (prompt, *turns[1:]), number * len(experts) + j))
    said = iter(continue_from(asked, who, step, tag="expert")) if asked else iter(())
    return [
        [Trace((*turns, Turn(next(said).turns[-1].tokens, author, parent=turns[-1])), j) for j in range(len(experts))]
        for _, turns, _ in starts
    ]


def chosen(values: Sequence[float], choice: float, dice: random.Random) -> int:
    """The place of the largest value, the first of equal ones; with choice > 0 drawn by softmax(values / choice)."""
    if not choice:
        return max(range(len(values)), key=lambda i: (values[i], -i))
    weights = torch.softmax(torch.tensor(values, dtype=torch.float64) / choice, 0).tolist()
    return dice.choices(range(len(values)), weights)[0]


def _scored(offered: list[list[Trace]], critic: str, step: Step) -> list[list[tuple[Trace, float]]]:
    """Each candidate with the critic's score after its last token; 0 where there is no choice."""
    flat = [trace for traces in offered for trace in traces]
    if all(len(traces) == 1 for traces in offered):
        return [[(trace, 0.0) for trace in traces] for traces in offered]
    values = iter(map(float, end_scores(flat, step.models[critic], step.settings.token_budget)))
    return [[(trace, next(values)) for trace in traces] for traces in offered]


EXPERTS = "|Be friendly.|Ask a question.|Be brief."


@register(
    MOE_LM,
    family="agents",
    summary="Experts propose replies, a critic learned over turns chooses, and the policy learns what was chosen.",
    when="A dialogue needs planning over turns, and a few kinds of replies are enough to choose from.",
    example="burnish train moe_lm --task guess",
    trial={"task": "guess", "n": 1, "batch": 4, "critic_updates": 1, "critic_warmup": 0, "experts": "|Think."},
)
def moe_lm(
    task: draw.Source,
    *,
    experts: Annotated[str, Option("What each expert is told before the prompt, with | between them.")] = EXPERTS,
    n: Annotated[int, Option("Episodes per task and step.", at_least=1)] = 4,
    gamma: Annotated[float, Option("Discount per turn.", at_least=0, at_most=1)] = 0.95,
    tau: Annotated[float, Option("How fast the target critic follows.", above=0, at_most=1)] = 0.1,
    choice: Annotated[float, Option("Temperature of the choice among replies; 0 takes the best.", at_least=0)] = 0.1,
    batch: Annotated[int, Option("Transitions drawn for an update of the critic.", at_least=1)] = 64,
    critic_updates: Annotated[int, Option("Updates of the critic per step.", at_least=1)] = 10,
    critic_warmup: Annotated[int, Option("Steps before the policy imitates.", at_least=0)] = 10,
    capacity: Annotated[int, Option("Transitions that the replay holds.", at_least=1)] = 100_000,
    critic_lr: opt.CriticLR = 10.0,
) -> Method:
    """A mixture of experts with a dialogue manager. Reconstructed from the abstract: everything below the choice among
    m candidates is ours.

    At each turn the starting model proposes one reply u_j under the words of each expert, j = 1..m
    the manager says u ~ softmax(Q(s, u_j) / choice) over j
    L_Q = mean over transitions (s, u, r, s') of the replay of (Q(s, u) - r - gamma max_j Q'(s', u'_j))^2, with fresh
    candidates u'_j in s', Q' following Q by tau;  r alone where the episode ended
    L_pi = -(1/N) sum over the N tokens that the manager chose of log pi

    One expert leaves no choice. The paper trains its experts to score high on an intent (sentiment, questions) in the
    latent space of its own encoder and decoder; here they are the starting model under an instruction. Its product is
    the manager; here the policy imitates it, under the plain prompt, so that one model can be served.
    """
    words = tuple(one.strip() for one in experts.split("|"))
    replay = select.Store("replay", capacity, select.turns_by("manager"))
    explore = Phase(
        name="explore",
        draw=draw.prompts(task, "env"),
        rollout=reranked(words, n, choice=choice),
        select=select.remember(replay, "score:reward", "turn_score:reward"),
        learn=learn.Learn(learn.imitate(coef=after(critic_warmup), on="manager")),
    )
    critic = Phase(
        name="critic",
        times=critic_updates,
        draw=draw.transitions(replay, batch, "manager"),
        rollout=next_candidates(words),
        credit=chain(
            credit.streams("target", at="end", score="target_score"),
            best_candidate_targets(gamma=gamma),
            credit.at_utterance("q", "last"),
        ),
        learn=learn.Learn(learn.value_mse("score", None, "q_target", on=learn.CLAIMED, name="q")),
    )
    models = roles(
        ref=frozen("policy"),
        critic=trained(outputs=1, lr=critic_lr),
        target=ema("critic", decay=1 - tau, outputs=1),
    )
    return Method(models=models, phases=(explore, critic))
