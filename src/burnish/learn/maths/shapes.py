"""The shapes of the tensors of the loss maths, as types: mypy reads each as a Tensor, a test as a shape.

N   tokens of a micro-batch        R   replies              P   pairs of replies
K   replies of one list            V   tokens of the vocabulary
*   any shape, the same wherever it stands in one function
"""

from __future__ import annotations

from typing import Annotated

from torch import Tensor

PerToken = Annotated[Tensor, "N"]
OverVocabulary = Annotated[Tensor, "N V"]
PerReply = Annotated[Tensor, "R"]
PerReplyBool = Annotated[Tensor, "R", bool]
PerPair = Annotated[Tensor, "P"]
PerListed = Annotated[Tensor, "K"]
OneNumber = Annotated[Tensor, ""]
AnyShape = Annotated[Tensor, "*"]
