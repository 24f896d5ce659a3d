"""How theirs average the loss, clip the ratio, hold the policy near the reference and scale advantages.

What our method does in another way becomes parts that replace its own (--swap).
"""

from __future__ import annotations

from typing import Any

from burnish.migrate.draft import Draft, truth

_ACTOR = "actor_rollout_ref.actor."
_AGGREGATED = {
    "token-mean": "token_mean",
    "seq-mean-token-sum": "seq_sum_mean",
    "seq-mean-token-mean": "seq_mean",
    "seq-mean-token-sum-norm": "constant",
}
_OWN = {"grpo": "seq_mean", "ppo": "token_mean", "reinforce_pp": "token_mean", "reinforce_pp_baseline": "token_mean"}
_THEIRS = {"gspo": "seq_mean", "gmpo": "seq_mean", "remax": "token_mean"}
_IN_REWARD = {"ppo": "kl", "reinforce_pp": "beta", "remax": "beta"}  # verl's methods whose KL stands in the reward
_SCALED = ("grpo", "cispo", "sapo", "gspo")
_IN_LOSS = {"grpo": "beta", "reinforce_pp_baseline": "beta"}


def losses(draft: Draft) -> None:
    """Set the options and swaps of the loss."""
    swaps: list[str] = []
    norm = draft.options.pop("norm", None)
    baseline = draft.options.pop("baseline", None)
    if draft.library == "verl" and draft.method != "sft":
        norm = _of_verl(draft)
    if draft.method in _OWN:
        swaps += _clip(draft, norm or _OWN[draft.method])
    elif "eps_high" in draft.known or "eps" in draft.known:
        _plain_clip(draft)
        if draft.method == "cispo":
            swaps += _held_ratio(draft)
    if baseline:
        swaps.append(f"group_relative={baseline}")
    swaps += _scaled(draft)
    swaps += _pairs(draft)
    if swaps:
        draft.options["swap"] = "; ".join(swaps)


def _of_verl(draft: Draft) -> str:
    """The norm of verl's loss; its KL, which has two switches: one in the loss and one in the reward."""
    key = draft.named(f"{_ACTOR}loss_agg_mode")
    word = str(draft.value(f"{_ACTOR}loss_agg_mode", default="token-mean"))
    if key is not None and word not in _AGGREGATED:
        draft.leave(key, f"the means of burnish are {', '.join(_AGGREGATED)}; token-mean is used")
    norm = _AGGREGATED.get(word, "token_mean")
    if draft.method not in _OWN and norm != _THEIRS.get(draft.method):
        draft.changed(key, f"{draft.method} averages in its own way (burnish show {draft.method})")
    draft.same(key, f"norm {norm}")
    loss, reward = truth(draft.value(f"{_ACTOR}use_kl_loss")), truth(draft.value("algorithm.use_kl_in_reward"))
    _kl(draft, f"{_ACTOR}use_kl_loss", f"{_ACTOR}kl_loss_coef", loss, _IN_LOSS, "loss")
    _kl(draft, "algorithm.use_kl_in_reward", "algorithm.kl_ctrl.kl_coef", reward, _IN_REWARD, "reward")
    _estimator(draft, loss)
    fixed = str(draft.value("algorithm.kl_ctrl.type", default="fixed")) == "fixed"
    (draft.same if fixed else draft.leave)(draft.named("algorithm.kl_ctrl.type"), "the coefficient of the KL is fixed")
    return norm


def _estimator(draft: Draft, on: bool) -> None:
    """k3 in grpo (or k2, by swap), k2 in reinforce_pp_baseline."""
    key = draft.named(f"{_ACTOR}kl_loss_type")
    word = str(draft.value(f"{_ACTOR}kl_loss_type", default="low_var_kl"))
    theirs = {"low_var_kl": "k3", "k3": "k3", "mse": "k2", "k2": "k2"}.get(word)
    ours = {"grpo": ("k3", "k2"), "reinforce_pp_baseline": ("k2",)}.get(draft.method, ())
    if not on:
        draft.same(key, "its KL is off")
    elif theirs in ours:
        draft.same(key, f"the KL is estimated by {theirs}")
    elif ours:
        draft.leave(key, f"the KL is estimated by {ours[0]}")
        if key is None:
            draft.notes.append(f"verl estimates the KL by k3 (low_var_kl), {draft.method} by {ours[0]}")
    draft.leave(key, f"{draft.method} has no KL in the loss")


def _kl(draft: Draft, switch: str, coefficient: str, on: bool, where: dict[str, str], place: str) -> None:
    ours = where.get(draft.method)
    if not on:
        if ours is not None:
            draft.options.setdefault(ours, 0.0)
        draft.same(switch, "off, here too")
        draft.same(coefficient, "its KL is off")
        return
    if ours is None:
        for key in (switch, coefficient):
            draft.leave(key, f"{draft.method} has no KL in the {place}")
        return
    draft.options[ours] = draft.value(coefficient, default=0.001)
    draft.same(switch, f"the KL stands in the {place}")
    draft.same(coefficient, ours)


def _clip(draft: Draft, norm: str) -> list[str]:
    """pg_clip with their range, second clip and norm, where our method has not these by itself."""
    low_key = draft.named("epsilon", "cliprange", f"{_ACTOR}clip_ratio_low", f"{_ACTOR}clip_ratio")
    high_key = draft.named("epsilon_high", f"{_ACTOR}clip_ratio_high")
    dual_key = draft.named("delta", f"{_ACTOR}clip_ratio_c")
    low = draft.flat[low_key] if low_key else 0.2
    high = draft.flat[high_key] if high_key else low
    dual = draft.flat[dual_key] if dual_key else 3.0 if draft.library == "verl" else None
    beta = draft.options.get("beta") or 0
    alone = f"{_ACTOR}clip_ratio"
    if low_key == alone and draft.library == "verl":
        draft.changed(
            alone, "swap: pg_clip; in verl clip_ratio_low and clip_ratio_high (both 0.2) take precedence over it"
        )
    elif draft.named(alone) and low_key != alone:
        draft.same(alone, "clip_ratio_low and clip_ratio_high take precedence")
    if beta and draft.library in ("TRL", "Unsloth") and truth(draft.value("use_bias_correction_kl", default=True)):
        draft.notes.append(
            "TRL multiplies the KL by the ratio of the policies (use_bias_correction_kl); ours is plain k3"
        )
    if norm == _OWN[draft.method] and _number(high) == _number(low) and dual is None:
        if low_key:
            draft.carry(low_key, "eps", low)
        draft.same(high_key, "eps, on both sides")
        return []
    arguments = f"{_plain(low)}, {_plain(high)}" if high != low else f"{_plain(low)}"
    arguments += f", dual={_plain(dual)}" if dual is not None else ""
    for key in (low_key, high_key, dual_key):
        draft.same(key, "swap: pg_clip")
    swaps = [f"pg=pg_clip({arguments}, norm={norm})"]
    estimator = "k2" if str(draft.value(f"{_ACTOR}kl_loss_type", default="")) in ("mse", "k2") else "k3"
    if beta and draft.method == "grpo" and (norm, estimator) != (_OWN["grpo"], "k3"):
        swaps.append(f"kl=kl_{estimator}(coef={_plain(beta)}, norm={norm})")
    return swaps


def _plain_clip(draft: Draft) -> None:
    """eps, or eps_low and eps_high, of a method with its own surrogate."""
    low_key = draft.named("epsilon", f"{_ACTOR}clip_ratio_low", f"{_ACTOR}clip_ratio")
    high_key = draft.named("epsilon_high", f"{_ACTOR}clip_ratio_high")
    if draft.method == "cispo":
        return
    for key, names in ((low_key, ("eps_low", "eps")), (high_key, ("eps_high",))):
        ours = next((name for name in names if name in draft.known), None)
        if key and ours:
            draft.carry(key, ours, draft.flat[key])
        elif key:
            draft.leave(key, f"{draft.method} has no option {names[0]!r}")
    if low_key and not high_key and {"eps_low", "eps_high"} <= draft.known:
        draft.options["eps_high"] = draft.flat[low_key]  # theirs is the same on both sides


def _held_ratio(draft: Draft) -> list[str]:
    """TRL's CISPO clips the weight from above alone, at epsilon_high itself; its mean is over all tokens."""
    high_key, low_key = draft.named("epsilon_high"), draft.named("epsilon")
    high = draft.flat[high_key] if high_key else draft.flat[low_key] if low_key else 0.2
    if draft.library == "verl":
        return []
    draft.same(high_key, "swap: the largest weight of pg_held_ratio")
    draft.same(low_key, "the weight has no lower bound")
    return [f"pg=pg_held_ratio(0, {_plain(high)}, norm=token_mean)"]


def _scaled(draft: Draft) -> list[str]:
    """scale_rewards and norm_adv_by_std_in_grpo."""
    key = draft.named("scale_rewards", "algorithm.norm_adv_by_std_in_grpo")
    if key is None:
        return []
    value = str(draft.flat[key]).lower()
    if value in ("true", "group"):
        draft.same(key, "advantages are divided by the group's spread")
    elif value == "batch":
        if draft.method in _SCALED:
            draft.same(key, "swap: group_mean_batch_std(), which divides by the spread of the batch")
            return ["group_relative=group_mean_batch_std()"]
        draft.leave(key, f"{draft.method} has no group_relative part")
    elif draft.method in _SCALED:
        draft.same(key, "swap: group_relative(std=False)")
        return ["group_relative=group_relative(std=False)"]
    else:
        draft.leave(key, f"{draft.method} has no group_relative part")
    return []


def _pairs(draft: Draft) -> list[str]:
    """Label smoothing, the SFT term beside DPO, and what belongs to one loss alone."""
    _smoothed(draft)
    _weights(draft)
    nll_key = draft.named("rpo_alpha", "pref_ftx")
    nll = draft.flat[nll_key] if nll_key else 0
    losses = (
        [str(one) for one in draft.value("loss_type", default=[])] if isinstance(draft.value("loss_type"), list) else []
    )
    how = ""
    if "sft" in losses[1:]:
        weights = draft.value("loss_weights", default=[1.0] * len(losses))
        nll = float(weights[losses.index("sft")]) / float(weights[0] or 1)
        how = "; theirs is a mean over the tokens of a batch, ours over pairs"
        draft.changed(draft.named("loss_weights"), f"swap: {nll:g} times the NLL of the chosen reply{how}")
    draft.leave(draft.named("loss_weights"), "one loss is taken")
    if nll_key is not None and not _number(nll):
        draft.same(nll_key, "off, here too")
        return []
    if not nll:
        return []
    if draft.method != "dpo":
        draft.leave(nll_key, f"{draft.method} has no SFT term; method dpo has, by swap")
        return []
    draft.same(nll_key, "swap: the NLL of the chosen reply beside DPO")
    return [f"reply=dpo_with_nll({_plain(draft.options.get('beta', 0.1))}, {_plain(nll)})"]


def _smoothed(draft: Draft) -> None:
    key = draft.named("label_smoothing", "dpo_label_smoothing", "cpo_label_smoothing")
    if key is None:
        return
    value = draft.flat[key]
    if not _number(value):
        draft.same(key, "off, here too")
    elif draft.method in ("exo", "rdpo", "cdpo"):
        draft.carry(key, "eps", value)
    elif draft.method == "dpo":
        draft.carry(key, "label_smoothing", value, "that of cDPO; TRL's loss sigmoid ignores it since version 1")
    else:
        draft.leave(key, f"{draft.method} has no label smoothing")


def _weights(draft: Draft) -> None:
    for names, ours in (
        (("desirable_weight", "kto_chosen_weight", "kto_desirable_weight"), "weight_good"),
        (("undesirable_weight", "kto_rejected_weight", "kto_undesirable_weight"), "weight_bad"),
        (("simpo_gamma",), "gamma"),
        (("cpo_alpha",), "alpha"),
        (("discopop_tau",), "tau"),
        (("center_rewards_coefficient",), "centre"),
        (("sapo_temperature_pos",), "tau_pos"),
        (("sapo_temperature_neg",), "tau_neg"),
    ):
        key = draft.named(*names)
        if key is None:
            continue
        if ours in draft.known:
            draft.carry(key, ours, draft.flat[key])
        elif names[0] == "cpo_alpha" and not _number(draft.flat[key]):
            draft.same(key, "off: simpo has no SFT term")
        else:
            draft.leave(key, f"{draft.method} has no option {ours!r}")


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(f"a coefficient of the loss is {value!r}, which is no number; correct it") from None


def _plain(value: object) -> str:
    return f"{_number(value):g}"
