"""Every registered method beats its starting point on the embedded model in a few seconds: reversal, eight steps.

The margin is 12 points on 200 held-out tasks; most gain 40 or more (benchmarks/curves.json has longer runs). Options
that differ from the defaults are named with their reason: papers' defaults suit larger models and longer runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import burnish
from burnish.compare.helpers import TRAINED_BY, needs
from burnish.methods.table import METHODS, load_all

load_all()
MARGIN = 0.12
FAST: dict[str, Any] = {"task": "reverse", "steps": 8, "prompts": 8, "eval_every": 0, "save_every": 0, "device": "cpu"}
PAIRS: dict[str, Any] = {"steps": 12, "lr": 5e-5}  # five times their default learning rate: 12 steps are enough
FREE: dict[str, Any] = {"temperature": 1.0, "top_p": 1.0}
OTHERWISE: dict[str, dict[str, Any]] = {
    **dict.fromkeys(
        (
            "alphapo",
            "aot",
            "aot_unpaired",
            "apo_down",
            "apo_zero",
            "bco",
            "cdpo",
            "cpo",
            "direct_preference_ppo",
            "dpo",
            "exo",
            "exo_rewards",
            "f_dpo",
            "fpo",
            "h_dpo",
            "ipo",
            "lcpo",
            "ld_dpo",
            "lipo",
            "nca_rewards",
            "pro",
            "rdpo",
            "rpo",
            "simpo",
            "slic",
            "t_reg",
            "tgdpo",
            "tpo",
            "vpo_offline",
            "wpo",
        ),
        PAIRS,
    ),
    "accelerated_po": {**PAIRS, "sync": 4},
    "brain": {**PAIRS, "sync": 4},
    "discopop": {**PAIRS, "tau": 1.0},  # at 0.05 it begins on a bump of its loss (its page says where)
    "divpo": {**PAIRS, "n": 8},
    "eva": {**PAIRS, "n": 4},  # its first round: tiny cannot rewrite prompts
    "dno": {**PAIRS, "sync": 4, **FREE},
    "dno_soft": {**PAIRS, "sync": 4},
    "dpo_vp": {**PAIRS, "sync": 4},
    "inpo": {**PAIRS, "sync": 4},
    "ipo_md": {**PAIRS, "n": 4},
    "kto": {**PAIRS, "lr": 1e-4},
    "mixed_po": {**PAIRS, "switch": 8, "n": 4},
    "mnpo": {**PAIRS, "sync": 4, **FREE},
    "nca": {**PAIRS, "lr": 1e-4},
    "online_dpo": {**PAIRS, "n": 4},
    "online_ipo": {**PAIRS, "n": 4},
    "online_iterative_dpo": {**PAIRS, "sync": 4},
    "rso": {**PAIRS, "n": 16, "temperature": 1.0, "top_k": 0},
    "selm": {**PAIRS, "sync": 4},
    "self_supervised_po": {**PAIRS, "levels": 1},
    "semi_online_dpo": {**PAIRS, "sync": 4},
    "sppo": {**PAIRS, "sync": 4, **FREE},  # at 0.7 tiny makes no mistake here
    "tr_dpo": {**PAIRS, "sync": 4},
    "trpa": {**PAIRS, "n": 8},
    "vpo": {**PAIRS, "n": 4},
    "xpo": {**PAIRS, "n": 4},
    "a2c": {"n": 8, "lookahead": 100, "entropy": 0.0},  # one reply a prompt is too noisy at this size
    "a_lol": {"value_steps": 2, "n": 2},  # a few steps for what comes first
    "a_lol_seq": {"value_steps": 2, "n": 2},
    "a_lol_ref_free": {"value_steps": 2, "n": 2},
    "b_coder": {"value_steps": 3, "steps": 12},
    "cgpo_codpo": PAIRS,
    "constrained_rlhf": {"thresholds": "correct=1.0", "n": 4},
    "dynamic_control": {"rewards": "correct", "levels": "0"},
    "copg": {"steps": 30, "prompts": 16},  # regression at a tenth of the learning rate
    "copg_online": {"steps": 30, "prompts": 16},
    "dapo": {"refills": 0},  # at this size nearly every group ties in the end
    "dr_po": {"n": 8, "updates": 1},
    "dvpo": {"value_steps": 10, "steps": 20, "n": 4, "updates": 2},
    "hir": {"smoothing": 0.0, "n": 8, "updates": 2, "steps": 12},  # what smoothing spreads, free sampling draws
    "ift": {"steps": 16},
    "p3o": {"steps": 12},
    "p3o_separate": {"steps": 12},
    "ppo": {"n": 4},
    "pf_ppo": {"n": 8},
    "ppo_max": {"n": 4, "critic_warmup": 2},
    "rebel": {"steps": 20},
    "rlep": {"n": 8, "collect_steps": 4, "steps": 12, "minibatches": 1},
    "rlsp": {"steps": 12},
    "rto": {"n": 4, "steps": 20},
    "salsa": {"n": 4},
    "semi_offline_rl": {"static": "chosen", "n": 8, "steps": 12},  # a wrong static reply is hardly ever filled right
    "spo_chain": {"temperature": 1.0, "n": 4, "probes": 4},  # at 0.6 most replies are right and little is left to learn
    "spo_tree": {"temperature": 1.0},
    "chi2_ppo": {"n": 4},
    "vapo": {"n": 8, "value_warmup": 2},
    "meds3": {"simulations": 4},
    "step_apo": {**PAIRS, "warmup": 2, "rounds": 16},
    "satori": {"steps": 20, "prompts": 16},
}
NOT_HERE = {
    **dict.fromkeys(
        ("filtered_bc", "oracle_bc", "ilql", "mc_returns"),
        "it reads recorded games: tests/methods/test_offline_agents.py",
    ),
    **dict.fromkeys(("eft", "particle_filter"), "it needs a model that was tuned or scores steps: docs/decoding.md"),
    **dict.fromkeys(
        ("meds3_answer", "rest_mcts_search", "rlm_blueprint_search"), "it needs a model of values: docs/tree-search.md"
    ),
    **dict.fromkeys(("vas", "q_sharp"), "it needs a value model: docs/decoding.md has runs"),
    **dict.fromkeys(("vas_value", "q_sharp_value"), "it trains a value model, which answers nothing: docs/decoding.md"),
    "essa": "it starts from the adapters of an SFT run: docs/evolution.md has runs, tests/zoo/test_essa.py one",
    "urial": "tiny answers questions of its tasks alone, without a text before them: docs/decoding.md",
    "deal": "the best beams of tiny are right as they are: docs/decoding.md has a harder task",
    "genarm_rm": "it guides another model, and is a worse one itself: docs/decoding.md",
    "moe_lm": "it plays games for minutes: tests/e2e/test_episodes_learned.py",
    "archer": "it plays games for minutes on two cores: benchmarks/curves.json has it, 46% to 84%",
    "direct_advantage_po": "after a few steps its critic tells no two next steps apart by 0.1, so nothing is learned",
    "refusal_classifier": "it needs replies with labels: tests/zoo/test_refusal_composition.py has a run",
    "serl": "tiny cannot write prompts: docs/curricula.md has a run with a policy that can",
    "teams_rl": "tiny cannot rewrite instructions: docs/curricula.md has a run with a model that can",
    "leti": "a round of a hundred samples a task is what it needs: +7 points after twenty steps",
    "nlpo": "it answers well under its mask (rewards reach 100%), and is judged here without it: +3 points",
    "global_value_model": "it trains a value model, whose error on held-out data is no accuracy",
    "pangu_agent": "it plays games: docs/agent-rewards.md has its numbers",
    "rag_rl": "it answers from passages: docs/agent-rewards.md has its numbers",
    "self_debug": "it corrects programs: docs/agent-rewards.md has its numbers",
    "self_regulating": "it trains a classifier of states, which answers nothing",
    "user_simulator": "it is a user of a robot: docs/agent-rewards.md has its numbers",
}
NOT_HERE |= dict.fromkeys(
    ("agentrefine", "stepagent", "stepagent_inverse"),
    "it reads an expert's episodes: tests/zoo/test_agent_imitation.py",
)
NOT_HERE |= {
    name: "it plays games: docs/agents.md, agent-credit.md and agent-search.md have numbers"
    for name, entry in METHODS.items()
    if name not in NOT_HERE and str(entry.trial.get("task", "")).startswith("guess")
}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What some methods start from: a teacher, a reward model, a DPO policy, all trained in seconds."""
    found = {}
    for kind, method in TRAINED_BY.items():
        out = tmp_path_factory.mktemp(kind) / "run"
        found[kind] = str(burnish.train(method, **{**FAST, "eval_tasks": 0, "steps": 20}, out=str(out)).model)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(METHODS) - set(NOT_HERE)))
def test_it_beats_its_start(name: str, models: dict[str, str], tmp_path: Path) -> None:
    options = {**FAST, **OTHERWISE.get(name, {})}
    options |= {key: models[kind] for key, kind in needs(METHODS[name]).items()}
    result = burnish.train(name, out=str(tmp_path / "run"), **options)
    assert result.before is not None and result.after is not None
    assert result.after.as_sampled.mean - result.before.as_sampled.mean > MARGIN


def test_the_exceptions_are_methods() -> None:
    assert set(OTHERWISE) | set(NOT_HERE) <= set(METHODS)
