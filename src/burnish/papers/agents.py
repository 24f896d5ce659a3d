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
AUTOREFINE = Paper(
    "autorefine", "2505.11277", "Search and Refine During Think: Autonomous Retrieval-Augmented Reasoning of LLMs"
)
ENTROPY_GRPO = Paper(
    "entropy-grpo-function-calling",
    "2508.05118",
    "Exploring Superior Function Calls via Reinforcement Learning",
)
PANGU_AGENT = Paper(
    "pangu-agent", "2312.14878", "Pangu-Agent: A Fine-Tunable Generalist Agent with Structured Reasoning"
)
RAG_RL = Paper(
    "rag-rl", "2503.12759", "RAG-RL: Advancing Retrieval-Augmented Generation via RL and Curriculum Learning"
)
SELF_DEBUG = Paper("self-debug", "2405.18649", "Training LLMs to Better Self-Debug and Explain Code")
SELF_REGULATION = Paper("self-regulating-helper", "2502.04576", "Self-Regulation and Requesting Interventions")
SEM = Paper("sem", "2505.07903", "SEM: Reinforcement Learning for Search-Efficient Large Language Models")
TOOLRL = Paper("toolrl", "2504.13958", "ToolRL: Reward is All Tool Learning Needs")
USER_SIMULATOR = Paper("embodied-user-simulator", "2410.23535", "Simulating User Agents for Embodied Conversational-AI")
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
