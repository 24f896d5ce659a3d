"""Simulating User Agents for Embodied Conversational-AI (arXiv 2410.23535)."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from burnish import credit, draw, learn, rollout
from burnish.core.schedules import every
from burnish.method import Method, Option, Phase, roles
from burnish.methods import opt, register
from burnish.papers import Paper

USER_SIMULATOR = Paper("embodied-user-simulator", "2410.23535", "Simulating User Agents for Embodied Conversational-AI")


@register(
    USER_SIMULATOR,
    family="agents",
    summary="SFT of a simulated user that observes or speaks, measured by F1 of when and what.",
    when="You have logged dialogues of users with an agent, and want a user for multi-turn training.",
    example="burnish train user_simulator --task user:1 --lr 2e-3 --max-new-tokens 24",
    trial={"task": "user", "measure_every": 1},
)
def user_simulator(
    task: draw.Source,
    *,
    measure_every: Annotated[int, Option("Steps between measurements on held-out tasks.", at_least=1)] = 10,
    updates: opt.Updates = 1,
) -> Method:
    """A user agent for embodied dialogues: from the goal and the history, OBSERVE or SPEAK(act): words.

    L = -(1 / N) sum over the N tokens of what the human did of log pi
    speak_f1 = 2 both / (model speaks + human speaks);  act_f1, where the human speaks: 2 same act / (model speaks +
    human speaks): of greedy replies to held-out tasks, every measure_every steps

    Without the measurements it is SFT. Rows have the goal and history as prompt and `demo` as OBSERVE or SPEAK(act):
    words. The paper's data (TEACh) are not part of this; `user` generates dialogues. Reconstructed from the abstract,
    which names the two decisions and the measures. Left out: zero-shot and few-shot prompts.
    """
    asked = draw.prompts(task, "demo")
    assert asked.heldout is not None
    main = Phase(
        draw=draw.demos(task),
        rollout=rollout.demonstrated(),
        learn=learn.Learn(learn.imitate(on="demo"), updates=updates),
    )
    measure = Phase(
        name="measure",
        times=every(measure_every, measure_every - 1),
        draw=replace(asked, name="measured", call=asked.heldout, heldout=None, ahead=False),
        rollout=rollout.greedy(),
        credit=credit.speaking(),
        learn=learn.Learn(),
    )
    return Method(models=roles(), phases=(main, measure))
