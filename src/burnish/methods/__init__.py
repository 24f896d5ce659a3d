"""Methods: short compositions of parts.

`register` puts a function into the table of methods, `variant` makes one of another; `opt` has the option types that
methods share.
"""

from burnish import papers
from burnish.methods import options as opt
from burnish.methods.table import register
from burnish.methods.variants import Arguments, variant

__all__ = ["Arguments", "opt", "papers", "register", "variant"]
