"""The papers of the methods: id in the catalogue of methods, arXiv number (empty if it has none), title."""

from __future__ import annotations

from burnish.papers.paper import Paper

A2C = Paper("a2c", "1602.01783", "Asynchronous Methods for Deep Reinforcement Learning")
ARCHER = Paper("archer", "2402.19446", "ArCHer: Training Language Model Agents via Hierarchical Multi-Turn RL")
BEST_OF_N = Paper("best-of-n", "2009.01325", "Learning to summarize from human feedback")
BRADLEY_TERRY_RM = Paper(
    "bradley-terry-rm", "2203.02155", "Training language models to follow instructions with human feedback"
)
CHORD = Paper(
    "chord", "2508.11408", "On-Policy RL Meets Off-Policy Experts: Harmonizing SFT and RL via Dynamic Weighting"
)
CISPO = Paper("cispo", "2506.13585", "MiniMax-M1: Scaling Test-Time Compute Efficiently with Lightning Attention")
CPO = Paper(
    "cpo",
    "2401.08417",
    "Contrastive Preference Optimization: Pushing the Boundaries of LLM Performance in Machine Translation",
)
DAPO = Paper("dapo", "2503.14476", "DAPO: An Open-Source LLM Reinforcement Learning System at Scale")
DFT = Paper(
    "dft", "2508.05629", "On the Generalization of SFT: A Reinforcement Learning Perspective with Reward Rectification"
)
DPO = Paper("dpo", "2305.18290", "Direct Preference Optimization: Your Language Model is Secretly a Reward Model")
DR_GRPO = Paper("dr-grpo", "2503.20783", "Understanding R1-Zero-Like Training: A Critical Perspective")
GDPO = Paper(
    "gdpo",
    "2601.05242",
    "GDPO: Group reward-Decoupled Normalization Policy Optimization for Multi-reward RL Optimization",
)
GKD = Paper("gkd", "2306.13649", "On-Policy Distillation of Language Models: Learning from Self-Generated Mistakes")
GRPO = Paper("grpo", "2402.03300", "DeepSeekMath: Pushing the Limits of Mathematical Reasoning in Open Language Models")
GSPO = Paper("gspo", "2507.18071", "Group Sequence Policy Optimization")
IPO = Paper("ipo", "2310.12036", "A General Theoretical Paradigm to Understand Learning from Human Preferences")
KTO = Paper("kto", "2402.01306", "KTO: Model Alignment as Prospect Theoretic Optimization")
LCPO = Paper(
    "lcpo", "2509.24159", "Latent Collective Preference Optimization: A General Framework for Robust LLM Alignment"
)
LUFFY = Paper("luffy", "2504.14945", "Learning to Reason under Off-Policy Guidance")
MINILLM = Paper("minillm", "2306.08543", "MiniLLM: Knowledge Distillation of Large Language Models")
NASH_MD = Paper("nash-md", "2312.00886", "Nash Learning from Human Feedback")
ONLINE_DPO = Paper("online-dpo", "2402.04792", "Direct Language Model Alignment from Online AI Feedback")
OPD = Paper("opd", "", "On-Policy Distillation")
ORPO = Paper("orpo", "2403.07691", "ORPO: Monolithic Preference Optimization without Reference Model")
PPO = Paper("ppo", "1707.06347", "Proximal Policy Optimization Algorithms")
PREFIX_RFT = Paper("prefix-rft", "2507.01679", "Blending Supervised and Reinforcement Fine-Tuning with Prefix Sampling")
RAFT = Paper("raft", "2304.06767", "RAFT: Reward rAnked FineTuning for Generative Foundation Model Alignment")
REINFORCE = Paper(
    "reinforce", "", "Simple statistical gradient-following algorithms for connectionist reinforcement learning"
)
REINFORCE_PP = Paper(
    "reinforce-pp", "2501.03262", "REINFORCE++: A Simple and Efficient Approach for Aligning Large Language Models"
)
REJECTION_SAMPLING = Paper(
    "rejection-sampling",
    "2312.06585",
    "Beyond Human Data: Scaling Self-Training for Problem-Solving with Language Models",
)
REMAX = Paper(
    "remax",
    "2310.10505",
    "ReMax: A Simple, Effective, and Efficient Reinforcement Learning Method for Aligning Large Language Models",
)
RLOO = Paper(
    "rloo",
    "2402.14740",
    "Back to Basics: Revisiting REINFORCE Style Optimization for Learning from Human Feedback in LLMs",
)
RPO = Paper(
    "rpo",
    "2405.16436",
    "Provably Mitigating Overoptimization in RLHF: Your SFT Loss is Implicitly an Adversarial Regularizer",
)
SAPO = Paper("sapo", "2511.20347", "Soft Adaptive Policy Optimization")
SFT = Paper("sft", "", "Supervised fine-tuning")
SIMPO = Paper("simpo", "2405.14734", "SimPO: Simple Preference Optimization with a Reference-Free Reward")
TIS = Paper("tis", "", "Your Efficient RL Framework Secretly Brings You Off-Policy RL Training")
