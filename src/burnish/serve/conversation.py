"""The tokens of the conversations of one session.

A request whose messages go on from an earlier one (the same messages, the reply as it was returned, then more) extends
its tokens: what was sampled stays as it is, and only the new messages are encoded, as what the template writes after a
reply. Any other request begins a new conversation. Nothing that was sampled is ever tokenised again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from burnish.core.messages import Message
from burnish.core.types import Task, Turn
from burnish.models.chat import Chat
from burnish.models.reply_end import following
from burnish.serve.asked import Asked
from burnish.serve.protocol import said_texts


@dataclass(eq=False)
class Conversation:
    """One conversation: its turns, and the messages that they are, as texts.

    unanswered: how many of the messages came with the present request, which has no reply yet
    cut: for each reply, whether it reached its longest length; ids: by which a client knows each reply
    copied: whether it began as another reply to a request of another conversation
    """

    turns: list[Turn] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    unanswered: int = 0
    cut: list[bool] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    copied: bool = False

    def extended_by(self, asked: Asked) -> Sequence[Message] | None:
        """The messages of a request beyond this conversation; None where it does not go on from it, or has no reply."""
        known = len(self.messages)
        if not known or self.unanswered or len(asked.messages) <= known:
            return None
        if said_texts(asked.messages[:known]) != self.messages:
            return None
        more = asked.messages[known:]
        return None if any(message["role"] == "assistant" for message in more) else more

    def replied(self, said: Turn, message: Message, cut: bool = False, name: str = "") -> None:
        """A reply was sampled; `message` is what the client got, and will send back. name: its id."""
        self.turns.append(said)
        self.cut.append(cut)
        self.ids.append(name)
        if self.messages:
            self.messages += said_texts([message])
        self.unanswered = 0


class Conversations:
    """All conversations of a session. restarts: requests that went on from none of them, after the first.

    ends_cut: a conversation is over once a reply of it was cut at its longest length
    """

    def __init__(self, chat: Chat, ends_cut: bool = False) -> None:
        self.chat, self.ends_cut = chat, ends_cut
        self.all: list[Conversation] = []
        self.restarts = 0

    def at(self, asked: Asked) -> Conversation:
        """The conversation of a request, ready for its reply: its last turn is the environment's, or the prompt."""
        if asked.prompt is not None:
            return self._by_tokens(asked.prompt)
        for conversation in reversed(self.all):
            more = conversation.extended_by(asked)
            if more is not None:
                if self.ends_cut and conversation.cut[-1]:
                    why = "the reply before this message was cut at its longest length, which ends the episode"
                    raise ValueError(f"{why} (--cut-turn end)")
                words = following(self.chat, conversation.turns[-1].tokens, more)
                conversation.turns.append(Turn(words, "env", parent=conversation.turns[-1]))
                conversation.messages += said_texts(more)
                conversation.unanswered = len(more)
                return conversation
        given: dict[str, object] = {"tools": list(asked.tools)} if asked.tools else {}
        prompt = self.chat.prompt(Task("question", asked.messages, given, "served"))
        self.restarts += bool(self.all)
        messages = said_texts(asked.messages)
        opened = Conversation([Turn(prompt, "task")], messages, len(messages))
        self.all.append(opened)
        return opened

    def _by_tokens(self, prompt: str | tuple[int, ...]) -> Conversation:
        """The conversation of a prompt that is no messages: one that its tokens begin with, or a new one."""
        words = self.chat.plain(prompt) if isinstance(prompt, str) else self.chat.ids(list(prompt))
        for conversation in reversed(self.all if not isinstance(prompt, str) else ()):
            known = [token for turn in conversation.turns for token in turn.tokens.tolist()]
            spoken = conversation.cut and not conversation.unanswered and not conversation.messages
            if spoken and len(words) > len(known) and words[: len(known)].tolist() == known:
                conversation.turns.append(Turn(words[len(known) :], "env", parent=conversation.turns[-1]))
                conversation.unanswered = 1
                return conversation
        self.restarts += bool(self.all)
        conversation = Conversation([Turn(words, "task")], [], 1)
        self.all.append(conversation)
        return conversation

    def another(self, conversation: Conversation) -> Conversation:
        """A copy of a conversation that waits for its reply: for another reply to the same request."""
        conversation = replace(
            conversation,
            turns=list(conversation.turns),
            messages=list(conversation.messages),
            cut=list(conversation.cut),
            ids=list(conversation.ids),
            copied=True,
        )
        self.all.append(conversation)
        return conversation

    def take_back(self, conversation: Conversation) -> None:
        """The present request of a conversation gets no reply: as if it had not been made."""
        if conversation.copied and not conversation.cut:
            self.all.remove(conversation)
            return
        if len(conversation.turns) == 1:
            self.all.remove(conversation)
            self.restarts -= bool(self.all)
            return
        conversation.turns.pop()
        if conversation.messages:
            del conversation.messages[len(conversation.messages) - conversation.unanswered :]
        conversation.unanswered = 0
