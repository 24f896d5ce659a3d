"""Rows that switch thinking on and off by the system message (Llama-Nemotron, arXiv 2505.00949, section 3)."""

from __future__ import annotations

from burnish.core.messages import as_messages
from burnish.core.task import Task
from burnish.datagen.stored_rows import row_of

ON, OFF = "detailed thinking on", "detailed thinking off"


def divided(reply: str, mark: str) -> tuple[str, str] | None:
    """The thought and the answer of a reply: what is inside of <think> and after it, or what stands before and from the
    last `mark` on. None where there is no thought.
    """
    if "</think>" in reply:
        thought, _, answer = reply.partition("</think>")
        thought = thought.partition("<think>")[2] if "<think>" in thought else thought
    else:
        place = reply.rfind(mark) if mark else -1
        thought, answer = (reply[:place], reply[place:]) if place >= 0 else ("", reply)
    thought, answer = thought.strip(), answer.strip()
    return (thought, answer) if thought and answer else None


def toggled_rows(task: Task, mark: str) -> list[dict[str, object]]:
    """Two rows: one that thinks in tags, one that answers at once; none where the demonstration has no thought."""
    parts = divided(str(task.given.get("demo", "")), mark)
    if parts is None:
        return []
    thought, answer = parts
    asked = [message for message in as_messages(task.prompt) if message["role"] != "system"]
    told = row_of(task)
    return [
        {
            **told,
            "prompt": [{"role": "system", "content": ON}, *asked],
            "completion": f"<think>\n{thought}\n</think>\n{answer}",
        },
        {**told, "prompt": [{"role": "system", "content": OFF}, *asked], "completion": answer},
    ]
