"""The papers of agents, environments and curricula."""

from __future__ import annotations

from burnish.papers.paper import Paper

DUMP = Paper(
    "dump", "2504.09710", "DUMP: Automated Distribution-Level Curriculum Learning for RL-based LLM Post-training"
)
GIGPO = Paper("gigpo", "2505.10978", "Group-in-Group Policy Optimization for LLM Agent Training")
SCORE = Paper("score", "2409.12917", "Training Language Models to Self-Correct via Reinforcement Learning")
SEC = Paper("sec", "2505.14970", "Self-Evolving Curriculum for LLM Reasoning")
STARPO = Paper(
    "starpo",
    "2504.20073",
    "RAGEN: Understanding Self-Evolution in LLM Agents via Multi-Turn Reinforcement Learning",
)
UFO = Paper("ufo", "2507.14295", 'A Simple "Try Again" Can Elicit Multi-Turn LLM Reasoning')
AGENTREFINE = Paper(
    "agentrefine", "2501.01702", "AgentRefine: Enhancing Agent Generalization through Refinement Tuning"
)
ARPO_REPLAY = Paper(
    "arpo-replay", "2505.16282", "ARPO:End-to-End Policy Optimization for GUI Agents with Experience Replay"
)
MARFT = Paper("marft", "2504.16129", "MARFT: Multi-Agent Reinforcement Fine-Tuning")
RISE = Paper("rise", "2407.18219", "Recursive Introspection: Teaching Language Model Agents How to Self-Improve")
SPA_RL = Paper("spa-rl", "2505.20732", "SPA-RL: Reinforcing LLM Agents via Stepwise Progress Attribution")
STEPAGENT = Paper(
    "stepagent",
    "2411.03817",
    "From Novice to Expert: LLM Agent Policy Optimization via Step-wise Reinforcement Learning",
)
WEBRL = Paper(
    "webrl", "2411.02337", "WebRL: Training LLM Web Agents via Self-Evolving Online Curriculum Reinforcement Learning"
)
