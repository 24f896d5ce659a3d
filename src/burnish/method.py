"""What the file of a method imports: the pieces that it is composed of. `from burnish.method import Method, method`."""

from burnish.core.method import *  # noqa: F403
from burnish.core.method import __all__ as __all__
