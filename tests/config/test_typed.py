"""What mypy sees of the calls that a user writes: a part in a wrong stage, a wrong option, a wrong kind of observer."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

mypy = pytest.importorskip("mypy.api")

HEAD = """
from burnish.credit.streams import ref
from burnish.draw.tasks import prompts
from burnish.learn.learn import Learn
from burnish.learn.terms import dpo
from burnish.core.method import method
from burnish.core.roles import frozen, roles
from burnish.rollout.sample import sample
from burnish.score.verify import verify
from burnish.select.pairs import best_vs_worst
from burnish.tasks.table import source

task = source("sort")
models = roles(ref=frozen("policy"))
"""
RIGHT = """
method(
    draw=prompts(task), rollout=sample(4), score=verify(task), select=best_vs_worst(), credit=ref(),
    learn=Learn(dpo(0.1), epochs=2), models=models,
)
"""
WRONG = {
    "a rollout in stage score": (RIGHT.replace("score=verify(task)", "score=sample(4)"), 'Argument "score"'),
    "a part in stage draw": (RIGHT.replace("draw=prompts(task)", "draw=ref()"), 'Argument "draw"'),
    "a term in stage learn": (RIGHT.replace("Learn(dpo(0.1), epochs=2)", "dpo(0.1)"), 'Argument "learn"'),
    "a part among the terms": (RIGHT.replace("Learn(dpo(0.1)", "Learn(ref()"), 'Argument 1 to "Learn"'),
    "an unknown stage": (RIGHT.replace("select=", "chosen="), 'Unexpected keyword argument "chosen"'),
    "a text as epochs": (RIGHT.replace("epochs=2", 'epochs="2"'), 'Argument "epochs"'),
    "a plan that is changed": ("Learn(dpo(0.1)).epochs = 3\n", "Cannot assign to final attribute"),
}


@pytest.mark.slow
def test_mypy_sees_a_wrong_stage(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    for number, (text, _) in enumerate([(RIGHT, ""), *WRONG.values()]):
        (tmp_path / f"case_{number}.py").write_text(HEAD + text)
    files = [str(file) for file in sorted(tmp_path.glob("case_*.py"))]
    options = ["--config-file", str(root / "pyproject.toml"), "--python-executable", sys.executable]
    out, error, _ = mypy.run([*options, "--cache-dir", str(tmp_path / "cache"), *files])
    assert not error
    lines = {number: [line for line in out.splitlines() if f"case_{number}.py" in line] for number in range(len(files))}
    assert not lines[0]
    for number, (name, (_, message)) in enumerate(WRONG.items(), 1):
        assert any(message in line for line in lines[number]), f"{name}: {lines[number]}"
