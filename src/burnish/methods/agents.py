"""Multi-turn agents."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, select
from burnish.core.schedules import after
from burnish.credit.utterance import Q, V, td_targets, utterance_advantage
from burnish.method import Method, Option, Phase, chain, ema, roles, trained
from burnish.methods import opt, papers, register
from burnish.rollout.again import again


@register(
    papers.ARCHER,
    family="agents",
    summary="An utterance-level critic learned from replay teaches a token-level policy.",
    when="The model acts over many turns and the reward comes late: credit then belongs to whole utterances.",
    example="burnish train archer --task guess",
    trial={"task": "guess", "n": 1, "batch": 4, "critic_warmup": 0, "critic_updates": 1, "actor_updates": 1},
)
def archer(
    task: draw.Source,
    *,
    n: Annotated[int, Option("Games per task and step.", at_least=1)] = 4,
    gamma: Annotated[float, Option("Discount per utterance.", at_least=0, at_most=1)] = 0.9,
    tau: Annotated[float, Option("How fast the target critic follows.", above=0, at_most=1)] = 0.1,
    critic_updates: Annotated[int, Option("Critic updates per step.", at_least=1)] = 10,
    actor_updates: Annotated[int, Option("Actor updates per step.", at_least=1)] = 3,
    batch: Annotated[int, Option("Transitions drawn for an update.", at_least=1)] = 128,
    critic_warmup: Annotated[int, Option("Steps before the actor moves.", at_least=0)] = 15,
    capacity: Annotated[int, Option("Transitions that the replay holds.", at_least=1)] = 100_000,
    critic_lr: opt.CriticLR = 10.0,
) -> Method:
    """ArCHer: off-policy temporal differences over utterances, policy gradient over their tokens.

    From a replay of transitions (s, u, r, s'), drawn uniformly, with double critics and targets Q', V' that follow by
    tau:
      critic  Q_i(s, u) -> r + gamma V'_i(s');   V_i(s) -> Q'_i(s, u~), u~ ~ pi(.|s);   squared errors, summed
      actor   states s of the replay, fresh u~ ~ pi(.|s):  L = mean over u~ of -A sum_t log pi(u~_t),  A = min Q - min V

    Each step plays n games per task, then makes the critic's and, after a warm-up, the actor's updates. Departures:
    the critic is a copy of the model with linear heads, Q read after the utterance and V before it, where the
    released code has a RoBERTa with three-layer heads on the state and the utterance apart; a full replay forgets all
    games of a task and step at once, where the released code overwrites single transitions. capacity is that of the
    released runs. The released code has gamma 0.95, 20 warm-up steps, a critic rate of 100 and 3 critic updates by
    default; its runs use more.
    """
    replay = select.Store("replay", capacity, select.turns_by("policy"))
    explore = Phase(
        name="explore",
        draw=draw.prompts(task, "env"),
        rollout=rollout.play(n),
        select=select.remember(replay, "score:reward", "turn_score:reward"),
        learn=learn.Learn(),
    )
    critic = Phase(
        name="critic",
        times=critic_updates,
        draw=draw.transitions(replay, batch),
        rollout=again(),
        credit=chain(
            credit.streams("target", at="end", score="target_score"),
            td_targets(gamma=gamma),
            credit.at_utterance("q", "last"),
            credit.at_utterance("v", "first"),
        ),
        learn=learn.Learn(
            learn.value_mse("score", Q, "q_target", on=learn.CLAIMED, name="q"),
            learn.value_mse("value", V, "v_target", on=learn.CLAIMED, name="v"),
        ),
    )
    actor = Phase(
        name="actor",
        times=after(critic_warmup, actor_updates),
        draw=draw.transitions(replay, batch),
        rollout=again(),
        credit=chain(
            credit.streams("critic", score="q", value="v"),
            utterance_advantage(),
            credit.last_turn("pg", "fresh"),
        ),
        learn=learn.Learn(learn.pg_reinforce(on=learn.CLAIMED)),
    )
    models = roles(critic=trained(outputs=4, lr=critic_lr), target=ema("critic", decay=1 - tau, outputs=4))
    return Method(models=models, phases=(explore, critic, actor), lr_share=0.1)
