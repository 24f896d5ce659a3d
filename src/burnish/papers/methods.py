"""The papers of the methods: id in the catalogue of methods, arXiv number (empty if it has none), title."""

from __future__ import annotations

from burnish.papers.paper import Paper

A2C = Paper("a2c", "1602.01783", "Asynchronous Methods for Deep Reinforcement Learning")
AAPO = Paper("aapo", "2505.14264", "AAPO: Enhance the Reasoning Capabilities of LLMs with Advantage Momentum")
ACCELERATED_PO = Paper(
    "accelerated-po", "2410.06293", "Accelerated Preference Optimization for Large Language Model Alignment"
)
ALPHAPO = Paper("alphapo", "2501.03884", "AlphaPO: Reward shape matters for LLM alignment")
AOT = Paper("aot", "2406.05882", "Distributional Preference Alignment of LLMs via Optimal Transport")
ARBITRARY_ENTROPY_PO = Paper(
    "arbitrary-entropy-po",
    "2510.08141",
    "Arbitrary Entropy Policy Optimization: Entropy Is Controllable in Reinforcement Fine-tuning",
)
ARCHER = Paper("archer", "2402.19446", "ArCHer: Training Language Model Agents via Hierarchical Multi-Turn RL")
A_LOL = Paper("a-lol", "2305.14718", "Improving Language Models with Advantage-based Offline Policy Gradients")
BCO = Paper("bco", "2404.04656", "Binary Classifier Optimization for LLM Alignment")
BEHAVIOR_INJECTION = Paper(
    "behavior-injection", "2505.18917", "Behavior Injection: Preparing Language Models for Reinforcement Learning"
)
BEST_OF_N = Paper("best-of-n", "2009.01325", "Learning to summarize from human feedback")
BRADLEY_TERRY_RM = Paper(
    "bradley-terry-rm", "2203.02155", "Training language models to follow instructions with human feedback"
)
BRAIN = Paper(
    "brain",
    "2402.02479",
    "BRAIn: Bayesian Reward-conditioned Amortized Inference for natural language generation from feedback",
)
B_CODER = Paper("b-coder", "2310.03173", "B-Coder: Value-Based Deep Reinforcement Learning for Program Synthesis")
CDPO = Paper("cdpo", "", "A note on DPO with noisy preferences & relationship to IPO")
CHI2_REGULARISATION = Paper(
    "chi2-regularisation",
    "2403.03185",
    "Correlated Proxies: A New Definition and Improved Mitigation for Reward Hacking",
)
CHORD = Paper(
    "chord", "2508.11408", "On-Policy RL Meets Off-Policy Experts: Harmonizing SFT and RL via Dynamic Weighting"
)
CISPO = Paper("cispo", "2506.13585", "MiniMax-M1: Scaling Test-Time Compute Efficiently with Lightning Attention")
CLIP_COV = Paper(
    "clip-cov", "2505.22617", "The Entropy Mechanism of Reinforcement Learning for Reasoning Language Models"
)
CONCISER = Paper("conciser", "2505.21178", "Walk Before You Run! Concise LLM Reasoning via Reinforcement Learning")
CONCISE_TWO_PHASE = Paper("concise-two-phase", "2504.05185", "Concise Reasoning via Reinforcement Learning")
COPG = Paper(
    "copg",
    "2406.19185",
    "Contrastive Policy Gradient: Aligning LLMs on sequence-level scores in a supervised-friendly fashion",
)
COPO = Paper("copo", "2508.04138", "COPO: Consistency-Aware Policy Optimization")
CPGD = Paper("cpgd", "2505.12504", "CPGD: Toward Stable Rule-based Reinforcement Learning for Language Models")
CPO = Paper(
    "cpo",
    "2401.08417",
    "Contrastive Preference Optimization: Pushing the Boundaries of LLM Performance in Machine Translation",
)
C_RLFT = Paper("c-rlft", "2309.11235", "OpenChat: Advancing Open-source Language Models with Mixed-Quality Data")
DAPO = Paper("dapo", "2503.14476", "DAPO: An Open-Source LLM Reinforcement Learning System at Scale")
DEAL = Paper("deal", "2402.06147", "DeAL: Decoding-time Alignment for Large Language Models")
DFT = Paper(
    "dft", "2508.05629", "On the Generalization of SFT: A Reinforcement Learning Perspective with Reward Rectification"
)
DIRECT_ADVANTAGE_PO = Paper(
    "direct-advantage-po",
    "2412.18279",
    "Improving Multi-Step Reasoning Abilities of Large Language Models with Direct Advantage Policy Optimization",
)
DIRECT_PREFERENCE_PPO = Paper(
    "direct-preference-ppo", "2301.12842", "Direct Preference-based Policy Optimization without Reward Modeling"
)
DISCO = Paper(
    "disco", "2505.12366", "DisCO: Reinforcing Large Reasoning Models with Discriminative Constrained Optimization"
)
DISCOPOP = Paper(
    "discopop", "2406.08414", "Discovering Preference Optimization Algorithms with and for Large Language Models"
)
DIVPO = Paper("divpo", "2501.18101", "Diverse Preference Optimization")
DNO = Paper(
    "dno", "2404.03715", "Direct Nash Optimization: Teaching Language Models to Self-Improve with General Preferences"
)
DPO = Paper("dpo", "2305.18290", "Direct Preference Optimization: Your Language Model is Secretly a Reward Model")
DPO_VP = Paper(
    "dpo-vp", "2503.12854", "Enhancing LLM Reasoning with Iterative DPO: A Comprehensive Empirical Investigation"
)
DR_GRPO = Paper("dr-grpo", "2503.20783", "Understanding R1-Zero-Like Training: A Critical Perspective")
DR_PO = Paper("dr-po", "2404.08495", "Dataset Reset Policy Optimization for RLHF")
DUAL_TOKEN_ARCHER = Paper(
    "dual-token-archer", "2507.15778", "Stabilizing Knowledge, Promoting Reasoning: Dual-Token Constraints for RLVR"
)
DVPO = Paper("dvpo", "2502.16944", "Lean and Mean: Decoupled Value Policy Optimization with Global Value Guidance")
EFT = Paper("eft", "2310.12962", "An Emulator for Fine-Tuning Large Language Models using Small Language Models")
ESRL = Paper("esrl", "2308.02223", "ESRL: Efficient Sampling-based Reinforcement Learning for Sequence Generation")
ESSA = Paper("essa", "2507.04453", "ESSA: Evolutionary Strategies for Scalable Alignment")
EXO = Paper("exo", "2402.00856", "Towards Efficient and Exact Optimization of Language Model Alignment")
FPO = Paper("fpo", "2411.07618", "Direct Preference Optimization Using Sparse Feature-Level Constraints")
F_DPO = Paper(
    "f-dpo",
    "2309.16240",
    "Beyond Reverse KL: Generalizing Direct Preference Optimization with Diverse Divergence Constraints",
)
GDPO = Paper(
    "gdpo",
    "2601.05242",
    "GDPO: Group reward-Decoupled Normalization Policy Optimization for Multi-reward RL Optimization",
)
GENARM = Paper(
    "genarm", "2410.08193", "GenARM: Reward Guided Generation with Autoregressive Reward Model for Test-time Alignment"
)
GHPO = Paper("ghpo", "2507.10628", "GHPO: Adaptive Guidance for Stable and Efficient LLM Reinforcement Learning")
GKD = Paper("gkd", "2306.13649", "On-Policy Distillation of Language Models: Learning from Self-Generated Mistakes")
GMPO = Paper("gmpo", "2507.20673", "Geometric-Mean Policy Optimization")
GPG = Paper("gpg", "2504.02546", "GPG: A Simple and Strong Reinforcement Learning Baseline for Model Reasoning")
GRAO = Paper(
    "grao", "2508.07750", "Learning to Align, Aligning to Learn: A Unified Approach for Self-Optimized Alignment"
)
GRPO = Paper("grpo", "2402.03300", "DeepSeekMath: Pushing the Limits of Mathematical Reasoning in Open Language Models")
GSPO = Paper("gspo", "2507.18071", "Group Sequence Policy Optimization")
HFT = Paper("hft", "2404.18466", "HFT: Half Fine-Tuning for Large Language Models")
HIGH_ENTROPY_TOKENS = Paper(
    "high-entropy-tokens",
    "2506.01939",
    "Beyond the 80/20 Rule: High-Entropy Minority Tokens Drive Effective Reinforcement Learning for LLM Reasoning",
)
HIR = Paper("hir", "2302.05206", "The Wisdom of Hindsight Makes Language Models Better Instruction Followers")
H_DPO = Paper("h-dpo", "2411.07595", "Entropy Controllable Direct Preference Optimization")
ICEPOP = Paper(
    "tis", "2510.18855", "Every Step Evolves: Scaling Reinforcement Learning for Trillion-Scale Thinking Model"
)
IFT = Paper("ift", "2405.11870", "Intuitive Fine-Tuning: Towards Simplifying Alignment into a Single Process")
INPO = Paper(
    "inpo",
    "2407.00617",
    "Iterative Nash Policy Optimization: Aligning LLMs with General Preferences via No-Regret Learning",
)
IPO = Paper("ipo", "2310.12036", "A General Theoretical Paradigm to Understand Learning from Human Preferences")
IPO_MD = Paper(
    "ipo-md", "2403.08635", "Human Alignment of Large Language Models through Online Preference Optimisation"
)
IQLEARN_LM = Paper("iqlearn-lm", "2409.01369", "Imitating Language via Scalable Inverse Reinforcement Learning")
KDRL = Paper(
    "kdrl",
    "2506.02208",
    "KDRL: Post-Training Reasoning LLMs via Unified Knowledge Distillation and Reinforcement Learning",
)
KTO = Paper("kto", "2402.01306", "KTO: Model Alignment as Prospect Theoretic Optimization")
LCPO = Paper(
    "lcpo", "2509.24159", "Latent Collective Preference Optimization: A General Framework for Robust LLM Alignment"
)
LD_DPO = Paper("ld-dpo", "2409.06411", "Length Desensitization in Direct Preference Optimization")
LETI = Paper("leti", "2305.10314", "LeTI: Learning to Generate from Textual Interactions")
LIPO = Paper("lipo", "2402.01878", "LiPO: Listwise Preference Optimization through Learning-to-Rank")
LITE_PPO = Paper("lite-ppo", "2508.08221", "Part I: Tricks or Traps? A Deep Dive into RL for LLM Reasoning")
LLAMARL = Paper(
    "llamarl",
    "2505.24034",
    "LlamaRL: A Distributed Asynchronous Reinforcement Learning Framework for Efficient Large-scale LLM Training",
)
LUFFY = Paper("luffy", "2504.14945", "Learning to Reason under Off-Policy Guidance")
MA_RLHF = Paper("ma-rlhf", "2410.02743", "MA-RLHF: Reinforcement Learning from Human Feedback with Macro Actions")
MEDS3 = Paper("meds3", "2501.12051", "MedS3: Towards Medical Small Language Models with Self-Evolved Slow Thinking")
MINILLM = Paper("minillm", "2306.08543", "MiniLLM: Knowledge Distillation of Large Language Models")
MIS = Paper("tis", "", "When Speed Kills Stability: Demystifying RL Collapse from the Training-Inference Mismatch")
MIXED_PO = Paper(
    "mixed-po",
    "2403.19443",
    "Mixed Preference Optimization: Reinforcement Learning with Data Selection and Better Reference Model",
)
MNPO = Paper("mnpo", "2509.23102", "Multiplayer Nash Preference Optimization")
NASH_MD = Paper("nash-md", "2312.00886", "Nash Learning from Human Feedback")
NCA = Paper("nca", "2402.05369", "Noise Contrastive Alignment of Language Models with Explicit Rewards")
NEFTTUNE = Paper("nefttune", "2310.05914", "NEFTune: Noisy Embeddings Improve Instruction Finetuning")
NFT = Paper("nft", "2505.18116", "Bridging Supervised Learning and Reinforcement Learning in Math Reasoning")
NLPO = Paper(
    "nlpo",
    "2210.01241",
    "Is Reinforcement Learning (Not) for Natural Language Processing: Benchmarks, Baselines, and Building Blocks",
)
ONLINE_DPO = Paper("online-dpo", "2402.04792", "Direct Language Model Alignment from Online AI Feedback")
ONLINE_ITERATIVE_DPO = Paper("online-iterative-dpo", "2405.07863", "RLHF Workflow: From Reward Modeling to Online RLHF")
OPD = Paper("opd", "", "On-Policy Distillation")
OPO = Paper("opo", "2505.23585", "On-Policy RL with Optimal Reward Baseline")
OREO = Paper("oreo", "2412.16145", "Offline Reinforcement Learning for LLM Multi-Step Reasoning")
ORPO = Paper("orpo", "2403.07691", "ORPO: Monolithic Preference Optimization without Reference Model")
P3O = Paper(
    "p3o", "2310.00212", "Pairwise Proximal Policy Optimization: Harnessing Relative Feedback for LLM Alignment"
)
PARTICLE_FILTERING = Paper(
    "particle-based-inference-scaling",
    "2502.01618",
    "A Probabilistic Inference Approach to Inference-Time Scaling of LLMs using Particle-Based Monte Carlo Methods",
)
PPO = Paper("ppo", "1707.06347", "Proximal Policy Optimization Algorithms")
PPO_MAX = Paper("ppo-max", "2307.04964", "Secrets of RLHF in Large Language Models Part I: PPO")
PREFIX_RFT = Paper("prefix-rft", "2507.01679", "Blending Supervised and Reinforcement Fine-Tuning with Prefix Sampling")
PRO = Paper("pro", "2306.17492", "Preference Ranking Optimization for Human Alignment")
Q_SHARP = Paper("q-sharp", "2502.20548", "Q#: Provably Optimal Distributional RL for LLM Post-Training")
R3 = Paper(
    "r3", "2402.05808", "Training Large Language Models for Reasoning through Reverse Curriculum Reinforcement Learning"
)
RAFT = Paper("raft", "2304.06767", "RAFT: Reward rAnked FineTuning for Generative Foundation Model Alignment")
RDPO = Paper("rdpo", "2403.00409", "Provably Robust DPO: Aligning Language Models with Noisy Feedback")
REBEL = Paper("rebel", "2404.16767", "REBEL: Reinforcement Learning via Regressing Relative Rewards")
REFT = Paper("reft", "2401.08967", "ReFT: Reasoning with Reinforced Fine-Tuning")
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
REST_MCTS = Paper("rest-mcts", "2406.03816", "ReST-MCTS*: LLM Self-Training via Process Reward Guided Tree Search")
RLGF = Paper("rlgf", "2306.11816", "Learning to Generate Better Than Your LLM")
RLM_BLUEPRINT = Paper("rlm-blueprint", "2501.11223", "Reasoning Language Models: A Blueprint")
RLOO = Paper(
    "rloo",
    "2402.14740",
    "Back to Basics: Revisiting REINFORCE Style Optimization for Learning from Human Feedback in LLMs",
)
RLSC = Paper("rlsc", "2506.06395", "Confidence Is All You Need: Few-Shot RL Fine-Tuning of Language Models")
RLSP = Paper("rlsp", "2502.06773", "On the Emergence of Thinking in LLMs I: Searching for the Right Intuition")
RL_PLUS = Paper(
    "rl-plus",
    "2508.00222",
    "RL-PLUS: Countering Capability Boundary Collapse of LLMs in Reinforcement Learning with "
    "Hybrid-policy Optimization",
)
RPO = Paper(
    "rpo",
    "2405.16436",
    "Provably Mitigating Overoptimization in RLHF: Your SFT Loss is Implicitly an Adversarial Regularizer",
)
RSO = Paper("rso", "2309.06657", "Statistical Rejection Sampling Improves Preference Optimization")
RTO = Paper("rto", "2404.18922", "DPO Meets PPO: Reinforced Token Optimization for RLHF")
R_MCTS = Paper("r-mcts", "2410.02052", "Improving Autonomous AI Agents with Reflective Tree Search and Self-Learning")
SALSA = Paper("salsa", "2411.01798", "SALSA: Soup-based Alignment Learning for Stronger Adaptation in RLHF")
SAPO_SWARM = Paper(
    "swarm-sapo", "2509.08721", "Sharing is Caring: Efficient LM Post-Training with Collective RL Experience Sharing"
)
SAPO = Paper("sapo", "2511.20347", "Soft Adaptive Policy Optimization")
SATORI = Paper(
    "satori",
    "2502.02508",
    "Satori: Reinforcement Learning with Chain-of-Action-Thought Enhances LLM Reasoning via Autoregressive Search",
)
SEGMENT_PO = Paper(
    "segment-po",
    "2505.23564",
    "Segment Policy Optimization: Effective Segment-Level Credit Assignment in RL for Large Language Models",
)
SELF_SUPERVISED_PO = Paper(
    "self-supervised-po",
    "2409.17791",
    "Self-supervised Preference Optimization: Enhance Your Language Model with Preference Degree Awareness",
)
SELM = Paper("selm", "2405.19332", "Self-Exploring Language Models: Active Preference Elicitation for Online Alignment")
SEMI_OFFLINE_RL = Paper(
    "semi-offline-rl", "2306.09712", "Semi-Offline Reinforcement Learning for Optimized Text Generation"
)
SEMI_ONLINE_DPO = Paper("semi-online-dpo", "2506.21495", "Bridging Offline and Online Reinforcement Learning for LLMs")
SFT = Paper("sft", "", "Supervised fine-tuning")
SIGMOID_APO = Paper(
    "sigmoid-apo",
    "2408.06266",
    "Anchored Preference Optimization and Contrastive Revisions: Addressing Underspecification in Alignment",
)
SIMPO = Paper("simpo", "2405.14734", "SimPO: Simple Preference Optimization with a Reference-Free Reward")
SLIC = Paper("slic", "2305.10425", "SLiC-HF: Sequence Likelihood Calibration with Human Feedback")
SPPO = Paper("sppo", "2405.00675", "Self-Play Preference Optimization for Language Model Alignment")
STEP_APO = Paper(
    "step-apo", "2409.08642", "CPL: Critical Plan Step Learning Boosts LLM Generalization in Reasoning Tasks"
)
SUPERHF = Paper("superhf", "2310.16763", "SuperHF: Supervised Iterative Learning from Human Feedback")
S_GRPO = Paper("s-grpo", "2505.07686", "S-GRPO: Early Exit via Reinforcement Learning in Reasoning Models")
T1 = Paper(
    "t1", "2501.11651", "T1: Advancing Language Model Reasoning through Reinforcement Learning and Inference Scaling"
)
TBA = Paper(
    "tba",
    "2503.18929",
    "Trajectory Balance with Asynchrony: Decoupling Exploration and Learning for Fast, Scalable LLM Post-Training",
)
TGDPO = Paper(
    "tgdpo", "2506.14574", "TGDPO: Harnessing Token-Level Reward Guidance for Enhancing Direct Preference Optimization"
)
TIS = Paper("tis", "", "Your Efficient RL Framework Secretly Brings You Off-Policy RL Training")
TOPR = Paper("topr", "2503.14286", "Tapered Off-Policy REINFORCE: Stable and efficient reinforcement learning for LLMs")
TPO = Paper(
    "tpo",
    "2405.16681",
    "Triple Preference Optimization: Achieving Better Alignment with Less Data in a Single Step Optimization",
)
TRANSFER_Q = Paper("transfer-q", "2405.20495", "Transfer Q Star: Principled Decoding for LLM Alignment")
TRPA = Paper(
    "trpa",
    "2504.04524",
    "Trust Region Preference Approximation: A simple and stable reinforcement learning algorithm for LLM reasoning",
)
TRPO = Paper("trpo", "1502.05477", "Trust Region Policy Optimization")
TR_DPO = Paper("tr-dpo", "2404.09656", "Learn Your Reference Model for Real Good Alignment")
T_REG = Paper("t-reg", "2412.02685", "T-REG: Preference Optimization with Token-Level Reward Regularization")
URIAL = Paper("urial", "2312.01552", "The Unlocking Spell on Base LLMs: Rethinking Alignment via In-Context Learning")
VAPO = Paper("vapo", "2504.05118", "VAPO: Efficient and Reliable Reinforcement Learning for Advanced Reasoning Tasks")
VAS = Paper("vas", "2405.06639", "Value Augmented Sampling for Language Model Alignment and Personalization")
VPO = Paper(
    "vpo", "2405.19320", "Value-Incentivized Preference Optimization: A Unified Approach to Online and Offline RLHF"
)
WPO = Paper("wpo", "2406.11827", "WPO: Enhancing RLHF with Weighted Preference Optimization")
XPO = Paper(
    "xpo",
    "2405.21046",
    "Exploratory Preference Optimization: Harnessing Implicit Q*-Approximation for Sample-Efficient RLHF",
)
