"""The papers whose claims are tested by studies (docs/studies.md)."""

from __future__ import annotations

from burnish.papers.paper import Paper

ALL = (
    Paper(
        "1-shot-rlvr",
        "2504.20571",
        "Reinforcement Learning for Reasoning in Large Language Models with One Training Example",
    ),
    Paper(
        "acereason-nemotron-1-1",
        "2506.13284",
        "AceReason-Nemotron 1.1: Advancing Math and Code Reasoning through SFT and RL Synergy",
    ),
    Paper("balrog", "2411.13543", "BALROG: Benchmarking Agentic LLM and VLM Reasoning On Games"),
    Paper(
        "clip-interpolation-sharpness",
        "2410.16476",
        "In Search of the Successful Interpolation: On the Role of Sharpness in CLIP Generalization",
    ),
    Paper(
        "conjugate-prompting",
        "2309.10105",
        "Understanding Catastrophic Forgetting in Language Models via Implicit Inference",
    ),
    Paper("demonstration-regularized-rl", "2310.17303", "Demonstration-Regularized RL"),
    Paper("dpo-survey", "2503.11701", "A Survey of Direct Preference Optimization"),
    Paper(
        "dpo-variants-evaluation",
        "2404.14723",
        "Insights into Alignment: Evaluating DPO and its Variants Across Multiple Tasks",
    ),
    Paper("echo-chamber", "2504.07912", "Echo Chamber: RL Post-training Amplifies Behaviors Learned in Pretraining"),
    Paper("evolm", "2506.16029", "EvoLM: In Search of Lost Language Model Training Dynamics"),
    Paper(
        "fine-tuning-vs-cot-faithfulness",
        "2411.15382",
        "On the Impact of Fine-Tuning on Chain-of-Thought Reasoning",
    ),
    Paper(
        "four-habits-cognitive-behaviours",
        "2503.01307",
        "Cognitive Behaviors that Enable Self-Improving Reasoners, or, Four Habits of Highly Effective STaRs",
    ),
    Paper(
        "gradient-entanglement",
        "2410.13828",
        "A Common Pitfall of Margin-based Language Model Alignment: Gradient Entanglement",
    ),
    Paper("kl-rl-as-bayesian-inference", "2205.11275", "RL with KL penalties is better viewed as Bayesian inference"),
    Paper(
        "likelihood-over-optimisation",
        "2410.11677",
        "Understanding Likelihood Over-optimisation in Direct Alignment Algorithms",
    ),
    Paper("m-rewardbench", "2410.15522", "M-RewardBench: Evaluating Reward Models in Multilingual Settings"),
    Paper(
        "noisy-rewards-rpr",
        "2505.22653",
        "The Climb Carves Wisdom Deeper Than the Summit: On the Noisy Rewards in Learning to Reason",
    ),
    Paper(
        "objective-mismatch",
        "2311.00168",
        "The Alignment Ceiling: Objective Mismatch in Reinforcement Learning from Human Feedback",
    ),
    Paper("octothinker", "2506.20512", "OctoThinker: Mid-training Incentivizes Reinforcement Learning Scaling"),
    Paper(
        "okapi",
        "2307.16039",
        "Okapi: Instruction-tuned Large Language Models in Multiple Languages with Reinforcement "
        "Learning from Human Feedback",
    ),
    Paper(
        "on-policy-negative-gradient-study",
        "2404.14367",
        "Preference Fine-Tuning of LLMs Should Leverage Suboptimal, On-Policy Data",
    ),
    Paper("pedagogical-alignment", "2402.05000", "Pedagogical Alignment of Large Language Models"),
    Paper(
        "recon",
        "2506.00577",
        "Reasoning Like an Economist: Post-Training on Economic Problems Induces Strategic Generalization in LLMs",
    ),
    Paper(
        "rlhf-as-online-irl",
        "2310.06147",
        "Reinforcement Learning in the Era of LLMs: What is Essential? What is needed? An RL "
        "Perspective on RLHF, Prompting, and Beyond",
    ),
    Paper(
        "rlhf-generalisation-diversity-study",
        "2310.06452",
        "Understanding the Effects of RLHF on LLM Generalisation and Diversity",
    ),
    Paper(
        "seed-bench-r1-study",
        "2503.24376",
        "Exploring the Effect of Reinforcement Learning on Video Understanding: Insights from SEED-Bench-R1",
    ),
    Paper(
        "sft-memorizes-rl-generalizes",
        "2501.17161",
        "SFT Memorizes, RL Generalizes: A Comparative Study of Foundation Model Post-training",
    ),
    Paper(
        "sparkle",
        "2506.04723",
        "Beyond Accuracy: Dissecting Mathematical Reasoning for LLMs Under Reinforcement Learning",
    ),
    Paper(
        "synergy-dilemma",
        "2507.07562",
        "The Synergy Dilemma of Long-CoT SFT and RL: Investigating Post-Training Techniques for Reasoning VLMs",
    ),
    Paper("teacher-hacking", "2502.02671", "On Teacher Hacking in Language Model Distillation"),
    Paper(
        "teaching-llms-to-reason-with-rl",
        "2403.04642",
        "Teaching Large Language Models to Reason with Reinforcement Learning",
    ),
    Paper("web-agent-statistical-diagnosis", "2507.04103", "How to Train Your LLM Web Agent: A Statistical Diagnosis"),
    Paper("wingpt-3-0", "2505.17387", "WiNGPT-3.0 Technical Report"),
)
