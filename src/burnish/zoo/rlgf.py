"""Learning to Generate Better Than Your LLM (arXiv 2306.11816)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated

from burnish import credit, draw, learn, rollout, score
from burnish.core import randomness
from burnish.core.parts import Rollout, names, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Task, Turn
from burnish.method import Clock, Method, Option, Phase, chain, frozen, roles, trained
from burnish.methods import Arguments, opt, register, variant
from burnish.papers import Paper
from burnish.rollout.resets import Begun, Cut, check_count, first_tokens, in_groups, random_for
from burnish.rollout.sample import continue_from

RLGF = Paper("rlgf", "2306.11816", "Learning to Generate Better Than Your LLM")


@supplies("tokens:*")
def handed_over(n: int, cut: Cut, *, first: str, then: str, temperature: float | None = None) -> Rollout:
    """n replies per task by two models: `first` writes a reply, `cut` keeps its beginning, `then` writes the rest.

    Both read the prompt as `then`'s chat template has it; the models must share a tokenizer.
    """
    check_count(n)

    def call(tasks: list[Task], step: Step) -> list[Group]:
        chat, clock = step.models[then].chat, step.clock
        prompts = [Turn(chat.prompt(task), "task") for task in tasks]
        begun: list[Begun] = [
            (task, (prompt,), i) for task, prompt in zip(tasks, prompts, strict=True) for i in range(n)
        ]
        whole = continue_from(begun, first, step, tag="roll-in", temperature=temperature)
        starts: list[Begun] = []
        for (task, (prompt,), i), trace in zip(begun, whole, strict=True):
            said = trace.turns[-1]
            kept = cut(said.tokens, chat, clock, random_for(clock, "hand over", task, i))
            starts.append((task, (prompt, *([first_tokens(said, kept, first)] if kept else ())), i))
        return in_groups(tasks, continue_from(starts, then, step, tag="handed over", temperature=temperature), n)

    return Rollout(
        name=f"{first}, then {then}",
        call=call,
        reads=frozenset({"task:prompt", f"model:{first}.generate", f"model:{then}.generate"}),
        writes=names("tokens", ("task", first, then)) | names("mu", (first, then)),
    )


@dataclass(frozen=True)
class Guided:
    """The numbers of RLGF's algorithms, and the phase of each."""

    task: draw.Source
    n: int
    chance: float
    eps: float
    value_eps: float
    value_coef: float
    sft: float
    gamma: float
    lam: float
    updates: int
    reward_model: str | None

    def ppo_pp(self) -> Phase:
        """The guide begins, the policy finishes and earns; the critic learns what the policy gets."""
        replies = handed_over(self.n, rollout.anywhere(self.chance), first="guide", then="policy")
        return self._phase(replies, "policy", "critic", "policy")

    def aggrevated(self, critic: str = "critic") -> Phase:
        """The policy begins, the guide finishes; the critic learns what the guide gets."""
        replies = handed_over(self.n, rollout.anywhere(), first="policy", then="guide")
        return self._phase(replies, ("policy", "guide"), critic, "guide")

    def _phase(self, replies: Rollout, earn: str | tuple[str, ...], critic: str, valued: str) -> Phase:
        return Phase(
            draw=draw.demos(self.task),
            rollout=rollout.join(replies, rollout.given("demo")),
            score=score.scoring(self.task, self.reward_model),
            credit=chain(
                credit.behaviour(),
                credit.streams(critic, value="value"),
                credit.token_rewards(kl=None, author=earn),
                credit.gae(gamma=self.gamma, lam=self.lam, author=earn),
            ),
            learn=learn.Learn(
                learn.pg_clip(self.eps),
                learn.value_clip(self.value_eps, coef=self.value_coef, trainee=critic, on=valued),
                learn.imitate(coef=self.sft, on="demo"),
                updates=self.updates,
                logp_temperature="run",
            ),
        )


Phases = Callable[[Guided], tuple[Phase, ...]]


def guided(
    task: draw.Source,
    *,
    guide: opt.Guide,
    phases: Phases,
    n: opt.Replies = 1,
    chance: Annotated[float, Option("How often the guide begins, in PPO++.", at_least=0, at_most=1)] = 0.8,
    eps: opt.ClipRange = 0.2,
    value_eps: opt.ValueClipRange = 0.2,
    value_coef: opt.ValueCoef = 0.5,
    sft: opt.ImitationCoef = 0.1,
    gamma: opt.Gamma = 0.99,
    lam: opt.Lam = 0.95,
    updates: opt.Updates = 4,
    critic_lr: opt.CriticLR = 1.0,
    reward_model: opt.RewardModel = None,
) -> Method:
    """A policy that learns with a frozen guide, in one phase or two; each has its own critic."""
    numbers = Guided(task, n, chance, eps, value_eps, value_coef, sft, gamma, lam, updates, reward_model)
    built = phases(numbers)
    critics = {name: trained(outputs=1, lr=critic_lr) for name in ("critic", "guide_critic")[: len(built)]}
    return Method(models=roles(guide=frozen(guide), **critics, **score.rm_role(reward_model)), phases=built)


def in_turns(ppo_pp: Callable[[Clock], int]) -> Phases:
    """PPO++ in the steps that `ppo_pp` says, AggreVaTeD in the others."""

    def phases(by: Guided) -> tuple[Phase, ...]:
        other = replace(by.aggrevated("guide_critic"), name="aggrevated", times=lambda clock: 1 - ppo_pp(clock))
        return replace(by.ppo_pp(), name="ppo_pp", times=ppo_pp), other

    return phases


@register(
    RLGF,
    family="hybrid",
    summary="PPO++: a guide model begins the reply, the policy learns to finish it.",
    when="A better model can begin replies for yours, and yours should learn to finish them.",
    trial={"n": 2, "updates": 1, "guide": "tiny"},
)
@variant(guided)
def rlgf() -> Arguments:
    """PPO++, the first of RLGF's algorithms: roll in with the guide, roll out with the policy.

    with probability chance the guide writes a reply y, of which the first t tokens stay, t uniform in 1 .. |y| - 1;
    the policy finishes
    r_t = the score at the last token, else 0;  A_t, R_t by GAE(gamma, lam) over the policy's tokens
    L = mean over the policy's tokens of [ -min(rho A, clip(rho, 1-eps, 1+eps) A)
      + value_coef max((V - R)^2, (V_clip - R)^2) / 2 ]
      + sft mean over demonstrated tokens of -log pi

    chance = 0 is PPO with a supervised term and without a KL penalty, as in the released code, which does not whiten
    A either. `lols` and `d2lols` mix this with AggreVaTeD over the run. value_coef = 0.5 is that of the released IMDB
    run (CommonGen 30, TL;DR 0.1), updates = 4 that of the two others (IMDB 5).
    """
    return {"phases": lambda by: (by.ppo_pp(),)}


@register(
    RLGF,
    family="hybrid",
    summary="AggreVaTeD: the policy begins, a guide model finishes and shows what that beginning is worth.",
    when="A better model can finish any beginning, so that each token is priced by what it would make of it.",
    trial={"n": 2, "updates": 1, "guide": "tiny"},
)
@variant(guided)
def aggrevated() -> Arguments:
    """AggreVaTeD, the second of RLGF's algorithms: roll in with the policy, roll out with the guide.

    the policy writes a reply y, of which the first t tokens stay, t uniform in 1 .. |y| - 1; the guide finishes
    r_t = the score at the last token, else 0;  A_t, R_t by GAE(gamma, lam) over all reply tokens
    L = mean over the policy's tokens of -min(rho A, clip(rho, 1-eps, 1+eps) A)
      + sft mean over demonstrated tokens of -log pi
      + value_coef mean over the guide's tokens of max((V - R)^2, (V_clip - R)^2) / 2

    So V learns what the guide would get from a state. As in the released code every token of the roll-in is trained
    (the theory has one deviation), and A is not whitened. Departure: every reply has a roll-in (the released runs:
    80 to 100%), since a reply that the guide writes alone has nothing for the policy. value_coef and updates are as
    in `rlgf`.
    """
    return {"phases": lambda by: (by.aggrevated(),), "chance": 1.0}


@register(
    RLGF,
    family="hybrid",
    summary="Each step is one of PPO++ or, now and then, of AggreVaTeD.",
    when="As `rlgf`, when the guide is good at finishing as well as at beginning.",
    trial={"n": 2, "updates": 1, "guide": "tiny", "share": 0.0},
)
@variant(guided)
def lols(
    *, share: Annotated[float, Option("Share of the steps that are PPO++'s.", at_least=0, at_most=1)] = 0.8
) -> Arguments:
    """LOLS, the third of RLGF's algorithms: each step is, with chance `share`, one of `rlgf`, else of `aggrevated`.

    L = that of the algorithm whose turn it is; each has its own critic, for the policy's or the guide's returns

    share = 1 is `rlgf`, share = 0 is `aggrevated`; the draw is a function of the seed and the step. share = 0.8 is
    the released code's.
    """

    def ppo_pp(clock: Clock) -> int:
        return int(randomness.rng(clock.seed, "lols", clock.step).random() < share)

    return {"phases": in_turns(ppo_pp)}


@register(
    RLGF,
    family="hybrid",
    summary="AggreVaTeD first, then PPO++.",
    when="As `rlgf`, when the policy is at first too weak to finish what the guide began.",
    trial={"n": 2, "updates": 1, "guide": "tiny", "switch": 1},
)
@variant(guided)
def d2lols(
    *,
    switch: Annotated[int, Option("The first step of PPO++; the released runs have 20, 100 and 200.", at_least=0)] = 20,
) -> Arguments:
    """D2LOLS, the last of RLGF's algorithms: `aggrevated` in the steps before `switch`, `rlgf` from then on.

    L = that of the algorithm whose turn it is; each has its own critic, for the policy's or the guide's returns

    switch = 0 is `rlgf`.
    """
    return {"phases": in_turns(lambda clock: int(clock.step >= switch))}
