"""Multi-turn agents."""

from __future__ import annotations

from burnish.cast.roles import ema, stage, trained
from burnish.credit.streams import streams
from burnish.credit.utterance import Q, V, at_utterance, last_turn, td_targets, utterance_advantage
from burnish.draw.replay import transitions
from burnish.draw.tasks import prompts
from burnish.learn.learn import Learn
from burnish.learn.terms import pg_reinforce, value_mse
from burnish.method import Method, Phase
from burnish.methods.table import register
from burnish.parts import chain
from burnish.rollout.again import again
from burnish.rollout.play import play
from burnish.schedules import after
from burnish.select.remember import Store, remember
from burnish.tasks.source import Source


@register(
    family="agents",
    catalogue=("archer",),
    title="ArCHer: Training Language Model Agents via Hierarchical Multi-Turn RL",
    arxiv="2402.19446",
    summary="An utterance-level critic learned from replay teaches a token-level policy.",
    when="The model acts over many turns and the reward comes late: credit then belongs to whole utterances.",
    example="burnish train archer --task guess",
    trial={"task": "guess", "n": 1, "batch": 4, "critic_warmup": 0, "critic_updates": 1, "actor_updates": 1},
)
def archer(
    task: Source, *, n: int = 4, gamma: float = 0.9, tau: float = 0.1, critic_updates: int = 10, actor_updates: int = 3, batch: int = 128,
    critic_warmup: int = 15, capacity: int = 5000, critic_lr: float = 10.0, temperature: float = 1.0,
) -> Method:  # fmt: skip
    """ArCHer: off-policy temporal differences over utterances, policy gradient over their tokens.

    From a replay of transitions (s, u, r, s'), with double critics and targets Q', V' that follow by tau:
      critic  Q_i(s, u) -> r + gamma V'_i(s');   V_i(s) -> Q'_i(s, u~), u~ ~ pi(.|s);   squared errors, summed
      actor   states s of the replay, fresh u~ ~ pi(.|s):  L = mean over u~ of -A sum_t log pi(u~_t),  A = min Q - min V

    Each step plays n games per task, then makes the critic's and, after a warm-up, the actor's updates.
    n: games per task and step. gamma: discount per utterance. tau: how fast the target critic follows.
    critic_updates: critic updates per step (the released code's default is 3, its runs use more).
    actor_updates: actor updates per step. batch: transitions drawn for an update.
    critic_warmup: steps before the actor moves (the released code: 20). capacity: groups of games that the replay holds.
    critic_lr: multiplies the learning rate for the critic (the released code: 100).
    Departure: the critic is a copy of the model with linear heads, Q read after the utterance and V before it, where the
    released code has a RoBERTa with three-layer heads on the state and the utterance apart.
    """
    replay = Store("replay", capacity)
    explore = Phase(
        name="explore",
        draw=prompts(task, "env"),
        rollout=play(n, temperature=temperature),
        select=remember(replay, "score:reward", "turn_score:reward"),
        learn=Learn(),
    )
    critic = Phase(
        name="critic",
        times=critic_updates,
        draw=transitions(replay, batch),
        rollout=again(temperature=temperature),
        credit=chain(
            streams("target", at="end", score="target_score"),
            td_targets(gamma=gamma),
            at_utterance("q", "last"),
            at_utterance("v", "first"),
        ),
        learn=Learn(value_mse("score", Q, "q_target", name="q"), value_mse("value", V, "v_target", name="v")),
    )
    actor = Phase(
        name="actor",
        times=after(critic_warmup, actor_updates),
        draw=transitions(replay, batch),
        rollout=again(temperature=temperature),
        credit=chain(streams("critic", score="q", value="v"), utterance_advantage(), last_turn("pg", "fresh")),
        learn=Learn(pg_reinforce(), temperature=temperature),
    )
    roles = stage(critic=trained(outputs=4, lr=critic_lr), target=ema("critic", decay=1 - tau, outputs=4))
    return Method(cast=roles, phases=(explore, critic, actor), lr_share=0.1)
