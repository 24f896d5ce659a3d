"""Scores of several objectives: along a user's direction, and the implicit reward of another policy."""

from __future__ import annotations

from burnish.core.parts import Part, per_trace, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Trace
from burnish.score.heads import end_outputs
from burnish.score.lengths import reply_length


@supplies("score:directed")
def directed_reward(model: str | None, *, author: str = "policy") -> Part:
    """scores["directed"] = v . (r_1, r_2), v the trace's direction (rollout `directed`).

    model  the reward model whose first two outputs are r; None: the reward and the share of the longest reply
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        traces = [trace for group in groups for trace in group.traces]
        longest = step.settings.max_new_tokens
        if model is not None:
            pairs = end_outputs(traces, step, model).tolist()
        else:
            pairs = [[trace.scores["reward"], reply_length(trace, author) / longest] for trace in traces]
        for trace, attributes in zip(traces, pairs, strict=True):
            if len(attributes) < 2:
                raise ValueError(
                    f"the reward model {model!r} has one output, but a direction weighs two attributes; pass one that "
                    "`burnish train rating_model` saved"
                )
            v = trace.note["direction"]
            trace.scores["directed"] = v[0] * attributes[0] + v[1] * attributes[1]
            if model is not None:
                trace.scores["reward"] = attributes[0]
        return groups

    scored = {f"model:{model}.score"} if model is not None else {"score:reward"}
    return Part(
        name="directed_reward",
        call=call,
        reads=frozenset({"tag:directed", f"tokens:{author}", *scored}),
        writes=frozenset({"score:directed"}),
    )


@supplies("score:reward")
def implicit_score(who: str, beta: float, *, ref: str = "ref", author: str = "policy") -> Part:
    """scores["reward"] = beta (log pi_who - log pi_ref)(y), summed over the author's tokens: a DPO policy's reward."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        traces = [trace for group in groups for trace in group.traces]
        masks = [trace.by(author) for trace in traces]
        found = [
            step.models[name].streams(traces, masks, {"logp"}, step.settings.token_budget, 1.0) for name in (who, ref)
        ]
        for trace, mask, mine, theirs in zip(traces, masks, *found, strict=True):
            gap = (mine["logp"][mask].double() - theirs["logp"][mask].double()).sum() if bool(mask.any()) else 0.0
            trace.scores["reward"] = beta * float(gap)
        return groups

    return Part(
        name=f"implicit_score({who})",
        call=call,
        reads=frozenset({f"tokens:{author}", f"model:{who}.logp", f"model:{ref}.logp"}),
        writes=frozenset({"score:reward"}),
    )


@supplies("score:reward")
def brevity(*, author: str = "policy") -> Part:
    """scores["reward"] = minus the reply's tokens over the longest reply of the run."""

    def write(trace: Trace, group: Group, step: Step) -> None:
        trace.scores["reward"] = -reply_length(trace, author) / step.settings.max_new_tokens

    return per_trace(write, name="brevity", reads=frozenset({f"tokens:{author}"}), writes=frozenset({"score:reward"}))
