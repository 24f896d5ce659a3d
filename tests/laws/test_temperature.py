"""Log-probs that are compared are of one distribution: sampler, old, live, reference and teacher, at a temperature
other than 1.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from conftest import SMALL, arguments_for, build_cast, credited, task_for
from cover import by_cover
from torch import Tensor

from burnish.config.options import method_fields
from burnish.core.method import Phase
from burnish.core.roles import frozen, roles
from burnish.core.step import Step
from burnish.core.types import Clock, Group, Task, Trace, Turn, logp_temperatures
from burnish.forward.temperatures import Temperature
from burnish.learn.learn import Learn, measure, plan_of
from burnish.learn.norms import token_mean
from burnish.learn.term import Live, Term
from burnish.methods.table import METHODS, load_all
from burnish.models.build import build
from burnish.models.model import Model

load_all()
HOT = 0.7
SAMPLING = sorted(name for name, entry in METHODS.items() if "temperature" in method_fields(entry))
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
    "exo_rewards",
    "itool",
    "lipo",
    "mnpo",
    "rso",
    "sppo",
    "stepagent",
}  # the same: samples are pairs and lists to learn from
Q_VALUES = {"b_coder"}  # its terms read logits as Q-values, and no log-prob
MIXED = {"minillm"}  # samples come from a blend with the teacher: its log-probs are the blend's
MASKED = {"semi_offline_rl"}  # what is read while learning is not what was said


def learned_at(phase: Phase, trace: Trace, mask: Tensor) -> Temperature:
    """The temperature of the learner's log-probs: the plan's own, or that at which each token was sampled."""
    own = plan_of(phase).logp_temperature
    return logp_temperatures([trace], [mask]) if own is None else own


def logp(model: Model, trace: Trace, mask: Tensor, temperature: Temperature) -> Tensor:
    with torch.no_grad():
        return model.outputs([trace.tokens], [mask], {"logp"}, temperature)["logp"]


def sampled(trace: Trace) -> Tensor:
    """Log-probs as the sampler recorded them; NaN where the policy did not sample."""
    known = [turn.logp if turn.logp is not None else torch.full((len(turn),), torch.nan) for turn in trace.turns]
    return torch.cat(known)


@pytest.mark.parametrize("name", by_cover(SAMPLING))
def test_sampler_old_reference_and_learner_agree(name: str, small_model: Path, other_model: Path) -> None:
    """At the first step policy, old policy and reference are one model: their log-probs of a token are one number."""
    method = METHODS[name].build(task_for(name), **{**arguments_for(name, other_model), "temperature": HOT})
    models = build_cast(method, small_model)
    for phase, groups, _ in credited(method, models):
        for term in (term for term in phase.learn.terms if term.trainee == "policy"):
            for trace in (trace for group in groups for trace in group.traces):
                mask = trace.streams[f"claim:{term.name}"]
                if not mask.any():
                    continue
                live = logp(models["policy"], trace, mask, learned_at(phase, trace, mask))
                anchors = {s: trace.streams[s][mask] for s in ("old", "ref", "demo_old") if s in term.streams}
                if name in MIXED:
                    anchors.pop("old", None)
                if name not in IMITATES | AS_DATA | Q_VALUES | MIXED | MASKED:
                    anchors["the sampler"] = sampled(trace)[mask]
                if "teacher" in term.streams:
                    theirs = logp(models["teacher"], trace, mask, learned_at(phase, trace, mask))
                    assert float((trace.streams["teacher"][mask] - theirs).abs().max()) < 1e-5, "teacher"
                for what, values in anchors.items():
                    known = ~values.isnan()
                    assert what == "the sampler" or bool(known.all()), what
                    assert torch.allclose(values[known], live[known], rtol=0, atol=1e-5), what


def test_some_methods_sample_and_learn_at_this_temperature(other_model: Path) -> None:
    """The law above is about something: most methods that sample also learn at the temperature that they are given."""
    hot = 0
    for name in SAMPLING:
        method = METHODS[name].build(task_for(name), **{**arguments_for(name, other_model), "temperature": HOT})
        hot += any(plan_of(phase).logp_temperature is None for phase in method.phases)
    assert hot > 0.75 * len(SAMPLING)


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
