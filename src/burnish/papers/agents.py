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
BANDITBENCH = Paper("banditbench", "2410.06238", "EVOLvE: Evaluating and Optimizing LLMs For Exploration")
IMAGINATION_ENGINE = Paper(
    "imagination-engine", "2311.05584", "Zero-Shot Goal-Directed Dialogue via RL on Imagined Conversations"
)
LMRL_GYM = Paper(
    "lmrl-gym", "2311.18232", "LMRL Gym: Benchmarks for Multi-Turn Reinforcement Learning with Language Models"
)
MOE_LM = Paper(
    "moe-lm-dialogue-management", "2206.00059", "A Mixture-of-Expert Approach to RL-based Dialogue Management"
)
PF_PPO = Paper("pf-ppo", "2409.06957", "Policy Filtration in RLHF to Fine-Tune LLM for Code Generation")
RLEP = Paper("rlep", "2507.07451", "RLEP: Reinforcement Learning with Experience Replay for LLM Reasoning")
