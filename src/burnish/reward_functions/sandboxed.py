"""A verifier by name as a reward: it scores replies in the sandboxed worker, with limits on time and memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from burnish.core.call_syntax import Call
from burnish.reward_functions.call import ALIASES, Columns
from burnish.reward_functions.reward import Answer, Failed, OneReward
from burnish.verifiers.table import VERIFIERS, build_check, load_verifiers
from burnish.verifiers.verifier import SECONDS, verifier


class SandboxedReward(OneReward):
    """Scores replies by a verifier (burnish/verifiers), each within `seconds`."""

    def __init__(self, call: Call, seconds: float | None = None, name: str | None = None) -> None:
        load_verifiers()
        build_check(call)  # raises ValueError now if its options are wrong
        self.call, self.seconds, self.name = call, SECONDS if seconds is None else seconds, name or call.name

    def another(self) -> SandboxedReward:
        return self  # one worker process serves all threads

    def answers(self, prompts: Sequence[object], replies: Sequence[str], columns: Columns) -> list[Answer]:
        rows = [row_of(prompt, columns, i) for i, prompt in enumerate(prompts)]
        for column in VERIFIERS[self.call.name].needs:
            if any(row.get(column) is None for row in rows):
                raise ValueError(
                    f"the reward {self.name!r} needs a column {column!r}, which a row does not have; name it with "
                    f"--columns {column}=..., or choose another reward"
                )
        spec = {"kind": "verifier", "call": self.call.text()}
        verdicts = verifier("verifiers").judge(spec, rows, replies, self.seconds)
        return [Failed(verdict.reason) if verdict.failed else verdict for verdict in verdicts]

    def scores(self, prompts: Sequence[object], replies: Sequence[str], columns: Columns) -> list[float | None]:
        """Not used: `answers` has verdicts with their reasons."""
        raise NotImplementedError


def row_of(prompt: Any, columns: Columns, i: int) -> dict[str, object]:
    """The columns of row i, also under the names that datasets use for them, and its prompt as text."""
    row = {name: values[i] for name, values in columns.items()}
    row |= {alias: row[name] for alias, name in ALIASES.items() if name in row and alias not in row}
    verl = row.get("reward_model")
    if row.get("answer") is None and isinstance(verl, Mapping) and verl.get("ground_truth") is not None:
        row["answer"] = verl["ground_truth"]
    text = prompt if isinstance(prompt, str) else "\n".join(str(message.get("content", "")) for message in prompt)
    return {**row, "prompt": text}
