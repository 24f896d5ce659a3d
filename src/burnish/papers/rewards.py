"""The papers of rewards, reward models, verifiers and judges."""

from __future__ import annotations

from burnish.papers.paper import Paper

ACECODER = Paper("acecoder", "2502.01718", "ACECODER: Acing Coder RL via Automated Test-Case Synthesis")
ALP = Paper(
    "alp",
    "2506.05256",
    "Just Enough Thinking: Efficient Reasoning with Adaptive Length Penalties Reinforcement Learning",
)
ARMORM = Paper(
    "armorm", "2406.12845", "Interpretable Preferences via Multi-Objective Reward Modeling and Mixture-of-Experts"
)
BRME = Paper("brme", "2409.15360", "Reward-Robust RLHF in LLMs")
CARMO = Paper("carmo", "2410.21545", "CARMO: Dynamic Criteria Generation for Context-Aware Reward Modelling")
CGPO = Paper("cgpo", "2409.20370", "The Perfect Blend: Redefining RLHF with Mixture of Judges")
CLIP_DELTA = Paper("clip-delta", "2410.15115", "On Designing Effective RL Reward at Training Time for LLM Reasoning")
CODEULTRAFEEDBACK = Paper(
    "codeultrafeedback",
    "2403.09032",
    "CodeUltraFeedback: An LLM-as-a-Judge Dataset for Aligning Large Language Models to Coding Preferences",
)
CONTRAST_INSTRUCTIONS = Paper(
    "contrast-instructions", "2309.16155", "The Trickle-down Impact of Reward (In-)consistency on RLHF"
)
COSINE_LENGTH = Paper("cosine-length", "2502.03373", "Demystifying Long Chain-of-Thought Reasoning in LLMs")
CURIOSITY_RED_TEAMING = Paper(
    "curiosity-red-teaming", "2402.19464", "Curiosity-driven Red-teaming for Large Language Models"
)
DPA = Paper(
    "dpa",
    "2402.18571",
    "Arithmetic Control of LLMs for Diverse User Preferences: Directional Preference Alignment with Multi-Objective "
    "Rewards",
)
DRA_GRPO = Paper(
    "dra-grpo",
    "2505.09655",
    "DRA-GRPO: Exploring Diversity-Aware Reward Adjustment for R1-Zero-Like Training of Large Language Models",
)
ER_PRM = Paper("er-prm", "2412.11006", "Entropy-Regularized Process Reward Model")
FINE_GRAINED_RLHF = Paper(
    "fine-grained-rlhf", "2306.01693", "Fine-Grained Human Feedback Gives Better Rewards for Language Model Training"
)
GOAL_CONDITIONED_CONTRASTIVE_RM = Paper(
    "goal-conditioned-contrastive-rm",
    "2407.13887",
    "Learning Goal-Conditioned Representations for Language Reward Models",
)
GURU = Paper(
    "guru", "2506.14965", "Revisiting Reinforcement Learning for LLM Reasoning from A Cross-Domain Perspective"
)
HARDTESTS = Paper("hardtests", "2505.24098", "HardTests: Synthesizing High-Quality Test Cases for LLM Coding")
HAWKEYE = Paper("hawkeye", "2504.00424", "Hawkeye: Efficient Reasoning with Model Collaboration")
IRCOCO = Paper(
    "ircoco", "2401.16637", "IRCoCo: Immediate Rewards-Guided Deep Reinforcement Learning for Code Completion"
)
LEANABELL_PROVER = Paper("leanabell-prover", "2504.06122", "Leanabell-Prover: Posttraining Scaling in Formal Reasoning")
LOGICLLAMA = Paper(
    "logicllama",
    "2305.15541",
    "Harnessing the Power of Large Language Models for Natural Language to First-Order Logic Translation",
)
MAXMIN_RLHF = Paper(
    "maxmin-rlhf",
    "2402.08925",
    "MaxMin-RLHF: Towards Equitable Alignment of Large Language Models with Diverse Human Preferences",
)
MEMORY_R = Paper(
    "memory-r",
    "2504.02273",
    "Reasoning Under 1 Billion: Memory-Augmented Reinforcement Learning for Large Language Models",
)
META_PO = Paper(
    "meta-po", "2504.20157", "Toward Evaluative Thinking: Meta Policy Optimization with Evolving Reward Models"
)
MRT = Paper("mrt", "2503.07572", "Optimizing Test-Time Compute via Meta Reinforcement Fine-Tuning")
MULTICRITIQUE = Paper("multicritique", "2410.15287", "Training Language Models to Critique With Multi-agent Feedback")
ON_DEVICE_REWRITE_AGENT = Paper(
    "on-device-rewrite-agent", "2308.11807", "Towards an On-device Agent for Text Rewriting"
)
PAIRWISE_RL = Paper(
    "pairwise-rl",
    "2504.04950",
    "A Unified Pairwise Framework for RLHF: Bridging Generative Reward Modeling and Policy Optimization",
)
PESSIMISTIC_MLE_RLHF = Paper(
    "pessimistic-mle-rlhf",
    "2301.11270",
    "Principled Reinforcement Learning with Human Feedback from Pairwise or K-wise Comparisons",
)
POLAR = Paper("polar", "2507.05197", "Pre-Trained Policy Discriminators are General Reward Models")
PRLCODER = Paper("prlcoder", "2502.01715", "Process-Supervised Reinforcement Learning for Code Generation")
PRM = Paper("prm", "2211.14275", "Solving math word problems with process- and outcome-based feedback")
PRM_GUIDED_CODE_RL = Paper(
    "prm-guided-code-rl", "2410.17621", "Process Supervision-Guided Policy Optimization for Code Generation"
)
REWARD_ENSEMBLES = Paper("reward-ensembles", "2310.02743", "Reward Model Ensembles Help Mitigate Overoptimization")
RLCF = Paper("rlcf", "2507.18624", "Checklists Are Better Than Reward Models For Aligning Language Models")
RLTF = Paper("rltf", "2307.04349", "RLTF: Reinforcement Learning from Unit Test Feedback")
RLVR_WORLD = Paper("rlvr-world", "2505.13934", "RLVR-World: Training World Models with Reinforcement Learning")
SALMON = Paper("salmon", "2310.05910", "SALMON: Self-Alignment with Principle-Following Reward Models")
SAYSELF = Paper("sayself", "2405.20974", "SaySelf: Teaching LLMs to Express Confidence with Self-Reflective Rationales")
SEQ2SEQ_RM = Paper(
    "seq2seq-rm", "2409.00162", "Sequence to Sequence Reward Modeling: Improving RLHF by Language Feedback"
)
SIMPLEDC_RLHF_SIMPLIFICATION = Paper(
    "simpledc-rlhf-simplification",
    "2401.15043",
    "Health Text Simplification: An Annotated Corpus for Digestive Cancer Education and Novel Strategies for "
    "Reinforcement Learning",
)
SPCT = Paper("spct", "2504.02495", "Inference-Time Scaling for Generalist Reward Modeling")
SWE_RL = Paper(
    "swe-rl", "2502.18449", "SWE-RL: Advancing LLM Reasoning via Reinforcement Learning on Open Software Evolution"
)
TABLE_R1 = Paper("table-r1", "2505.23621", "Table-R1: Inference-Time Scaling for Table Reasoning")
TEACHER_FORCING_INDUCED_REWARD = Paper(
    "teacher-forcing-induced-reward", "2210.08708", "Teacher Forcing Recovers Reward Functions for Text Generation"
)
THEMIS = Paper("themis", "2310.01045", "Tool-Augmented Reward Modeling")
THINK_RM = Paper("think-rm", "2505.16265", "Think-RM: Enabling Long-Horizon Reasoning in Generative Reward Models")
TIMEHC_RL = Paper(
    "timehc-rl",
    "2505.24500",
    "TimeHC-RL: Temporal-aware Hierarchical Cognitive Reinforcement Learning for Enhancing LLMs' Social Intelligence",
)
ULTRAFEEDBACK = Paper(
    "ultrafeedback", "2310.01377", "UltraFeedback: Boosting Language Models with High-quality Feedback"
)
VPL = Paper(
    "vpl", "2408.10075", "Personalizing Reinforcement Learning from Human Feedback with Variational Preference Learning"
)
