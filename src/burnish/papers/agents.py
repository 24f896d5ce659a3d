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
ARENA_LEARNING = Paper(
    "arena-learning",
    "2407.10627",
    "Arena Learning: Build Data Flywheel for LLMs Post-training via Simulated Chatbot Arena",
)
EVA = Paper(
    "eva",
    "2411.00062",
    "Scalable Reinforcement Post-Training Beyond Static Human Prompts: Evolving Alignment via Asymmetric Self-Play",
)
REFUSAL_COMPOSITION = Paper(
    "refusal-composition-classifier",
    "2412.16974",
    "Cannot or Should Not? Automatic Analysis of Refusal Composition in IFT/RLHF Datasets and Refusal Behavior of "
    "Black-Box LLMs",
)
SERL = Paper("serl", "2505.20347", "SeRL: Self-Play Reinforcement Learning for Large Language Models with Limited Data")
TEAMS_RL = Paper(
    "teams-rl",
    "2403.08694",
    "TeaMs-RL: Teaching LLMs to Generate Better Instruction Datasets via Reinforcement Learning",
)
