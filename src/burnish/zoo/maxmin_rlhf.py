"""MaxMin-RLHF: Towards Equitable Alignment of Large Language Models with Diverse Human Preferences (arXiv
2402.08925).
"""

from __future__ import annotations

from typing import Annotated

from burnish import draw, learn, rollout, select
from burnish.credit.reward import Clusters, clustered
from burnish.learn.terms import reward as terms
from burnish.method import Method, Option, chain, method, roles, trained
from burnish.methods import papers, register
from burnish.methods.reward import END


@register(
    papers.MAXMIN_RLHF,
    family="reward",
    summary="One reward model per group of users; who belongs to which group is learned.",
    when="Annotators disagree by taste, and nobody should be left behind by the average.",
    trial={"user": "answer"},
    example="burnish train maxmin_rm --task pairs.jsonl",
)
def maxmin_rm(
    task: draw.Source,
    *,
    groups: Annotated[int, Option("Groups of users.", at_least=1)] = 2,
    user: Annotated[str, Option("The column that says who compared the replies.")] = "user",
    warmup: Annotated[int, Option("Steps in which users stay in their first group.", at_least=0)] = 10,
) -> Method:
    """MaxMin-RLHF's reward models, by expectation maximisation with hard assignments; one head per group.

    E:  u(user) = argmax_u sum over the user's pairs of log s( r_u(y_w) - r_u(y_l) )
    M:  L = -log s( r_u(y_w) - r_u(y_l) ), u the user's group;  mean over pairs

    Users begin in group (number of the user) modulo groups. A user's sum has the newest value of each of its pairs; E
    and M alternate batch by batch, where the paper refits each model completely in 10 rounds. Its use: `maxmin(DIR)`
    rewards with the group whose mean over the batch is the lowest. Groups share a backbone. groups = 1 is reward_model.
    """
    if groups > 1:  # with fewer users than groups a head would never be trained, and then used
        draw.require_column(task, (user,), f"user={user}", "who compared the replies", "groups=1")
        draw.require_values(task, user, groups, f"groups={groups}")
    return method(
        draw=draw.pairs(task),
        rollout=rollout.given("chosen", "rejected", reader="rm"),
        select=select.given_pairs(),
        credit=chain(END, clustered(Clusters(groups), user, warmup)),
        learn=learn.Learn(terms.chosen_head_pairs("cluster", on=learn.CLAIMED)),
        models=roles("rm", rm=trained(outputs=groups)),
        product="rm",
    )
