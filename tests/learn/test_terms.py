"""Every term, on two replies of two tokens: which way it pushes each token, and its number, derived by hand.

A sign is that of the loss's slope in the logit of the token that was said, or in the value or score that a critic gave:
"-" means that the update raises it. A term without a row in the table (term_cases.py) fails.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from preference_cases import ROWS
from reward_cases import SEVERAL_OUTPUTS
from term_cases import CASES as BASIC
from term_cases import LOGITS, SAID, Case
from torch import Tensor

from burnish import zoo
from burnish.core.types import Clock
from burnish.engine.mixture import arithmetic
from burnish.learn import terms
from burnish.learn.norms import seq_mean
from burnish.learn.term import Live, Term
from burnish.learn.terms.denoising import kl_steps
from burnish.learn.terms.value import value_mse
from burnish.zoo.constrained_rlhf import value_heads_clip
from burnish.zoo.disco import discriminate, mean_logp
from burnish.zoo.p3o import pairwise_joint
from burnish.zoo.tba import balance

CASES = [*BASIC, *(Case(r.term, r.signs, r.number, r.streams, r.above, other=r.other) for r in ROWS)]


def seen_by(case: Case) -> tuple[Live, Tensor, Tensor]:
    """What the term sees, the logits, and the critic's numbers; only what the term declares is there."""
    logits = torch.tensor(LOGITS, dtype=torch.float64, requires_grad=True)
    value = torch.tensor(case.value, dtype=torch.float64, requires_grad=True)
    said = torch.tensor(SAID)
    logs = torch.log_softmax(logits, -1)
    logp = logs.gather(-1, said[:, None])[:, 0]
    theirs = logits.detach().clone()
    theirs[torch.arange(4), said] += torch.tensor(case.other, dtype=torch.float64)
    own = {"logp": logp, "logits": logits, "entropy": -(logs.exp() * logs).sum(-1), "value": value, "score": value}
    own["hidden"] = logits.detach()
    others = {"logits": theirs, "hidden": theirs, "logp": logp.detach(), "value": value.detach()}
    outputs = {name: others[name.split(".")[1]] if "." in name else own[name] for name in case.term.live}
    streams = {name: torch.tensor(numbers) for name, numbers in case.streams.items()}
    streams |= {name: logp.detach() - torch.tensor(d, dtype=torch.float64) for name, d in case.above.items()}
    streams = {name: x.double() if x.is_floating_point() else x for name, x in streams.items()}
    assert set(streams) == set(case.term.streams)
    rows, pairs, group = torch.tensor([0, 0, 1, 1]), torch.tensor([[0, 1]]), torch.zeros(2, dtype=torch.long)
    return Live(outputs, streams, rows, 2, pairs, [(0, 1)], group, Clock(0, 10)), logits, value


def named(case: Case) -> str:
    return case.term.loss.__qualname__.split(".")[0]


@pytest.mark.parametrize("case", CASES, ids=[f"{named(case)}{i}" for i, case in enumerate(CASES)])
def test_a_term_pushes_where_it_should_by_the_number_derived_by_hand(case: Case) -> None:
    live, logits, value = seen_by(case)
    losses = case.term.loss(live)
    units = {"token": 4, "sequence": 2, "pair": 1, "list": 1, "group": 1}[case.term.unit]
    assert losses.shape == (units,)
    if case.number is not None:
        logp = torch.log_softmax(torch.tensor(LOGITS, dtype=torch.float64), -1)
        said = [float(row[token]) for row, token in zip(logp, SAID, strict=True)]
        assert losses.tolist() == pytest.approx(case.number(said), abs=1e-6)
    losses.sum().backward()
    if case.signs:
        trains_values = case.term.live[0] in ("value", "score")
        slope = value.grad if trains_values else logits.grad[torch.arange(4), torch.tensor(SAID)]  # type: ignore[index]
        assert "".join("-" if x < -1e-9 else "+" if x > 1e-9 else "0" for x in slope.tolist()) == case.signs  # type: ignore[union-attr]


def factories() -> dict[str, Callable[..., Term]]:
    """Every public function of burnish.learn.terms, and of the zoo, that makes a term."""
    modules = [
        importlib.import_module(f"{package.__name__}.{found.name}")
        for package in (terms, zoo)
        for found in pkgutil.iter_modules(package.__path__)
    ]
    return {
        name: made
        for module in modules
        for name, made in inspect.getmembers(module, inspect.isfunction)
        if made.__module__ == module.__name__
        and not name.startswith("_")
        and made.__annotations__.get("return") == "Term"
    }


def test_every_term_has_a_row_in_the_table() -> None:
    tested = {named(case) for case in CASES}
    tested |= {"pg_soft", "pg_held_ratio", "pg_log_ratio"}  # which share one loss
    tested |= {"pair_term", "list_term", "unpaired_term"}  # factories of others; tests/learn/test_compared.py
    tested |= {"head_term"}  # a factory of those that fit a head
    tested |= {"score_pair_term", "score_list_term"}  # factories of others, below, in rows of those that call them
    tested |= SEVERAL_OUTPUTS  # tests/learn/test_reward_terms.py
    tested |= {"value_heads_clip"}  # below
    tested |= {"pg_sequence", "pg_whole"}  # which share one loss
    tested |= {"many_labels"}  # tests/zoo/test_refusal_composition.py
    tested |= {"kl_steps"}  # below
    assert len(factories()) > 40
    assert set(factories()) - tested == set()


def test_the_kl_of_a_denoisers_step() -> None:
    """Means 3, 1 and 0, 0 in units of the std: (9 + 1) / 2; of equal means 0."""
    drift, ref = torch.tensor([[3.0, 1.0], [2.0, 2.0]]), torch.tensor([[0.0, 0.0], [2.0, 2.0]])
    live: Any = SimpleNamespace(drift=drift, outputs={"ref.drift": ref})
    assert kl_steps(coef=1.0).loss(live).tolist() == [5.0, 0.0]


@pytest.mark.parametrize("name", sorted(factories()))
def test_what_a_term_is_given_is_in_it(name: str) -> None:
    """Coefficient, name, norm and trainee reach the term, whatever its loss is."""
    made = factories()[name]
    parameters = inspect.signature(made).parameters
    given: dict[str, Any] = {"coef": 0.37, "name": "mine", "norm": seq_mean, "trainee": "someone"}
    given = {key: value for key, value in given.items() if key in parameters}
    needed = {
        "blend": arithmetic("guide", 0.5),
        "surrogate": pairwise_joint,
        "score": mean_logp,
        "columns": None,
        "loss": torch.sub,
    }
    needed |= {
        "output": "value",
        "target": "goal",
        "anchor": "ref",
        "weight": "w",
        "weigh": torch.sqrt,
        "weights": {"ref": 1.0},
        "critics": ("a", "b"),
    }
    for key, parameter in parameters.items():
        if parameter.default is parameter.empty and parameter.kind != parameter.VAR_POSITIONAL and key not in given:
            given[key] = needed.get(key, 0.5)
    term = made(**given)
    for key in ("coef", "name", "norm", "trainee"):
        if key in given:
            assert getattr(term, key) == given[key], key


@pytest.mark.parametrize("term", [balance(0.5), discriminate(mean_logp, 0.5)], ids=["balance", "discriminate"])
def test_replies_are_compared_within_their_group_alone(term: Term) -> None:
    """A group of one reply has nothing to compare: its loss is 0, whatever the other group says."""
    case = Case(
        term, "", None, {"reward": [0.0, 2.0, 0.0, 0.0]} if "reward" in term.streams else {"right": [1, 1, 0, 0]}
    )
    case.above = {"ref": [0.3, 0.0, 0.0, 0.0]} if "ref" in term.streams else {}
    live, _, _ = seen_by(case)
    live.group = torch.tensor([0, 1])
    assert term.loss(live).tolist() == [0.0, 0.0]


def test_the_clipped_losses_of_several_heads_are_added() -> None:
    """As value_clip(0.2) in the table: 0.5 towards a return of 1, 2 towards -2, from 0 with an old value of 0.1."""
    term = value_heads_clip(0.2)
    value = torch.zeros(4, 2, dtype=torch.float64, requires_grad=True)
    case = Case(term, "", None, {"value": [0.0] * 4, "returns": [0.0] * 4})
    live, _, _ = seen_by(case)
    live.outputs["value"] = value
    live.streams["value"] = torch.full((4, 2), 0.1, dtype=torch.float64)
    live.streams["returns"] = torch.tensor([[1.0, -2.0]] * 4, dtype=torch.float64)
    losses = term.loss(live)
    assert losses.tolist() == pytest.approx([2.5] * 4)
    losses.sum().backward()
    assert value.grad is not None and value.grad[0].tolist() == pytest.approx([-1.0, 2.0])


def test_a_critic_of_several_columns_learns_those_that_are_named() -> None:
    term = value_mse("value", slice(1, 3), "goal")
    value = torch.zeros(4, 4, dtype=torch.float64, requires_grad=True)
    goal = torch.tensor([[1.0, 2.0]] * 4, dtype=torch.float64)
    case = Case(term, "", None, {"goal": [0.0] * 4})
    live, _, _ = seen_by(case)
    live.outputs["value"], live.streams["goal"] = value, goal
    losses = term.loss(live)
    assert losses.tolist() == [5.0] * 4
    losses.sum().backward()
    assert value.grad is not None and value.grad.tolist() == [[0.0, -2.0, -4.0, 0.0]] * 4
