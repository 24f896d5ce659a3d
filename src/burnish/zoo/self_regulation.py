"""Self-Regulation and Requesting Interventions (arXiv 2502.04576)."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, select
from burnish.core.schedules import after, every
from burnish.draw.helper_states import POOLS
from burnish.method import Method, Option, Phase, chain, frozen, roles, trained
from burnish.methods import opt, register
from burnish.papers import Paper

SELF_REGULATION = Paper("self-regulating-helper", "2502.04576", "Self-Regulation and Requesting Interventions")


@register(
    SELF_REGULATION,
    family="agents",
    summary="Learn when to ask a stronger model for help, within a budget of requests.",
    when="A stronger model can take over single turns, each costs, and you want to know which are worth it.",
    example="burnish train self_regulating --task guess:1 --expert runs/DIR/model --max-new-tokens 8",
    trial={"task": "guess", "n": 4, "collect": 0, "expert": "tiny"},
)
def self_regulating(
    task: draw.Source,
    *,
    expert: Annotated[str, Option("The stronger model that helps: a name or directory, with the policy's tokenizer.")],
    budget: Annotated[float, Option("Requests for help that an episode may make on average.", at_least=0)] = 1.0,
    n: opt.Replies = 8,
    share: Annotated[
        float, Option("Chance of help in a turn while episodes are recorded.", at_least=0, at_most=1)
    ] = 0.5,
    collect: Annotated[int, Option("Steps that only record episodes.", at_least=0)] = 10,
    pool: Annotated[
        str,
        Option("Which states with the same key() are one state: those of one task, or of all tasks.", choices=POOLS),
    ] = "task",
    capacity: Annotated[int, Option("Recorded replies that are kept.", at_least=1)] = 20_000,
    measure_every: Annotated[int, Option("Steps between episodes with the helper in charge.", at_least=1)] = 10,
    temperature: opt.Temperature = 1.0,
) -> Method:
    """Self-regulation by offline values of states, reconstructed from the abstract.

    Episodes of a frozen policy are recorded in which help (the expert writes the turn) comes at random.
    V(s) = max(V_cont(s), V_help(s) - lambda), V_a(s) = mean over recorded steps of r + V(s'); lambda by bisection, the
    lowest at which an episode expects at most `budget` requests.  y(s) = 1 if V_help(s) - lambda > V_cont(s), else 0
    L = mean over states of -y log sigmoid(h(s)) - (1 - y) log(1 - sigmoid(h(s))); the helper asks where h(s) > 0

    The product is the helper. budget = 0 never asks. States are those that the environment's key() names; states in
    which one of the two actions was not recorded have no label. V is a mean over the steps that were recorded in a
    state: where states are met a few times only, labels are noise and the helper learns never to ask. Then let key()
    name what matters alone, such as what is left to do, and use pool = all. Departures: the rewards of recorded
    episodes stand for the success probability that the paper takes from a process reward model; the recursion and the
    bisection are ours.
    """
    replay = select.Store("helper replay", capacity, select.turns_by("policy"))
    asked = draw.prompts(task, "env")
    record = Phase(
        name="record",
        draw=asked,
        rollout=rollout.assisted(n, share=share, temperature=temperature),
        select=select.remember(replay, "score:reward", "turn_score:reward"),
        learn=learn.Learn(),
    )
    main = Phase(
        times=after(collect),
        draw=draw.helper_states(replay, budget, pool),
        rollout=rollout.states(),
        credit=chain(credit.asks_for_help(), credit.claim("ask", "task", "env", positions="end")),
        learn=learn.Learn(learn.step_chance("label", trainee="helper", name="ask")),
    )
    gated = Phase(
        name="gated",
        times=every(measure_every, collect + measure_every - 1),
        draw=asked,
        rollout=rollout.assisted(n, gate="helper", temperature=temperature),
        learn=learn.Learn(),
    )
    models = roles("helper", helper=trained(outputs=1), policy=frozen("base"), expert=frozen(expert))
    return Method(models=models, phases=(record, main, gated), product="helper")
