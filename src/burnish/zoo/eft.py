"""An Emulator for Fine-Tuning Large Language Models using Small Language Models (arXiv 2310.12962)."""

from __future__ import annotations

from typing import Annotated

from burnish import draw, learn, rollout, score, select
from burnish.method import Method, Option, frozen, method, roles
from burnish.methods import opt, register
from burnish.methods.weighted import weighted_models
from burnish.papers import Paper

EFT = Paper("eft", "2310.12962", "An Emulator for Fine-Tuning Large Language Models using Small Language Models")

Weight = Annotated[float, Option("How strongly the guides count; at 0 the model is as it is.", at_least=0)]
Guides = Annotated[
    str, Option("Models that guide, by name or directory, with the tokenizer of the run's model: a, or a*0.7,b*0.3.")
]


@register(
    EFT,
    family="decoding",
    summary="A large model sampled as if it were fine-tuned: plus what fine-tuning changed in a small one.",
    when="You have a fine-tuned small model and its base, and may not or cannot train the large one.",
    trial={"tuned": "tiny", "untuned": "tiny", "n": 2},
)
def eft(
    task: draw.Source,
    *,
    tuned: Guides,
    untuned: Annotated[str, Option("The model that the tuned ones started from.")],
    weight: Weight = 1.0,
    n: opt.Replies = 1,
) -> Method:
    """Emulated fine-tuning (up-scaling), also known as proxy tuning.

    log p(a) = log pi(a) + weight sum_i w_i [ log pi_i(a) - log pi_untuned(a) ] + const, token by token

    pi is the run's model, pi_i are the tuned ones. weight = 0 is pi; if pi is the untuned model, weight = 1 with one
    tuned model is that model. Several tuned models with weights that add up to 1 interpolate between them. Nothing is
    trained. Departures: all tuned models have one base; the paper's speculative decoding and its filter of the
    change (only inside the base's top-p) are left out. Negative weights, which undo alignment, are refused.
    """
    deltas = {name: (model, share * weight) for name, (model, share) in weighted_models(tuned, "tuned").items()}
    weights = {name: share for name, (_, share) in deltas.items()}
    models = {name: frozen(model) for name, (model, _) in deltas.items()}
    blend = rollout.guided({**weights, "untuned": -sum(weights.values())})
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n, blend=blend),
        score=score.scoring(task, None),
        select=select.keep_best(n),  # all of them
        learn=learn.Learn(),
        models=roles(**models, untuned=frozen(untuned)),
    )
