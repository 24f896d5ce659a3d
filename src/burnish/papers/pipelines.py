"""The papers of whole recipes, and of systems that are options of a run."""

from __future__ import annotations

from burnish.papers.paper import Paper

ASYNCFLOW = Paper(
    "asyncflow", "2507.01663", "AsyncFlow: An Asynchronous Streaming RL Framework for Efficient LLM Post-Training"
)
CHUNK_ROLLOUT = Paper("chunk-rollout", "2506.07900", "MiniCPM4: Ultra-Efficient LLMs on End Devices")
KIMI_K1_5 = Paper("kimi-k1-5", "2501.12599", "Kimi k1.5: Scaling Reinforcement Learning with LLMs")
LLAMA_NEMOTRON = Paper("llama-nemotron", "2505.00949", "Llama-Nemotron: Efficient Reasoning Models")
MIMO = Paper(
    "mimo-7b",
    "2505.07608",
    "MiMo: Unlocking the Reasoning Potential of Language Model -- From Pretraining to Posttraining",
)
QWEN2_5 = Paper("qwen2-5", "2412.15115", "Qwen2.5 Technical Report")
QWEN2_5_MATH = Paper(
    "qwen2-5-math",
    "2409.12122",
    "Qwen2.5-Math Technical Report: Toward Mathematical Expert Model via Self-Improvement",
)
TULU3 = Paper("tulu3", "2411.15124", "TÜLU 3: Pushing Frontiers in Open Language Model Post-Training")
CONSTITUTIONAL_AI = Paper("constitutional-ai", "2212.08073", "Constitutional AI: Harmlessness from AI Feedback")
