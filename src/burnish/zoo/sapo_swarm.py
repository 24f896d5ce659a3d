"""Sharing is Caring: Efficient LM Post-Training with Collective RL Experience Sharing (arXiv 2509.08721).

The folder through which the nodes of a swarm share replies: one JSONL file for each step of each node.

A line is a question with all its replies, as text: {"key", "prompt", "given", "replies": [{"text", "finished"}]}.
Files are written whole under their final name and are then only read. Lines of others are data that is checked, never
code: what is not of this form, or over a limit, is left out. The limits are far above what honest nodes write, and
hold before anything is parsed or tokenised: no file may cost a node its memory.

Groups of other nodes beside a run's own (SAPO, arXiv 2509.08721).
"""

from __future__ import annotations

import heapq
import json
import math
import os
import platform
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from burnish import credit, draw, learn, rollout, score
from burnish.core import randomness
from burnish.core.messages import Message
from burnish.core.parts import Part, names, supplies
from burnish.core.scorer import is_failed
from burnish.core.state import State
from burnish.core.step import Notes, Step
from burnish.core.task import Task
from burnish.core.types import Clock, Group, Trace, Turn
from burnish.method import Method, Option, chain, method, roles
from burnish.methods import opt, register
from burnish.models.chat import Chat
from burnish.models.model import Model
from burnish.papers import Paper
from burnish.score.judge import reply_text
from burnish.util.files import write_text
from burnish.util.plainfile import read_bytes
from burnish.util.untrusted import parse_json

SAPO_SWARM = Paper(
    "swarm-sapo", "2509.08721", "Sharing is Caring: Efficient LM Post-Training with Collective RL Experience Sharing"
)

METRICS = (
    ("swarm/published", "Learning", "groups of the step that other nodes of the swarm can read"),
    ("swarm/discarded", "Learning", "groups of other nodes that were read and left out: equal rewards, or too long"),
    (
        "swarm/refused",
        "Learning",
        "files and lines of other nodes over a limit, of another form, or that cannot be judged",
    ),
)


NODES = 1024  # of which files are read in a step
LARGEST = 1 << 26  # bytes of a file that is read
TOTAL = 1 << 27  # bytes of all files that are read in a step; the newest file of every node goes before the second one
LINES = 4096  # questions in a file
LONGEST_LINE = 1 << 23  # bytes
BRACKETS = 1 << 18  # opening ones in a line: a list takes 28 times the memory of its two characters
REPLIES = 256  # to a question
VALUES = 10_000  # numbers, texts, lists and mappings in a question, and in what comes with it
KEY = 1000  # characters
SCORED = 1 << 25  # characters that a verifier is given for a question: its replies, each with what came with it
NOT_SHARED = frozenset({"env", "tools"})  # a question that comes with these is more than its text
NAME = re.compile(r"(?P<node>[\w.-]{1,100})\.(?P<step>\d{8})\.jsonl")


@dataclass(frozen=True)
class SharedGroup:
    """A question and its replies, each with whether it had come to its end."""

    task: Task
    replies: tuple[tuple[str, bool], ...]

    def line(self) -> str:
        """As one line of a file; ValueError where the task holds more than text and numbers (an environment)."""
        task, replies = self.task, [{"text": text, "finished": finished} for text, finished in self.replies]
        prompt = task.prompt if isinstance(task.prompt, str) else [dict(message) for message in task.prompt]
        try:
            return json.dumps({"key": task.key, "prompt": prompt, "given": dict(task.given), "replies": replies})
        except TypeError:
            raise ValueError(
                f"task {task.key[:60]!r} cannot be shared with a swarm: it holds more than text and numbers, as games "
                "do; leave out --swarm, or choose a task of questions and answers"
            ) from None

    @classmethod
    def of(cls, line: str | bytes) -> SharedGroup | None:
        """The group of a line; None where the line is not one, or is over a limit."""
        try:
            found: Any = parse_json(line, largest=LONGEST_LINE)
            prompt, given, key, replies = (found[name] for name in ("prompt", "given", "key", "replies"))
            if len(replies) > REPLIES or not isinstance(given, dict) or given.keys() & NOT_SHARED:
                return None
            told = prompt if isinstance(prompt, str) else tuple(map(_message, prompt))
            texts = tuple((one["text"], bool(one["finished"])) for one in replies)
            if not all(isinstance(one, str) for one in (key, *(text for text, _ in texts))) or len(key) > KEY:
                return None
            said = _characters([text for text, _ in texts])
            if _characters([key, told, given]) * len(texts) + said > SCORED:
                return None
            return cls(Task("question", told, given, key), texts)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None


class SwarmFolder:
    """A node's view of the folder. Stateful: a resumed run is the same node.

    node    its name; by default the host's name and a random number
    recent  files of each other node that are read, the newest
    """

    name = "swarm"

    def __init__(self, folder: str, node: str | None = None, recent: int = 4) -> None:
        self.folder, self.recent = Path(folder), recent
        self.node = node or f"{re.sub(r'[^a-zA-Z0-9-]', '-', platform.node())[:60]}-{secrets.token_hex(4)}"
        if not NAME.fullmatch(f"{self.node}.{0:08d}.jsonl"):
            raise ValueError(f"--node is {self.node!r}; letters, digits, '-', '_' and '.' alone are names of nodes")

    def publish(self, groups: Iterable[SharedGroup], step: int) -> None:
        """Write a step's groups; a step that is repeated after a resume replaces its file."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_text(self.folder / f"{self.node}.{step:08d}.jsonl", "".join(f"{group.line()}\n" for group in groups))

    def lines(self) -> tuple[list[bytes], int]:
        """The lines of the other nodes' newest files, sorted; and how many files and lines are over a limit.

        A file that goes away meanwhile is left out.
        """
        by_node = self._newest()
        found: list[bytes] = []
        refused, room = 0, TOTAL
        for age in range(self.recent):  # the newest of every node first: one node cannot take the room of the others
            for files in by_node.values():
                if age >= len(files):
                    continue
                try:
                    size = files[age].stat().st_size
                    content = read_bytes(files[age], min(LARGEST, room)) if size <= min(LARGEST, room) else None
                except FileNotFoundError:
                    continue
                except (OSError, ValueError):
                    content = None
                if content is None or content.count(b"\n") > LINES:
                    refused += 1
                    continue
                lines = [line for line in content.split(b"\n") if line]
                fit = [line for line in lines if len(line) <= LONGEST_LINE and _brackets(line) <= BRACKETS]
                refused += len(lines) - len(fit)
                room -= len(content)
                found += fit
        return sorted(found), refused

    def _newest(self) -> dict[str, list[Path]]:
        """The newest files of each other node, newest first. The folder may hold the files of many steps."""
        steps: dict[str, list[int]] = {}
        try:
            with os.scandir(self.folder) as entries:
                for entry in entries:
                    name = NAME.fullmatch(entry.name)
                    if name is None or name["node"] == self.node:
                        continue
                    known = steps.get(name["node"])
                    if known is None and len(steps) >= NODES:
                        continue
                    if known is None:
                        known = steps[name["node"]] = []
                    (heapq.heappush if len(known) < self.recent else heapq.heappushpop)(known, int(name["step"]))
        except OSError:
            return {}
        return {
            node: [self.folder / f"{node}.{step:08d}.jsonl" for step in sorted(steps[node], reverse=True)]
            for node in sorted(steps)
        }

    def state_dict(self) -> State:
        return {"node": self.node}

    def load_state_dict(self, state: State) -> None:
        self.node = str(state["node"])


def _brackets(line: bytes) -> int:
    return line.count(b"[") + line.count(b"{")


def _message(given: Any) -> Message:
    """A message of text; ValueError for others (tool calls), which not every reader of a message expects."""
    for name, value in given.items():
        if name != "content" and not isinstance(value, str | int | float | None):
            raise ValueError(f"a message has {name!r}, which is more than text")
    if not isinstance(given["role"], str) or "tool_calls" in given:
        raise ValueError("a message has a role that is no word, or tool calls")
    message: Message = given
    return message


def _characters(value: object) -> int:
    """The characters of all texts in lists and mappings; ValueError where there are more than VALUES of them, and for
    lone surrogates, which no tokenizer encodes and no file holds. Uses no recursion."""
    level, values, found = [value], 0, 0
    while level:
        below: list[object] = []
        for one in level:
            values += 1
            if isinstance(one, str):
                one.encode()  # UnicodeEncodeError is a ValueError
                found += len(one)
            elif isinstance(one, dict):
                below += [*one, *one.values()]
            elif isinstance(one, list | tuple):
                below += one
            if values + len(below) > VALUES:
                raise ValueError(f"it has more than {VALUES:,} values")
        level = below
    return found


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


@register(
    SAPO_SWARM,
    family="policy",
    summary="GRPO on a run's own groups and on groups that other runs have shared as text, of any model.",
    when="Several runs on different machines, or of different models, work on the same kind of task.",
    example="burnish train sapo_swarm --swarm swarm --external 8",
)
def sapo_swarm(
    task: draw.Source,
    *,
    swarm: Annotated[
        str | None, Option("The folder that all nodes write to and read from; none: nothing is shared.")
    ] = None,
    external: Annotated[int, Option("Groups of other nodes in a step, J of the paper.", at_least=0)] = 16,
    node: Annotated[str | None, Option("The name of this node; by default the host's, and a random number.")] = None,
    recent: Annotated[int, Option("Newest files (steps) of each other node that are drawn from.", at_least=1)] = 4,
    n: opt.GroupSize = 8,
    eps_low: opt.ClipLow = 0.2,
    eps_high: opt.ClipHigh = 0.28,
) -> Method:
    """Swarm sampling policy optimisation (SAPO of Gensyn; `sapo` is another paper's).

    own: the step's prompts, n replies each, published as text with what came with the question
    external: J groups of other nodes, uniform among those whose rewards, by this node's verifier, are not all equal
    A_i = (r_i - mean r) / (std r + 1e-6) in each group, own or external;  no KL
    L = mean over replies of the mean over tokens of -min(rho A, clip(rho, 1 - eps_low, 1 + eps_high) A)

    rho = pi / pi_old, pi_old this node's policy before the update, also for external replies, as if it had written
    them. external = 0, or no swarm, is GRPO on the node's own groups. The paper's best mixture is half and half: 16
    external groups go with the default of 16 prompts. Departures: all own groups are trained on, where the paper may
    draw some; nodes share a folder and not a network. What is drawn depends on what others have written by then, so a
    run in a swarm is not repeatable bit for bit; a resumed run is the same node and replaces the files of steps that
    it repeats.
    """
    verify = score.verify(task)
    folder = SwarmFolder(swarm, node, recent) if swarm is not None else None
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=verify,
        select=with_swarm(folder, external, verify),
        credit=chain(credit.group_relative(), credit.old()),
        learn=learn.Learn(learn.pg_clip(eps_low, eps_high, norm=learn.seq_mean, on=("policy", "swarm"))),
        models=roles(),
    )
