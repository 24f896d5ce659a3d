"""Verifiers by name: text in, verdict out. They run in the sandboxed worker, which does not import torch.

    @verifier(papers.TABLE_R1, needs=("answer",), summary="...")
    def short_answer(*, tolerance: Annotated[float, Option("...", at_least=0)] = 0.01) -> Check:
        def check(row: Row, reply: str) -> Verdict:
            ...
        return check

`row` holds the columns of the reply's row (Task.given, aliases as in reward functions) and its prompt as
row["prompt"]. Nothing of a reply may be evaluated by eval, exec, sympify or the like, here or anywhere.
"""

from burnish.core.task import Verdict
from burnish.verifiers.table import Check, Row, verifier

__all__ = ["Check", "Row", "Verdict", "verifier"]
