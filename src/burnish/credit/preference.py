"""Numbers that preference losses read from the whole batch, from other models or from earlier batches.

They are computed without gradient before the first update of a pass, because a loss sees one micro-batch. With one
update a batch (the default of every method here) they are what the loss would compute from the live weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from burnish.core.parts import Part, per_trace, supplies
from burnish.core.schedules import is_zero
from burnish.core.step import Step
from burnish.core.types import Group, Trace, Turn
from burnish.learn.maths.preference_noise import trust
from burnish.learn.maths.preference_pairs import of_equal_rank
from burnish.rollout.conditioned import conditioned


def fill(trace: Trace, stream: str, value: float) -> None:
    """One number on all tokens of a trace."""
    trace.streams[stream] = torch.full((len(trace),), float(value))


def reply_sum(trace: Trace, stream: str, author: str) -> float:
    """The sum of a stream over the author's tokens."""
    return float(trace.streams[stream][trace.by(author)].sum())


def pairs_in_order(groups: list[Group]) -> list[tuple[Trace, Trace]]:
    """The pairs (preferred, other) of all groups, in the order of the tasks' keys, whatever the order of the batch."""
    ordered = sorted(groups, key=lambda group: group.task.key)
    return [(group.traces[a], group.traces[b]) for group in ordered for a, b in group.pairs or ()]


@supplies("stream:weight")
def beyond_the_shorter(alpha: float, *, author: str = "demo") -> Part:
    """LD-DPO's token weights, as stream "weight": 1 up to the length of the pair's shorter reply, alpha beyond it."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            for trace in group.traces:
                fill(trace, "weight", 1.0)
            for a, b in group.pairs or ():
                both = group.traces[a], group.traces[b]
                shared = min(int(trace.by(author).sum()) for trace in both)
                for trace in both:
                    places = trace.by(author).nonzero().flatten()
                    trace.streams["weight"][places[shared:]] = alpha
        return groups

    return Part(
        name=f"beyond_the_shorter({alpha:g})",
        call=call,
        reads=frozenset({"pairs", f"tokens:{author}"}),
        writes=frozenset({"stream:weight"}),
    )


@supplies("stream:matched")
def matched_margins(*, author: str = "demo") -> Part:
    """AOT on pairs (arXiv 2406.05882): for each pair the reference's margin of the same rank, as stream "matched".

    u_i = log pi(w_i) - log pi(l_i) from stream "now",  v_i = log ref(w_i) - log ref(l_i);  matched_i = v_(rank of u_i)
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        pairs = pairs_in_order(groups)
        mine, theirs = (
            torch.tensor([reply_sum(w, s, author) - reply_sum(r, s, author) for w, r in pairs], dtype=torch.float64)
            for s in ("now", "ref")
        )
        for (w, r), value in zip(pairs, of_equal_rank(mine, theirs).tolist(), strict=True):
            fill(w, "matched", value)
            fill(r, "matched", value)
        return groups

    return Part(
        name="matched_margins",
        call=call,
        reads=frozenset({"pairs", "stream:now", "stream:ref", f"tokens:{author}"}),
        writes=frozenset({"stream:matched"}),
    )


@supplies("stream:partner")
def matched_replies(*, author: str = "demo") -> Part:
    """AOT on unpaired replies: the log-ratio of the reply of the other class with the same rank, as stream "partner".

    Classes are those of stream "label". Where one class has more replies, its surplus (the lowest ranks) is matched
    with the other's replies again.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        traces = [t for group in sorted(groups, key=lambda g: g.task.key) for t in group.traces]
        ratios = [reply_sum(t, "now", author) - reply_sum(t, "ref", author) for t in traces]
        good, bad = (
            sorted(
                (i for i, t in enumerate(traces) if (float(t.streams["label"][0]) > 0) == kind), key=ratios.__getitem__
            )
            for kind in (True, False)
        )
        for mine, theirs in ((good, bad), (bad, good)):
            for k, i in enumerate(mine):
                at = k * len(theirs) // max(1, len(mine))
                fill(traces[i], "partner", ratios[theirs[at]] if theirs else ratios[i])
        return groups

    return Part(
        name="matched_replies",
        call=call,
        reads=frozenset({"stream:now", "stream:ref", "stream:label", f"tokens:{author}"}),
        writes=frozenset({"stream:partner"}),
    )


class Reliability:
    """RE-PO's estimate of how often labels are right: eta <- (1 - momentum) eta + momentum mean c."""

    def __init__(self, start: float, momentum: float, name: str = "reliability") -> None:
        self.name, self.value, self.momentum = name, start, momentum

    def saw(self, confidence: float) -> None:
        self.value += self.momentum * (confidence - self.value)

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.value = float(state["value"])


@supplies("stream:confidence")
def label_confidence(reliability: Reliability, beta: float, *, author: str = "demo") -> Part:
    """RE-PO's E-step: the chance that each pair's label is right, as stream "confidence"; then eta moves to their mean.

    p = s(beta (lr_w - lr_l)) with the policy's log-probs in stream "now".
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        found = []
        for w, r in pairs_in_order(groups):
            lr_w, lr_l = (reply_sum(t, "now", author) - reply_sum(t, "ref", author) for t in (w, r))
            confidence = float(trust(torch.sigmoid(torch.tensor(beta * (lr_w - lr_l))), reliability.value))
            fill(w, "confidence", confidence)
            fill(r, "confidence", confidence)
            found.append(confidence)
        if found:
            reliability.saw(sum(found) / len(found))
            step.notes.add("label_confidence", sum(found), len(found))
            step.notes.add("label_reliability", reliability.value)
        return groups

    return Part(
        name="label_confidence",
        call=call,
        reads=frozenset({"pairs", "stream:now", "stream:ref", f"tokens:{author}"}),
        writes=frozenset({"stream:confidence"}),
        state=(reliability,),
    )


class Midpoint:
    """BCO's delta: the mean over all batches so far of half the sum of the class means."""

    def __init__(self, name: str = "delta") -> None:
        self.name, self.value, self.seen = name, 0.0, 0

    def saw(self, value: float) -> float:
        self.seen += 1
        self.value += (value - self.value) / self.seen
        return self.value

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value, "seen": self.seen}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.value, self.seen = float(state["value"]), int(state["seen"])


@supplies("stream:delta")
def reward_midpoint(running: Midpoint, beta: float, *, author: str = "demo") -> Part:
    """BCO's delta, as stream "delta": the running mean of (mean reward of desirable + mean of undesirable replies) / 2.

    A reward is beta (log pi - log ref) with the policy's log-probs in stream "now".
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        traces = [t for group in sorted(groups, key=lambda g: g.task.key) for t in group.traces]
        rewards: dict[bool, list[float]] = {True: [], False: []}
        for trace in traces:
            reward = beta * (reply_sum(trace, "now", author) - reply_sum(trace, "ref", author))
            rewards[float(trace.streams["label"][0]) > 0].append(reward)
        means = [sum(some) / len(some) for some in rewards.values() if some]
        delta = running.saw(sum(means) / len(means)) if means else running.value
        step.notes.add("delta", delta)
        for trace in traces:
            fill(trace, "delta", delta)
        return groups

    return Part(
        name="reward_midpoint",
        call=call,
        reads=frozenset({"stream:now", "stream:ref", "stream:label", f"tokens:{author}"}),
        writes=frozenset({"stream:delta"}),
        state=(running,),
    )


@supplies("stream:token_reward")
def contrasted_rewards(better: str, worse: str, *, who: str = "ref", author: str = "demo") -> Part:
    """T-REG's token rewards (arXiv 2412.02685), as stream "token_reward".

        rhat_t = s( log pi_who(y_t | better, x) - log pi_who(y_t | worse, x) ) - 1/2

    better, worse  words that are put before the prompt: an instruction to answer well, and one to answer badly
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        model, traces = step.models[who], [(group, trace) for group in groups for trace in group.traces]
        logps = []
        for words in (better, worse):
            told = [
                _under(trace, model.chat.prompt(conditioned(group.task, words)), model.context)
                for group, trace in traces
            ]
            masks = [trace.by(author) for trace in told]
            found = model.streams(told, masks, {"logp"}, step.settings.token_budget)
            logps.append(
                [
                    out["logp"][mask] if "logp" in out else mask[:0].float()
                    for out, mask in zip(found, masks, strict=True)
                ]
            )
        for (_, trace), good, bad in zip(traces, *logps, strict=True):
            fill(trace, "token_reward", 0.0)
            places, n = trace.by(author).nonzero().flatten(), min(len(good), len(bad))
            trace.streams["token_reward"][places[:n]] = torch.sigmoid(good[:n] - bad[:n]) - 0.5
        return groups

    return Part(
        name="contrasted_rewards",
        call=call,
        reads=frozenset({f"model:{who}.logp", f"tokens:{author}"}),
        writes=frozenset({"stream:token_reward"}),
    )


def _under(trace: Trace, prompt: Tensor, context: int) -> Trace:
    """The trace's reply after another prompt, cut to the context: tokens beyond it get no reward."""
    turns, room = [Turn(prompt, "task")], context - len(prompt)
    for turn in trace.turns[1:]:
        turns.append(replace(turn.first(max(0, room)), parent=turns[-1]))
        room -= len(turn)
    return Trace(tuple(turns))


@supplies("stream:weight")
def guided_weights(alpha: float, beta: float, *, judge: str = "judge", author: str = "demo") -> Part:
    """TGDPO's token weights (arXiv 2506.14574), as stream "weight": 1 + alpha r_t in w and 1 - alpha r_t in l.

    r_t = beta (log pi_judge - log ref)(y_t), from streams `judge` and "ref".
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            sides = {i: sign for a, b in group.pairs or () for i, sign in ((a, 1.0), (b, -1.0))}
            for i, trace in enumerate(group.traces):
                fill(trace, "weight", 1.0)
                mask = trace.by(author)
                reward = beta * (trace.streams[judge] - trace.streams["ref"])[mask]
                trace.streams["weight"][mask] = 1 + sides.get(i, 0.0) * alpha * reward
                step.notes.add("token_reward", float(reward.sum()), len(reward))
        return groups

    return Part(
        name="guided_weights",
        call=call,
        reads=frozenset({"pairs", f"stream:{judge}", "stream:ref", f"tokens:{author}"}),
        writes=frozenset({"stream:weight"}),
        idle=_equal_weights() if is_zero(alpha) else None,
    )


def _equal_weights() -> Part:
    """Stream "weight": 1 on every token."""

    def write(trace: Trace, group: Group, step: Step) -> None:
        fill(trace, "weight", 1.0)

    return per_trace(write, name="equal_weights", reads=frozenset(), writes=frozenset({"stream:weight"}))


@supplies("stream:preference")
def pair_preference(preference: Callable[[float, float], float], *, score: str = "reward") -> Part:
    """The chance that the first reply of a pair is preferred, by its scores, as stream "preference" of both."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        for w, r in pairs_in_order(groups):
            chance = preference(w.scores[score], r.scores[score])
            fill(w, "preference", chance)
            fill(r, "preference", chance)
        return groups

    return Part(
        name="pair_preference",
        call=call,
        reads=frozenset({"pairs", f"score:{score}"}),
        writes=frozenset({"stream:preference"}),
    )


@supplies("stream:factor")
def factor_of_right(factor: float, *, score: str = "reward") -> Part:
    """TRPA's anisotropy, as stream "factor": `factor` on replies of the first level (a score of 1 or more), else 1."""

    def write(trace: Trace, group: Group, step: Step) -> None:
        fill(trace, "factor", factor if trace.scores[score] >= 1 else 1.0)

    return per_trace(
        write,
        name=f"factor_of_right({factor:g})",
        reads=frozenset({f"score:{score}"}),
        writes=frozenset({"stream:factor"}),
    )
