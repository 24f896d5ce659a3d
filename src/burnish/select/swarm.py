"""Groups of other nodes beside a run's own (SAPO, arXiv 2509.08721)."""

from __future__ import annotations

from burnish import randomness
from burnish.models.chat import Chat
from burnish.models.model import Model
from burnish.parts import Part, names, supplies
from burnish.score.judge import reply_text
from burnish.select.swarm_files import SharedGroup, SwarmFolder
from burnish.step import Step
from burnish.types import Group, Trace, Turn

MOST_TRIED = 8  # lines that are scored for each group that is wanted, at most


@supplies("tokens:swarm")
def with_swarm(swarm: SwarmFolder | None, wanted: int, score: Part, *, author: str = "swarm") -> Part:
    """The run's own groups, which are published, and up to `wanted` groups of other nodes, by author "swarm".

    Groups of others are drawn uniformly, without replacement, from the lines of their newest files. Their text becomes
    tokens of the local tokenizer, which is the one place where replies are tokenised again; the local `score` judges
    them, and groups whose rewards are all the same are discarded. Their log-probs are unknown (`credit.old` takes the
    local policy's). What is drawn depends on what others have written by then. swarm None: nothing is shared.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        if swarm is None:
            return groups
        ranks, chat = step.models.ranks, step.models["policy"].chat
        if not ranks.rank:
            swarm.publish([_written(group, chat) for group in groups], step.clock.step)
        step.notes.count("swarm/published", len(groups))
        lines = ranks.from_first(sorted(swarm.lines()) if wanted else [])
        clock = step.clock
        order = randomness.shuffled(len(lines), clock.seed, "swarm", clock.step, clock.tick, swarm.name)
        found: list[Group] = []
        for begin in range(0, min(len(order), MOST_TRIED * wanted), max(1, wanted)):
            some = [SharedGroup.of(lines[i]) for i in order[begin : begin + wanted]]
            read = [group for one in some if one is not None and (group := _tokenised(one, step, author))]
            differing = [group for group in score.call(read, step) if _differs(group)]
            step.notes.count("swarm/discarded", len(some) - len(differing))
            found += differing
            if len(found) >= wanted:
                break
        step.notes.count("swarm/drawn", len(found[:wanted]))
        return [*groups, *found[:wanted]]

    return Part(
        name=f"with_swarm({wanted})",
        call=call,
        reads=frozenset({"score:reward"}),
        writes=names("tokens", author),
        state=() if swarm is None else (swarm,),
    )


def _written(group: Group, chat: Chat) -> SharedGroup:
    replies = [(reply_text(trace, chat), trace.note.get("stopped") != "length") for trace in group.traces]
    return SharedGroup(group.task, tuple(replies))


def _tokenised(shared: SharedGroup, step: Step, author: str) -> Group | None:
    """The group in tokens of the local model; None where it does not fit into its context or --max-length."""
    model: Model = step.models["policy"]
    prompt = Turn(model.chat.prompt(shared.task), "task")
    traces: list[Trace] = []
    for i, (text, finished) in enumerate(shared.replies):
        tokens = model.chat.reply(text)
        if not finished:
            tokens = tokens[: len(tokens) - len(model.chat.closing)]
        traces.append(Trace((prompt, Turn(tokens, author, parent=prompt)), i, tags=frozenset({author})))
    longest = max((len(trace.turns[1]) for trace in traces), default=0)
    empty = any(not len(trace.turns[1]) for trace in traces)
    room = min(model.context, step.settings.max_length or model.context)
    if len(traces) < 2 or empty or len(prompt) + longest > room:
        return None
    return Group(shared.task, traces)


def _differs(group: Group) -> bool:
    return len({trace.scores["reward"] for trace in group.traces}) > 1
