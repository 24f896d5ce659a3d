"""Methods: short compositions of parts.

`register` puts a function into the table of methods; `opt` has the option types that methods share.
"""

from burnish import papers
from burnish.methods import options as opt
from burnish.methods.table import register

__all__ = ["opt", "papers", "register"]
