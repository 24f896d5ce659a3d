"""Methods that learn from search trees over episodes or over partial replies."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score, select
from burnish.core.schedules import after, before, linear
from burnish.learn.terms import preference_pairs as pairs
from burnish.method import Method, Option, Phase, chain, frozen, method, roles
from burnish.methods import opt, papers, register

Rounds = Annotated[int, Option("Visits to each tree.", at_least=1)]
Width = Annotated[int, Option("Replies that are proposed in each state.", at_least=2)]
Explore = Annotated[float, Option("How strongly the search prefers what it has visited less.", at_least=0)]
_TREE = {"task": "guess", "rounds": 4, "width": 3}


@register(
    papers.AGENT_Q,
    family="agents",
    summary="Tree search with a critic's opinion; step-level DPO on siblings whose values differ.",
    when="The environment can return to a state, and the reward comes only at the end.",
    example="burnish train agent_q --task guess",
    trial={**_TREE, "theta": 0.0},
)
def agent_q(
    task: draw.Source,
    *,
    rounds: Rounds = 16,
    width: Width = 5,
    c: Explore = 1.0,
    alpha: Annotated[float, Option("The tree's share of a value, beside the critic's.", at_least=0, at_most=1)] = 0.5,
    theta: Annotated[float, Option("The least distance of the values of a pair.", at_least=0)] = 0.2,
    beta: opt.Beta = 0.1,
    temperature: opt.Temperature = 1.0,
) -> Method:
    """Agent Q: guided tree search, then DPO on the steps.

    Q = alpha Q_tree + (1 - alpha) Q_critic;  select argmax Q + c sqrt(ln N(h) / (1 + N(h, a)))
    Q_tree <- (N Q_tree + R) / (N + 1) along the path, R the episode's reward
    pairs: all visited siblings with |Q_i - Q_j| > theta;  L = -log s( beta [lr(a_w|h) - lr(a_l|h)] ),  mean over pairs
    lr = sum over the step's tokens of log pi - log pi_b, pi_b the log-probs stored when the step was sampled

    Q_critic is the rank of a step among those proposed in its state, 1 to 0, by the starting model. theta above every
    distance gives no pairs; alpha = 1 has no critic. The paper prints none of alpha, theta, c, the number of proposals
    or the depth: 0.5, 0.2, 1 and 5 are ours. Departures: the critic is asked about each step alone, and the odds of
    yes order them, where the paper's lists them in order; a plan or thought is part of the reply; a finished branch is
    not visited again; siblings that were never visited make no pairs.
    """
    value = rollout.mixed_value(alpha)
    critic = {"critic": frozen("policy")} if alpha < 1 else {}
    return method(
        draw=draw.prompts(task, "env"),
        rollout=rollout.searched(
            rounds,
            width,
            rule=rollout.ucb_after_one(c, value),
            take=rollout.replies_with(value),
            opinion=rollout.ranked_by("critic") if critic else None,
            temperature=temperature,
            reads=[f"model:{name}.logp" for name in critic],
        ),
        select=select.sibling_pairs(theta),
        credit=chain(credit.behaviour(), credit.last_turn("reply", "node")),
        learn=learn.Learn(learn.dpo(beta, anchor="old", on=learn.CLAIMED)),
        models=roles(**critic),
        lr_share=0.1,
    )


@register(
    papers.AGENT_R,
    family="agents",
    summary="Imitate episodes that notice their first mistake and turn into good ones, found by tree search.",
    when="An agent repeats its mistakes to the end of an episode: it should notice and correct them on the way.",
    example="burnish train agent_r --task guess",
    trial={**_TREE, "alpha": 0.5, "final": 0.5},
)
def agent_r(
    task: draw.Source,
    *,
    rounds: Rounds = 16,
    width: Width = 4,
    c: Explore = 0.25,
    alpha: Annotated[float, Option("Reward above which an episode is good, at the start.")] = 0.5,
    final: Annotated[float, Option("The same at the end of the run.")] = 0.9,
    beta: Annotated[float, Option("How much worse than the best a bad episode is at least.", at_least=0)] = 0.2,
    revision: Annotated[
        str | None, Option("What the policy says when it revises, with | between several; unset: ten sentences.")
    ] = None,
    updates: opt.Updates = 4,
    minibatches: opt.Minibatches = 4,
    temperature: opt.Temperature = 1.0,
) -> Method:
    """Agent-R: search for good and bad episodes, splice them, imitate.

    Search by Q + c sqrt(ln N / n), unvisited first, running means. An episode is good if R > alpha; a bad one has
    R < R(best) - beta. The policy itself judges each step of the bad one as good, uncertain or bad.
    row = bad episode up to and with its first bad step (no loss) + one of ten revision sentences (loss) +
          "ok." + a best episode after the turns that the two share (loss)
    L = -(1/N) sum over the N tokens of rows and good episodes that have loss of log pi

    Of the best episodes a bad one gets the one that shares its beginning longest, and its first bad step is looked for
    after that. alpha rises linearly to `final`. Without bad episodes it is rejection-sampling fine-tuning. As in the
    paper, each round's episodes are imitated in many updates before the next round is played. The thresholds and the
    number of updates are ours: the release compares numbers with strings. The environment has to take a revision as an
    action without effect, and the good episode has to make sense after the bad step: nothing is played again. The
    policy has to be able to say a revision. Departures: the judgement is the likeliest of the three words, and no chat
    data is mixed in.
    """
    return method(
        draw=draw.prompts(task, "env"),
        rollout=rollout.searched(
            rounds, width, rule=rollout.uct(c), take=rollout.finished, temperature=temperature, writes=()
        ),
        score=score.bad_steps(),
        select=select.revisions(
            linear(alpha, final), beta, words=revision.split("|") if revision else select.REVISIONS
        ),
        learn=learn.Learn(
            learn.imitate(on=("policy", "revision")), updates=updates, minibatches=minibatches, logp_temperature=1.0
        ),
        models=roles(),
    )


@register(
    papers.LSPO,
    family="agents",
    summary="Replies grouped into latent actions; regret matching values these; DPO follows the better ones.",
    when="A strategic dialogue whose replies differ in words more than in what they do.",
    example="burnish train lspo --task guess",
    trial={**_TREE, "clusters": 64},
)
def lspo(
    task: draw.Source,
    *,
    rounds: Rounds = 16,
    width: Width = 4,
    clusters: Annotated[int, Option("Latent actions: clusters of replies.", at_least=1)] = 8,
    iterations: Annotated[int, Option("Iterations of regret matching.", at_least=1)] = 100,
    beta: opt.Beta = 0.1,
    temperature: opt.Temperature = 1.0,
) -> Method:
    """Latent space policy optimisation, reconstructed from the abstract.

    Replies of the step are embedded and clustered by k-means: cluster z is the latent action. The searched episodes
    are an abstract game: states by the environment's key and the number of the turn, actions z, outcomes as sampled.
    Regret matching: R(s, z) += Q(s, z) - V(s),  sigma(s, z) = max(R, 0) / sum, V(s) = sum_z sigma Q, `iterations` times
    pairs: two replies in the same state, the one whose latent action has the larger Q under the mean sigma preferred
    L = -log s( beta [lr_w - lr_l] ),  lr = log pi/ref over the reply,  mean over pairs

    One cluster gives no pairs. Reconstructed: the number of clusters, the rule of the pairs, and tabular regret
    matching where the paper has deep CFR. One seat: other players are part of the environment. The embedding is a
    hash of words and characters, where the paper has an embedding model. Latent actions are found anew in each step.
    """
    return method(
        draw=draw.prompts(task, "env"),
        rollout=rollout.searched(
            rounds, width, rule=rollout.uct(1.0), take=rollout.replies_with(), temperature=temperature
        ),
        score=score.latent_values(clusters, iterations),
        select=select.sibling_pairs(0.0, tag="latent"),
        credit=chain(credit.ref(), credit.last_turn("reply", "node")),
        learn=learn.Learn(learn.dpo(beta, on=learn.CLAIMED)),
        models=roles(ref=frozen("policy")),
        lr_share=0.1,
    )


@register(
    papers.ITOOL,
    family="agents",
    summary="SFT from easy to hard, then tree search over fragments of wrong replies and SimPO on siblings.",
    when="Tool calls with a gold answer: SFT has stopped to help, and replies go wrong at single fragments.",
    example="burnish train itool --task sort",
    trial={"warmup": 0, "rounds": 6, "width": 3, "size": 4, "enough": 2.0},
)
def itool(
    task: draw.Source,
    *,
    warmup: Annotated[int, Option("Steps of SFT from easy to hard.", at_least=0)] = 20,
    rounds: Rounds = 16,
    width: Width = 3,
    size: Annotated[int, Option("Tokens of a fragment.", at_least=1)] = 8,
    enough: Annotated[float, Option("A task whose sampled reply scores this much is not searched.")] = 1.0,
    gap: Annotated[float, Option("The least distance of the values of a pair.", at_least=0)] = 0.1,
    c: Explore = 1.0,
    beta: opt.Beta = 2.0,
    gamma: Annotated[float, Option("SimPO's margin.", at_least=0)] = 1.0,
    temperature: opt.Temperature = 1.0,
) -> Method:
    """iTool: a warm-up, then iterated tree search and preference learning.

    Warm-up: SFT on demonstrations in three stages, the shortest third of those drawn first, the longest last
    Then, for tasks whose sampled reply scores less than `enough`: a tree over fragments, values by the verifier's
    score of completed replies;  pairs (w, l) of siblings whose values differ by more than gap
    L = -log s( beta/|w| log pi(w) - beta/|l| log pi(l) - gamma ),  over the fragments' tokens,  mean over pairs

    The loss is SimPO's (the paper's best choice). Its constants could not be read: all numbers here are ours, and
    difficulty by length is too. The score is the task's: a graded match of calls is a reward (--reward). Without a
    tree (size as large as a reply) it is SimPO on sampled replies.
    """
    first = Phase(
        name="warmup",
        times=before(warmup),
        draw=draw.easier_first(draw.demos(task), 3, warmup),
        rollout=rollout.given("demo"),
        learn=learn.Learn(learn.imitate(on="demo")),
    )
    main = Phase(
        times=after(warmup),
        draw=draw.prompts(task),
        rollout=rollout.fragments(
            task, rounds, width, size, rule=rollout.uct(c), enough=enough, temperature=temperature
        ),
        select=select.sibling_pairs(gap),
        credit=credit.last_turn("reply", "node"),
        learn=learn.Learn(pairs.simpo(beta, gamma, on=learn.CLAIMED), logp_temperature=1.0),
    )
    return Method(models=roles(), phases=(first, main), lr_share=0.1)
