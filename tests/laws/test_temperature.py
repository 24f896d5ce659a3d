"""Log-probs that are compared are of one distribution: sampler, old, live, reference and teacher, at a temperature
other than 1.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conftest import SMALL, arguments_for, build_cast, credited, task_for
from cover import by_cover
from torch import Tensor

from burnish.core.method import Phase
from burnish.core.roles import frozen, roles
from burnish.core.step import Step
from burnish.core.types import Clock, Drawn, Group, Task, Trace, Turn, how_drawn
from burnish.learn.learn import Learn, measure, plan_of
from burnish.learn.norms import token_mean
from burnish.learn.term import Live, Term
from burnish.methods.table import METHODS, load_all
from burnish.models.build import build
from burnish.models.model import Model

load_all()
HOT = 0.7
CUT = {"temperature": 0.8, "top_p": 0.7, "top_k": 40, "repetition_penalty": 1.3}
IMITATES = {
    "agent_r",
    "best_of_n_distill",
    "eef",
    "meds3",
    "playpen_sft",
    "r_mcts_distill",
    "raft",
    "rest_mcts",
    "rlm_blueprint",
    "step_apo",
    "pangu_agent",
    "rejection_sampling",
    "self_debug",
    "rise",
    "spct_rft",
    "superhf",
}  # samples are demonstrations: learnt from at 1
AS_DATA = {
    "dno",
    "dpo_vp",
    "exo_rewards",
    "itool",
    "lipo",
    "mnpo",
    "rso",
    "sppo",
    "stepagent",
}  # the same: samples are pairs and lists to learn from
Q_VALUES = {"b_coder"}  # its terms read logits as Q-values, and no log-prob
MIXED = {"minillm", "nlpo"}  # samples come from a blend: its log-probs are the blend's
TEMPERED = {"aepo"}  # some replies are sampled at a temperature of their own, and all are learnt from at 1
MASKED = {"semi_offline_rl"}  # what is read while learning is not what was said


def learned_at(phase: Phase, step: Step, trace: Trace, mask: Tensor) -> Drawn | float:
    """What the learner takes log-probs at: the plan's own temperature, or how each token was drawn."""
    own, given = step.logp_at(plan_of(phase).logp_temperature)
    return how_drawn([trace], [mask], given) if own is None else own


def logp(model: Model, trace: Trace, mask: Tensor, drawn: Drawn | float) -> Tensor:
    with torch.no_grad():
        return model.outputs([trace.tokens], [mask], {"logp"}, drawn)["logp"]


def sampled(trace: Trace) -> Tensor:
    """Log-probs as the sampler recorded them; NaN where the policy did not sample."""
    known = [turn.logp if turn.logp is not None else torch.full((len(turn),), torch.nan) for turn in trace.turns]
    return torch.cat(known)


def agree(name: str, small_model: Path, other_model: Path, **sampled_as: float) -> int:
    """Compare the log-probs of the sampled tokens that a method learns from; how many numbers were compared."""
    method = METHODS[name].build(task_for(name), **arguments_for(name, other_model))
    models = build_cast(method, small_model)
    free = method.samples and method.sampling is not None
    settings = replace(SMALL, sampling=method.sampled(**sampled_as)) if free else SMALL
    compared = 0
    for phase, groups, step in credited(method, models, settings):
        for term in (term for term in phase.learn.terms if term.trainee == "policy"):
            for trace in (trace for group in groups for trace in group.traces):
                mask = trace.streams[f"claim:{term.name}"]
                if not mask.any() or not any(turn.settings for turn in trace.turns):
                    continue
                live = logp(models["policy"], trace, mask, learned_at(phase, step, trace, mask))
                anchors = {s: trace.streams[s][mask] for s in ("old", "ref", "demo_old") if s in term.streams}
                if name in MIXED:
                    anchors.pop("old", None)
                if name not in IMITATES | AS_DATA | Q_VALUES | MIXED | MASKED | TEMPERED:
                    anchors["the sampler"] = sampled(trace)[mask]
                if "teacher" in term.streams:
                    theirs = logp(models["teacher"], trace, mask, learned_at(phase, step, trace, mask))
                    assert float((trace.streams["teacher"][mask] - theirs).abs().max()) < 1e-5, "teacher"
                for what, values in anchors.items():
                    known = ~values.isnan()
                    assert what == "the sampler" or bool(known.all()), what
                    assert torch.allclose(values[known], live[known], rtol=0, atol=1e-5), what
                    compared += int(known.sum())
    return compared


@pytest.mark.parametrize("name", by_cover(sorted(METHODS)))
def test_sampler_old_reference_and_learner_agree(name: str, small_model: Path, other_model: Path) -> None:
    """At the first step policy, old policy and reference are one model: their log-probs of a token are one number."""
    agree(name, small_model, other_model, temperature=HOT)


@pytest.mark.parametrize("name", by_cover(sorted(METHODS)))
def test_they_agree_about_replies_from_a_part_of_the_vocabulary(
    name: str, small_model: Path, other_model: Path
) -> None:
    """Under top-k, top-p and a repetition penalty the ratio of a reply that was just sampled is 1, too."""
    agree(name, small_model, other_model, **CUT)


def test_many_numbers_were_compared(small_model: Path, other_model: Path) -> None:
    """The laws above are about something."""
    for name in ("grpo", "ppo", "dapo", "reinforce"):
        assert agree(name, small_model, other_model, temperature=HOT) > 50
        assert agree(name, small_model, other_model, **CUT) > 50


def test_a_term_sees_logits_of_every_model_at_the_temperature_of_the_plan(small_model: Path, other_model: Path) -> None:
    models = build(roles(teacher=frozen(str(other_model))), small_model, SMALL, device="cpu")
    seen: dict[str, Tensor] = {}

    def loss(live: Live) -> Tensor:
        seen.update(live.outputs)
        return live.logp * 0

    names = ("logp", "logits", "entropy", "teacher.logits", "teacher.logp")
    term = Term(name="look", unit="token", loss=loss, live=names, norm=token_mean)
    tokens = torch.arange(10, 30)
    trace = Trace((Turn(tokens[:8], "task"), Turn(tokens[8:], "policy")))
    measure(
        [Group(Task("question", "?", {}, "?"), [trace])],
        Learn(term, logp_temperature=HOT),
        Step(Clock(0, 1), models, SMALL),
    )
    for who, prefix in (("policy", ""), ("teacher", "teacher.")):
        with torch.no_grad():
            plain = models[who].outputs([tokens], [trace.by("policy")], {"logits"})["logits"]
        logs = torch.log_softmax(plain / HOT, -1)
        assert torch.allclose(seen[prefix + "logits"], plain / HOT, atol=1e-5)
        assert torch.allclose(seen[prefix + "logp"], logs.gather(-1, tokens[8:, None])[:, 0], atol=1e-5)
    own = torch.log_softmax(seen["logits"], -1)
    assert torch.allclose(seen["entropy"], -(own.exp() * own).sum(-1), atol=1e-5)
