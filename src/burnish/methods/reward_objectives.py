"""Several objectives: gated attributes, directions of users, margins of other objectives."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score, select
from burnish.credit.reward import at_prompt, ratings_of
from burnish.learn.maths.preference_pairs import multi_objective
from burnish.learn.reward_head import all_but_head, head_rows
from burnish.learn.terms import reward as terms
from burnish.learn.terms.compared import pair_term
from burnish.method import Method, Option, Part, Task, chain, frozen, method, roles, trained
from burnish.methods import opt, papers, register
from burnish.methods.reward import Attributes, names_of
from burnish.rollout.directed import directed
from burnish.score.debias import Rated, attributes_at_start
from burnish.score.objectives import brevity, directed_reward, implicit_score

LONG = 256  # tokens of a reply whose rating "length" is 1


@register(
    papers.ARMORM,
    family="reward",
    summary="Rated attributes, verbosity taken out of them, and a gate by the prompt that weighs them.",
    when="What matters depends on the prompt, and longer replies are rated higher for their length.",
    trial={"rows": 5},
)
def armorm(
    task: draw.Source,
    *,
    attributes: Attributes = "quality,length",
    verbosity: Annotated[str, Option("The attribute to take out of the others; none where it is empty.")] = "length",
    temperature: Annotated[float, Option("Temperature of the gate's softmax.", above=0)] = 10.0,
    rows: Annotated[int, Option("Training rows that the attributes are fitted on.", at_least=5)] = 512,
) -> Method:
    """ArmoRM: absolute-rating multi-objective reward model with a mixture-of-experts gate, on a frozen backbone.

    at the start:  r_i(x, y) = w_i . h(x, y), w_i a ridge regression on the replies that are rated for attribute i, its
                   penalty by validation; r'_i = r_i - lambda_i r_verbosity, lambda_i the least of a grid with
                   Spearman's correlation of r'_i and r_verbosity at most 0.03
    then:          L = -log s( R(x, y_w) - R(x, y_l) ),  R = sum_i softmax(g(x) / temperature)_i r'_i, only g moves

    h is the last hidden state; start from a reward model (--model DIR), as the paper does. g is read at the last token
    of the prompt and never sees the reply. The product has 2k labels, k attributes and k gates: score with
    `armorm(DIR)`. Departures: the gate is linear, not an MLP, and has no learned scale. A constant gate is a fixed
    weighted sum.
    """
    names = names_of(attributes, task)
    k = len(names)

    def rating(task: Task, column: str, tokens: int) -> list[float]:
        return ratings_of(task.given, names, frozenset({column}), tokens / LONG)

    fold = attributes_at_start(Rated(task, rows, rating), names.index(verbosity) if verbosity in names else None)
    return method(
        draw=draw.pairs(task),
        rollout=rollout.given("chosen", "rejected", reader="rm"),
        select=select.given_pairs(),
        credit=chain(
            credit.claim("gate", "task", positions="last"), credit.claim("gate", "demo", positions="end"), at_prompt()
        ),
        learn=learn.Learn(terms.gated_pairs(k, temperature), rest=all_but_head, move=head_rows(slice(k, 2 * k), fold)),
        models=roles("rm", rm=trained(outputs=2 * k)),
        product="rm",
    )


@register(
    papers.DPA,
    family="reward",
    summary="Best-of-n fine-tuning with the user's weights in the prompt; replies are chosen by these weights.",
    when="Users want different trade-offs of two attributes, from one model.",
)
def dpa(
    task: draw.Source,
    *,
    n: opt.Replies = 16,
    degrees: Annotated[float, Option("The largest angle of a direction.", at_least=0, at_most=90)] = 45.0,
    temperature: opt.Temperature = 1.0,
    reward_model: Annotated[
        str | None,
        Option(
            "A reward model whose first two outputs are the attributes (rating_model); without one they are the "
            "verifier's score and the share of the longest reply."
        ),
    ] = None,
) -> Method:
    """Directional preference alignment: rejection sampling with v in the prompt.

    v = (cos t, sin t), t uniform within +-degrees;  R(x, v, y) = v . (r_1, r_2);  L = -log pi(y* | x, v) on the reply
    with the largest R of n

    The prompt states round(100 v); the score uses the exact v. degrees = 0 is rejection sampling on the first
    attribute. Departure: directions are drawn anew in every step, not in rounds; the authors' policy code was never
    released.
    """
    attributes: Part = directed_reward("rm" if reward_model else None)
    scored = attributes if reward_model else chain(score.verify(task), attributes)
    return method(
        draw=draw.prompts(task),
        rollout=directed(n, degrees, temperature=temperature),
        score=scored,
        select=select.keep_best(1, "directed"),
        learn=learn.Learn(learn.imitate()),
        models=roles(**score.rm_role(reward_model)),
    )


@register(
    papers.MODPO,
    family="preference",
    summary="DPO with the other objectives' rewards as a margin.",
    when="Two objectives with preferences of their own, and a weight between them.",
    trial={"other": "tiny"},
    example="burnish train modpo --other runs/DIR/model",
)
def modpo(
    task: draw.Source,
    *,
    beta: opt.Beta = 0.1,
    weight: Annotated[
        float, Option("Weight of the objective of the data; the other has the rest.", above=0, at_most=1)
    ] = 0.5,
    other: Annotated[
        str | None, Option("A policy of the other objective (DPO); its reward is beta log(pi / ref).")
    ] = None,
    reward_model: Annotated[str | None, Option("A reward model of the other objective, in place of a policy.")] = None,
) -> Method:
    """Multi-objective DPO.

    L = -log s( 1/w [ beta (lr_w - lr_l) - (1 - w) (r(x, y_w) - r(x, y_l)) ] ),  lr = log pi / ref summed over the reply

    r is another objective's reward, held: beta log(pi_other / ref) of a policy that DPO trained for it, or a reward
    model's score, which must be on that scale. Without either it is brevity: minus the share of the longest reply. Mean
    over pairs. w = 1 is DPO; 1/w makes the gradient large where w is small.
    """
    if other and reward_model:
        raise ValueError("the other objective is --other (a DPO policy) or --reward-model, not both; leave one out")
    scored, members = brevity(author="demo"), {}
    if reward_model:
        scored, members = score.reward_model(author="demo"), score.rm_role(reward_model)
    elif other:
        scored, members = implicit_score("other", beta, author="demo"), {"other": frozen(other)}
    return method(
        draw=draw.pairs(task),
        rollout=rollout.given("chosen", "rejected"),
        score=scored,
        select=select.given_pairs(),
        credit=chain(credit.ref(), credit.shared("reward", "objective")),
        learn=learn.Learn(
            pair_term(
                lambda w, r, beta: multi_objective(
                    w.logratio, r.logratio, w["objective"] - r["objective"], beta, weight
                ),
                beta=beta,
                marks=("objective",),
                on="demo",
            )
        ),
        models=roles(ref=frozen("policy"), **members),
        lr_share=0.1,
    )
