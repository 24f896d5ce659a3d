"""Secrets of RLHF in Large Language Models Part II: Reward Modeling (arXiv 2401.06080).

Preference strength: how sure reward models are of a pair, and what that means for its label and margin.
"""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor

from burnish import draw, learn, rollout, select
from burnish.core.parts import Part, supplies
from burnish.core.state import State
from burnish.core.step import Step
from burnish.core.types import Group
from burnish.credit.preference import fill, pairs_in_order
from burnish.learn.terms import reward as terms
from burnish.method import Method, Option, chain, frozen, method, roles, trained
from burnish.methods import register
from burnish.methods.reward import END
from burnish.papers import Paper
from burnish.score.debias import training_tasks
from burnish.score.heads import answered, end_outputs
from burnish.tasks.source import Source

SECRETS_OF_RLHF_II = Paper(
    "secrets-of-rlhf-ii", "2401.06080", "Secrets of RLHF in Large Language Models Part II: Reward Modeling"
)


def by_strength(
    strength: Tensor, cuts: tuple[float, float, float], smoothing: float, scale: float = 1.0
) -> tuple[Tensor, Tensor, Tensor]:
    """What becomes of pairs by their preference strength (arXiv 2401.06080): flipped [P], label smoothing, margin [P].

    strength  mean over reward models of r_w - r_l
    cuts      three strengths: below the first, where it is negative, the label is flipped; up to the second, and above
              the third (whose loss would be 0 at once), labels are smoothed
    The margin is scale x strength; after a flip, scale x |strength|.
    """
    low, soft, high = cuts
    flipped = (strength < low) & (strength < 0)
    smoothed = ~flipped & ((strength < soft) | (strength > high))
    margin = torch.where(flipped, strength.abs(), strength)
    return flipped, smoothing * smoothed.to(strength), scale * margin


class Cuts:
    """Three quantiles of the preference strength of the data, found once at the first step and saved with the run."""

    def __init__(self, flip: float, soft: float, top: float, name: str = "strength_cuts") -> None:
        self.name, self.shares = name, (flip, flip + soft, 1 - top)
        self.found: tuple[float, float, float] | None = None

    def find(self, strengths: Tensor) -> tuple[float, float, float]:
        if self.found is None:
            low, soft, high = torch.quantile(strengths, torch.tensor(self.shares, dtype=strengths.dtype)).tolist()
            self.found = (low, soft, high)
        return self.found

    def state_dict(self) -> State:
        return {"found": None if self.found is None else list(self.found)}

    def load_state_dict(self, state: State) -> None:
        found = state["found"]
        self.found = None if found is None else (found[0], found[1], found[2])


@supplies("stream:margin", "stream:smoothing")
def strengths(source: Source, cuts: Cuts, smoothing: float, scale: float, count: int, *, judge: str) -> Part:
    """Flips pairs that the judge finds wrong; streams "margin" and "smoothing" by preference strength.

    The strength of a pair is the mean over the judge's outputs (the members of an ensemble) of r_w - r_l. Its quantiles
    are those of the first `count` training pairs of the source. Held-out pairs keep the order of the data.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        if step.measures:  # pairs that were flipped by what the model says would all be in the order that it says
            for trace in (trace for group in groups for trace in group.traces):
                fill(trace, "margin", 0.0)
                fill(trace, "smoothing", 0.0)
            return groups
        if cuts.found is None:
            cuts.find(_of_source(source, count, step, judge))
        traces = [trace for group in groups for trace in group.traces]
        scores = dict(zip(map(id, traces), end_outputs(traces, step, judge).mean(-1), strict=True))
        flips = 0
        for group in groups:
            group.pairs = list(group.pairs or ())
            for i, (a, b) in enumerate(group.pairs):
                strength = (scores[id(group.traces[a])] - scores[id(group.traces[b])]).reshape(1)
                flipped, smoothed, margin = by_strength(strength, cuts.find(strength), smoothing, scale)
                for trace in (group.traces[a], group.traces[b]):
                    fill(trace, "margin", float(margin))
                    fill(trace, "smoothing", float(smoothed))
                if bool(flipped):
                    group.pairs[i] = (b, a)
                flips += bool(flipped)
        pairs = len(pairs_in_order(groups))
        step.notes.add("flipped", flips, max(1, pairs))
        return groups

    return Part(
        name=f"strengths({judge})",
        call=call,
        reads=frozenset({"pairs", f"model:{judge}.score"}),
        writes=frozenset({"stream:margin", "stream:smoothing"}),
        updates=frozenset({"pairs"}),
        state=(cuts,),
    )


def _of_source(source: Source, count: int, step: Step, judge: str) -> Tensor:
    """The strengths of the first training pairs of a source."""
    model = step.models[judge]
    better, worse = ("chosen", "rejected") if "chosen" in source.gives else ("demo", "mistake")
    tasks = training_tasks(source, count)
    sides = [
        end_outputs([answered(t, str(t.given[side]), model.chat, model.context) for t in tasks], step, judge).mean(-1)
        for side in (better, worse)
    ]
    return sides[0] - sides[1]


@register(
    SECRETS_OF_RLHF_II,
    family="reward",
    summary="A reward model that flips, smooths or spreads pairs by how sure an ensemble is of them.",
    when="Some labels are wrong, and you can train an ensemble first (reward_ensemble).",
    trial={"count": 4},
)
def denoised_reward_model(
    task: draw.Source,
    *,
    ensemble: Annotated[
        str | None, Option("The directory of an ensemble (reward_ensemble); without one the model judges itself.")
    ] = None,
    flip: Annotated[
        float, Option("Share of the pairs, the weakest, that are flipped if negative.", at_least=0, below=1)
    ] = 0.2,
    soft: Annotated[
        float, Option("Share of the pairs after them whose labels are smoothed.", at_least=0, below=1)
    ] = 0.2,
    top: Annotated[
        float, Option("Share of the pairs, the strongest, whose labels are smoothed.", at_least=0, below=1)
    ] = 0.1,
    smoothing: Annotated[float, Option("Label smoothing of these pairs.", at_least=0, below=0.5)] = 0.1,
    margin: Annotated[float, Option("What a strength of 1 adds to the margin; 0: no margin.", at_least=0)] = 1.0,
    count: Annotated[int, Option("Training pairs by which the shares are found.", at_least=2)] = 256,
) -> Method:
    """Secrets of RLHF II: labels by preference strength.

    strength = mean over the ensemble's members of r_j(x, y_w) - r_j(x, y_l)
    L = -(1 - e) log s(d) - e log s(-d),  d = r_w - r_l - margin strength;  mean over pairs

    The weakest share `flip` of the pairs is flipped where its strength is negative (then the margin is |strength|); the
    next share `soft` and the strongest share `top` have e = smoothing, the others e = 0. The paper has M = 10 models.
    Departures: the three treatments, separate experiments there, are combined here. Left out: the auxiliary contrastive
    loss on r's representations (SimCSE, whose two views differ by dropout, or SwAV). Held-out pairs keep the order of
    the data, so that their accuracy is that of `burnish eval-reward`. flip = soft = top = margin = 0 is reward_model.
    """
    judge = "judge" if ensemble else "rm"
    members = {"judge": frozen(ensemble, outputs=1)} if ensemble else {}
    return method(
        draw=draw.pairs(task),
        rollout=rollout.given("chosen", "rejected", reader="rm"),
        select=select.given_pairs(),
        credit=chain(END, strengths(task, Cuts(flip, soft, top), smoothing, margin, count, judge=judge)),
        learn=learn.Learn(terms.score_pairs(margin="margin", label_smoothing="smoothing", on=learn.CLAIMED)),
        models=roles("rm", rm=trained(outputs=1), **members),
        product="rm",
    )
