"""The last stage: sends new weights to engines and followers.

Roles (`ema`, `snapshot`) say which model follows which.
"""

from burnish.parts import Publish, to_followers

__all__ = ["Publish", "to_followers"]
