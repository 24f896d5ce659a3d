"""Learning Strategic Language Agents in the Werewolf Game with Iterative Latent Space Policy Optimization (arXiv
2502.04686).
"""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score, select
from burnish.method import Method, Option, chain, frozen, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

LSPO = Paper(
    "lspo",
    "2502.04686",
    "Learning Strategic Language Agents in the Werewolf Game with Iterative Latent Space Policy Optimization",
)

Rounds = Annotated[int, Option("Visits to each tree.", at_least=1)]
Width = Annotated[int, Option("Replies that are proposed in each state.", at_least=2)]
_TREE = {"task": "guess", "rounds": 4, "width": 3}


@register(
    LSPO,
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
