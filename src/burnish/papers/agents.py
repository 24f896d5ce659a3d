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

AGENT_Q = Paper("agent-q", "2408.07199", "Agent Q: Advanced Reasoning and Learning for Autonomous AI Agents")
AGENT_R = Paper(
    "agent-r", "2501.11425", "Agent-R: Training Language Model Agents to Reflect via Iterative Self-Training"
)
ARMAP = Paper("armap", "2502.12130", "Scaling Autonomous Agents via Automatic Reward Modeling And Planning")
ARPO = Paper("arpo", "2507.19849", "Agentic Reinforced Policy Optimization")
EEF = Paper("eef", "2504.13145", "Exploring Expert Failures Improves LLM Agent Tuning")
ITOOL = Paper("itool", "2501.09766", "Boosting Tool Use of Large Language Models via Iterative Reinforced Fine-Tuning")
LSPO = Paper(
    "lspo",
    "2502.04686",
    "Learning Strategic Language Agents in the Werewolf Game with Iterative Latent Space Policy Optimization",
)
PLAYPEN = Paper(
    "playpen", "2504.08590", "Playpen: An Environment for Exploring Learning Through Conversational Interaction"
)
REFUEL = Paper(
    "refuel", "2410.04612", "Regressing the Relative Future: Efficient Policy Optimization for Multi-turn RLHF"
)
