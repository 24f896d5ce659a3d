"""Their defaults, written where a file leaves an option out and ours would train something else.

By library and method; "" is any method. TRL is version 1.16; LLaMA-Factory, Axolotl and verl are as documented.
"""

from __future__ import annotations

from burnish.migrate.draft import Draft, Flat

BATCH = {"TRL": 8, "Unsloth": 8, "LLaMA-Factory": 8, "Axolotl": 1, "verl": 1024}
_TRL_LR = {"sft": 2e-5, "dft": 2e-5, "neftune": 2e-5, "reward_model": 1e-4, "online_dpo": 5e-7, "ppo": 5e-5}
_TRL: dict[str, Flat] = {
    "": {"lr_schedule": "linear", "epochs": 3},
    "grpo": {"n": 8, "beta": 0.0, "max_new_tokens": 512},
    "gspo": {"n": 8, "max_new_tokens": 512, "eps_low": 0.2, "eps_high": 0.2, "minibatches": 1},
    "cispo": {"n": 8, "max_new_tokens": 512, "minibatches": 1},
    "sapo": {"n": 8, "max_new_tokens": 512, "minibatches": 1},
    "rloo": {"n": 2, "beta": 0.05, "max_new_tokens": 512},
    "online_dpo": {"max_new_tokens": 64, "temperature": 0.9},
    "ppo": {"max_new_tokens": 53, "temperature": 0.7, "value_coef": 0.1},
    "simpo": {"gamma": 0.5, "beta": 0.1},
    "orpo": {"lam": 0.1},
    "ipo": {"tau": 0.1},
    "nca": {"beta": 0.1},
    "aot": {"beta": 0.1},
    "aot_unpaired": {"beta": 0.1},
    "discopop": {"beta": 0.1},
}
_GIVEN = (
    "sft",
    "dft",
    "neftune",
    "dpo",
    "kto",
    "ipo",
    "exo",
    "nca",
    "rdpo",
    "bco",
    "aot",
    "aot_unpaired",
    "apo_zero",
    "apo_down",
    "discopop",
    "dpo_norm",
    "reward_model",
    "orpo",
    "cpo",
    "simpo",
)
_VERL_PPO: Flat = {"value_eps": 0.5, "value_coef": 1.0, "lam": 1.0, "updates": 1, "critic_lr": 10.0}
DEFAULTS: dict[str, dict[str, Flat]] = {
    "TRL": _TRL,
    "LLaMA-Factory": {
        "": {"lr": 5e-5, "lr_schedule": "linear", "epochs": 3, "max_length": 2048, "on_long": "truncate"},
        "simpo": {"gamma": 0.5, "beta": 0.1},
        "ppo": {"max_new_tokens": 1024, "value_coef": 0.1},
    },
    "Axolotl": {
        "": {"lr_schedule": "cosine", "epochs": 1, "lr_warmup": 0.03, "max_length": 512, "on_long": "drop"},
        "grpo": _TRL["grpo"],
        "simpo": {"gamma": 0.5, "beta": 0.1},
    },
    "verl": {
        "": {"lr": 1e-6, "n": 1, "max_new_tokens": 512, "epochs": 30, "weight_decay": 0.01},
        "grpo": {"max_length": 1024, "on_long": "stop"},
        "ppo": {"max_length": 1024, "on_long": "stop", **_VERL_PPO},
        "sft": {
            "epochs": 1,
            "lr": 1e-5,
            "lr_schedule": "cosine",
            "lr_warmup": 0.1,
            "max_length": 1024,
            "on_long": "stop",
            "n": None,
            "max_new_tokens": None,
        },
    },
}


def defaults(draft: Draft) -> None:
    """Write their defaults into options that the file leaves out, with one note."""
    library = "TRL" if draft.library == "Unsloth" else draft.library
    table: Flat = {**DEFAULTS[library][""], **DEFAULTS[library].get(draft.method, {})}
    if library == "TRL":
        table.setdefault("lr", _TRL_LR.get(draft.method, 1e-6))
        if draft.method in _GIVEN and draft.library != "Unsloth":
            long = "drop" if draft.method == "reward_model" else "truncate"
            table |= {"max_length": 1024, "on_long": long}
    if draft.method == "reward_model" and library == "LLaMA-Factory":
        table["on_long"] = "truncate"
    if {"lr_warmup", "steps"} & draft.options.keys() and table.get("lr_warmup") and "lr_warmup" in draft.options:
        table.pop("lr_warmup")
    written = []
    for key, value in table.items():
        if value is None or (key == "epochs" and "steps" in draft.options):
            continue
        if key == "on_long" and "max_length" in draft.options and "on_long" in draft.options:
            continue
        if key in draft.known and key not in draft.options:
            draft.options[key] = value
            written.append(f"{key} {value:g}" if isinstance(value, float) else f"{key} {value}")
    if written:
        name = draft.library
        draft.notes.append(f"not in the file, so {name}'s defaults are written: {', '.join(written)}")
