"""Environments of several turns, and tools: what an agent acts on.

    class Corridor:
        def reset(self, task, seed): ...           # the first observation: text or messages
        def step(self, action):  ...               # observation, reward, terminated, truncated, info

    burnish train grpo --task my_env.py:Corridor

`protocol.py` says what an environment may have and return, `guarded.py` calls it with time limits, `expert.py` lets an
environment's expert demonstrate, `tools.py` turns functions into tools that a model calls.
"""

from burnish.envs.expert import expert_episode
from burnish.envs.guarded import Failure, GuardedEnv
from burnish.envs.protocol import Environment, Outcome
from burnish.envs.tools import Tool, ToolCall, ToolEnv, parse_calls

__all__ = [
    "Environment",
    "Failure",
    "GuardedEnv",
    "Outcome",
    "Tool",
    "ToolCall",
    "ToolEnv",
    "expert_episode",
    "parse_calls",
]
