"""Demonstrations: episodes that the environment's own expert plays."""

from __future__ import annotations

from burnish.core.messages import Message, as_messages
from burnish.envs.guarded import Failure, GuardedEnv

MOST = 200  # actions of an expert in one episode


def expert_episode(env: GuardedEnv, task: object, seed: int, seat: str = "") -> list[Message]:
    """The conversation of an episode in which `expert()` chooses every action: that of the policy's seat.

    seat: another one, which the expert then plays as well, so that the environment does not; empty where it has no turn
    It ends with the last action. Raises Failure where the environment fails, or has not ended after MOST actions.
    """
    wanted = seat
    seen = env.observed(env.begin_reset(task, seed, seated=bool(wanted)))
    talks: dict[str, list[Message]] = {}
    for _ in range(MOST):
        seat, said = env.seat(), env.expert()
        talks.setdefault(seat, []).extend([*as_messages(seen), {"role": "assistant", "content": said}])
        outcome = env.outcome(env.begin_step(said))
        if outcome.over:
            env.close()
            if wanted:
                return talks.get(wanted, [])
            return talks.get(env.seats()[0]) or next(iter(talks.values()))
        seen = outcome.observation
    raise Failure(f"expert() of the environment has not ended the episode after {MOST} actions")
