"""Execute a notebook's code cells in order, as Jupyter does, in this process: what each prints and shows.

python tests/e2e/notebook.py examples/quickstart.ipynb     stores the outputs in the notebook
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any


def execute(notebook: dict[str, Any]) -> dict[str, Any]:
    """The namespace after the last cell; the cells have their outputs."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate((c for c in notebook["cells"] if c["cell_type"] == "code"), 1):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            value = _run("".join(cell["source"]), f"<cell {number}>", names)
        cell["execution_count"], cell["outputs"] = number, []
        if printed.getvalue():
            text = printed.getvalue().splitlines(True)
            cell["outputs"].append({"output_type": "stream", "name": "stdout", "text": text})
        if value is not None:
            data = {"text/plain": repr(value).splitlines(True)}
            if hasattr(value, "_repr_html_"):
                data["text/html"] = value._repr_html_().splitlines(True)
            shown = {"output_type": "execute_result", "execution_count": number, "metadata": {}, "data": data}
            cell["outputs"].append(shown)
    return names


def _run(source: str, where: str, names: dict[str, Any]) -> Any:
    """Run a cell; its value is that of its last line, if that is an expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, where, "exec"), names)
    return None if last is None else eval(compile(ast.Expression(last.value), where, "eval"), names)


if __name__ == "__main__":
    file = Path(sys.argv[1])
    page = json.loads(file.read_text())
    execute(page)
    file.write_text(json.dumps(page, indent=1, ensure_ascii=False) + "\n")
