"""The Perfect Blend: Redefining RLHF with Mixture of Judges (arXiv 2409.20370).

What CGPO learns from: replies that satisfy every judge, and those that do not (arXiv 2409.20370).

Judges as constraints, and rewards relative to a baseline reply: the scores of CGPO (arXiv 2409.20370).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from torch import Tensor

from burnish import credit, draw, learn, rollout, score
from burnish.core.parts import supplies
from burnish.core.schedules import Schedule
from burnish.core.scorer import named_reward
from burnish.core.step import Step
from burnish.core.types import Group, Trace
from burnish.credit.baselines import spread
from burnish.learn.maths.preference import Replies, dpo_logistic
from burnish.learn.term import Authors, Term
from burnish.learn.terms.compared import pair_term
from burnish.method import Method, Option, Part, Rollout, chain, frozen, method, roles
from burnish.methods import opt, papers, register
from burnish.methods.compositions import names_in
from burnish.score.maths.multipliers import sigmoid


def dpo_with_nll_loss(chosen: Replies, rejected: Replies, beta: float, nll: float) -> Tensor:
    """-log sigmoid(beta (logratio_w - logratio_l)) - nll log pi(y_w) / |y_w|, per pair [P] (arXiv 2409.20370, Eq. 14).

    nll = 0 is DPO.
    """
    return dpo_logistic(chosen.logratio, rejected.logratio, beta) - nll * chosen.logp / chosen.tokens


def closeness(log_ratio: float, most: float) -> float:
    """max(1 - log_ratio / most, 0): 1 at the reference, 0 at the limit; more than 1 for a reply less likely than there.

    CGPO's soft KL factor (arXiv 2409.20370, Eq. 11), which the paper does not cap above.
    """
    return max(1 - log_ratio / most, 0.0)


@supplies("stream:adv")
def constrained_advantage(most: float, *, author: str = "policy") -> Part:
    """A = w - mean w over the batch, w = [satisfied] Rc max(1 - log(pi/ref)(y) / most, 0) (CRPG, Eq. 11 and 12).

    Replies of other authors (the baseline) have no advantage and are not in the mean.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        mine: list[tuple[Trace, float]] = []
        for trace in (trace for group in groups for trace in group.traces):
            if author not in trace.authors():
                spread(trace, float("nan"))
                continue
            weight = trace.scores["satisfied"] * trace.scores["calibrated"]
            mine.append((trace, weight * closeness(trace.scores["log_ratio"], most)))
        mean = sum(weight for _, weight in mine) / max(1, len(mine))
        for trace, weight in mine:
            spread(trace, weight - mean)
        step.notes.add("baseline", mean)
        return groups

    return Part(
        name=f"constrained_advantage({most:g})",
        call=call,
        reads=frozenset({"score:satisfied", "score:calibrated", "score:log_ratio"}),
        writes=frozenset({"stream:adv"}),
    )


@supplies("stream:adv")
def calibrated_weight() -> Part:
    """A = Rc: every reply weighs by its calibrated reward (CRRAFT, Eq. 18)."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        for trace in (trace for group in groups for trace in group.traces):
            spread(trace, trace.scores["calibrated"])
        return groups

    return Part(
        name="calibrated_weight",
        call=call,
        reads=frozenset({"score:calibrated"}),
        writes=frozenset({"stream:adv"}),
    )


def dpo_with_nll(beta: Schedule, nll: float, *, on: Authors = "policy", name: str = "reply") -> Term:
    """DPO's logistic loss plus nll times the chosen reply's negative log-likelihood per token."""
    return pair_term(
        lambda w, r, beta: dpo_with_nll_loss(w, r, beta, nll),
        beta=beta,
        on=on,
        name=name,
    )


def _reward(trace: Trace) -> float:
    return trace.scores["reward"]


@supplies("pairs")
def satisfied_vs_violating() -> Part:
    """One pair a group: the best-scored reply that satisfies, against the worst that violates, or the worst of all.

    A group in which nothing satisfies, or without a second reply that is worse, goes. (Eq. 13)
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        kept = []
        for group in groups:
            good = [trace for trace in group.traces if trace.scores["satisfied"]]
            bad = [trace for trace in group.traces if not trace.scores["satisfied"]]
            if not good:
                continue
            best = max(good, key=_reward)
            worst = min(bad or good, key=_reward)
            if bad or _reward(worst) < _reward(best):
                group.traces, group.pairs = [best, worst], [(0, 1)]
                kept.append(group)
        step.notes.add("dropped/no_preference", len(groups) - len(kept), len(groups))
        return kept

    return Part(
        name="satisfied_vs_violating",
        call=call,
        reads=frozenset({"score:reward", "score:satisfied"}),
        writes=frozenset({"pairs"}),
    )


def best_satisfying(most: float, tag: str = "baseline") -> Part:
    """The best-scored reply that satisfies with log_ratio <= most; else the tagged baseline, if that satisfies; else
    the group goes.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        kept = []
        for group in groups:
            good = [trace for trace in group.traces if trace.scores["satisfied"]]
            near = [t for t in good if tag not in t.tags and t.scores["log_ratio"] <= most]
            chosen = max(near, key=_reward) if near else next((t for t in good if tag in t.tags), None)
            if chosen is not None:
                group.traces = [chosen]
                kept.append(group)
        step.notes.add("dropped/nothing_satisfies", len(groups) - len(kept), len(groups))
        return kept

    return Part(
        name=f"best_satisfying({most:g})",
        call=call,
        reads=frozenset({"score:reward", "score:satisfied", "score:log_ratio", f"tag:{tag}"}),
    )


COLUMN = "judges"  # the column of a row that names its own judges


@supplies("score:satisfied")
def satisfied(judges: Sequence[str], *, above: float = 0.5) -> Part:
    """scores["satisfied"] = 1 where every judge gives a reply more than `above`, else 0: an AND of all judges.

    judges  names of rewards of the run, or "correct"; a row with a list in its column `judges` has its own
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            own = group.task.given.get(COLUMN)
            names = [str(name) for name in own] if isinstance(own, list | tuple) else judges
            for trace in group.traces:
                trace.scores["satisfied"] = float(all(named_reward(trace, name) > above for name in names))
        return groups

    return Part(
        name=f"satisfied({', '.join(judges)})",
        call=call,
        reads=frozenset({"score:reward"}),
        writes=frozenset({"score:satisfied"}),
    )


@supplies("score:calibrated")
def calibrated(tag: str = "baseline") -> Part:
    """scores["calibrated"] = sigmoid(R - R_0), R_0 the reward of the group's tagged reply, the baseline (Eq. 5).

    It makes rewards of different prompts comparable: 1/2 is as good as the baseline.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            base = next(trace.scores["reward"] for trace in group.traces if tag in trace.tags)
            for trace in group.traces:
                trace.scores["calibrated"] = sigmoid(trace.scores["reward"] - base)
        return groups

    return Part(
        name="calibrated",
        call=call,
        reads=frozenset({"score:reward", f"tag:{tag}"}),
        writes=frozenset({"score:calibrated"}),
    )


@supplies("score:log_ratio")
def ratio_to_reference(ref: str = "ref", *, author: str = "policy") -> Part:
    """scores["log_ratio"] = log pi(y) - log ref(y) of the whole reply, pi as it was sampled; 0 for other authors."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        traces = [trace for group in groups for trace in group.traces]
        masks = [trace.by(author) for trace in traces]
        found = step.models[ref].streams(traces, masks, {"logp"}, step.settings.token_budget)
        for trace, mask, output in zip(traces, masks, found, strict=True):
            sampled = [turn.logp for turn in trace.turns if turn.author == author and turn.logp is not None]
            total = sum(float(logp.double().sum()) for logp in sampled)
            trace.scores["log_ratio"] = total - float(output["logp"][mask].double().sum()) if sampled else 0.0
        return groups

    return Part(
        name="ratio_to_reference",
        call=call,
        reads=frozenset({f"tokens:{author}", f"mu:{author}", f"model:{ref}.logp"}),
        writes=frozenset({"score:log_ratio"}),
    )


Judges = Annotated[
    str, Option("Rewards that must be above 0.5, names with commas: correct,safe. A row's column `judges` has its own.")
]
KLMax = Annotated[
    float, Option("The largest log pi/ref of a whole reply, in nats.", above=0, unlimited=True)
]  # judged tasks get a lenient one in the paper, chat a strict one


def _with_baseline(n: int) -> Rollout:
    """n replies of the policy, and one of the starting policy, tagged "baseline"."""
    return rollout.join(
        rollout.sample(n),
        rollout.sample(1, who="ref", tag="baseline"),
    )


def _judged(task: draw.Source, reward_model: str | None, judges: str) -> Part:
    """The reward, whether all judges pass, the reward relative to the baseline's, and log pi/ref."""
    return chain(
        score.scoring(task, reward_model),
        satisfied(names_in(judges)),
        calibrated(),
        ratio_to_reference(),
    )


@register(
    papers.CGPO,
    family="policy",
    summary="Policy gradient on a reward that counts only where every judge passes and the policy stayed near.",
    when="A reward model is hacked: rules or judges can say which replies must not be paid, whatever their score.",
    trial={"n": 4},
)
def cgpo_crpg(
    task: draw.Source,
    *,
    n: opt.GroupSize = 4,
    judges: Judges = "correct",
    kl_max: KLMax = 20.0,
    reward_model: opt.RewardModel = None,
) -> Method:
    """CGPO with its optimiser CRPG: calibrated, regularised, constrained policy gradient.

    Rc = sigmoid(R(x, y) - R(x, y0)),  y0 one reply of the starting policy
    w = [all judges pass] Rc max(1 - log(pi/ref)(y) / kl_max, 0);   A = w - mean of w over the batch
    L = -mean over replies of A log pi(y), the whole reply, not divided by its tokens

    Judges all 1 and kl_max inf: policy gradient on the calibrated reward. A reply that is less likely than under the
    reference gets more than Rc (the factor is not capped above). The paper's judges are joined by AND (its print has
    an OR sign). For several tasks give a mixture: rows have their own judges in a column `judges`. Departures: one
    optimiser and one kl_max for all tasks; kl_max and n are choices of ours, the paper does not print them.
    """
    return method(
        draw=draw.prompts(task),
        rollout=_with_baseline(n),
        score=_judged(task, reward_model, judges),
        credit=constrained_advantage(kl_max),
        learn=learn.Learn(learn.pg_reinforce(norm=learn.seq_sum_mean)),
        models=roles(ref=frozen("policy"), **score.rm_role(reward_model)),
    )


@register(
    papers.CGPO,
    family="preference",
    summary="Online DPO of the best reply that passes every judge against the worst that does not.",
    when="As cgpo_crpg, with the stability of pairs.",
    trial={"n": 4},
)
def cgpo_codpo(
    task: draw.Source,
    *,
    n: opt.GroupSize = 4,
    judges: Judges = "correct",
    beta: opt.Beta = 0.1,
    nll: Annotated[float, Option("Lambda: weight of the chosen reply's log-likelihood per token.", at_least=0)] = 1.0,
    reward_model: opt.RewardModel = None,
) -> Method:
    """CGPO with its optimiser CODPO: constrained online DPO.

    y_w = argmax R among the replies that pass all judges;  y_l = argmin R among those that do not (of all, if none)
    L = -log sigmoid(beta (log pi/ref(y_w) - log pi/ref(y_l))) - nll log pi(y_w) / |y_w|,  mean over prompts (Eq. 14)

    A prompt without a reply that passes is skipped. The argmax is over the passing replies alone, also where all their
    rewards are negative. beta and nll are choices of ours. nll = 0 and judges that all pass: best-against-worst
    online DPO.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=chain(score.scoring(task, reward_model), satisfied(names_in(judges))),
        select=satisfied_vs_violating(),
        credit=credit.ref(),
        learn=learn.Learn(dpo_with_nll(beta, nll)),
        models=roles(ref=frozen("policy"), **score.rm_role(reward_model)),
    )


@register(
    papers.CGPO,
    family="imitation",
    summary="Imitate the best reply that passes every judge and stayed near, weighted by its calibrated reward.",
    when="As cgpo_crpg, where imitation is safer than a gradient against bad replies.",
    trial={"n": 4},
)
def cgpo_crraft(
    task: draw.Source,
    *,
    n: opt.GroupSize = 4,
    judges: Judges = "correct",
    kl_max: KLMax = 20.0,
    reward_model: opt.RewardModel = None,
) -> Method:
    """CGPO with its optimiser CRRAFT: calibrated, regularised, reward-ranked fine-tuning.

    y* = argmax R among the replies that pass all judges with log pi/ref(y) <= kl_max (a hard cut)
    L = -Rc(y*) log pi(y*),  Rc = sigmoid(R - R(y0)), mean over prompts (Eq. 18)

    Where nothing is left, the baseline y0 (one reply of the starting policy) is imitated if it passes (Rc = 1/2), else
    the prompt is skipped. kl_max and n are choices of ours.
    """
    return method(
        draw=draw.prompts(task),
        rollout=_with_baseline(n),
        score=_judged(task, reward_model, judges),
        select=best_satisfying(kl_max),
        credit=calibrated_weight(),
        learn=learn.Learn(learn.pg_reinforce(norm=learn.seq_sum_mean, on=("policy", "ref"))),
        models=roles(ref=frozen("policy"), **score.rm_role(reward_model)),
    )
