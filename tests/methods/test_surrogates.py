"""Surrogates, corrections and token weights: numbers derived by hand, and what each becomes when its idea is switched
off.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from conftest import SMALL, build_cast, credited, doubled
from test_learn import TASK, gradients, same_gradient, slow
from torch import Tensor, tensor

from burnish.core.method import Method, method
from burnish.core.parts import Part, chain, everything
from burnish.core.roles import roles
from burnish.core.step import Notes
from burnish.core.types import Clock, Group, Task, Trace, Turn
from burnish.credit.claims import claim
from burnish.credit.group import group_relative
from burnish.credit.mismatch import by_sequence, by_token, masked, truncated
from burnish.credit.streams import behaviour
from burnish.credit.verdicts import right
from burnish.draw.tasks import prompts
from burnish.learn.learn import Learn
from burnish.learn.maths import clipped_surrogate, k3, surrogates
from burnish.learn.norms import Norm, group_mean, seq_mean, token_mean
from burnish.learn.term import Live, Term
from burnish.learn.terms import pg_clip, pg_reinforce
from burnish.learn.terms import surrogates as terms
from burnish.methods.policy import grpo
from burnish.methods.table import find
from burnish.rollout.sample import sample
from burnish.score.length import overlong_punishment, punish_overlong
from burnish.score.verify import verify
from burnish.select.filters import mixed
from burnish.zoo.clip_cov import covariance, drop_from_band, stay, top_share
from burnish.zoo.cpgd import clipped_log_ratio, policy_drift
from burnish.zoo.disco import discriminate, discriminate_loss, held_hinge, hold, mean_logp, mean_ratio
from burnish.zoo.dual_token_archer import by_kind, kl_by_kind, pg_clip_by_kind, row_quantile
from burnish.zoo.gmpo import one_sided_log_ratio, pg_geometric
from burnish.zoo.gpg import make_up_for_flat_groups
from burnish.zoo.nft import implicit_negative, pass_rate
from burnish.zoo.topr import pg_tapered, signed, taper

QUESTION = Task("question", "q", {}, "q")
STEP = SimpleNamespace(clock=Clock(0, 10), notes=Notes(), settings=SMALL)


def log(*p: float) -> Tensor:
    return tensor([math.log(x) for x in p])


def slope(loss, logp: Tensor) -> Tensor:
    """d loss / d logp, at each token."""
    (found,) = torch.autograd.grad(loss(logp.requires_grad_()).sum(), logp)
    return found


def live(row: list[int], group: list[int] | None = None, **given: Tensor) -> Live:
    """A micro-batch by hand: outputs logp and entropy, everything else a stream."""
    outputs = {name: given.pop(name) for name in ("logp", "entropy") if name in given}
    outputs.setdefault("entropy", torch.zeros(len(row)))
    rows = max(row) + 1
    numbers = tensor(group or [0] * rows)
    return Live(outputs, given, tensor(row), rows, torch.zeros(0, 2, dtype=torch.long), [], numbers, Clock(0, 10))


def plain(term: Term, *credit: Part, select: Part = everything, n: int = 4, tag: str | None = None) -> Method:
    """Samples, a verifier, this credit, and one term."""
    return method(
        draw=prompts(TASK),
        rollout=sample(n),
        score=verify(TASK),
        select=select,
        credit=chain(*credit, claim(term.name, "policy", tag=tag)),
        learn=Learn(term),
        models=roles(),
    )


def clipped(norm: Norm, **clip: float) -> Method:
    """GRPO without its KL, under any norm."""
    return plain(pg_clip(0.2, norm=norm, **clip), group_relative(), behaviour())


# ------------------------------------------------------------------------------------------------------------ the maths


def test_soft_gate_by_hand() -> None:
    """r = 1.5, A = 2, tau_pos = 1: f = 4 sigmoid(0.5) = 4 x 0.622459 = 2.489837, loss -4.979674.
    r = 0.5, A = -1, tau_neg = 2: f = 2 sigmoid(-1) = 2 x 0.268941 = 0.537883, loss 0.537883.
    Slopes -w r A, w = 4 p (1 - p): 4 x 0.622459 x 0.377541 = 0.940015, so -2.820044; 4 x 0.268941 x 0.731059 =
    0.786448, so +0.393224.
    """
    logp, old, adv = log(0.6, 0.2), log(0.4, 0.4), tensor([2.0, -1.0])
    assert torch.allclose(surrogates.soft_gate(logp, old, adv, 1.0, 2.0), tensor([-4.979674, 0.537883]), atol=1e-5)
    found = slope(lambda x: surrogates.soft_gate(x, old, adv, 1.0, 2.0), logp)
    assert torch.allclose(found, tensor([-2.820044, 0.393224]), atol=1e-5)


def test_soft_gate_at_ratio_one_has_the_policy_gradient_whatever_tau() -> None:
    logp, adv = log(0.2, 0.7), tensor([1.5, -0.5])
    for tau in (0.3, 1.0, 7.0):
        old = logp.detach().clone()
        assert torch.allclose(slope(lambda x, o=old, t=tau: surrogates.soft_gate(x, o, adv, t, t), logp.clone()), -adv)


def test_held_ratio_by_hand() -> None:
    """r = 3 and 0.5, cap 2: weights 2 and 0.5. A = 1, -2: losses -2 log 0.6 and +1 log 0.2; slopes -2 and +1."""
    logp, old, adv = log(0.6, 0.2), log(0.2, 0.4), tensor([1.0, -2.0])
    found = surrogates.held_ratio(logp, old, adv, -math.inf, 2.0)
    assert torch.allclose(found, tensor([-2 * math.log(0.6), math.log(0.2)]))
    assert torch.allclose(
        slope(lambda x: surrogates.held_ratio(x, old, adv, -math.inf, 2.0), logp), tensor([-2.0, 1.0])
    )


def test_held_ratio_without_bounds_has_the_slope_of_the_unclipped_surrogate() -> None:
    logp, old, adv = log(0.6, 0.2, 0.5), log(0.2, 0.4, 0.5), tensor([1.0, -2.0, 3.0])
    a = slope(lambda x: surrogates.held_ratio(x, old, adv, 0.0, math.inf), logp.clone())
    b = slope(lambda x: clipped_surrogate(x, old, adv, math.inf, math.inf), logp.clone())
    assert torch.allclose(a, b)


def test_clipped_log_ratio_by_hand() -> None:
    """eps 0.2: l is kept in [ln 0.8, ln 1.2]. r = 1.5, A = 1: min(ln 1.5, ln 1.2) = 0.182322, no slope.
    r = 1.5, A = -2: min(-2 ln 1.5, -2 ln 1.2) = -0.810930, slope +2. r = 0.5, A = -1: min(0.693147, 0.223144), no
    slope.
    """
    logp, old, adv = log(0.6, 0.6, 0.2), log(0.4, 0.4, 0.4), tensor([1.0, -2.0, -1.0])
    found = clipped_log_ratio(logp, old, adv, 0.2)
    assert torch.allclose(found, tensor([-0.182322, 0.810930, -0.223144]), atol=1e-5)
    assert torch.allclose(slope(lambda x: clipped_log_ratio(x, old, adv, 0.2), logp), tensor([0.0, 2.0, 0.0]))


def test_policy_drift_by_hand_and_as_the_slope_of_a_kl() -> None:
    """r = 4, cut 2: 2 log 0.8. r = 0.5: -0.5 log 0.2. Uncut, the slope is that of r - 1 - log r, k3 of
    KL(old || pi).
    """
    logp, old = log(0.8, 0.2), log(0.2, 0.4)
    assert torch.allclose(policy_drift(logp, old, 2.0), tensor([2 * math.log(0.8), -0.5 * math.log(0.2)]))
    a = slope(lambda x: policy_drift(x, old, math.inf), logp.clone())
    b = slope(lambda x: k3(old, x), logp.clone())
    assert torch.allclose(a, b) and torch.allclose(a, tensor([3.0, -0.5]))


def test_one_sided_log_ratio_by_hand() -> None:
    """eps 0.4: A > 0 cuts above e^0.4 = 1.49 alone, A < 0 below e^-0.4 = 0.67 alone."""
    logp, old = log(0.8, 0.1, 0.8, 0.1), log(0.4, 0.4, 0.4, 0.4)
    found = one_sided_log_ratio(logp, old, tensor([1.0, 1.0, -1.0, -1.0]), 0.4)
    assert torch.allclose(found, tensor([0.4, math.log(0.25), math.log(2), -0.4]))


def test_taper_by_hand() -> None:
    """Good replies weigh 1; bad ones min(pi/mu, 1): 1/4 where the policy has left them, 1 where it likes them more."""
    found = taper(log(0.25, 0.25, 4.0), tensor([1.0, -1.0, -1.0]))
    assert torch.allclose(found, tensor([1.0, 0.25, 1.0]))


def test_implicit_negative_by_hand() -> None:
    """q = 1/4. Right, R = 2: -log 2, slope -1. Wrong, R = 2: x = (1 - 1/2)/(3/4) = 2/3, below eps = 1: value 0, slope
    q R / ((1 - q) 1) = 2/3. Wrong, R = 1/2: x = (7/8)/(3/4) = 7/6: value -log 7/6, slope (1/8)/(3/4)/(7/6) = 1/7.
    With eps = 0.1 the second is -log 2/3, slope (1/2)/(3/4)/(2/3) = 1.
    """
    logp, old = log(0.8, 0.8, 0.2), log(0.4, 0.4, 0.4)
    verdict, rate = tensor([1.0, 0.0, 0.0]), torch.full((3,), 0.25)
    found = implicit_negative(logp, old, verdict, rate, 1.0)
    assert torch.allclose(found, tensor([-math.log(2), 0.0, -math.log(7 / 6)]), atol=1e-6)
    slopes = slope(lambda x: implicit_negative(x, old, verdict, rate, 1.0), logp.clone())
    assert torch.allclose(slopes, tensor([-1.0, 2 / 3, 1 / 7]))
    low = slope(lambda x: implicit_negative(x, old, verdict, rate, 0.1), logp.clone())
    assert torch.allclose(low, tensor([-1.0, 1.0, 1 / 7]))


def test_discriminate_by_hand_and_its_limit() -> None:
    """Right scores 1, 0; wrong 0, -1; tau = 1. For s = 1: log mean(e^-1, e^-2) = log 0.251607 = -1.379885;
    for s = 0: log mean(1, e^-1) = -0.379885. Their mean is -0.879885. tau infinite: -0.5 - 0.5 = -1."""
    a, b = tensor([1.0, 0.0]), tensor([0.0, -1.0])
    assert discriminate_loss(a, b, 1.0).item() == pytest.approx(-0.879885, abs=1e-5)
    assert discriminate_loss(a, b, math.inf).item() == pytest.approx(-1.0)
    assert discriminate_loss(a.double(), b.double(), 1e7).item() == pytest.approx(-1.0, abs=1e-6)
    assert discriminate_loss(a, b[:0], 1.0).item() == 0.0


def test_held_hinge_by_hand() -> None:
    """beta 1000, delta 0.1: KL 0.3 costs 200 x 0.3 = 60 with slope 200, that of 500 (0.2)^2; KL 0.05 costs nothing."""
    kl = tensor([0.3, 0.05], requires_grad=True)
    found = held_hinge(kl, 0.1, 1000.0)
    assert torch.allclose(found, tensor([60.0, 0.0]))
    (slopes,) = torch.autograd.grad(found.sum(), kl)
    assert torch.allclose(slopes, tensor([200.0, 0.0]))


# ------------------------------------------------------------------------------------------------------------ the terms


def test_a_sequence_ratio_by_hand_and_its_token_form() -> None:
    """Two tokens with r = 2 and r = 1/2 x 1.44: s = sqrt(1.44) = 1.2. A = 1, eps 0.3: loss -1.2; slope of each token is
    -s A / 2 = -0.6. Under eps 0.1 the reply is clipped as a whole: -1.1, no slope. A second reply, one token, r = 1, A
    = -1: 1.
    GSPO-token gives the value s on each token, and after its mean over tokens the same slopes."""
    old, adv = log(0.3, 0.5, 0.5), tensor([1.0, 1.0, -1.0])
    logp = log(0.6, 0.36, 0.5)

    def losses(term: Term, x: Tensor) -> Tensor:
        return term.loss(live([0, 0, 1], logp=x, old=old, adv=adv))

    whole, token = terms.pg_sequence(0.3, 0.3), terms.pg_sequence_by_token(0.3, 0.3)
    assert torch.allclose(losses(whole, logp), tensor([-1.2, 1.0]))
    assert torch.allclose(slope(lambda x: losses(whole, x), logp.clone()), tensor([-0.6, -0.6, 1.0]))
    assert torch.allclose(losses(token, logp), tensor([-1.2, -1.2, 1.0]))
    assert torch.allclose(slope(lambda x: losses(token, x), logp.clone()), tensor([-1.2, -1.2, 1.0]))
    tight = terms.pg_sequence(0.1, 0.1)
    assert torch.allclose(losses(tight, logp), tensor([-1.1, 1.0]))
    assert torch.allclose(slope(lambda x: losses(tight, x), logp.clone()), tensor([0.0, 0.0, 1.0]))


def test_gmpo_clips_before_the_mean_by_hand() -> None:
    """r = 4 and 1, A = 2, eps = 0.4: log ratios 0.4 and 0, loss -2 e^0.2; the clipped token has no slope, the other
    -e^0.2.
    """
    old, adv, logp = log(0.2, 0.5), tensor([2.0, 2.0]), log(0.8, 0.5)
    term = pg_geometric(0.4)
    found = term.loss(live([0, 0], logp=logp, old=old, adv=adv))
    assert torch.allclose(found, tensor([-2 * math.exp(0.2)]))
    slopes = slope(lambda x: term.loss(live([0, 0], logp=x, old=old, adv=adv)), logp.clone())
    assert torch.allclose(slopes, tensor([0.0, -math.exp(0.2)]))


def test_kl_cov_pulls_only_marked_tokens() -> None:
    """|log 2| = 0.693147 on the marked token, with slope 1; nothing on the other."""
    term = stay("top", coef=1.0)
    old, logp, top = log(0.2, 0.2), log(0.4, 0.4), tensor([1.0, 0.0])
    assert torch.allclose(term.loss(live([0, 0], logp=logp, old=old, top=top)), tensor([math.log(2), 0.0]))
    assert slope(lambda x: term.loss(live([0, 0], logp=x, old=old, top=top)), logp).tolist() == [1.0, 0.0]


def test_kinds_of_tokens_by_hand() -> None:
    """Reply 0 has entropies 0..4: its 0.8-quantile is 3.2, so 4 alone is reasoning; at 0.75 it is 3, and 3 itself is
    too.
    Reply 1, one token, is its own quantile. r = 1.4, A = 1: clipped at 1.2 as knowledge, at 1.5 as reasoning.
    k3 with ref/pi = 2 is 2 - log 2 - 1, times 0.001 on knowledge alone."""
    row, entropy = [0] * 5 + [1], tensor([4.0, 0, 1, 2, 3, 0])
    made = live(
        row,
        entropy=entropy,
        logp=torch.full((6,), math.log(0.35)),
        old=torch.full((6,), math.log(0.25)),
        ref=torch.full((6,), math.log(0.7)),
        adv=torch.ones(6),
    )
    assert torch.allclose(row_quantile(made, entropy, 0.8), tensor([3.2] * 5 + [0.0]))
    assert by_kind(made, 0.75, 1.0, 0.0).tolist() == [1, 0, 0, 0, 1, 1]
    assert torch.allclose(pg_clip_by_kind(0.8, 0.5, 0.2).loss(made), -tensor([1.4, 1.2, 1.2, 1.2, 1.2, 1.4]))
    kl = 0.001 * (1 - math.log(2))
    assert torch.allclose(kl_by_kind(0.8, 0.0, 0.001).loss(made), kl * tensor([0.0, 1, 1, 1, 1, 0]))


def test_tapered_reinforce_by_hand() -> None:
    """A bad reply with token ratios 1/2 and 1/2 weighs 1/4 on each of its tokens; a good one with ratio 3 weighs 1."""
    old, adv, logp = log(0.8, 0.4, 0.1), tensor([-1.0, -1.0, 1.0]), log(0.4, 0.2, 0.3)
    term = pg_tapered()
    slopes = slope(lambda x: term.loss(live([0, 0, 1], logp=x, old=old, adv=adv)), logp)
    assert torch.allclose(slopes, tensor([0.25, 0.25, -1.0]))


def test_disco_terms_by_hand() -> None:
    """Group 0: a right reply of mean log-prob -1, wrong ones of -2 and -3; tau = inf: -2.5 + 1 = -1.5. Group 1 has no
    wrong
    reply: 0. The KL of group 0 is the mean of old - logp over its tokens: (0.2 + 0 + 0.1 + 0.1)/4 = 0.1; delta 0.05,
    beta 10.
    """
    logp, moved = tensor([-0.5, -1.5, -2.0, -3.0, -1.0]), tensor([0.2, 0.0, 0.1, 0.1, 0.0])
    made = live([0, 0, 1, 2, 3], [0, 0, 0, 1], logp=logp, old=logp + moved, right=tensor([1.0, 1, 0, 0, 1]))
    found = discriminate(mean_logp, math.inf).loss(made)
    assert torch.allclose(found, tensor([-1.5, 0.0]))
    assert torch.allclose(hold(0.05, 10.0).loss(made), tensor([0.5 * 0.1, 0.0]), atol=1e-6)
    ratio = mean_ratio(made)
    assert torch.allclose(ratio[0], (tensor([-0.2, 0.0]).exp()).mean())


# ------------------------------------------------------------------------------------- score, select and credit parts


def made(*rewards: float, length: int = 2) -> Group:
    prompt = Turn(torch.arange(1), "task")
    traces = [
        Trace(
            (prompt, Turn(torch.arange(length), "policy", torch.full((length,), -1.0), parent=prompt)), i, {"reward": r}
        )
        for i, r in enumerate(rewards)
    ]
    return Group(QUESTION, traces)


def stream(group: Group, name: str) -> list[list[float]]:
    return [trace.streams[name][trace.by("policy")].tolist() for trace in group.traces]


def test_overlong_punishment_by_hand() -> None:
    """L_max 20480 with a buffer of 4096: nothing to 16384, half way -0.5, -1 at the end and beyond."""
    found = [overlong_punishment(n, 20480, 4096) for n in (100, 16384, 18432, 20480, 30000)]
    assert found == [0.0, 0.0, -0.5, -1.0, -1.0]
    assert overlong_punishment(20480, 20480, 0) == 0.0


def test_a_punished_score_by_hand() -> None:
    """The longest reply is 10 tokens, the buffer half of it: 8 tokens are punished by 0.6. Right: 1 - 0.6; wrong: -1 -
    0.6.
    """
    group = made(1.0, 0.0, length=8)
    punish_overlong(0.5).call([group], STEP)
    assert [trace.scores["shaped"] for trace in group.traces] == pytest.approx([0.4, -1.6])
    with pytest.raises(ValueError, match="between 0 and 1"):
        punish_overlong(1.5)


def test_mixed_asks_the_verifiers_score_not_the_shaped_one() -> None:
    """An all-right group goes although its shaped scores differ; a mixed one stays, tagged."""
    even, uneven = made(1, 1), made(1, 0)
    even.traces[0].scores["shaped"], even.traces[1].scores["shaped"] = 1.0, 0.5
    step = SimpleNamespace(notes=Notes())
    assert mixed().call([even, uneven], step) == [uneven]
    assert all("mixed" in trace.tags for trace in uneven.traces)
    assert step.notes.means()["dropped/all_the_same"] == 0.5


def test_covariance_and_the_top_share_by_hand() -> None:
    """log-probs -1, -3 | -2, -2 with A = 1 | -1: means -2 and 0, so cov = 1, -1 | 0, 0. The top half: the largest two,
    the
    first of the tied ones."""
    group = made(1, 0)
    group.traces[0].streams |= {"old": tensor([math.nan, -1, -3]), "adv": torch.full((3,), 1.0)}
    group.traces[1].streams |= {"old": tensor([math.nan, -2, -2]), "adv": torch.full((3,), -1.0)}
    covariance().call([group], STEP)
    assert stream(group, "cov") == [[1.0, -1.0], [0.0, 0.0]]
    top_share(0.5).call([group], STEP)
    assert stream(group, "top") == [[1.0, 0.0], [1.0, 0.0]]
    top_share(1e-6).call([group], STEP)
    assert stream(group, "top") == [[1.0, 0.0], [0.0, 0.0]], "one token at least"


def test_the_band_is_drawn_from_at_random_and_whatever_the_order() -> None:
    """Of 200 tokens, the 100 with cov = 2 lie in [1, 5] and those with cov = 9 do not; a share of 0.1 draws 20 of the
    former.
    """

    def drawn(reverse: bool, step: int) -> list[list[float]]:
        group = made(*[1.0] * 10, length=20)
        for trace in group.traces:
            trace.streams["cov"] = torch.where(torch.arange(21) % 2 == 0, 2.0, 9.0)
        if reverse:
            group.traces.reverse()
        drop_from_band(1.0, 5.0, 0.1).call([group], SimpleNamespace(clock=Clock(step, 10), notes=Notes()))
        found = stream(group, "keep")
        return found[::-1] if reverse else found

    keep = drawn(False, 0)
    assert sum(x == 0 for row in keep for x in row) == 20
    assert all(row[0::2] == [1.0] * 10 for row in keep), "tokens above the band are left alone"
    assert keep == drawn(True, 0)
    assert keep != drawn(False, 1)


def test_no_token_in_the_band_drops_none() -> None:
    group = made(1, 0)
    for trace in group.traces:
        trace.streams["cov"] = torch.zeros(3)
    drop_from_band(1.0, 5.0, 0.5).call([group], STEP)
    assert stream(group, "keep") == [[1.0, 1.0], [1.0, 1.0]]


def test_mismatch_weights_by_hand() -> None:
    """mu has log-probs -1, -1. The trainer's make ratios 3 and 1/4: truncated at 2 they are 2 and 1/4; masked to [0.5,
    5],
    3 and 0; masked below 2, 0 and 1/4. The reply's ratio is 3/4 on both tokens."""
    for part, wanted in (
        (truncated(2.0), [2.0, 0.25]),
        (masked(0.5, 5.0), [3.0, 0.0]),
        (masked(0.0, 2.0), [0.0, 0.25]),
        (masked(0.0, 2.0, by_sequence), [0.75, 0.75]),
        (masked(0.0, 0.5, by_sequence), [0.0, 0.0]),
        (truncated(math.inf, by_token), [3.0, 0.25]),
    ):
        group = made(1.0)
        group.traces[0].streams["old"] = tensor([math.nan, math.log(3) - 1, math.log(0.25) - 1])
        part.call([group], STEP)
        assert stream(group, "weight")[0] == pytest.approx(wanted)


def test_verdict_streams_by_hand() -> None:
    """Three of four right: q = 0.75; all right: 1, kept at 0.98. Signed with baseline -0.5: 1.5 and -0.5."""
    group, all_right = made(1, 1, 0, 1), made(1, 1)
    for one in (group, all_right):
        right().call([one], STEP)
        pass_rate(0.02, 0.98).call([one], STEP)
        signed(-0.5).call([one], STEP)
    assert [row[0] for row in stream(group, "right")] == [1, 1, 0, 1]
    assert stream(group, "pass_rate")[0][0] == 0.75 and stream(all_right, "pass_rate")[0][0] == pytest.approx(0.98)
    assert [row[0] for row in stream(group, "adv")] == [1.5, 1.5, -0.5, 1.5]


def test_gpg_makes_up_for_flat_groups_by_hand() -> None:
    """Three groups, one flat: advantages times 3/2. All flat: nothing to make up for."""
    groups = [made(1, 0), made(0, 0), made(1, 0)]
    part = chain(group_relative(std=False), make_up_for_flat_groups())
    part.call(groups, STEP)
    assert [row[0] for row in stream(groups[0], "adv")] == [0.75, -0.75]
    assert stream(groups[1], "adv")[0][0] == 0
    part.call([flat := made(1, 1)], STEP)
    assert stream(flat, "adv")[0][0] == 0


# ----------------------------------------------------------------------------------------------------------- identities


def on_mixed(term: Term, *credit: Part) -> Method:
    return plain(term, *credit, select=mixed(), tag="mixed")


def test_dapo_without_its_four_ideas_is_grpo(small_model: Path) -> None:
    """No punishment and a symmetric clip, on mixed groups: GRPO by token mean. Scores of +-1 have advantages of 0 and
    1.
    """
    found = find("dapo").build(TASK, n=4, eps_high=0.2, overlong=0.0, minibatches=1)
    same_gradient(found, on_mixed(pg_clip(0.2, norm=token_mean), group_relative(eps=5e-7), behaviour()), small_model)


def test_dr_grpo_on_policy_is_a_sum_over_tokens_by_a_constant(small_model: Path) -> None:
    """The slow loop: every token weighs 1 / (replies x longest reply), whatever its reply's length and its group's
    spread.
    """
    built = find("dr_grpo").build(TASK, n=4)
    models = doubled(build_cast(built, small_model))
    for phase, groups, step in credited(built, models):
        found = gradients(models, phase.learn, groups, step)
        replies = sum(len(group.traces) for group in groups)
        wanted = slow(models, groups, lambda t, g, replies=replies: 1 / (replies * SMALL.max_new_tokens))
        assert float((found - wanted).norm() / wanted.norm()) < 1e-5


def test_dr_grpo_advantages_are_rloos_by_a_constant() -> None:
    """r - mean r = (n-1)/n (r - mean of the others): rewards 1, 0, 0, 1 give 1/2 = 3/4 x (1 - 1/3)."""
    group = made(1, 0, 0, 1)
    group_relative(std=False).call([group], STEP)
    assert [row[0] for row in stream(group, "adv")] == [3 / 4 * (1 - 1 / 3), 3 / 4 * (0 - 2 / 3), -0.5, 0.5]


@pytest.mark.parametrize("name", ["gspo", "gspo_token", "gmpo", "sapo"])
def test_on_policy_the_ratio_does_not_matter(name: str, small_model: Path) -> None:
    """At ratio 1 these are GRPO without its KL: a mean over replies of -A grad mean log pi."""
    found = find(name).build(TASK, n=4, minibatches=1)
    same_gradient(found, grpo(TASK, n=4, beta=0.0), small_model, to=1e-5)


def test_gspo_and_its_token_form_have_one_gradient_off_policy_too(small_model: Path) -> None:
    """After the anchor is moved by hand: the same gradient with one advantage a reply."""
    found = []
    for name in ("gspo", "gspo_token"):
        built = find(name).build(TASK, n=4, minibatches=1, eps_low=0.05, eps_high=0.05)
        models = doubled(build_cast(built, small_model))
        for phase, groups, step in credited(built, models):
            move_anchor(groups)
            found.append(gradients(models, phase.learn, groups, step))
    assert float(found[0].norm()) > 0
    assert torch.allclose(found[0], found[1], rtol=1e-9, atol=1e-12)


def move_anchor(groups: list[Group]) -> None:
    """Ratios that differ from 1, the same at every call."""
    generator = torch.Generator().manual_seed(0)
    for trace in (trace for group in groups for trace in group.traces):
        trace.streams["old"] = trace.streams["old"] + 0.1 * torch.randn(len(trace), generator=generator)


@pytest.mark.parametrize("name", ["cispo", "cpgd"])
def test_on_policy_group_means_of_reinforce(name: str, small_model: Path) -> None:
    """At ratio 1: -A log pi, meaned within groups; CPGD's drift has no slope there."""
    found = find(name).build(TASK, n=4, minibatches=1)
    same_gradient(found, plain(pg_reinforce(norm=group_mean), group_relative()), small_model, to=1e-5)


def test_gpg_is_reinforce_where_every_group_is_mixed(small_model: Path) -> None:
    """The correction is a scale: B / (B - M) of REINFORCE with a group baseline, 1 where M = 0."""
    a, b = find("gpg").build(TASK, n=4), plain(pg_reinforce(norm=token_mean), group_relative(std=False))
    models = doubled(build_cast(a, small_model))
    (_, groups, _), *_ = credited(a, models)
    flat = sum(len({trace.scores["reward"] for trace in group.traces}) < 2 for group in groups)
    scaled = replace(
        b,
        phases=(
            replace(b.phases[0], learn=Learn(pg_reinforce(norm=token_mean, coef=len(groups) / (len(groups) - flat)))),
        ),
    )
    same_gradient(a, scaled, small_model, to=1e-6)


def test_clip_cov_with_an_empty_band_is_grpo_on_mixed_groups(small_model: Path) -> None:
    found = find("clip_cov").build(TASK, n=4, eps=0.2, low=1e9, high=2e9, minibatches=1)
    same_gradient(found, on_mixed(pg_clip(0.2, norm=token_mean), group_relative(), behaviour()), small_model)


def test_clip_cov_that_drops_all_has_no_gradient(small_model: Path) -> None:
    built = find("clip_cov").build(TASK, n=4, low=-1e9, high=1e9, share=1.0, minibatches=1)
    models = doubled(build_cast(built, small_model))
    for phase, groups, step in credited(built, models):
        assert float(gradients(models, phase.learn, groups, step).abs().max()) == 0.0


def test_kl_cov_without_its_penalty_is_the_unclipped_surrogate(small_model: Path) -> None:
    found = find("kl_cov").build(TASK, n=4, beta=0.0, minibatches=1)
    same_gradient(found, on_mixed(pg_clip(math.inf, norm=token_mean), group_relative(), behaviour()), small_model)


def test_high_entropy_tokens_with_all_tokens_is_dapo(small_model: Path) -> None:
    same_gradient(
        find("high_entropy_tokens").build(TASK, n=4, top=1.0, minibatches=1),
        find("dapo").build(TASK, n=4, minibatches=1),
        small_model,
        to=1e-5,
    )
    built = find("high_entropy_tokens").build(TASK, n=4)
    for _, groups, _ in credited(built, build_cast(built, small_model)):
        traces = [trace for group in groups for trace in group.traces]
        claimed, all_tokens = (
            sum(int(f(t).sum()) for t in traces) for f in (lambda t: t.streams["claim:pg"], lambda t: t.by("policy"))
        )
        assert claimed == math.ceil(0.2 * all_tokens)


def test_dual_tokens_of_one_kind_are_grpo(small_model: Path) -> None:
    """The same clip and the same KL for both kinds: GRPO by token mean."""
    found = find("dual_token_archer").build(
        TASK, n=4, eps_reasoning=0.2, beta_reasoning=0.0, beta_knowledge=0.0, minibatches=1
    )
    same_gradient(found, clipped(token_mean), small_model)


@pytest.mark.parametrize("name", ["tis", "mis", "icepop"])
def test_a_sampler_that_is_the_trainer_needs_no_correction(name: str, small_model: Path) -> None:
    same_gradient(find(name).build(TASK, n=4), grpo(TASK, n=4, beta=0.0), small_model, to=1e-4)


def test_corrections_know_their_levels() -> None:
    with pytest.raises(ValueError, match="option 'level' is 'turn'; it must be token or sequence"):
        find("tis").build(TASK, level="turn")
    with pytest.raises(ValueError, match="option 'score' is 'luck'; it must be logp or ratio"):
        find("disco").build(TASK, score="luck")


def test_topr_on_policy_is_reinforce(small_model: Path) -> None:
    found = find("topr").build(TASK, n=4, minibatches=1)
    same_gradient(found, plain(pg_reinforce(norm=seq_mean), signed()), small_model, to=1e-5)


def test_nft_on_policy_is_dr_grpo_or_grpo(small_model: Path) -> None:
    """omega = 1 - q: slopes -(1 - q) and +q, Dr. GRPO's advantages. omega = sqrt((1-q)/q): GRPO's, with the deviation
    of the
    population: sqrt(n/(n-1)) times those of the sample's."""
    from burnish.learn.norms import constant

    dr = on_mixed(pg_clip(0.2, norm=constant()), group_relative(std=False), behaviour())
    same_gradient(find("nft").build(TASK, n=4, minibatches=1), dr, small_model, to=1e-5)
    std = on_mixed(pg_clip(0.2, norm=constant(), coef=math.sqrt(4 / 3)), group_relative(), behaviour())
    same_gradient(find("nft").build(TASK, n=4, weight="grpo", minibatches=1), std, small_model, to=1e-5)


def test_nft_without_negatives_learns_from_right_replies_alone(small_model: Path) -> None:
    built = find("nft").build(TASK, n=4, negative=0.0, minibatches=1)
    models = doubled(build_cast(built, small_model))
    for phase, groups, step in credited(built, models):
        whole = gradients(models, phase.learn, groups, step)
        for trace in (trace for group in groups for trace in group.traces if trace.scores["reward"] < 0.5):
            trace.streams["old"] = trace.streams["old"] - 0.3
        assert torch.equal(whole, gradients(models, phase.learn, groups, step))


@pytest.mark.parametrize("score", ["logp", "ratio"])
def test_disco_with_a_large_tau_is_disco_b(score: str, small_model: Path) -> None:
    a = find("disco").build(TASK, n=4, score=score, tau=1e6, minibatches=1)
    same_gradient(a, find("disco_b").build(TASK, n=4, score=score, minibatches=1), small_model, to=1e-5)


def test_disco_b_on_policy_is_reinforce_without_the_difficulty_bias(small_model: Path) -> None:
    """mean over wrong - mean over right of s, within a group of n with share p right, is the mean over replies of -A s
    with
    A = (r - p) / (p (1 - p)): GRPO's advantage without its factor sqrt(p (1 - p))."""

    def unbiased() -> Part:
        def call(groups: list[Group], step) -> list[Group]:
            for group in groups:
                p = sum(trace.scores["reward"] for trace in group.traces) / len(group.traces)
                for trace in group.traces:
                    trace.streams["adv"] = trace.streams["adv"] / (p * (1 - p) or 1)
            return groups

        return Part(name="unbiased", call=call, reads=frozenset({"stream:adv"}), updates=frozenset({"stream:adv"}))

    wanted = plain(pg_reinforce(norm=seq_mean), group_relative(std=False), unbiased())
    found = find("disco_b").build(TASK, n=4, minibatches=1)
    same_gradient(found, wanted, small_model, to=1e-5)
