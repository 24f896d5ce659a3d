"""DeAL: Decoding-time Alignment for Large Language Models (arXiv 2402.06147).

Beam search whose beams are ranked by their log-probs and by a guide.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from torch import Tensor

from burnish import draw, learn, rollout, score, select
from burnish.core.parts import Rollout, names, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Sampling, Task
from burnish.method import Method, Option, chain, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper
from burnish.rollout.candidates import Guide, add_token, candidate_scores, candidates_of, in_batches, next_logp, started
from burnish.rollout.starts import Reply, require_room

DEAL = Paper("deal", "2402.06147", "DeAL: Decoding-time Alignment for Large Language Models")


TAG = "beam"


@dataclass(frozen=True, eq=False)
class Beam:
    """A reply as far as it is written.

    logp    log pi of it
    score   logp plus the guide's score after its last token: by it beams are ranked
    token, token_logp  what the reply is to be extended by; None where it is written already
    """

    reply: Reply
    logp: float = 0.0
    score: float = 0.0
    token: Tensor | None = None
    token_logp: Tensor | None = None


@supplies("tokens:*", "mu:*", "tag:beam", "score:beam")
def beam_search(width: int, guide: Guide, *, who: str = "policy") -> Rollout:
    """`width` replies per task, the best first: beam search with scores of a guide (DeAL, arXiv 2402.06147).

    Each unfinished beam is extended by its `guide.k` likeliest tokens. Of all extensions and of the finished beams
    the `width` with the largest log pi(y_<=t) + guide's score are kept, until all that are kept are finished.
    scores["beam"] is that sum at the end. A guide without scores leaves plain beam search. The recorded log-probs are
    the model's own.
    """
    if width < 1:
        raise ValueError(f"the width is {width}; at least 1 beam is needed")

    def call(tasks: list[Task], step: Step) -> list[Group]:
        searches = [[Beam(reply) for reply in started(task, 1, step, Sampling(0.0), who, TAG)] for task in tasks]
        for (first,) in searches:
            require_room(first.reply, step.models[who])
        while True:
            running = [k for k, own in enumerate(searches) if not all(beam.reply.stopped for beam in own)]
            if not running:
                return [_group(task, own) for task, own in zip(tasks, searches, strict=True)]
            for k, own in zip(running, _extended([searches[k] for k in running], width, guide, step), strict=True):
                searches[k] = own

    return Rollout(
        name=f"beams({width}) under {guide.name}",
        call=call,
        reads=frozenset({"task:prompt", f"model:{who}.logits"}) | guide.reads,
        writes=names("tokens", ("task", who)) | names("mu", who) | names("tag", TAG) | {"score:beam"},
    )


def _extended(searches: Sequence[list[Beam]], width: int, guide: Guide, step: Step) -> list[list[Beam]]:
    """The beams of each task after one more token of the unfinished ones, the best first."""
    unfinished = [beam for own in searches for beam in own if not beam.reply.stopped]
    by_reply = {id(beam.reply): beam for beam in unfinished}
    proposed: dict[int, list[Beam]] = {}
    for some in in_batches([beam.reply for beam in unfinished], step):
        its = [by_reply[id(reply)] for reply in some]
        proposed |= {id(beam): row for beam, row in zip(its, _proposals(its, guide, step), strict=True)}
    found = []
    for own in searches:
        pool = [new for beam in own for new in proposed.get(id(beam), [beam])]
        best = sorted(pool, key=lambda beam: -beam.score)[:width]
        found.append([_written(beam, step) for beam in best])
    return found


def _proposals(beams: Sequence[Beam], guide: Guide, step: Step) -> list[list[Beam]]:
    """Each beam with each of its likeliest next tokens, not yet written."""
    replies = [beam.reply for beam in beams]
    logp = next_logp(replies, step.models[replies[0].start.who])
    candidates = candidates_of(logp, guide.k)
    own, scores = logp.gather(-1, candidates), candidate_scores(replies, candidates, guide, step)
    found = []
    for b, beam in enumerate(beams):
        totals = [beam.logp + more for more in own[b].tolist()]
        found.append(
            [
                Beam(beam.reply, total, total + score, candidates[b, j : j + 1], own[b, j : j + 1])
                for j, (total, score) in enumerate(zip(totals, scores[b].tolist(), strict=True))
            ]
        )
    return found


def _written(beam: Beam, step: Step) -> Beam:
    """The beam with its token appended to a copy of its reply."""
    if beam.token is None or beam.token_logp is None:
        return beam
    kept = {name: row.copy() for name, row in beam.reply.kept.items()}
    reply = Reply(beam.reply.start, beam.reply.said, kept=kept)
    add_token(reply, beam.token, beam.token_logp, step)
    return Beam(reply, beam.logp, beam.score)


def _group(task: Task, beams: Sequence[Beam]) -> Group:
    traces = [beam.reply.trace() for beam in beams]
    for i, (trace, beam) in enumerate(zip(traces, beams, strict=True)):
        trace.index, trace.scores["beam"] = i, beam.score
    return Group(task, traces)


Candidates = Annotated[int, Option("How many of the likeliest next tokens are tried.", at_least=1)]
Weight = Annotated[float, Option("How strongly the reward counts; at 0 nothing looks ahead.", at_least=0)]
Lookahead = Annotated[
    int, Option("Tokens that are written after a candidate before it is scored; 0 scores the text so far.", at_least=0)
]


@register(
    DEAL,
    family="decoding",
    summary="Beam search whose beams are ranked by log-prob and by the reward of a short lookahead.",
    when="Any reward or rule is to hold for replies of a model that you do not train, and compute is at hand.",
    trial={"beams": 2, "k": 2, "lookahead": 3},
)
def deal(
    task: draw.Source,
    *,
    beams: Annotated[int, Option("Beams that are kept after each token.", at_least=1)] = 4,
    k: Candidates = 10,
    lookahead: Lookahead = 32,
    weight: Weight = 1.0,
    reward_model: opt.RewardModel = None,
) -> Method:
    """DeAL: decoding-time alignment as a search.

    score(y_<=t) = log pi(y_<=t | x) + weight h( y_<=t and the model's greedy continuation of `lookahead` tokens )

    Each beam is extended by its k likeliest tokens; of all extensions and finished beams the best `beams` are kept. The
    lookahead is discarded, and h counts once, not summed over tokens. The answer is the beam with the highest score.
    weight = 0 is beam search, without normalisation by length. h is the task's verifier, a reward function or a reward
    model. Departures: the paper's constants could not be checked, k and lookahead are common values; its start state,
    an alignment prompt, is --system-prompt.
    """
    scoring = score.scoring(task, reward_model)
    guide = rollout.by_lookahead(scoring, weight, k=k, length=lookahead, by="policy")
    return method(
        draw=draw.prompts(task),
        rollout=beam_search(beams, guide),
        score=scoring,
        select=chain(select.keep_best(1, "beam"), select.keep_best(1)),  # the answer; its own score is noted
        learn=learn.Learn(),
        models=roles(**score.rm_role(reward_model)),
    )
