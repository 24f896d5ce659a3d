"""Guides of the next token: scores by hand, what is recorded, the limits, and the value models' targets."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from conftest import SMALL, build_cast, coin, credited, scoring_model
from torch import Tensor, tensor

from burnish.core.method import Method
from burnish.core.roles import frozen, roles
from burnish.core.step import Step
from burnish.core.types import Clock, Group, Sampling, Trace
from burnish.models.build import Models, build
from burnish.rollout.candidates import Guide, by_candidates, candidate_scores, guided_by, started, write_guided
from burnish.rollout.guides import continued, heads_after
from burnish.rollout.sample import sample
from burnish.tasks.table import source
from burnish.tasks.task_set import rewarded
from burnish.zoo.deal import beam_search as beams
from burnish.zoo.deal import deal
from burnish.zoo.q_sharp import q_sharp, q_sharp_value, soft_value
from burnish.zoo.transfer_q import transfer_q
from burnish.zoo.vas import by_value_models, centred, vas, vas_value

TASK = rewarded(source("sort"), coin)


def step_of(models: Models, built: Method | None = None) -> Step:
    return Step(Clock(0, 1), models, SMALL, product=built.product if built else "policy")


def rollout(built: Method, models: Models) -> list[Group]:
    step = step_of(models, built)
    return built.phases[0].rollout.call(built.phases[0].draw.call(step), step)


def replies(groups: list[Group]) -> list[Tensor]:
    return [trace.tokens for group in groups for trace in group.traces]


def same(first: list[Tensor], second: list[Tensor]) -> bool:
    return len(first) == len(second) and all(map(torch.equal, first, second))


# ------------------------------------------------------------------------------------------------- formulas by hand


def test_value_augmented_sampling_by_hand() -> None:
    """Two equal tokens, values 1 and 0, beta 2: +1 and -1, so s(2) = .881. A third token keeps its log-prob."""
    logp = torch.log_softmax(torch.zeros(1, 3), -1)
    scores = 2 * centred(tensor([[1.0, 0.0]]))
    assert scores.tolist() == [[1.0, -1.0]]
    kept = guided_by(logp, tensor([[2, 0]]), scores, cut=False)
    assert kept[0].tolist() == pytest.approx([-1 - math.log(3), -math.log(3), 1 - math.log(3)])
    cut = guided_by(logp, tensor([[2, 0]]), scores, cut=True).softmax(-1)[0]
    assert cut.tolist() == pytest.approx([1 - 0.8808, 0, 0.8808], abs=1e-4)


def test_values_are_centred_within_each_reply() -> None:
    """Means 3, -1 and 20: of one reply's candidates, never of the others in the batch."""
    values = tensor([[1.0, 2.0, 6.0], [-4.0, 1.0, 0.0], [20.0, 20.0, 20.0]])
    assert centred(values).tolist() == [[-2, -1, 3], [-3, 2, 1], [0, 0, 0]]
    for i, row in enumerate(values):
        assert torch.equal(centred(values)[i], centred(row[None])[0])


def test_soft_values_by_hand() -> None:
    """eta 1, p .5: ln(1.859) = .620. eta .1: p .3 and .55 give Q .88 and .94. The limits are p and 1."""
    head = torch.logit(tensor([0.5, 0.3, 0.55], dtype=torch.float64))
    assert float(soft_value(head[0], 1.0)) == pytest.approx(0.6201, abs=1e-4)
    assert (0.1 * soft_value(head[1:], 0.1)).tolist() == pytest.approx([0.8796, 0.9402], abs=1e-4)
    assert (1e6 * soft_value(head, 1e6)).tolist() == pytest.approx([0.5, 0.3, 0.55], abs=1e-4)
    assert (1e-4 * soft_value(head, 1e-4)).tolist() == pytest.approx([1, 1, 1], abs=1e-3), "nothing overflows"


def test_scores_that_are_no_numbers_count_as_the_lowest() -> None:
    found = tensor([[1.0, math.nan, -2.0], [math.nan, math.inf, math.nan]])
    guide = Guide("odd", lambda replies, candidates, step: found, 3, cut=True)
    given = candidate_scores([], torch.zeros(2, 3, dtype=torch.long), guide, step_of({}))  # type: ignore[arg-type]
    assert given.tolist() == [[1, -2, -2], [0, 0, 0]]


# ------------------------------------------------------------------------------------------- sampling under a guide


@pytest.fixture(scope="module")
def cast(small_model: Path, other_model: Path) -> Models:
    scored = scoring_model(other_model)
    given = roles(value=frozen(str(scored), outputs=1), other=frozen(str(other_model)))
    return build(given, small_model, SMALL, device="cpu")


def tasks(count: int = 3) -> list:
    return [TASK.task("train", i) for i in range(count)]


def test_a_guide_without_scores_writes_what_the_model_writes(cast: Models) -> None:
    step = step_of(cast)
    none = by_candidates(2, Guide("none", None, 5, cut=False), temperature=0.8).call(tasks(), step)
    alone = sample(2, temperature=0.8).call(tasks(), step)
    assert same(replies(none), replies(alone))
    for first, second in zip((g.traces for g in none), (g.traces for g in alone), strict=True):
        assert torch.allclose(first[0].turns[-1].logp, second[0].turns[-1].logp, atol=1e-5)  # type: ignore[arg-type]
        assert first[0].note == second[0].note, "and ends for the same reason"


def test_what_is_recorded_is_the_guided_distribution_at_its_temperature(cast: Models) -> None:
    """log p = log_softmax((log pi + scores) / T) of the sampled token, computed again from whole replies."""
    step = step_of(cast)
    guide = by_value_models({"value": 1.5}, k=6)
    (group,) = by_candidates(1, guide, temperature=0.7).call(tasks(1), step)
    (trace,) = group.traces
    said = trace.turns[-1]
    (reply,) = started(group.task, 1, step, Sampling(0.7), "policy", "sample")
    row = trace.tokens
    with torch.no_grad():
        logits = cast["policy"].outputs([row], [trace.by("policy")], {"logits"})["logits"]
    for t in range(len(said)):
        logp = torch.log_softmax(logits[t], -1)
        best = logp.topk(6).indices
        reply.said = said.first(t) if t else None
        values = heads_after([reply], best[None], "value", step)[0]
        logp[best] += 1.5 * (values - values.mean())
        wanted = torch.log_softmax(logp / 0.7, -1)[said.tokens[t]]
        assert said.logp is not None and float(said.logp[t]) == pytest.approx(float(wanted), abs=1e-4)


def test_heads_are_read_after_the_candidate(cast: Models) -> None:
    step = step_of(cast)
    (reply,) = started(tasks(1)[0], 1, step, Sampling(), "policy", "sample")
    candidates = tensor([[5, 60, 7]])
    found = heads_after([reply], candidates, "value", step)
    for k, token in enumerate(candidates[0]):
        row = torch.cat([reply.tokens(), token[None]])
        with torch.no_grad():
            alone = cast["value"].outputs([row], [torch.arange(len(row)) == len(row) - 1], {"score"})["score"]
        assert float(found[0, k]) == pytest.approx(float(alone), abs=1e-5)


def test_replies_are_the_same_without_kept_keys(cast: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    step, guide = step_of(cast), by_value_models({"value": 2.0}, k=5)
    kept = by_candidates(2, guide).call(tasks(), step)
    monkeypatch.setattr("burnish.rollout.candidates.packable", lambda module: False)
    assert same(replies(kept), replies(by_candidates(2, guide).call(tasks(), step)))


def test_candidates_outside_of_k_are_cut_or_kept(cast: Models) -> None:
    """A guide that forbids its candidates: without a cut other tokens are written, with one nothing else is left."""
    step = step_of(cast)

    def forbid(replies: list, candidates: Tensor, step: Step) -> Tensor:
        return torch.full(candidates.shape, -1e4)

    kept = by_candidates(1, Guide("no", forbid, 5, cut=False)).call(tasks(1), step)[0].traces[0]
    cut = by_candidates(1, Guide("no", forbid, 5, cut=True)).call(tasks(1), step)[0].traces[0]
    assert min(_ranks(kept, cast)) > 5 >= max(_ranks(cut, cast))


def _ranks(trace: Trace, models: Models) -> list[int]:
    from burnish.evals.token_shift import ranks_of

    with torch.no_grad():
        logits = models["policy"].outputs([trace.tokens], [trace.by("policy")], {"logits"})["logits"]
    return ranks_of(logits, trace.tokens[trace.by("policy")]).tolist()


def test_a_reply_may_get_a_few_tokens_only(cast: Models) -> None:
    step = step_of(cast)
    whole = by_candidates(1, Guide("none", None, 5, cut=False)).call(tasks(1), step)[0].traces[0]
    (reply,) = started(tasks(1)[0], 1, step, Sampling(), "policy", "sample")
    reply.most = 3
    write_guided([reply], Guide("none", None, 5, cut=False), step)
    assert len(reply) == 3 and not reply.stopped
    reply.most = None
    write_guided([reply], Guide("none", None, 5, cut=False), step)
    assert torch.equal(reply.tokens(), whole.tokens), "and goes on as if it had not paused"


def test_another_tokenizer_is_refused(small_model: Path, tmp_path: Path) -> None:
    from burnish.models.known_models import resolve

    models = build(roles(other=frozen(str(resolve("tiny")))), small_model, SMALL, device="cpu")
    step = step_of(models)
    (reply,) = started(tasks(1)[0], 1, step, Sampling(), "policy", "sample")
    with pytest.raises(ValueError, match="the model 'other' has another tokenizer than the policy"):
        continued([reply], tensor([[5]]), 3, "other", step)


# ---------------------------------------------------------------------------------------------------------- methods


def test_vas_without_weight_is_the_model(small_model: Path, other_model: Path) -> None:
    scored = str(scoring_model(other_model))
    none = vas(TASK, value_model=f"{scored}*0.3,{scored}*0.7", beta=0.0, n=2)
    models = build_cast(none, small_model)
    alone = sample(2).call(none.phases[0].draw.call(step_of(models)), step_of(models))
    assert same(replies(rollout(none, models)), replies(alone))
    one, two = (vas(TASK, value_model=text, beta=4.0, n=2) for text in (scored, f"{scored}*0.3,{scored}*0.7"))
    guided = replies(rollout(one, build_cast(one, small_model)))
    assert same(guided, replies(rollout(two, build_cast(two, small_model)))), "weights that add up to 1 of one model"
    assert not same(guided, replies(alone))


def test_q_sharp_with_a_large_eta_is_the_model_among_its_candidates(small_model: Path, other_model: Path) -> None:
    scored = str(scoring_model(other_model))
    weak = q_sharp(TASK, value_model=scored, eta=1e9, k=4, n=2)
    models = build_cast(weak, small_model)
    only = by_candidates(2, Guide("none", None, 4, cut=True)).call(
        weak.phases[0].draw.call(step_of(models)), step_of(models)
    )
    assert same(replies(rollout(weak, models)), replies(only))
    strong = q_sharp(TASK, value_model=scored, eta=0.1, k=4, n=2)
    assert not same(replies(rollout(strong, models)), replies(only))


def test_transfer_q_chooses_what_the_lookahead_rewards(small_model: Path, other_model: Path) -> None:
    """With a large weight and greedy choice the token is one whose continuation has the reward 1, if one has."""
    built = transfer_q(TASK, baseline=str(other_model), k=3, lookahead=4, weight=1e3, temperature=0.0)
    models = build_cast(built, small_model)
    step, groups = step_of(models, built), rollout(built, models)
    (reply,) = started(groups[0].task, 1, step, Sampling(0.0), "policy", "sample")
    said = groups[0].traces[0].turns[-1]
    from burnish.rollout.candidates import candidates_of, next_logp

    seen = 0
    for t in range(len(said)):
        candidates = candidates_of(next_logp([reply], models["policy"]), 3)
        (ahead,) = continued([reply], candidates, 4, "baseline", step)
        assert max(len(trace) - len(reply.tokens()) for trace in ahead) <= 1 + 4
        texts = [models["policy"].chat.text(trace.tokens[len(trace.turns[0]) :]) for trace in ahead]
        rewards = coin(texts)
        first = max(range(3), key=lambda j: (rewards[j], -j))  # candidates are sorted by their log-prob
        assert int(said.tokens[t]) == int(candidates[0, first])
        seen += rewards[first] != rewards[0]
        reply.said = said.first(t + 1)
    assert seen, "the reward never changed the choice: the test shows nothing"


def test_transfer_q_without_weight_is_the_model_among_its_candidates(small_model: Path, other_model: Path) -> None:
    none = transfer_q(TASK, baseline=str(other_model), k=4, weight=0.0, n=2, temperature=0.9)
    models = build_cast(none, small_model)
    only = by_candidates(2, Guide("none", None, 4, cut=True), temperature=0.9).call(
        none.phases[0].draw.call(step_of(models)), step_of(models)
    )
    assert same(replies(rollout(none, models)), replies(only))


def test_deal_without_weight_is_beam_search(cast: Models) -> None:
    """Two tokens, all beams and all candidates kept: the best of all V^2 pairs; a narrow beam finds a greedy one."""
    from dataclasses import replace

    models = cast
    step = Step(Clock(0, 1), models, replace(SMALL, max_new_tokens=2))
    task = tasks(1)[0]
    policy = models["policy"]
    prompt = policy.chat.prompt(task)
    size = policy.module.config.vocab_size
    rows = [torch.cat([prompt, tensor([a, 0])]) for a in range(size)]
    masks = [torch.arange(len(row)) >= len(prompt) for row in rows]
    with torch.no_grad():
        logp = torch.log_softmax(policy.outputs(rows, masks, {"logits"})["logits"], -1).view(size, 2, size)
    total = logp[0, 0][:, None] + logp[:, 1]
    for stop in policy.chat.stops:
        total[stop] = -math.inf  # a reply that has ended has one token
        total[stop, 0] = logp[0, 0, stop]
    wide = beams(size, Guide("none", None, 0, cut=True)).call([task], step)[0].traces
    assert wide[0].scores["beam"] == pytest.approx(float(total.max()), abs=1e-4)
    assert [trace.scores["beam"] for trace in wide] == sorted((t.scores["beam"] for t in wide), reverse=True)
    said = wide[0].turns[-1]
    assert said.logp is not None and float(said.logp.sum()) == pytest.approx(wide[0].scores["beam"], abs=1e-4)
    (narrow,) = beams(1, Guide("none", None, 3, cut=True)).call([task], step)[0].traces
    (greedy,) = sample(1, temperature=0.0).call([task], step)[0].traces
    assert torch.equal(narrow.tokens, greedy.tokens)


def test_deal_ranks_by_log_prob_and_by_the_final_reward(small_model: Path) -> None:
    """The score of a finished beam is log pi + weight h(text); with a large weight the answer is rewarded."""
    built = deal(TASK, beams=3, k=3, lookahead=20, weight=50.0)
    models = build_cast(built, small_model)
    groups = rollout(built, models)
    for group in groups:
        for trace in group.traces:
            said = trace.turns[-1]
            (reward,) = coin([models["policy"].chat.text(said.tokens)])
            assert said.logp is not None
            assert trace.scores["beam"] == pytest.approx(float(said.logp.sum()) + 50 * reward, abs=1e-3)
    assert all(group.traces[0].scores["beam"] > 0 for group in groups), "a coin is found that shows 1"


# ----------------------------------------------------------------------------------------------------- value models


def test_the_targets_of_vas_by_hand(small_model: Path) -> None:
    """G_T = r, G_t = (1 - lam) V_{t+1} + lam G_{t+1}, V read after each token."""
    built = vas_value(TASK, n=2, lam=0.75)
    models = build_cast(built, small_model)
    ((_, groups, _),) = credited(built, models)
    for trace in (trace for group in groups for trace in group.traces):
        mask = trace.by("policy")
        values, found = trace.streams["value"][mask], trace.streams["returns"][mask]
        goal = trace.scores["reward"]
        for t in range(len(values) - 1, -1, -1):
            assert float(found[t]) == pytest.approx(goal, abs=1e-5)
            goal = 0.25 * float(values[t]) + 0.75 * goal


def test_q_sharp_rolls_in_and_learns_from_the_base_alone(small_model: Path) -> None:
    built = q_sharp_value(TASK, n=4, k=3, again=1)
    models = build_cast(built, small_model)
    (_, fresh, _), (_, stored, _) = credited(built, models)
    begun = 0
    for group in (*fresh, *stored):
        for trace in group.traces:
            claimed = trace.streams["claim:value"]
            assert torch.equal(claimed, trace.by("policy")) and bool(claimed.any())
            assert set(trace.streams["outcome"][claimed].tolist()) == {trace.scores["reward"]}
            assert len(trace) - len(trace.turns[0]) <= SMALL.max_new_tokens
            begun += trace.turns[1].author == "roll_in"
    assert begun, "some replies begin under the guide"
    assert len(stored) == len(fresh), "all that was stored is drawn again"
