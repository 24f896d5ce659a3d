"""The option types that several methods share: help text and valid range. `n: opt.GroupSize = 8` in a signature.

An option that only one method has is annotated there: `Annotated[float, Option("The noise's scale.", at_least=0)]`.
"""

from __future__ import annotations

from typing import Annotated

from burnish.core.option import Option

# sampling
Replies = Annotated[int, Option("Replies sampled for each prompt.", at_least=1)]
GroupSize = Annotated[int, Option("Replies sampled for each prompt, which are compared with each other.", at_least=2)]

Sync = Annotated[
    float,
    Option(
        "Steps of a round, after which models that follow the policy take its weights; below 1, a share of all steps.",
        above=0,
    ),
]

# updates
Updates = Annotated[int, Option("Passes over each batch; each is one update unless minibatches split it.", at_least=1)]
Minibatches = Annotated[int, Option("Updates that one pass over a batch is split into.", at_least=1)]

# the ratio
ClipRange = Annotated[
    float, Option("How far the probability ratio may move from 1 before it is clipped.", at_least=0, unlimited=True)
]
ClipLow = Annotated[
    float, Option("How far the probability ratio may fall below 1 before it is clipped.", at_least=0, unlimited=True)
]
ClipHigh = Annotated[
    float, Option("How far the probability ratio may rise above 1 before it is clipped.", at_least=0, unlimited=True)
]
DualClip = Annotated[float, Option("The second clip of the ratio, where the advantage is negative.", above=1)]

# held to another policy
KLCoef = Annotated[
    float, Option("Coefficient of the KL to the starting policy; at 0 no reference is loaded for it.", at_least=0)
]
KLPenalty = Annotated[
    float, Option("KL penalty per token, inside the reward; at 0 no reference is loaded for it.", at_least=0)
]
Beta = Annotated[float, Option("How strongly the policy is held to the reference.", above=0)]

# the critic
ValueClipRange = Annotated[
    float, Option("How far the critic's value may move before it is clipped.", at_least=0, unlimited=True)
]
ValueCoef = Annotated[float, Option("Weight of the critic's loss.", at_least=0)]
A_FACTOR = "it is a factor of --lr (5 for a critic that learns 5 times as fast as the policy), not a learning rate"
CriticLR = Annotated[float, Option("Multiplies the learning rate for the critic.", at_least=0.01, reason=A_FACTOR)]
Gamma = Annotated[float, Option("Discount per token.", at_least=0, at_most=1)]
Lam = Annotated[float, Option("GAE's lambda; 1 gives Monte-Carlo returns.", at_least=0, at_most=1)]

# other terms
EntropyCoef = Annotated[float, Option("Coefficient of the entropy bonus.", at_least=0)]
ImitationCoef = Annotated[float, Option("Weight of imitation.", at_least=0)]

# models
RewardModel = Annotated[str | None, Option("The directory of a reward model, in place of the task's own verifier.")]
Teacher = Annotated[
    str,
    Option("The teacher: a model's name or directory. Padded rows of embeddings are cut off."),
]
Guide = Annotated[str, Option("The guide: a model's name or directory, with the policy's tokenizer.")]

# the length of a reply
Overlong = Annotated[
    float, Option("The buffer of the length punishment, as a share of the longest reply.", at_least=0, at_most=1)
]
