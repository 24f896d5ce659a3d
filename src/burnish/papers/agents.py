"""The papers of agents, environments and curricula."""

from __future__ import annotations

from burnish.papers.paper import Paper

DUMP = Paper(
    "dump", "2504.09710", "DUMP: Automated Distribution-Level Curriculum Learning for RL-based LLM Post-training"
)
GIGPO = Paper("gigpo", "2505.10978", "Group-in-Group Policy Optimization for LLM Agent Training")
SEC = Paper("sec", "2505.14970", "Self-Evolving Curriculum for LLM Reasoning")
STARPO = Paper(
    "starpo",
    "2504.20073",
    "RAGEN: Understanding Self-Evolution in LLM Agents via Multi-Turn Reinforcement Learning",
)
AUTOREFINE = Paper(
    "autorefine", "2505.11277", "Search and Refine During Think: Autonomous Retrieval-Augmented Reasoning of LLMs"
)
ENTROPY_GRPO = Paper(
    "entropy-grpo-function-calling",
    "2508.05118",
    "Exploring Superior Function Calls via Reinforcement Learning",
)
RAG_RL = Paper(
    "rag-rl", "2503.12759", "RAG-RL: Advancing Retrieval-Augmented Generation via RL and Curriculum Learning"
)
SELF_DEBUG = Paper("self-debug", "2405.18649", "Training LLMs to Better Self-Debug and Explain Code")
SEM = Paper("sem", "2505.07903", "SEM: Reinforcement Learning for Search-Efficient Large Language Models")
TOOLRL = Paper("toolrl", "2504.13958", "ToolRL: Reward is All Tool Learning Needs")
IMAGINATION_ENGINE = Paper(
    "imagination-engine", "2311.05584", "Zero-Shot Goal-Directed Dialogue via RL on Imagined Conversations"
)
LMRL_GYM = Paper(
    "lmrl-gym", "2311.18232", "LMRL Gym: Benchmarks for Multi-Turn Reinforcement Learning with Language Models"
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
