"""TRL: whole steps of its GRPOTrainer with an environment whose method is a tool (`environment_factory`)."""

from __future__ import annotations

import tempfile
from typing import Any

import trl.trainer.grpo_trainer as grpo
from datasets import Dataset
from transformers import AutoTokenizer
from trl import GRPOConfig
from worker import Turns
from workload import text

from sides.talk import TOOL, answer_to, reward_of
from sides.trl_side import TakeTurns, settings_of

AROUND = 3  # words of the template around a message and before the next reply: <tool> <end> <assistant>


class Counting(grpo.GRPOTrainer):
    """The trainer as it is, with a count of the tokens whose loss is taken."""

    counted: dict[str, Any]

    def compute_loss(self, model: Any, inputs: Any, *rest: Any, **more: Any) -> Any:
        tokens = (inputs["completion_mask"] * inputs["tool_mask"]).sum()
        self.counted["trained_tokens"] = self.counted.get("trained_tokens", 0) + tokens
        return super().compute_loss(model, inputs, *rest, **more)


def every_reply_calls(tokenizer: Any, ids: list[int], **_: Any) -> dict[str, Any]:
    """In the place of TRL's parser of replies: a call of the one tool."""
    said = tokenizer.decode(ids, skip_special_tokens=True)
    call = {"type": "function", "function": {"name": TOOL, "arguments": {"said": said}}}
    return {"role": "assistant", "content": said, "tool_calls": [call]}


def environment_of(work: dict[str, Any]) -> type:
    class Talk:
        """Answers every reply."""

        def reset(self, **row: Any) -> None: ...

        def say(self, said: str) -> str:
            """Say something.

            Args:
                said: What is said.
            """
            return answer_to(said, work)

    return Talk


def step(work: dict[str, Any], turns: Turns) -> None:
    """Whole GRPO steps: generate and call the tool in turns, reward, advantages, loss, optimiser."""
    grpo.parse_response = every_reply_calls
    counted: dict[str, Any] = {}

    def reward(completions: list[Any], prompts: list[Any], completion_ids: list[list[int]], **_: Any) -> list[float]:
        said = [[one["content"] for one in talk if one["role"] == "assistant"] for talk in completions]
        answers = [one for talk in completions for one in talk if one["role"] == "tool"]
        rewards = [sum(map(reward_of, replies)) for replies in said]
        more = {
            "samples": len(said),
            "replies": sum(map(len, said)),
            "prompt_tokens": len(prompts) * (work["prompt_tokens"] + AROUND),
            "answer_tokens": sum(len(one["content"].split()) + AROUND for one in answers),
        }
        more["sampled_tokens"] = sum(map(len, completion_ids)) - more["answer_tokens"]
        for name, number in more.items():
            counted[name] = counted.get(name, 0) + number
        counted["rewarded"] = sum(rewards) / len(rewards)
        return rewards

    tokenizer = AutoTokenizer.from_pretrained(work["model"], padding_side="left")
    tokenizer.response_template = {}  # replies are read by the function above
    settings = settings_of(work) | {
        "max_completion_length": work["turns"] * (work["max_new"] + work["answer_tokens"] + 8),
        "max_tool_calling_iterations": work["turns"] - 1,
        "generation_kwargs": {"max_new_tokens": work["max_new"]},
    }
    trainer = Counting(
        model=work["model"],
        args=GRPOConfig(output_dir=tempfile.mkdtemp(prefix="trl-"), **settings),
        reward_funcs=reward,
        train_dataset=Dataset.from_list([{"prompt": [{"role": "user", "content": text(p)}]} for p in work["prompts"]]),
        processing_class=tokenizer,
        environment_factory=environment_of(work),
    )
    trainer.counted = counted
    trainer.add_callback(TakeTurns(turns, counted, work["steps_a_turn"]))
    trainer.train()
