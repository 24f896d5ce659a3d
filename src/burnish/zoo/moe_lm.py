"""A Mixture-of-Expert Approach to RL-based Dialogue Management (arXiv 2206.00059)."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, select
from burnish.core.schedules import after
from burnish.method import Method, Option, Phase, chain, ema, frozen, roles, trained
from burnish.methods import opt, register
from burnish.papers import Paper

MOE_LM = Paper(
    "moe-lm-dialogue-management", "2206.00059", "A Mixture-of-Expert Approach to RL-based Dialogue Management"
)

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
    temperature: opt.Temperature = 1.0,
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
        rollout=rollout.reranked(words, n, choice=choice, temperature=temperature),
        select=select.remember(replay, "score:reward", "turn_score:reward"),
        learn=learn.Learn(learn.imitate(coef=after(critic_warmup), on="manager")),
    )
    critic = Phase(
        name="critic",
        times=critic_updates,
        draw=draw.transitions(replay, batch, "manager"),
        rollout=rollout.next_candidates(words, temperature=temperature),
        credit=chain(
            credit.streams("target", at="end", score="target_score"),
            credit.best_candidate_targets(gamma=gamma),
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
