"""The table of commands."""

from __future__ import annotations

# name -> (module of burnish.commands with a function `main(words)`, help text)
COMMANDS: dict[str, tuple[str, str]] = {
    "train": ("train", "train a model; measure it on held-out tasks"),
    "recipe": ("recipe", "several stages (SFT, pairs, DPO, RL, ...) from one file"),
    "plan": ("plan", "the GPU memory that a run will need, before it is loaded"),
    "methods": ("methods", "list the methods"),
    "show": ("show", "one method: paper, formula, composition, flags"),
    "tasks": ("tasks", "list the tasks, or show one"),
    "rewards": ("rewards", "rewards, verifiers and reward shapes by name"),
    "papers": ("papers", "every implemented paper, with its command"),
    "models": ("models", "list the named models, or fetch one"),
    "eval": ("evaluate", "pass@k and majority@k of a model on a task"),
    "eval-reward": ("eval_reward", "can a reward be trusted: accuracy, calibration, best-of-n"),
    "arena": ("arena", "battles between models, judged in both orders, and their Elo"),
    "refusals": ("refusals", "why the replies of a dataset refuse, by a classifier"),
    "pairs": ("pairs", "preference data from a model, a task and a scorer"),
    "decontaminate": ("decontaminate", "training rows without those that evaluations contain"),
    "rate": ("rate", "how hard each prompt is for a model, as columns of a file"),
    "toggle": ("toggle", "demonstrations that think or not, as the system message says"),
    "steps": ("steps", "labelled steps from a model, a task and its verifier"),
    "imagine": ("imagine", "dialogues with rewards from the description of a task"),
    "tests": ("tests", "make, filter and measure tests of programming problems"),
    "import": ("imported", "turn a configuration of TRL, LLaMA-Factory, verl, ... into ours"),
    "runs": ("runs", "list the runs, show or export one, pause or stop one"),
    "ui": ("ui", "the dashboard: curves, health, and every trace, in a browser"),
    "report": ("report", "one run as a self-contained HTML page, and as Markdown"),
    "serve": ("serve", "an OpenAI-compatible endpoint for a model"),
    "chat": ("chat", "talk to a model"),
    "compare": ("compare", "methods under one budget, with confidence intervals"),
    "sweep": ("sweep", "hyperparameter search over a method's flags"),
    "ablate": ("ablate", "ablation: disable a method's parts in turn"),
    "check": ("check", "what is installed or missing, and whether one step runs"),
    "doctor": ("doctor", "check a run folder for damage, and print how to resume it"),
    "completion": ("completion", "print a script for the shell: bash, zsh or fish"),
}
