"""Which method of ours a configuration is for, and the options that belong to that choice."""

from __future__ import annotations

from burnish.methods.table import METHODS
from burnish.migrate.draft import Draft, Unread, truth

# LLaMA-Factory's stage, Axolotl's rl, verl's adv_estimator, TRL's trainers -> our method
METHOD_NAMES = {
    "pt": "sft",
    "rm": "reward_model",
    "reward": "reward_model",
    "prm": "process_reward_model",
    "sigmoid": "dpo",
    "gae": "ppo",
    "ppov2": "ppo",
    "rloov2": "rloo",
    "on_policy": "opd",
    "reinforce_plus_plus": "reinforce_pp",
    "reinforce_plus_plus_baseline": "reinforce_pp_baseline",
    "grpo_passk": "grpo",
    "onlinedpo": "online_dpo",
    "nashmd": "nash_md",
    "unsloth": "sft",
    "none": "sft",
}
# Losses on pairs: theirs -> our method, our name of beta, and what differs
PAIRS: dict[str, tuple[str, str, str]] = {
    "sigmoid": ("dpo", "beta", ""),
    "sigmoid_norm": ("dpo_norm", "beta", ""),
    "ipo": ("ipo", "tau", "our log-probs are summed over the reply, as in the paper; theirs are divided by its length"),
    "exo_pair": ("exo", "beta", ""),
    "nca_pair": ("nca", "beta", ""),
    "robust": ("rdpo", "beta", ""),
    "bco_pair": ("bco", "beta", "our rewards are less their running mean, as in the paper"),
    "aot": ("aot", "beta", ""),
    "aot_pair": ("aot", "beta", ""),
    "aot_unpaired": ("aot_unpaired", "beta", ""),
    "apo_zero": ("apo_zero", "beta", ""),
    "apo_down": ("apo_down", "beta", ""),
    "discopop": ("discopop", "beta", ""),
    "orpo": ("orpo", "lam", ""),
    "simpo": ("simpo", "beta", ""),
    "kto": ("kto", "beta", ""),
}
_POLICY = {  # TRL's loss_type of GRPO -> our method, and its name for the norm
    "grpo": ("grpo", "seq_mean"),
    "dapo": ("grpo", "token_mean"),
    "bnpo": ("grpo", "token_mean"),
    "dr_grpo": ("grpo", "constant"),
    "cispo": ("cispo", "token_mean"),
    "sapo": ("sapo", "seq_mean"),
}
_SAY = ("stage", "rl", "algorithm.adv_estimator", "method")
_LOSS_MODES = {
    "vanilla": "",
    "gspo": "gspo",
    "gpg": "gpg",
    "clip_cov": "clip_cov",
    "geo_mean": "gmpo",
    "cispo": "cispo",
}


def choose(draft: Draft, wanted: str | None) -> str:
    """The name of our method; ValueError where none is like theirs."""
    if wanted is None:
        return _chosen(draft)
    options, lines = dict(draft.options), dict(draft.lines)
    try:
        same = _chosen(draft) == wanted
    except ValueError:  # theirs is no method of ours
        same = False
    if not same:
        draft.options, draft.lines = options, lines
        of_axolotl = ("reward_model", "process_reward_model") if draft.library == "Axolotl" else ()
        for key in (*_SAY, *of_axolotl, "loss_type", "pref_loss", "dpo_loss_type"):
            draft.changed(draft.named(key), f"method {wanted}, by --method")
    return wanted


def _chosen(draft: Draft) -> str:
    if draft.library == "verl":
        return _of_verl(draft)
    word = _word(draft)
    if word in ("dpo", "orpo", "simpo", "ipo", "kto", "cpo"):
        return _of_pairs(draft, word)
    if word == "grpo":
        return _of_grpo(draft)
    if word == "sft":
        return _of_sft(draft)
    ours = METHOD_NAMES.get(word, word)
    if ours not in METHODS:
        raise ValueError(
            f"{_said_by(draft)} {word!r} is no method of burnish; say which one to take instead: --method NAME "
            "(burnish methods lists them)"
        )
    for key in ("stage", "rl", "method"):
        draft.same(draft.named(key), f"method {ours}")
    return ours


def _said_by(draft: Draft) -> str:
    return next((key for key in ("stage", "rl", "method", "trainer") if draft.named(key)), "the trainer")


def _word(draft: Draft) -> str:
    """The word of theirs for the method: of the trainer, the stage, or what the options tell."""
    if draft.given.method:
        return METHOD_NAMES.get(draft.given.method, draft.given.method)
    for key in ("method", "rl", "stage"):
        if draft.named(key):
            word = str(draft.flat[key]).lower()
            draft.same(key, f"method {METHOD_NAMES.get(word, word)}")
            return METHOD_NAMES.get(word, word)
    if draft.library == "Axolotl" and truth(draft.value("reward_model")):
        draft.same("reward_model", "method reward_model")
        return "reward_model"
    if draft.library == "Axolotl" and truth(draft.value("process_reward_model")):
        draft.same("process_reward_model", "method process_reward_model")
        return "process_reward_model"
    if draft.named("num_generations", "reward_funcs", "max_completion_length", "num_iterations"):
        return "grpo"
    losses = _listed(draft.value("loss_type"))
    if losses and losses[0] in _POLICY:
        return "grpo"
    if losses and losses[0] in PAIRS or draft.named("beta", "pref_beta", "precompute_ref_log_probs", "pref_loss"):
        return "dpo"
    return "sft"


def _listed(value: object) -> list[str]:
    return (
        [str(one).lower() for one in value]
        if isinstance(value, list | tuple)
        else [str(value).lower()]
        if value
        else []
    )


def _of_sft(draft: Draft) -> str:
    if draft.named("neftune_noise_alpha"):
        draft.carry(draft.named("neftune_noise_alpha"), "alpha", draft.value("neftune_noise_alpha"))
        draft.same(draft.named("loss_type"), "the NLL")
        return "neftune"
    key = draft.named("loss_type")
    if key and str(draft.flat[key]) == "dft" or truth(draft.value("use_dft_loss")):
        draft.same(key or draft.named("use_dft_loss"), "method dft")
        return "dft"
    if key and str(draft.flat[key]) not in ("nll", "chunked_nll"):
        raise ValueError(f"loss_type {draft.flat[key]!r} of SFT is no loss of burnish; the losses are nll and dft")
    draft.same(key, "the NLL, a mean over the tokens of a batch")
    return "sft"


def _of_pairs(draft: Draft, word: str) -> str:
    """The method of a loss on pairs, and its beta."""
    key = draft.named("pref_loss", "loss_type", "dpo_loss_type")
    usual = {"dpo": "sigmoid"}.get(word, word)
    losses = _listed(draft.flat[key]) if key and word in ("dpo", "cpo", "kto") else [usual]
    first = {"dpo": losses[0], "cpo": "cpo" if losses[0] in ("sigmoid", "cpo") else losses[0]}.get(word, word)
    if word == "cpo" and first == "cpo":
        ours, name, how = "cpo", "beta", ""
    elif first in PAIRS:
        ours, name, how = PAIRS[first]
    else:
        raise ValueError(
            f"{key} {first!r} is no loss on pairs of burnish; say which method to take instead: --method NAME "
            "(burnish methods lists them)"
        )
    if word == "kto" and losses[0] not in ("kto", "sigmoid"):
        raise ValueError(f"loss_type {losses[0]!r} of KTO is no loss of burnish; --method kto takes KTO's own")
    text = f"method {ours}"
    rest = [one for one in losses[1:] if one != "sft"]
    if rest:
        text += f"; of several losses the first is taken, without {', '.join(rest)}"
    if "sft" in losses[1:]:
        text += "; the loss sft is a term of it (swap)"
    if key is not None:
        (draft.changed if how or len(losses) > 1 else draft.same)(key, f"{text}; {how}" if how else text)
    beta = draft.named("beta", "pref_beta", "rl_beta", "dpo_beta", "orpo_alpha", "kto_beta")
    value = draft.flat[beta] if beta else None
    if isinstance(value, list):
        value = value[0]
    if beta is not None:
        draft.carry(beta, name, value, how)
    return ours


def _of_grpo(draft: Draft) -> str:
    level, loss = draft.named("importance_sampling_level"), draft.named("loss_type")
    word = (_listed(draft.flat[loss]) or ["dapo"])[0] if loss else "dapo"
    if level and str(draft.flat[level]) == "sequence":
        draft.same(level, "method gspo: one ratio for a whole reply")
        if loss and word != "grpo":
            draft.changed(loss, "gspo's mean is over replies, as theirs is with loss_type grpo")
        draft.same(loss, "gspo's mean is over replies")
        return "gspo"
    draft.same(level, "a ratio for each token")
    if word not in _POLICY:
        raise ValueError(
            f"{loss} {word!r} is no loss of burnish; say which method to take instead: --method NAME "
            "(burnish methods lists them)"
        )
    ours, norm = _POLICY[word]
    text = {"seq_mean": "a mean over replies of means over tokens", "token_mean": "a mean over the batch's tokens"}
    how = text.get(norm, "sums over tokens / (replies x max_new_tokens)")
    if word == "bnpo":
        draft.changed(loss, f"{how}; theirs is a mean within each micro-batch")
    draft.same(loss, f"method {ours}, {how}")
    draft.options["norm"] = norm  # for losses.py
    return ours


def _of_verl(draft: Draft) -> str:
    if draft.given.method == "sft" or "model.partial_pretrain" in draft.flat:
        return "sft"
    key = draft.named("algorithm.adv_estimator")
    value = draft.value("algorithm.adv_estimator", default="gae")
    word = str(value).lower()
    mode = str(draft.value("actor_rollout_ref.actor.policy_loss.loss_mode", default="vanilla")).lower()
    if isinstance(value, Unread) or mode not in _LOSS_MODES:
        draft.leave(
            "actor_rollout_ref.actor.policy_loss.loss_mode", "burnish has no such loss; the method's own is used"
        )
        mode = "vanilla"
    name = "actor_rollout_ref.actor.policy_loss.loss_mode"
    if _LOSS_MODES[mode]:
        draft.same(key, f"advantages of {word}")
        draft.same(name, f"method {_LOSS_MODES[mode]}")
        return _LOSS_MODES[mode]
    draft.same(name, "the clipped surrogate")
    if word == "rloo":
        draft.changed(key, "method grpo with group_relative=leave_one_out() (swap): their RLOO keeps PPO's clip")
        draft.options["baseline"] = "leave_one_out()"
        return "grpo"
    ours = METHOD_NAMES.get(word, word)
    if ours not in METHODS:
        raise ValueError(
            f"algorithm.adv_estimator {word!r} is no method of burnish; say which one to take instead: --method NAME "
            "(burnish methods lists them)"
        )
    if word == "remax":
        draft.changed(key, "method remax: ours has no ratio and no clip, and makes one update of a batch")
    draft.same(key, f"method {ours}")
    return ours
