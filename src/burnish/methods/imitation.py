"""Learning from demonstrations."""

from __future__ import annotations

from burnish import draw, learn, rollout
from burnish.credit.message_weights import message_weights
from burnish.learn.maths.token_weights import probability_weight
from burnish.method import Method, everything, method, roles
from burnish.methods import opt, papers, register


@register(
    papers.SFT,
    family="imitation",
    summary="Raise the likelihood of demonstrated replies.",
    when="You have demonstrations: nearly everything else starts from here.",
)
def sft(task: draw.Source, *, updates: opt.Updates = 1) -> Method:
    """Supervised fine-tuning on demonstrations.

    L = -(1 / N) sum over the N demonstrated reply tokens of log pi(y_t | x, y_<t)

    The mean is over all reply tokens of the batch; prompt tokens are not trained. In a conversation all replies are
    trained (--train-on says otherwise). Messages with a weight w count in part: sum w (-log pi) / sum w.
    """
    weighs = draw.WEIGHTS in task.gives
    return method(
        draw=draw.demos(task, weighs=True),
        rollout=rollout.demonstrated(),
        credit=message_weights() if weighs else everything,
        learn=learn.Learn(learn.imitate_weighted(on="demo") if weighs else learn.imitate(on="demo"), updates=updates),
        models=roles(),
    )


@register(
    papers.DFT,
    family="imitation",
    summary="SFT in which every token counts by its own probability.",
    when="SFT forgets or overfits, and the demonstrations contain tokens that the model rightly finds improbable.",
)
def dft(task: draw.Source, *, updates: opt.Updates = 1) -> Method:
    """Dynamic fine-tuning: SFT without the hidden reward 1/p.

    L = -(1 / N) sum over the N demonstrated reply tokens of sg[p_t] log p_t,  p_t = pi(y_t | x, y_<t)

    The gradient is that of the mean of -p_t. The mean is over all reply tokens of the batch, as in the released
    code.
    """
    return method(
        draw=draw.demos(task),
        rollout=rollout.demonstrated(),
        learn=learn.Learn(learn.imitate(weight=probability_weight, on="demo"), updates=updates),
        models=roles(),
    )
