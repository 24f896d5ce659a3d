"""Preference learning in rounds: the sampler, the reference or both are the policy at the start of the round.

A round has `sync` steps; after it, models that follow the policy take its weights. Every step draws new prompts.
"""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score, select
from burnish.core.parts import chain
from burnish.core.roles import snapshot
from burnish.credit import by_bradley_terry, by_comparison
from burnish.learn.extrapolate import extrapolated
from burnish.learn.terms import preference_pairs as pairs
from burnish.method import Method, Option, Phase, frozen, method, roles
from burnish.methods import opt, papers, register

Eta = Annotated[float, Option("Step size of the game.", above=0)]
ROUND = {"n": 4, "sync": 1}


@register(
    papers.SPPO,
    family="preference",
    summary="Self-play: each reply's log-ratio regresses how often it beats the last round's replies.",
    when="Preferences from a model, possibly not transitive; both replies should move independently.",
    trial=ROUND,
)
def sppo(
    task: draw.Source,
    *,
    n: opt.GroupSize = 5,
    eta: Eta = 1000.0,
    sync: opt.Sync = 100,
    temperature: opt.Temperature = 0.7,
    top_p: opt.TopP = 0.9,
    reward_model: opt.RewardModel = None,
) -> Method:
    """SPPO.

    y_1..y_n ~ pi_t;  P_i = mean over j of P(y_i > y_j), itself included;  w, l = the best and the worst
    L = [ (lr_w - eta (P_w - 1/2))^2 + (lr_l - eta (P_l - 1/2))^2 ] / 2,  lr = log pi(y|x) - log pi_t(y|x),  mean

    pi_t is the policy at the start of the round. The constants are the paper's, which has three rounds of an epoch. P
    is a reward model's sigmoid(r - r'), or 1, 1/2, 0 by the verifier; the paper's is PairRM. AdamW instead of
    RMSprop.
    """
    preference = by_bradley_terry if reward_model else by_comparison
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n, who="past", temperature=temperature, top_p=top_p),
        score=chain(score.scoring(task, reward_model, author="past"), score.win_rates(preference)),
        select=select.best_vs_worst("wins"),
        credit=chain(credit.streams("past", logp="past", logp_temperature=1.0), credit.shared("wins", "wins")),
        learn=learn.Learn(pairs.win_rate_targets(eta, on="past"), logp_temperature=1.0),
        models=roles(past=snapshot("policy", sync), **score.rm_role(reward_model)),
        lr_share=0.1,
    )


@register(
    papers.INPO,
    family="preference",
    summary="Mirror descent against the last round's policy, regularised to the reference: a Nash policy.",
    when="General preferences, without estimating win rates.",
    trial=ROUND,
)
def inpo(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    eta: Eta = 0.005,
    share: Annotated[float, Option("The reference's share of the anchor, tau / eta.", at_least=0, at_most=1)] = 1 / 3,
    sync: opt.Sync = 100,
    temperature: opt.Temperature = 1.0,
    reward_model: opt.RewardModel = None,
) -> Method:
    """INPO.

    h = log pi(y_w)/pi(y_l) - (tau/eta) log ref(y_w)/ref(y_l) - ((eta - tau)/eta) log pi_t(y_w)/pi_t(y_l)
    L = (h - 1/(2 eta))^2,  mean over pairs;  y_1..y_n ~ pi_t, w and l the best and the worst

    pi_t is the policy at the start of the round. eta, tau = eta / 3 and n are the paper's (three rounds). With a
    preference model the paper finds w and l by a tournament. share = 1 is IPO on the samples of pi_t, with tau = eta.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n, who="past", temperature=temperature),
        score=score.scoring(task, reward_model, author="past"),
        select=select.best_vs_worst(),
        credit=chain(credit.ref(), credit.streams("past", logp="past")),
        learn=learn.Learn(pairs.against_population(1 / (2 * eta), {"ref": share, "past": 1 - share}, on="past")),
        models=roles(ref=frozen("policy"), past=snapshot("policy", sync), **score.rm_role(reward_model)),
        lr_share=0.1,
    )


@register(
    papers.MNPO,
    family="preference",
    summary="INPO against a population: the reference and the last two rounds' policies.",
    when="As `inpo`, when playing against one opponent goes round in circles.",
    trial=ROUND,
)
def mnpo(
    task: draw.Source,
    *,
    n: opt.GroupSize = 5,
    eta: Eta = 0.0075,
    share: Annotated[float, Option("The reference's share of the anchor.", at_least=0, at_most=1)] = 1 / 3,
    sync: opt.Sync = 100,
    temperature: opt.Temperature = 0.8,
    top_p: opt.TopP = 0.95,
    reward_model: opt.RewardModel = None,
) -> Method:
    """MNPO with past policies as the opponents.

    h = log pi(y_w)/pi(y_l) - sum_j lambda_j log pi_j(y_w)/pi_j(y_l),  pi_j: ref, pi_t, pi_{t-1};  L = (h - 1/(2 eta))^2

    lambda is share on the reference and the rest in equal parts on the two rounds, as in the authors' code. Log-probs
    are summed over the reply, as in the paper; the code takes means. A population of one round is `inpo`.
    """
    rest = (1 - share) / 2
    weights = {"ref": share, "past": rest, "earlier": rest}
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n, who="past", temperature=temperature, top_p=top_p),
        score=score.scoring(task, reward_model, author="past"),
        select=select.best_vs_worst(),
        credit=chain(*(credit.streams(who, logp=who, logp_temperature=1.0) for who in weights)),
        learn=learn.Learn(pairs.against_population(1 / (2 * eta), weights, on="past"), logp_temperature=1.0),
        models=roles(
            ref=frozen("policy"),
            past=snapshot("policy", sync),
            earlier=snapshot("past", sync),
            **score.rm_role(reward_model),
        ),
        lr_share=0.1,
    )


@register(
    papers.DNO,
    family="preference",
    summary="Rounds of DPO on large-margin pairs of the policy's and a teacher's replies, old pairs replayed.",
    when="Demonstrations of a stronger model, and a scorer that compares them with the policy's own replies.",
    trial={"n": 4, "sync": 1, "floor": 0.0, "margin": 0.0, "own_margin": 0.0},
)
def dno(
    task: draw.Source,
    *,
    n: opt.Replies = 5,
    beta: opt.Beta = 0.1,
    floor: Annotated[float, Option("Least score of a preferred reply.")] = 5 / 6,
    margin: Annotated[float, Option("Least distance of a pair's scores.", at_least=0)] = 2 / 6,
    own_margin: Annotated[float, Option("The same where the policy's own reply is preferred.", at_least=0)] = 1 / 6,
    replay: Annotated[float, Option("Old pairs replayed, as a share of the prompts.", at_least=0, at_most=1)] = 0.3,
    sync: opt.Sync = 100,
    temperature: opt.Temperature = 0.7,
    top_p: opt.TopP = 0.95,
    reward_model: opt.RewardModel = None,
) -> Method:
    """DNO-Prct: the practical version of direct Nash optimisation.

    y_1..y_n ~ pi_t and the demonstration y*;  pairs: every reply that scores at least `floor` over every one that
    scores at least `margin` less (`own_margin` where the first is the policy's)
    L = -log s( beta [lr_w - lr_l] ),  lr = log pi(y|x) - log pi_t(y|x),  mean over pairs

    The paper scores on a scale of 6 points (5, 2 and 1 are its thresholds); here scores are in [0, 1]. Its replay gives
    each older round half as much; here old pairs are drawn evenly from the last 512 prompts. `dno_soft` is its theory.
    """
    memory = select.Store("pairs", 512)
    own = rollout.sample(n, who="past", temperature=temperature, top_p=top_p)
    rule = select.large_margins(floor, margin, own_margin, own="past")
    anchor, authors = credit.ref("past", logp_temperature=1.0), ("past", "demo")
    fresh = Phase(
        draw=draw.demos(task),
        rollout=rollout.join(own, rollout.given("demo")),
        score=score.scoring(task, reward_model, author="past"),
        select=chain(rule, select.remember(memory, "pairs")),
        credit=anchor,
        learn=learn.Learn(learn.dpo(beta, on=authors), logp_temperature=1.0),
    )
    again = Phase(
        name="replay",
        draw=draw.stored(memory, replay),
        rollout=rollout.recalled(author="past", others=("demo",)),
        select=rule,
        credit=anchor,
        learn=learn.Learn(learn.dpo(beta, on=authors), logp_temperature=1.0),
    )
    models = roles(past=snapshot("policy", sync), **score.rm_role(reward_model))
    return Method(models=models, phases=(fresh, again), lr_share=0.1)


@register(
    papers.DNO,
    family="preference",
    summary="Rounds of cross-entropy between win rates and the policy's own odds.",
    when="As `dno`, with soft labels instead of thresholds.",
    trial=ROUND,
)
def dno_soft(
    task: draw.Source,
    *,
    n: opt.GroupSize = 5,
    eta: Eta = 0.1,
    sync: opt.Sync = 100,
    temperature: opt.Temperature = 1.0,
    reward_model: opt.RewardModel = None,
) -> Method:
    """DNO as its theory writes it (Algorithm 1).

    r_t(y) = mean over y' ~ pi_t of P(y > y');  D = lr(y_1) - lr(y_2),  lr = log pi(y|x) - log pi_t(y|x)
    L = -s(r_1 - r_2) log s(eta D) - s(r_2 - r_1) log s(-eta D),  mean over pairs of n replies of pi_t

    Win rates are in [0, 1], so that labels are between s(-1) and s(1). eta is that of the practical version's beta.
    """
    preference = by_bradley_terry if reward_model else by_comparison
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n, who="past", temperature=temperature),
        score=chain(score.scoring(task, reward_model, author="past"), score.win_rates(preference)),
        select=select.every_pair("wins"),
        credit=chain(credit.streams("past", logp="past"), credit.shared("wins", "wins")),
        learn=learn.Learn(pairs.soft_preference(eta, on="past")),
        models=roles(past=snapshot("policy", sync), **score.rm_role(reward_model)),
        lr_share=0.1,
    )


@register(
    papers.DPO_VP,
    family="preference",
    summary="Rounds of DPO on verified pairs of the policy's own replies, hotter from round to round.",
    when="Verifiable tasks and little compute: DPO in place of RL.",
    trial=ROUND,
)
def dpo_vp(task: draw.Source, *, n: opt.GroupSize = 8, beta: opt.Beta = 0.1, sync: opt.Sync = 100) -> Method:
    """DPO-VP: iterative DPO on verifiable pairs.

    y_1..y_n ~ pi_t, at temperature 0.7 in the first half of the run, then 1.0, in the last sixth 1.2
    score 1 right, 0.1 a wrong answer, 0 none;  w = the longest of the best, l = a random one of the worst
    L = -log s( beta [lr_w - lr_l] ),  lr = log pi(y|x) - log pi_t(y|x),  mean over pairs

    pi_t is the policy at the start of the round: sampler and reference. The paper has six rounds of an epoch, and
    scores 1, 0, -1 in place of 1, 0.1, 0. beta is the usual one.
    """
    hotter = [
        (until, rollout.sample(n, who="past", temperature=heat))
        for until, heat in ((0.5, 0.7), (5 / 6, 1.0), (1.0, 1.2))
    ]
    return method(
        draw=draw.prompts(task),
        rollout=rollout.staged(*hotter),
        score=chain(score.verify(task, author="past"), score.partial_for_answering(0.1)),
        select=select.longest_vs_any("shaped"),
        credit=credit.ref("past", logp_temperature=1.0),
        learn=learn.Learn(learn.dpo(beta, on="past"), logp_temperature=1.0),
        models=roles(past=snapshot("policy", sync)),
        lr_share=0.1,
    )


@register(
    papers.ONLINE_ITERATIVE_DPO,
    family="preference",
    summary="Rounds of DPO on the best and the worst of n, long replies priced, old pairs used again.",
    when="A reward model for chat, and a recipe that is known to work.",
    trial=ROUND,
)
def online_iterative_dpo(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    beta: opt.Beta = 0.1,
    price: Annotated[float, Option("Reward that a token of a reply costs.", at_least=0)] = 0.001,
    remembered: Annotated[int, Option("Prompts whose pairs are kept for later rounds.", at_least=1)] = 2048,
    sync: opt.Sync = 100,
    temperature: opt.Temperature = 1.0,
    reward_model: opt.RewardModel = None,
) -> Method:
    """Online iterative DPO (RLHFlow).

    y_1..y_n ~ pi_t, scored less price |y|;  w, l = the best and the worst;  pairs of all rounds are kept
    L = -log s( beta [lr_w - lr_l] ),  lr = log pi(y|x) - log ref(y|x), ref the starting policy,  mean over pairs

    Each step makes one update on new pairs and one on as many old ones. beta and n are the paper's (three rounds), the
    price is ours.
    """
    kept = select.Store("pairs", remembered)
    rule = select.best_vs_worst("net")
    fresh = Phase(
        draw=draw.prompts(task),
        rollout=rollout.sample(n, who="past", temperature=temperature),
        score=chain(score.scoring(task, reward_model, author="past"), score.less_length(price, author="past")),
        select=chain(rule, select.remember(kept, "pairs")),
        credit=credit.ref(),
        learn=learn.Learn(learn.dpo(beta, on="past")),
    )
    again = Phase(
        name="replay",
        draw=draw.stored(kept),
        rollout=rollout.recalled(author="past"),
        score=score.less_length(price, author="past"),
        select=rule,
        credit=credit.ref(),
        learn=learn.Learn(learn.dpo(beta, on="past")),
    )
    models = roles(ref=frozen("policy"), past=snapshot("policy", sync), **score.rm_role(reward_model))
    return Method(models=models, phases=(fresh, again), lr_share=0.1)


@register(
    papers.SEMI_ONLINE_DPO,
    family="preference",
    summary="DPO whose sampler takes the policy's weights every few steps: between offline and online.",
    when="Online DPO, where sampling from weights that are a few steps old is cheaper.",
    trial=ROUND,
)
def semi_online_dpo(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    beta: opt.Beta = 0.1,
    sync: opt.Sync = 10,
    temperature: opt.Temperature = 1.0,
    reward_model: opt.RewardModel = None,
) -> Method:
    """Semi-online DPO.

    y_1..y_n ~ the policy of up to `sync` steps ago;  w, l = the best and the worst
    L = -log s( beta [lr_w - lr_l] ),  lr = log pi(y|x) - log ref(y|x),  mean over pairs

    sync = 1 is online DPO, sync beyond the run is offline DPO on the starting policy's replies. The reference is the
    starting policy. The paper finds intervals between these two as good as online; sync = 10 is ours.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n, who="past", temperature=temperature),
        score=score.scoring(task, reward_model, author="past"),
        select=select.best_vs_worst(),
        credit=credit.ref(),
        learn=learn.Learn(learn.dpo(beta, on="past")),
        models=roles(ref=frozen("policy"), past=snapshot("policy", sync), **score.rm_role(reward_model)),
        lr_share=0.1,
    )


@register(
    papers.ACCELERATED_PO,
    family="preference",
    summary="Iterative DPO with Nesterov's extrapolation of the weights after each round.",
    when="Iterative DPO, in fewer rounds.",
    trial=ROUND,
)
def accelerated_po(
    task: draw.Source,
    *,
    n: opt.GroupSize = 5,
    beta: opt.Beta = 0.1,
    alpha: Annotated[
        float, Option("How far weights go beyond what the round learned; 0 is iterative DPO.", at_least=0)
    ] = 0.3,
    sync: opt.Sync = 100,
    temperature: opt.Temperature = 1.0,
    reward_model: opt.RewardModel = None,
) -> Method:
    """APO: accelerated preference optimisation, on DPO.

    in round t: L = -log s( beta [lr_w - lr_l] ),  lr = log pi(y|x) - log pi_t(y|x),  y_1..y_n ~ pi_t,  mean over pairs
    after it:   w_{t+1} = w^_{t+1} + alpha (w^_{t+1} - w^_t),  w^ the weights that rounds t + 1 and t learned

    The extrapolated policy is the next reference and sampler. In weights it is exact for log-linear policies; the paper
    writes it for distributions. alpha = 0 is iterative DPO. The paper's text was not available: alpha is ours.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n, who="past", temperature=temperature),
        score=score.scoring(task, reward_model, author="past"),
        select=select.best_vs_worst(),
        credit=credit.ref("past"),
        learn=learn.Learn(learn.dpo(beta, on="past")),
        publish=extrapolated(alpha),
        models=roles(past=snapshot("policy", sync), last=snapshot("policy", sync), **score.rm_role(reward_model)),
        lr_share=0.1,
    )
