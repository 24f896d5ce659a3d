"""Questions of an OpenAI-compatible endpoint, answered by a model of the run: many together, token in, token out."""

from __future__ import annotations

import math
import queue
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor

from burnish.core.randomness import key_of
from burnish.core.step import Step
from burnish.core.types import Task
from burnish.engine.mixture import Blend
from burnish.models.chat import Chat
from burnish.models.layer_shards import held
from burnish.models.model import Model
from burnish.rollout.starts import Reply, Start, sample_key, write_arriving, write_on
from burnish.serve import ChatServer, Question
from burnish.serve.asked import Answered, Piece, failure, until_stop
from burnish.serve.constraint import Constraints
from burnish.serve.conversation import Conversation, Conversations
from burnish.serve.likeliest import likeliest
from burnish.serve.protocol import assistant_message, read_message

TAG = "hosted"  # of replies to questions
WINDOW = 0.01  # seconds in which questions gather before they are answered together
ROWS = 32  # questions that `answer` has room for at once, however few there are when it begins
CONSTRAINTS = Constraints()  # grammars and masks that requests share
PER_CALL = 512  # questions after which a call of `answer` takes no more


@dataclass(eq=False)
class Asker:
    """The state of a session: who answers it and how, and its conversations. number: makes its samples' keys differ."""

    step: Step
    task: Task
    number: int
    who: str = "policy"
    temperature: float | None = None
    limit: int | None = None
    calls: int = 0
    talk: Conversations = field(init=False)

    def __post_init__(self) -> None:
        ends_cut = self.step.settings.cut_turn == "end"
        self.talk = Conversations(self.step.models[self.who].chat, ends_cut)

    def start(self, question: Question) -> list[tuple[Conversation, Reply]]:
        """The replies that a question asks for; raises ValueError where they cannot be given."""
        asked = question.asked
        if self.limit is not None and self.calls + asked.n > self.limit:
            raise ValueError(f"this episode has made its {self.limit} calls; raise --turns for more")
        conversation = self.talk.at(asked)
        others: list[Conversation] = []
        try:
            others += [self.talk.another(conversation) for _ in range(asked.n - 1)]
            return [(one, self._reply(one, question, i)) for i, one in enumerate((conversation, *others))]
        except Exception:
            for one in (*others, conversation):
                self.talk.take_back(one)
            raise

    def _reply(self, conversation: Conversation, question: Question, index: int) -> Reply:
        """One of the replies to a question."""
        asked, chat = question.asked, self.talk.chat
        self.calls += 1
        settings = self.step.sampling(self.temperature)
        if asked.temperature is not None:
            settings = replace(settings, temperature=asked.temperature)
        if asked.top_p is not None:
            settings = replace(settings, top_p=asked.top_p)
        if asked.top_k is not None:
            settings = replace(settings, top_k=asked.top_k)
        constraint = CONSTRAINTS.of_request(chat, asked)
        if constraint is not None:
            settings = replace(settings, as_drawn=True)
        if settings.as_drawn and (asked.presence or asked.frequency):  # a trainer would not know of them
            raise ValueError(
                "penalties cannot be combined with a schema, a required tool, or a run whose log-probs are of what is "
                "drawn from; leave them out"
            )
        number = self.number * 1000 + self.calls
        key = sample_key(self.step.clock, self.task, number, TAG)
        if asked.seed is not None:  # an episode's replies differ from those of others all the same
            key = key_of(asked.seed, "seed", index, *((key,) if self.limit is not None else ()))
        turns = tuple(conversation.turns)
        reply = Reply(Start(self.task, turns, number, key, self.who, self.who, TAG, settings))
        longest = self.step.settings.max_new_tokens
        reply.most = min(longest, asked.max_tokens or longest)
        reply.until = asked.stop
        told = partial(_told, question, chat, index) if asked.stream else None
        shaped = {"presence": asked.presence, "frequency": asked.frequency, "constraint": constraint, "told": told}
        reply.more = {name: value for name, value in shaped.items() if value}
        _check_room(reply, self.step)
        return reply


def waiting(server: ChatServer, patience: float = WINDOW) -> list[Question]:
    """The questions that wait, with those that arrive within a short time after the first; none after `patience`."""
    try:
        found = [server.questions.get(timeout=patience)]
    except queue.Empty:
        return []
    deadline = time.monotonic() + WINDOW
    while (left := deadline - time.monotonic()) > 0:
        try:
            found.append(server.questions.get(timeout=left))
        except queue.Empty:
            break
    return found


class Questions:
    """The questions of a server as replies that are asked for while others are being written (rollout/starts.py).

    over: whether no more questions will come; rows: how many are answered together; first: questions already taken;
    most: after how many no more are taken, since an engine keeps all that a call has written
    """

    def __init__(
        self,
        server: ChatServer,
        step: Step,
        over: Callable[[], bool],
        rows: int,
        first: Sequence[Question] = (),
        most: float = math.inf,
    ) -> None:
        self.server, self.step, self.over, self.rows, self._first = server, step, over, rows, list(first)
        self.most, self.taken = most, 0
        self._of: dict[Reply, tuple[Question, Conversation, int]] = {}

    def take(self, wait: bool) -> list[Reply]:
        """Replies to the questions that wait; those that cannot be answered get the reason at once."""
        while True:
            questions, self._first = self._first, []
            if not questions and self.taken < self.most:
                questions = waiting(self.server) if wait else _at_once(self.server)
            self.taken += len(questions)
            found = self._begin(questions)
            if found or not wait or self.over():
                return found

    def wrote(self, reply: Reply) -> None:
        question, conversation, index = self._of.pop(reply)
        try:
            _tell(question, conversation, reply, self.step, index)
        except Exception as error:  # one request must not end those of others, whatever its reply is
            self._give_up(question, conversation, error)

    def write(self, who: str, blend: Blend | None = None) -> None:
        """Write the replies to all questions, many together, until no more come.

        What a request raises is its own answer. Where the engine raises, which knows no requests, the replies that it
        was writing are written again in smaller calls: each has the same tokens (`Start.key`), or the error is its own.
        """
        while True:
            try:
                return write_arriving(self, who, self.step, blend)
            except Exception:
                models = [who, *(blend.others if blend else ())]
                if not self._of or any(_broken(self.step.models[name]) for name in models):
                    raise
            self._write_again(list(self._of), blend)

    def _write_again(self, replies: list[Reply], blend: Blend | None) -> None:
        """Write replies; those of a call that fails in two halves."""
        try:
            write_on(replies, self.step, blend=blend)
        except Exception as error:
            if len(replies) == 1:
                question, conversation, _ = self._of.pop(replies[0])
                self._give_up(question, conversation, error)
                return
            half = len(replies) // 2
            self._write_again(replies[:half], blend)
            self._write_again(replies[half:], blend)
        else:
            for reply in replies:
                self.wrote(reply)

    def _begin(self, questions: list[Question]) -> list[Reply]:
        """The replies that questions ask for."""
        found = []
        for question in questions:
            try:
                started = question.session.state.start(question)
            except Exception as error:  # whatever templates and tokenizers raise for a request
                question.answer.put(failure(error))
                continue
            for i, (conversation, reply) in enumerate(started):
                self._of[reply] = question, conversation, i
                found.append(reply)
        return found

    def _give_up(self, question: Question, conversation: Conversation, error: Exception) -> None:
        question.session.state.talk.take_back(conversation)
        question.answer.put(failure(error))


def answer(server: ChatServer, questions: list[Question], step: Step, blend: Blend | None = None) -> int:
    """Answer questions whose sessions have an Asker, and those that arrive meanwhile; all from a blend, if given.

    It returns how many it took, after some hundred at most: under steady load there is always one more.
    """
    if not questions:
        return 0
    arriving = Questions(server, step, lambda: True, max(ROWS, len(questions)), questions, PER_CALL)
    arriving.write(questions[0].session.state.who, blend)
    return arriving.taken


def _broken(model: Model) -> bool:
    """Whether a model's weights are NaN or infinite, so that the fault is not a request's."""
    return not all(bool(torch.isfinite(held(weight)).all()) for weight in model.module.parameters())


def _at_once(server: ChatServer) -> list[Question]:
    """The questions that wait, without waiting for any."""
    found = []
    while True:
        try:
            found.append(server.questions.get_nowait())
        except queue.Empty:
            return found


def _check_room(reply: Reply, step: Step) -> None:
    size, context = len(reply.tokens()), step.models[reply.start.who].context
    if size >= context:
        raise ValueError(f"the conversation has {size} tokens, but the model's context holds {context}: shorten it")


def _told(question: Question, chat: Chat, index: int, tokens: Tensor) -> None:
    """Send a client what a reply says so far."""
    text = until_stop(chat.action(tokens), question.asked.stop)[0]
    question.answer.put(Piece(text, chat.reader, index))


def _tell(question: Question, conversation: Conversation, reply: Reply, step: Step, index: int) -> None:
    said, asked = reply.said, question.asked
    assert said is not None and said.logp is not None
    model = step.models[reply.start.who]
    chat = model.chat
    whole = reply.tokens().tolist()
    text, stopped_by = until_stop(chat.action(said.tokens), asked.stop)
    wanted = bool(asked.top) or (asked.echo and asked.logprobs)
    seen = likeliest(model, reply.turns(), asked, step.settings.token_budget) if wanted else {}
    answered = Answered(
        text=text,
        stopped="stop" if stopped_by is not None else reply.stopped or "length",
        stopped_by=stopped_by,
        index=index,
        tokens=said.tokens.tolist(),
        logps=said.logp.tolist(),
        prompt=whole[: len(whole) - len(said)],
        **seen,
        pieces=[chat.spelling.text(said.tokens[i : i + 1].numpy()) for i in range(len(said))],
        reader=chat.reader,
    )
    message = read_message(assistant_message(answered, question.asked)[0])
    conversation.replied(said, message, answered.stopped == "length", answered.id)
    question.answer.put(answered)
