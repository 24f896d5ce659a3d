"""Interpretable Preferences via Multi-Objective Reward Modeling and Mixture-of-Experts (arXiv 2406.12845)."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, select
from burnish.credit.reward import at_prompt, ratings_of
from burnish.learn.reward_head import all_but_head, head_rows
from burnish.learn.terms import reward as terms
from burnish.method import Method, Option, Task, chain, method, roles, trained
from burnish.methods import papers, register
from burnish.methods.compositions import Attributes, names_of
from burnish.score.debias import Rated, attributes_at_start

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
                   Spearman's correlation of r'_i and r_verbosity at most 0.03; its last, 0.95, where none has
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
