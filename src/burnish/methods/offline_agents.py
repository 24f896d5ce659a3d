"""Agents that learn from recorded episodes of several turns: imitation of the good ones, and values of tokens."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, select
from burnish.core.schedules import after
from burnish.credit.claims import alternating
from burnish.credit.turns import turn_rewards
from burnish.engine.mixture import by_values
from burnish.learn.terms.token_values import imitate_steered, q_recorded, q_return, q_temporal, v_expectile
from burnish.method import Method, Option, Phase, Role, chain, ema, frozen, method, roles, trained
from burnish.methods import opt, papers, register
from burnish.select.returns import best_returns, compared

Beta = Annotated[float, Option("Weight of the values in the policy that they steer.", at_least=0)]
Cql = Annotated[float, Option("Weight of the cross-entropy of Q on the recorded tokens.", at_least=0)]
QLR = Annotated[float, Option("Multiplies the learning rate for the critics.", above=0)]
Games = Annotated[int, Option("Games per task and step that the steered policy plays, to measure it.", at_least=0)]
ValueSteps = Annotated[int, Option("Steps of the critics alone; the policy begins in the last.", at_least=1)]
_RECORDED = {"task": "guess"}


@register(
    papers.LMRL_GYM,
    family="agents",
    summary="Imitate the recorded episodes with the best returns.",
    when="You have recorded episodes of mixed quality: the first thing to try, and the baseline of value methods.",
    example="burnish train filtered_bc --task guess",
    trial={**_RECORDED, "share": 0.5},
)
def filtered_bc(
    task: draw.Source,
    *,
    share: Annotated[float, Option("Share of the episodes that are imitated.", above=0, at_most=1)] = 0.1,
) -> Method:
    """Filtered behaviour cloning, a baseline of LMRL-Gym.

    L = -(1 / N) sum over the N reply tokens of the kept episodes of log pi
    An episode is kept where its return is among the best `share` of those that the run has read (of the newest 10,000).

    share = 1 is behaviour cloning (SFT on all replies). Departure: the threshold is that of the episodes read so far,
    where LMRL-Gym takes it over the whole data set; after one epoch of a data set of at most 10,000 it is the same.
    Of LMRL-Gym's eight tasks five have a small analogue here (`maze`, `text_nav`, `wordle`, `twenty_questions`,
    `deal`). Missing: chess, chess endgames, guess-my-city, and its recorded episodes; recorded ones come with `guess`
    and `bandit` alone.
    """
    returns = select.Returns("returns")
    return method(
        draw=draw.episodes(task),
        rollout=rollout.trajectories(),
        select=best_returns(returns, share),
        credit=credit.claim("sft", "demo", tag="best"),
        learn=learn.Learn(learn.imitate(on=learn.CLAIMED)),
        models=roles(),
    )


@register(
    papers.LMRL_GYM,
    papers.IMAGINATION_ENGINE,
    family="agents",
    summary="Implicit language Q-learning: token-level values from recorded episodes steer the policy.",
    when="You have recorded episodes with rewards, good and bad, and cannot interact.",
    example="burnish train ilql --task guess",
    trial={**_RECORDED, "value_steps": 1, "games": 1, "polyak": 0.5},
)
def ilql(
    task: draw.Source,
    *,
    gamma: opt.Gamma = 0.99,
    tau: Annotated[float, Option("Expectile of V: 0.5 is the mean, towards 1 the maximum.", above=0, below=1)] = 0.7,
    cql: Cql = 1.0,
    beta: Beta = 2.0,
    polyak: Annotated[float, Option("How fast the target critics follow.", above=0, at_most=1)] = 0.005,
    value_steps: ValueSteps = 50,
    q_lr: QLR = 1.0,
    games: Games = 0,
) -> Method:
    """ILQL at the level of tokens, as LMRL-Gym trains it; t are the agent's tokens, t + 1 is its next token.

    Q_i(s, a) = l_i(s, a) - l_ref(s, a), the logits of critic i minus those of the start;  Q'_i follow by `polyak`
    L_Q = sum over i = 1, 2 of mean over t of [ (Q_i(s_t, a_t) - r_t - gamma V(s_{t+1}))^2 / 2
                                                - cql log softmax(Q_i(s_t, .))(a_t) ]
    L_V = mean over t of w (V(s_t) - min_i Q'_i(s_t, a_t))^2 / 2,   w = tau where V is the smaller, else 1 - tau
    pi^ = ref exp(beta (min Q' - V)) / Z, in which V cancels;   L_pi = mean over t of KL(pi^ || pi)

    pi^ is ILQL's decoding, with the start as behaviour policy: begin with a model that imitates the data (sft). The
    games are played by pi^ itself; the product pi is its copy, learned on the recorded states, so that any engine can
    serve it (the last is ours, not the paper's). tau = 1/2 is SARSA; beta = 0 leaves the policy as it is; with a large
    cql the critics imitate. Episodes end with their last reply (V = 0 there). Departures: each critic is a copy of the
    model, where the released code has heads on a trunk; both start with Q = 0. Two equal copies would stay equal on the
    same data, so an episode trains one of the two critics each time it is read, in turn. gamma, tau and the 1/2 are the
    released code's; its cql is 0.01 to 1, beta 1 to 32 by task, of which ours are what works on `tiny`. The imagination
    engine's dialogues are written first, by `burnish imagine ... --out dialogues.jsonl`; this is its second half, with
    --task dialogues.jsonl. Of LMRL-Gym's eight tasks the box has forms of its own of five: maze, text_nav, wordle,
    twenty_questions and deal (its car dealer). Missing: chess, chess endgames, guess my city, and the episodes that the
    paper recorded; `games` plays episodes here instead.
    """
    returns, critics = select.Returns("returns"), ("target1", "target2")
    values = Phase(
        name="values",
        draw=draw.episodes(task),
        rollout=rollout.trajectories(),
        select=select.watched(returns),
        credit=chain(
            credit.token_ids(),
            turn_rewards(author="demo"),
            *(alternating(q, i, 2, author="demo") for i, q in enumerate(("q1", "q2"))),
            *(alternating(f"{q}_cql", i, 2, author="demo") for i, q in enumerate(("q1", "q2"))),
        ),
        learn=learn.Learn(
            *(q_temporal(gamma, trainee=q, on=learn.CLAIMED, name=q) for q in ("q1", "q2")),
            *(q_recorded(coef=cql, trainee=q, on=learn.CLAIMED, name=f"{q}_cql") for q in ("q1", "q2")),
            v_expectile(tau, critics, on="demo"),
        ),
    )
    models = {
        "q1": trained(lr=q_lr),
        "q2": trained(lr=q_lr),
        "target1": ema("q1", decay=1 - polyak),
        "target2": ema("q2", decay=1 - polyak),
        "value": trained(outputs=1, lr=q_lr),
    }
    return _extracted(task, values, returns, critics, models, beta, value_steps, games)


@register(
    papers.LMRL_GYM,
    family="agents",
    summary="Values of tokens by regression on recorded returns steer the policy.",
    when="As `ilql`, with less to tune: one critic, no bootstrapping, and values of the recorded behaviour.",
    example="burnish train mc_returns --task guess",
    trial={**_RECORDED, "value_steps": 1, "games": 1},
)
def mc_returns(
    task: draw.Source,
    *,
    gamma: opt.Gamma = 0.99,
    cql: Cql = 1.0,
    beta: Beta = 2.0,
    value_steps: ValueSteps = 50,
    q_lr: QLR = 1.0,
    games: Games = 0,
) -> Method:
    """Monte-Carlo returns of LMRL-Gym; t are the agent's tokens.

    R_t = r_t + gamma R_{t+1};   Q(s, a) = l_q(s, a) - l_ref(s, a), the critic's logits minus those of the start
    L_Q = mean over t of [ (Q(s_t, a_t) - R_t)^2 / 2 - cql log softmax(Q(s_t, .))(a_t) ]
    pi^ = ref exp(beta Q) / Z;   L_pi = mean over t of KL(pi^ || pi)

    As `ilql` otherwise; beta = 0 leaves the policy as it is.
    """
    returns, critics = select.Returns("returns"), ("q",)
    values = Phase(
        name="values",
        draw=draw.episodes(task),
        rollout=rollout.trajectories(),
        select=select.watched(returns),
        credit=chain(credit.token_ids(), turn_rewards(author="demo"), credit.monte_carlo(gamma=gamma, author="demo")),
        learn=learn.Learn(q_return(trainee="q", on="demo"), q_recorded(coef=cql, trainee="q", on="demo", name="q_cql")),
    )
    models = {"q": trained(lr=q_lr)}
    return _extracted(task, values, returns, critics, models, beta, value_steps, games)


def _extracted(
    task: draw.Source,
    values: Phase,
    returns: select.Returns,
    critics: tuple[str, ...],
    models: dict[str, Role],
    beta: float,
    value_steps: int,
    games: int,
) -> Method:
    """The phase of the critics, that of the policy which learns what they steer to, and games of what they steer."""
    extract = Phase(
        times=after(value_steps - 1),
        draw=draw.episodes(task),
        rollout=rollout.trajectories(),
        select=select.watched(returns),
        learn=learn.Learn(imitate_steered(beta, critics, on="demo")),
    )
    play = (
        Phase(
            name="play",
            draw=draw.prompts(task, "env"),
            rollout=rollout.play(max(1, games), who="ref", blend=by_values(critics, beta)),
            select=compared(returns),
            learn=learn.Learn(),
        )
        if games
        else None
    )
    phases = (values, extract) if play is None else (values, extract, play)
    return Method(models=roles(ref=frozen("policy"), **models), phases=phases)
