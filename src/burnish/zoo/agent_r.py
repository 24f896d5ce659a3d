"""Agent-R: Training Language Model Agents to Reflect via Iterative Self-Training (arXiv 2501.11425)."""

from __future__ import annotations

from typing import Annotated

from burnish import draw, learn, rollout, score, select
from burnish.core.schedules import linear
from burnish.method import Method, Option, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

AGENT_R = Paper(
    "agent-r", "2501.11425", "Agent-R: Training Language Model Agents to Reflect via Iterative Self-Training"
)

Rounds = Annotated[int, Option("Visits to each tree.", at_least=1)]
Width = Annotated[int, Option("Replies that are proposed in each state.", at_least=2)]
Explore = Annotated[float, Option("How strongly the search prefers what it has visited less.", at_least=0)]
_TREE = {"task": "guess", "rounds": 4, "width": 3}


@register(
    AGENT_R,
    family="agents",
    summary="Imitate episodes that notice their first mistake and turn into good ones, found by tree search.",
    when="An agent repeats its mistakes to the end of an episode: it should notice and correct them on the way.",
    example="burnish train agent_r --task guess",
    trial={**_TREE, "alpha": 0.5, "final": 0.5},
)
def agent_r(
    task: draw.Source,
    *,
    rounds: Rounds = 16,
    width: Width = 4,
    c: Explore = 0.25,
    alpha: Annotated[float, Option("Reward above which an episode is good, at the start.")] = 0.5,
    final: Annotated[float, Option("The same at the end of the run.")] = 0.9,
    beta: Annotated[float, Option("How much worse than the best a bad episode is at least.", at_least=0)] = 0.2,
    revision: Annotated[
        str | None, Option("What the policy says when it revises, with | between several; unset: ten sentences.")
    ] = None,
    updates: opt.Updates = 4,
    minibatches: opt.Minibatches = 4,
    temperature: opt.Temperature = 1.0,
) -> Method:
    """Agent-R: search for good and bad episodes, splice them, imitate.

    Search by Q + c sqrt(ln N / n), unvisited first, running means. An episode is good if R > alpha; a bad one has
    R < R(best) - beta. The policy itself judges each step of the bad one as good, uncertain or bad.
    row = bad episode up to and with its first bad step (no loss) + one of ten revision sentences (loss) +
          "ok." + a best episode after the turns that the two share (loss)
    L = -(1/N) sum over the N tokens of rows and good episodes that have loss of log pi

    Of the best episodes a bad one gets the one that shares its beginning longest, and its first bad step is looked for
    after that. alpha rises linearly to `final`. Without bad episodes it is rejection-sampling fine-tuning. As in the
    paper, each round's episodes are imitated in many updates before the next round is played. The thresholds and the
    number of updates are ours: the release compares numbers with strings. The environment has to take a revision as an
    action without effect, and the good episode has to make sense after the bad step: nothing is played again. The
    policy has to be able to say a revision. Departures: the judgement is the likeliest of the three words, and no chat
    data is mixed in.
    """
    return method(
        draw=draw.prompts(task, "env"),
        rollout=rollout.searched(
            rounds, width, rule=rollout.uct(c), take=rollout.finished, temperature=temperature, writes=()
        ),
        score=score.bad_steps(),
        select=select.revisions(
            linear(alpha, final), beta, words=revision.split("|") if revision else select.REVISIONS
        ),
        learn=learn.Learn(
            learn.imitate(on=("policy", "revision")), updates=updates, minibatches=minibatches, logp_temperature=1.0
        ),
        models=roles(),
    )
