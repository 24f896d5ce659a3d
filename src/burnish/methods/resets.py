"""Actor-critic methods whose replies start in the middle: of a demonstration, of a guide's reply, of an earlier reply."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from burnish import randomness
from burnish.cast.roles import Role, frozen, stage, trained
from burnish.credit.gae import gae, token_rewards, whiten
from burnish.credit.members import member
from burnish.credit.streams import behaviour, old, ref, streams
from burnish.draw.tasks import demos, prompts
from burnish.learn.learn import Learn
from burnish.learn.norms import seq_mean
from burnish.learn.terms import imitate, pg_clip, value_clip
from burnish.method import Method, Phase, method
from burnish.methods.actor_critic import ppo_cast, ppo_credit
from burnish.methods.table import register
from burnish.nouns import Clock
from burnish.parts import chain
from burnish.rollout.given import given
from burnish.rollout.resets import Cut, any_stage, anywhere, handed_over, reset, restarted, sliding_stage
from burnish.rollout.sample import join
from burnish.score.model import rm_role, scoring
from burnish.score.shaping import partial_for_answering, reflection_reward, squashed_model
from burnish.score.verify import verify
from burnish.tasks.source import Source

_R3 = "Training Large Language Models for Reasoning through Reverse Curriculum Reinforcement Learning"
_RLGF = "Learning to Generate Better Than Your LLM"


@register(
    family="hybrid",
    catalogue=("dr-po",),
    title="Dataset Reset Policy Optimization for RLHF",
    arxiv="2404.08495",
    summary="PPO whose replies start at random places of demonstrations.",
    when="Demonstrations are at hand for RLHF: starting in the middle of them makes good states easy to reach.",
    trial={"n": 2, "epochs": 1},
)
def dr_po(
    task: Source, *, n: int = 1, chance: float = 1.0, eps: float = 0.2, value_eps: float = 0.2, value_coef: float = 0.1, kl: float = 0.05,
    gamma: float = 1.0, lam: float = 0.95, epochs: int = 4, critic_lr: float = 1.0, temperature: float = 1.0, reward_model: str | None = None,
) -> Method:  # fmt: skip
    """DR-PO: reset to a state of a demonstration, let the policy finish, PPO on what it wrote.

    with probability chance: keep the first t tokens of y*, t uniform in 1 .. |y*| - 1;  else start from the prompt
    r_t = -kl log(pi/ref)(y_t), plus the score at the last token, divided by their std;  A_t, R_t by GAE(gamma, lam), A whitened
    L = mean over generated tokens of -min(rho A, clip(rho, 1-eps, 1+eps) A)
      + value_coef mean over all reply tokens of max((V - R)^2, (V_clip - R)^2) / 2

    As in the released code, rewards, GAE, whitening and the critic's loss run over the kept tokens too; only the policy's loss leaves
    them out. The paper resets into unlabelled demonstrations and always resets (chance = 1); chance = 0 is PPO.
    value_coef and epochs are those usual for PPO on summaries, not checked against the paper.
    n: replies for each prompt. chance: how often a reply starts from a demonstration's middle. eps: the policy's clip range.
    value_eps: the critic's clip range. value_coef: weight of the critic's loss. kl: KL penalty per token, inside the reward.
    lam: GAE's lambda. reward_model: the directory of a reward model, in place of the task's own verifier.
    """
    both = ("policy", "demo")
    return method(
        draw=demos(task),
        rollout=reset(n, anywhere(chance), temperature=temperature),
        score=scoring(task, reward_model),
        credit=chain(
            old(temperature=temperature), ref(temperature=temperature), streams("critic", value="value"),
            token_rewards(kl=kl, author=both), whiten("reward", author=both, centre=False), gae(gamma=gamma, lam=lam, author=both),
            whiten(author=both), member("pg", "policy"), member("value", *both),
        ),
        learn=Learn(pg_clip(eps), value_clip(value_eps, coef=value_coef), epochs=epochs, temperature=temperature),
        cast=ppo_cast(critic_lr, reward_model),
    )  # fmt: skip


@register(
    family="hybrid",
    catalogue=("r3",),
    title=_R3,
    arxiv="2402.05808",
    summary="PPO from start states all along the demonstrations, mixed: a reverse curriculum.",
    when="Rewards come only at the end and are too rare from the prompt, but demonstrations lead there.",
    trial={"n": 2, "epochs": 1},
)
def r3(
    task: Source, *, n: int = 1, stages: int = 6, partial: float = 0.2, eps: float = 0.2, value_eps: float = 0.2, value_coef: float = 5.0, kl: float = 0.05,
    lam: float = 0.95, epochs: int = 2, critic_lr: float = 1.0, temperature: float = 1.0,
) -> Method:  # fmt: skip
    """R3: the demonstration is cut into `stages` pieces; a reply starts after the first k of them, k uniform in 0 .. stages - 1.

    score = 1 where right, `partial` where wrong but an answer is stated, else 0
    r_t = -kl log(pi_old/ref)(y_t), plus the score at the last token;  A_t, R_t by GAE(1, lam), A whitened over the batch
    L = mean over replies of mean over generated tokens of [ -min(rho A, clip(rho) A) + value_coef max((V - R)^2, (V_clip - R)^2) / 2 ]

    The constants are those of the released mathematics runs; `partial` is the released code's. Pieces are of equal length in tokens, their
    ends moved back to the end of a line where one lies in the piece; their number is a choice of ours.
    n: replies for each prompt. stages: pieces of a demonstration. partial: reward of a wrong answer. eps: the policy's clip range.
    value_eps: the critic's clip range. value_coef: weight of the critic's loss. kl: KL penalty per token, inside the reward.
    lam: GAE's lambda. epochs: passes over each batch.
    """
    cut = any_stage(stages)
    return _r3(task, n, cut, partial, eps, value_eps, value_coef, kl, lam, epochs, critic_lr, temperature)


@register(
    family="hybrid",
    catalogue=("r3",),
    title=_R3,
    arxiv="2402.05808",
    summary="PPO whose start states slide from the end of the demonstrations to the prompt.",
    when="As `r3`, when stages should follow each other instead of being mixed.",
    trial={"n": 2, "epochs": 1},
)
def r3_staged(
    task: Source, *, n: int = 1, stages: int = 6, partial: float = 0.2, eps: float = 0.2, value_eps: float = 0.2, value_coef: float = 5.0, kl: float = 0.05,
    lam: float = 0.95, epochs: int = 2, critic_lr: float = 1.0, temperature: float = 1.0,
) -> Method:  # fmt: skip
    """Staged R3: the same as `r3`, but all replies start after the first k pieces, k = stages - 1, stages - 2, ..., 0 over the run.

    The paper's first form, which it improves on by mixing the stages. Each stage has the same number of steps.
    n: replies for each prompt. stages: pieces of a demonstration. partial: reward of a wrong answer. eps: the policy's clip range.
    value_eps: the critic's clip range. value_coef: weight of the critic's loss. kl: KL penalty per token, inside the reward.
    lam: GAE's lambda. epochs: passes over each batch.
    """
    cut = sliding_stage(stages)
    return _r3(task, n, cut, partial, eps, value_eps, value_coef, kl, lam, epochs, critic_lr, temperature)


def _r3(
    task: Source, n: int, cut: Cut, partial: float, eps: float, value_eps: float, value_coef: float, kl: float, lam: float, epochs: int,
    critic_lr: float, temperature: float,
) -> Method:  # fmt: skip
    return method(
        draw=demos(task),
        rollout=reset(n, cut, temperature=temperature),
        score=chain(verify(task), partial_for_answering(partial)),
        credit=ppo_credit(kl, lam, score="shaped", temperature=temperature),
        learn=Learn(
            pg_clip(eps, norm=seq_mean), value_clip(value_eps, coef=value_coef, norm=seq_mean), epochs=epochs, temperature=temperature
        ),
        cast=ppo_cast(critic_lr),
    )  # fmt: skip


@register(
    family="hybrid",
    catalogue=("rlgf",),
    title=_RLGF,
    arxiv="2306.11816",
    summary="PPO++: a guide model begins the reply, the policy learns to finish it.",
    when="A better model can begin replies for yours, and yours should learn to finish them.",
    example="burnish train rlgf --guide runs/DIR/model",
    trial={"n": 2, "epochs": 1, "guide": "tiny"},
)
def rlgf(
    task: Source, *, guide: str, n: int = 1, chance: float = 0.8, eps: float = 0.2, value_eps: float = 0.2, value_coef: float = 0.5, sft: float = 0.1,
    gamma: float = 0.99, lam: float = 0.95, epochs: int = 4, critic_lr: float = 1.0, temperature: float = 1.0, reward_model: str | None = None,
) -> Method:  # fmt: skip
    """PPO++, the first of RLGF's algorithms: roll in with the guide, roll out with the policy.

    with probability chance the guide writes a reply y, of which the first t tokens stay, t uniform in 1 .. |y| - 1; the policy finishes
    r_t = the score at the last token, else 0;  A_t, R_t by GAE(gamma, lam) over the policy's tokens, A whitened
    L = mean over the policy's tokens of [ -min(rho A, clip(rho, 1-eps, 1+eps) A) + value_coef max((V - R)^2, (V_clip - R)^2) / 2 ]
      + sft mean over demonstrated tokens of -log pi

    chance = 0 is PPO with a supervised term and without a KL penalty, as in the released code. `lols` and `d2lols` mix this with
    AggreVaTeD over the run. value_coef and epochs are PPO's usual ones, not checked against the paper.
    guide: a model's name or directory, with the policy's tokenizer. n: replies for each prompt. chance: how often the guide begins.
    eps: the policy's clip range. value_eps: the critic's clip range. value_coef: weight of the critic's loss.
    sft: weight of imitation. gamma: discount per token. lam: GAE's lambda.
    reward_model: the directory of a reward model, in place of the task's own verifier.
    """
    main = _ppo_pp(task, n, chance, eps, value_eps, value_coef, sft, gamma, lam, epochs, temperature, reward_model)
    return Method(cast=_guided(guide, reward_model, critic=critic_lr), phases=(main,))


def _guided(guide: str, reward_model: str | None, **critics: float) -> dict[str, Role]:
    """The policy, the frozen guide, and a critic for each named learning rate."""
    values = {name: trained(outputs=1, lr=lr) for name, lr in critics.items()}
    return stage(guide=frozen(guide), **values, **rm_role(reward_model))


def _ppo_pp(
    task: Source, n: int, chance: float, eps: float, value_eps: float, value_coef: float, sft: float, gamma: float, lam: float, epochs: int,
    temperature: float, rm: str | None,
) -> Phase:  # fmt: skip
    return Phase(
        draw=demos(task),
        rollout=join(handed_over(n, anywhere(chance), first="guide", then="policy", temperature=temperature), given("demo")),
        score=scoring(task, rm),
        credit=chain(
            behaviour(), streams("critic", value="value"), token_rewards(kl=None), gae(gamma=gamma, lam=lam), whiten(),
            member("pg", "policy"), member("value", "policy"), member("sft", "demo"),
        ),
        learn=Learn(pg_clip(eps), value_clip(value_eps, coef=value_coef), imitate(coef=sft), epochs=epochs, temperature=temperature),
    )  # fmt: skip


@register(
    family="hybrid",
    catalogue=("rlgf",),
    title=_RLGF,
    arxiv="2306.11816",
    summary="AggreVaTeD: the policy begins, a guide model finishes and shows what that beginning is worth.",
    when="A better model can finish any beginning, so that each of your tokens can be priced by what it would make of it.",
    example="burnish train aggrevated --guide runs/DIR/model",
    trial={"n": 2, "epochs": 1, "guide": "tiny"},
)
def aggrevated(
    task: Source, *, guide: str, n: int = 1, eps: float = 0.2, value_eps: float = 0.2, value_coef: float = 0.5, sft: float = 0.1,
    gamma: float = 0.99, lam: float = 0.95, epochs: int = 4, critic_lr: float = 1.0, temperature: float = 1.0, reward_model: str | None = None,
) -> Method:  # fmt: skip
    """AggreVaTeD, the second of RLGF's algorithms: roll in with the policy, roll out with the guide.

    the policy writes a reply y, of which the first t tokens stay, t uniform in 1 .. |y| - 1; the guide finishes
    r_t = the score at the last token, else 0;  A_t, R_t by GAE(gamma, lam) over all reply tokens, whitened over all of them
    L = mean over the policy's tokens of -min(rho A, clip(rho, 1-eps, 1+eps) A) + sft mean over demonstrated tokens of -log pi
      + value_coef mean over the guide's tokens of max((V - R)^2, (V_clip - R)^2) / 2

    So V learns what the guide would get from a state. As in the released code every token of the roll-in is trained (the theory has
    one deviation). Departure: every reply has a roll-in (the released runs: 80 to 100%), since a reply that the guide writes alone has
    nothing for the policy. value_coef and epochs are PPO's usual ones, not checked against the paper.
    guide: a model's name or directory, with the policy's tokenizer. n: replies for each prompt. eps: the policy's clip range.
    value_eps: the critic's clip range. value_coef: weight of the critic's loss. sft: weight of imitation.
    gamma: discount per token. lam: GAE's lambda. reward_model: the directory of a reward model, in place of the task's own verifier.
    """
    main = _aggrevated(
        task, "critic", n, eps, value_eps, value_coef, sft, gamma, lam, epochs, temperature, reward_model
    )
    return Method(cast=_guided(guide, reward_model, critic=critic_lr), phases=(main,))


def _aggrevated(
    task: Source, critic: str, n: int, eps: float, value_eps: float, value_coef: float, sft: float, gamma: float, lam: float, epochs: int,
    temperature: float, rm: str | None,
) -> Phase:  # fmt: skip
    both = ("policy", "guide")
    return Phase(
        draw=demos(task),
        rollout=join(handed_over(n, anywhere(), first="policy", then="guide", temperature=temperature), given("demo")),
        score=scoring(task, rm),
        credit=chain(
            behaviour(), streams(critic, value="value"), token_rewards(kl=None, author=both), gae(gamma=gamma, lam=lam, author=both),
            whiten(author=both), member("pg", "policy"), member("value", "guide"), member("sft", "demo"),
        ),
        learn=Learn(
            pg_clip(eps), value_clip(value_eps, coef=value_coef, trainee=critic), imitate(coef=sft), epochs=epochs, temperature=temperature
        ),
    )  # fmt: skip


@register(
    family="hybrid",
    catalogue=("rlgf",),
    title=_RLGF,
    arxiv="2306.11816",
    summary="Each step is one of PPO++ or, now and then, of AggreVaTeD.",
    when="As `rlgf`, when the guide is good at finishing as well as at beginning.",
    example="burnish train lols --guide runs/DIR/model",
    trial={"n": 2, "epochs": 1, "guide": "tiny", "share": 0.0},
)
def lols(
    task: Source, *, guide: str, share: float = 0.8, n: int = 1, chance: float = 0.8, eps: float = 0.2, value_eps: float = 0.2, value_coef: float = 0.5,
    sft: float = 0.1, gamma: float = 0.99, lam: float = 0.95, epochs: int = 4, critic_lr: float = 1.0, temperature: float = 1.0,
    reward_model: str | None = None,
) -> Method:  # fmt: skip
    """LOLS, the third of RLGF's algorithms: in each step, with probability `share`, what `rlgf` does, else what `aggrevated` does.

    L = that of the algorithm whose turn it is; each has a critic of its own, for the policy's and for the guide's returns

    share = 1 is `rlgf`, share = 0 is `aggrevated`; the draw is a function of the seed and the step.
    guide: a model's name or directory, with the policy's tokenizer. share: of the steps that are PPO++'s; 0.8 is the released
    code's. n: replies for each prompt. chance: how often the guide begins, in PPO++. eps: the policy's clip range.
    value_eps: the critics' clip range. value_coef: weight of their losses. sft: weight of imitation. gamma: discount per token.
    lam: GAE's lambda. reward_model: the directory of a reward model, in place of the task's own verifier.
    """
    if not 0 <= share <= 1:
        raise ValueError(f"a share of {share} of the steps is not between 0 and 1")

    def ppo_pp(clock: Clock) -> int:
        return int(randomness.rng(clock.seed, "lols", clock.step).random() < share)

    shared = (n, eps, value_eps, value_coef, sft, gamma, lam, epochs, temperature, reward_model)
    return _mixed(task, guide, ppo_pp, chance, critic_lr, shared)


@register(
    family="hybrid",
    catalogue=("rlgf",),
    title=_RLGF,
    arxiv="2306.11816",
    summary="AggreVaTeD first, then PPO++.",
    when="As `rlgf`, when the policy is at first too weak to finish what the guide began.",
    example="burnish train d2lols --guide runs/DIR/model",
    trial={"n": 2, "epochs": 1, "guide": "tiny", "switch": 1},
)
def d2lols(
    task: Source, *, guide: str, switch: int = 20, n: int = 1, chance: float = 0.8, eps: float = 0.2, value_eps: float = 0.2, value_coef: float = 0.5,
    sft: float = 0.1, gamma: float = 0.99, lam: float = 0.95, epochs: int = 4, critic_lr: float = 1.0, temperature: float = 1.0,
    reward_model: str | None = None,
) -> Method:  # fmt: skip
    """D2LOLS, the last of RLGF's algorithms: `aggrevated` in the steps before `switch`, `rlgf` from then on.

    L = that of the algorithm whose turn it is; each has a critic of its own, for the policy's and for the guide's returns

    switch = 0 is `rlgf`.
    guide: a model's name or directory, with the policy's tokenizer. switch: the first step of PPO++; the released runs have 20,
    100 and 200. n: replies for each prompt. chance: how often the guide begins, in PPO++. eps: the policy's clip range.
    value_eps: the critics' clip range. value_coef: weight of their losses. sft: weight of imitation. gamma: discount per token.
    lam: GAE's lambda. reward_model: the directory of a reward model, in place of the task's own verifier.
    """
    shared = (n, eps, value_eps, value_coef, sft, gamma, lam, epochs, temperature, reward_model)
    return _mixed(task, guide, lambda clock: int(clock.step >= switch), chance, critic_lr, shared)


def _mixed(
    task: Source, guide: str, ppo_pp: Callable[[Clock], int], chance: float, critic_lr: float, shared: tuple[Any, ...]
) -> Method:
    """PPO++ in the steps that `ppo_pp` says, AggreVaTeD in the others."""
    n, *rest = shared
    first = replace(_ppo_pp(task, n, chance, *rest), name="ppo_pp", times=ppo_pp)
    other = replace(
        _aggrevated(task, "guide_critic", *shared), name="aggrevated", times=lambda clock: 1 - ppo_pp(clock)
    )
    cast = _guided(guide, shared[-1], critic=critic_lr, guide_critic=critic_lr)
    return Method(cast=cast, phases=(first, other))


@register(
    family="hybrid",
    catalogue=("satori",),
    title="Satori: Reinforcement Learning with Chain-of-Action-Thought Enhances LLM Reasoning via Autoregressive Search",
    arxiv="2502.02508",
    summary="PPO that restarts in the middle of right and wrong replies, and rewards mending them.",
    when="The model should learn to notice and mend its own mistakes.",
    trial={"n": 2, "epochs": 1},
)
def satori(
    task: Source, *, n: int = 4, bonus: float = 0.5, back: int = 2, cue: str = "Check again.", eps: float = 0.2, value_eps: float = 0.2,
    value_coef: float = 0.5, lam: float = 0.95, epochs: int = 1, critic_lr: float = 1.0, temperature: float = 0.6, reward_model: str | None = None,
) -> Method:  # fmt: skip
    """Satori's restart-and-explore: replies from the question, and from the middle of a right and of a wrong reply to it.

    a restart drops the last t lines of a reply, t uniform in 0 .. back, adds the words of `cue`, and lets the policy go on
    r = (1[correct] - 1) + sigmoid(standardised reward model, where there is one) + bonus [wrong made right] - bonus [right made wrong]
    A_t, R_t by GAE(1, lam), the reward at the last token, A whitened
    L = mean over the policy's tokens of [ -min(rho A, clip(rho, 1-eps, 1+eps) A) + value_coef max((V - R)^2, (V_clip - R)^2) / 2 ]

    Departures: the meta-action tokens (<|continue|>, <|reflect|>, <|explore|>) and the format tuning that teaches them are left out, so an action
    is a line and plain words stand for <|reflect|> (a model that does not know them must first learn to go on from them); the replies that are restarted are of the present policy and of this step, where
    the paper prepares them before training; n, back, value_coef and epochs are choices of ours.
    n: replies from the question for each prompt. bonus: for mending a wrong reply, and against breaking a right one.
    back: most lines that a restart drops. cue: the words after which the policy looks again, none if empty. eps: the policy's clip range.
    value_eps: the critic's clip range. value_coef: weight of the critic's loss. lam: GAE's lambda.
    reward_model: the directory of a reward model, whose squashed score is added.
    """
    preference = [squashed_model()] if reward_model else []
    return method(
        draw=prompts(task),
        rollout=restarted(task, n, back, cue, temperature=temperature),
        score=chain(verify(task), *preference, reflection_reward(bonus, *(["preference"] if reward_model else []))),
        credit=chain(
            behaviour(), streams("critic", value="value"), token_rewards(score="shaped", kl=None), gae(lam=lam), whiten(),
            member("pg", "policy"), member("value", "policy"),
        ),
        learn=Learn(pg_clip(eps), value_clip(value_eps, coef=value_coef), epochs=epochs, temperature=temperature),
        cast=stage(critic=trained(outputs=1, lr=critic_lr), **rm_role(reward_model)),
    )  # fmt: skip
