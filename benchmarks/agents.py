"""Whole GRPO steps of episodes with several turns on a CPU in fp32, burnish beside TRL.

    python benchmarks/agents.py                    writes results/agents.json (20 minutes on two cores)
    python benchmarks/agents.py --only tiny        one of the two sizes
    python benchmarks/agents.py --quick            small work, to see that all of it works
    python benchmarks/agents.py --shared           where other programs use the cores: waiting threads sleep

The policy replies, a tool answers, and so on: every episode has the same number of turns, and every reply and answer
the same number of tokens. TRL runs its own loop of tool calls (`environment_factory`), burnish plays an environment.
Models have random weights, so every reply counts as a call (sides/talk.py).
"""

from __future__ import annotations

import json
import os
from typing import Any

import prepare
from command import chosen, flags, run
from harness import OURS, RESULTS, SCRATCH, Goal, Part, Side
from workload import SHAPES, model_directory, prompts

THREE = Goal("rate", 3.0, "trl")
SLEEPING = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0"}  # threads that spin wait for one that does not run


def _steps(name: str, shape: str, sizes: tuple[int, int, int, int], tokens: tuple[int, int], steps: int = 1) -> Part:
    """sizes: tasks, episodes of each, turns, tokens of a reply; tokens: of a prompt and of an answer of the tool."""
    number, group, turns, new = sizes
    prompt, answer = tokens
    rows, vocabulary = number * group, SHAPES[shape]["vocab_size"]
    work: dict[str, Any] = {
        "model": str(model_directory(shape, SCRATCH / "models", chat=True)),
        "device": "cpu",
        "prompts": [[max(8, word) for word in ids] for ids in prompts(number, prompt, vocabulary, "agents")],
        "vocabulary": vocabulary,
        "prompts_a_step": number,
        "prompt_tokens": prompt,
        "answer_tokens": answer,
        "group": group,
        "turns": turns,
        "max_new": new,
        "steps_a_turn": steps,
    }
    return Part(
        name,
        f"a GRPO step of {number} tasks x {group} episodes x {turns} turns x ({new} sampled + {answer} answered) "
        f"tokens, prompts of {prompt}, {shape} shape" + (f", {steps} steps a turn" if steps > 1 else ""),
        (
            Side(OURS, "sides.burnish_agents:step"),
            Side("trl", "sides.trl_agents:step", paths=(str(prepare.trl()),), warmup=1),
        ),
        work,
        rate="samples",
        goals=(THREE,),
        facts={"rows": rows, "group": group, "turns": turns, "new": new},
        same={"samples": 0.0, "replies": 0.0, "prompt_tokens": 0.0, "sampled_tokens": 0.02, "trained_tokens": 0.02,
              "answer_tokens": 0.02},
    )  # fmt: skip


def small(quick: bool) -> list[Part]:
    """The shape of `tiny`."""
    if quick:
        return [_steps("tiny", "quick", (2, 2, 3, 4), (8, 4))]
    return [_steps("tiny", "tiny", (8, 8, 4, 16), (64, 16))]


def large(quick: bool) -> list[Part]:
    """Layers of SmolLM2-135M, 8 of them, with a vocabulary of 8,192: 33M weights."""
    if quick:
        return [_steps("33m", "quick", (2, 2, 3, 4), (8, 4))]
    return [_steps("33m", "llama-33m", (4, 4, 4, 16), (128, 16))]


PARTS = {"tiny": small, "33m": large}


def main() -> None:
    reader = flags(__doc__, PARTS)
    reader.add_argument("--shared", action="store_true", help="other programs use the cores, too")
    told = reader.parse_args()
    told.results = told.results or (SCRATCH / "quick-agents.json" if told.quick else RESULTS / "agents.json")
    if told.shared:
        os.environ.update(SLEEPING)  # of all sides
    run(told, "agents", [part for name in chosen(told, PARTS) for part in PARTS[name](told.quick)])
    content = json.loads(told.results.read_text())
    told.results.write_text(json.dumps({**content, "shared_machine": told.shared}, indent=1) + "\n")


if __name__ == "__main__":
    main()
