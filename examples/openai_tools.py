"""An agent with a tool, on the package openai alone, that pulls its episodes from a run:

    python examples/openai_tools.py rows boxes                    boxes/questions.jsonl, demos.jsonl, template.jinja
    burnish train sft --task boxes/demos.jsonl --chat-template boxes/template.jinja --steps 120 --prompts 16 \\
        --lr 2e-3 --max-new-tokens 48 --out boxes/sft
    export BURNISH_API_KEY=some-long-secret-of-yours
    burnish serve boxes/sft/model --train grpo --task boxes/questions.jsonl --steps 24 --prompts 8 --lr 2e-4 \\
        --max-new-tokens 48 &
    python examples/openai_tools.py http://127.0.0.1:8765

A question says which box to open and what to add to its content, which the tool alone knows: the answer cannot be
guessed from the question. The embedded model has never seen a tool, hence a template with tools and some SFT on
conversations first.
"""

from __future__ import annotations

import json
import os
import random
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai

KEY = os.environ.get("BURNISH_API_KEY", "")
AT_ONCE = 16  # episodes that are played at the same time: the run samples their replies together
OPEN = {
    "type": "function",
    "function": {
        "name": "open",
        "description": "Open a box: the number in it.",
        "parameters": {"type": "object", "properties": {"box": {"type": "integer"}}, "required": ["box"]},
    },
}
TEMPLATE = """\
{%- for message in messages -%}
{{- '<|user|>' if message['role'] == 'tool' else '<|' + message['role'] + '|>' -}}
{{- message['content'] -}}
{%- for call in message['tool_calls'] or [] -%}
{{- '{"name": "' + call['function']['name'] + '", "arguments": ' + (call['function']['arguments'] | tojson) + '}' -}}
{%- endfor -%}
{{- '<|end|>' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- endif -%}
"""


def write_rows(folder: Path, number: int = 1000) -> None:
    """Questions, conversations that answer some others, and the chat template."""
    dice = random.Random(0)
    boxes = [(dice.randrange(100, 1000), dice.randrange(1, 10), dice.randrange(10, 90)) for _ in range(2 * number)]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "template.jinja").write_text(TEMPLATE)
    for name, row, some in (("questions", question, boxes[:number]), ("demos", conversation, boxes[number:])):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row(*one)) + "\n" for one in some))


def question(box: int, more: int, content: int) -> dict[str, Any]:
    """A row to train on. The model reads the prompt alone."""
    asked = {"role": "user", "content": f"Open {box} and add {more}"}
    return {"prompt": [asked], "answer": str(content + more), "box": box, "content": content}


def conversation(box: int, more: int, content: int) -> dict[str, Any]:
    """A question, the call, what the tool says, the answer."""
    row = question(box, more, content)
    said = (
        ("assistant", json.dumps({"name": "open", "arguments": {"box": box}})),
        ("tool", str(content)),
        ("assistant", f"{content}+{more}={row['answer']}\nanswer: {row['answer']}"),
    )
    return {"messages": [*row["prompt"], *({"role": role, "content": text} for role, text in said)]}


def play(client: openai.OpenAI, task: dict[str, Any], turns: int = 3) -> float:
    """One episode: ask, make the calls, ask again; 1 for the right answer."""
    messages: list[Any] = list(task["prompt"])
    for _ in range(turns):
        said = client.chat.completions.create(model="policy", messages=messages, tools=[OPEN]).choices[0].message
        if not said.tool_calls:
            return float((said.content or "").rpartition("answer: ")[2] == task["answer"])
        messages.append(said.model_dump(exclude_none=True))
        for call in said.tool_calls:
            right = call.function.name == "open" and call.function.arguments == json.dumps({"box": task["box"]})
            found = str(task["content"]) if right else "empty"
            messages.append({"role": "tool", "tool_call_id": call.id, "content": found})
    return 0.0


def post(url: str, content: dict[str, Any]) -> dict[str, Any]:
    """What the server answers."""
    request = urllib.request.Request(url, json.dumps(content).encode(), {"Authorization": f"Bearer {KEY}"})
    with urllib.request.urlopen(request, timeout=600) as answer:
        return dict(json.load(answer))


def work(url: str) -> None:
    """Pull episodes until the run is done, several at a time."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(_work, [url] * AT_ONCE))


def _work(url: str) -> None:
    while not (episode := post(f"{url}/episodes", {})).get("done"):
        if episode["id"] is not None:  # None: nothing to do at the moment, the run is learning
            with openai.OpenAI(base_url=episode["base_url"], api_key=KEY) as client:
                reward = play(client, episode["task"])
            post(episode["base_url"].removesuffix("/v1") + "/reward", {"value": reward})


if __name__ == "__main__":
    write_rows(Path(sys.argv[2])) if sys.argv[1] == "rows" else work(sys.argv[1].rstrip("/"))
