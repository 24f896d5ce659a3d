"""Groups of other nodes beside a run's own (SAPO, arXiv 2509.08721)."""

from __future__ import annotations

import math
from dataclasses import replace

from burnish.core import randomness
from burnish.core.parts import Part, names, supplies
from burnish.core.scorer import is_failed
from burnish.core.step import Notes, Step
from burnish.core.types import Clock, Group, Trace, Turn
from burnish.models.chat import Chat
from burnish.models.model import Model
from burnish.score.judge import reply_text
from burnish.select.swarm_files import SharedGroup, SwarmFolder

MOST_TRIED = 8  # lines that are scored for each group that is wanted, at most
TOKEN = 64  # characters that a token has at most, on average; longer texts are too long before they are encoded
LARGEST_REWARD = 1e15  # its square is finite in fp32


@supplies("tokens:swarm")
def with_swarm(swarm: SwarmFolder | None, wanted: int, score: Part, *, author: str = "swarm") -> Part:
    """The run's own groups, which are published, and up to `wanted` groups of other nodes, by author "swarm".

    Groups of others are drawn uniformly, without replacement, from the lines of their newest files. Their text becomes
    tokens of the local tokenizer, which is the one place where replies are tokenised again; the local `score` judges
    them, and groups whose rewards are all the same are discarded. Their log-probs are unknown (`credit.old` takes the
    local policy's). What is drawn depends on what others have written by then. swarm None: nothing is shared.

    What others wrote never ends the run: a line that is over a limit (swarm_files.py), or for which the template, the
    tokenizer or the verifier raises, is left out and counted.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        if swarm is None:
            return groups
        ranks, chat = step.models.ranks, step.models["policy"].chat
        if not ranks.rank:
            swarm.publish([_written(group, chat) for group in groups], step.clock.step)
        step.notes.count("swarm/published", len(groups))
        lines, refused = ranks.from_first(_drawn(swarm, wanted, step.clock) if not ranks.rank else ([], 0))
        found: list[Group] = []
        discarded = 0
        for begin in range(0, len(lines), max(1, wanted)):
            some = lines[begin : begin + wanted]
            shared = [one for line in some if (one := SharedGroup.of(line)) is not None]
            read = [group for one in shared if (group := _tokenised(one, step, author)) is not None]
            judged = _judged([group for group in read if group.traces], score, step)
            refused += len(some) - len(read) + sum(bool(group.traces) for group in read) - len(judged)
            differing = [group for group in judged if _differs(group)]
            discarded += sum(not group.traces for group in read) + len(judged) - len(differing)
            found += differing
            if len(found) >= wanted:
                break
        step.notes.count("swarm/refused", refused)
        step.notes.count("swarm/discarded", discarded)
        step.notes.count("swarm/drawn", len(found[:wanted]))
        return [*groups, *found[:wanted]]

    return Part(
        name=f"with_swarm({wanted})",
        call=call,
        reads=frozenset({"score:reward"}),
        writes=names("tokens", author),
        state=() if swarm is None else (swarm,),
    )


def _drawn(swarm: SwarmFolder, wanted: int, clock: Clock) -> tuple[list[str], int]:
    """Lines of other nodes in a random order, as many as may be tried, and how many files and lines were refused."""
    if not wanted:
        return [], 0
    lines, refused = swarm.lines()
    order = randomness.shuffled(len(lines), clock.seed, "swarm", clock.step, clock.tick, swarm.name)
    return [lines[i].decode("utf-8", "replace") for i in order[: MOST_TRIED * wanted]], refused


def _written(group: Group, chat: Chat) -> SharedGroup:
    replies = [(reply_text(trace, chat), trace.note.get("stopped") != "length") for trace in group.traces]
    return SharedGroup(group.task, tuple(replies))


def _tokenised(shared: SharedGroup, step: Step, author: str) -> Group | None:
    """The group in tokens of the local model; without traces where it does not fit into its context or --max-length,
    None where the template or the tokenizer raises."""
    model: Model = step.models["policy"]
    room = min(model.context, step.settings.max_length or model.context)
    try:
        if len(str(shared.task.prompt)) > TOKEN * room:
            return Group(shared.task, [])
        prompt = Turn(model.chat.prompt(shared.task), "task")
        traces: list[Trace] = []
        for i, (text, finished) in enumerate(shared.replies):
            tokens = model.chat.reply(text) if len(text) <= TOKEN * room else None
            if tokens is not None and not finished:
                tokens = tokens[: len(tokens) - len(model.chat.closing)]
            if tokens is None or not len(tokens) or len(prompt) + len(tokens) > room:
                return Group(shared.task, [])
            traces.append(Trace((prompt, Turn(tokens, author, parent=prompt)), i, tags=frozenset({author})))
        return Group(shared.task, traces if len(traces) > 1 else [])
    except Exception:  # the text decides what is raised, and it is another's
        return None


def _judged(groups: list[Group], score: Part, step: Step) -> list[Group]:
    """The groups to which the verifier gives finite rewards, with these. If it raises, each group is judged alone.

    Notes and refusals of the step stay those of its own replies: too many failures end a run.
    """
    if not groups:
        return []
    before = [list(group.traces) for group in groups]
    try:
        apart = replace(step, notes=Notes(), refusals=[], dropped=[], begun={})
        found = score.call(groups, apart)
        kept = {id(group) for group, traces in zip(groups, before, strict=True) if len(group.traces) == len(traces)}
        return [group for group in found if id(group) in kept and all(map(_has_reward, group.traces))]
    except Exception:  # the reply and what came with it decide what is raised, and they are another's
        if len(groups) == 1:
            return []
        for group, traces in zip(groups, before, strict=True):
            group.traces = traces
        return [judged for group in groups for judged in _judged([group], score, step)]


def _has_reward(trace: Trace) -> bool:
    finite = all(map(math.isfinite, trace.scores.values()))
    return finite and abs(trace.scores["reward"]) <= LARGEST_REWARD and not is_failed(trace)


def _differs(group: Group) -> bool:
    return len({trace.scores["reward"] for trace in group.traces}) > 1
