"""Between text and tokens, in one direction at a time: what a task says becomes tokens once; what the policy wrote
is decoded for reading and never tokenised again.

Only the chat template writes control tokens (models/control.py), and a reply ends as the template ends an assistant's
message.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path

import torch
from torch import Tensor

from burnish.core.messages import Message, as_messages
from burnish.core.tokenizer import Tokenizer
from burnish.core.types import Task
from burnish.models.call_marks import call_marks, spelled
from burnish.models.chat_pictures import ChatPictures, shows_pictures
from burnish.models.control import Control, backend
from burnish.models.detokenizer import Detokenizer
from burnish.models.message_check import check_role, refuse_tool_calls
from burnish.models.reply_start import Around, ReplyStart, reply_start
from burnish.models.template import Template, special_values
from burnish.models.text_cache import Samples, TextCache, text_key
from burnish.tool_calls.table import Reader, reader_of

ENCODING = 3  # the version of how texts become tokens here; what another version encoded is encoded again
_MARK = "\u2042REPLY\u2042"  # stands for a reply that is never tokenised
_NEXT = "\u2042NEXT\u2042"  # stands for the message after it
_ASKED: tuple[Message, ...] = ({"role": "user", "content": "?"}, {"role": "assistant", "content": _MARK})
OBSERVATIONS = 4096  # texts of environments whose tokens are kept


class Chat:
    """A tokenizer and its chat template.

    vocabulary: how many tokens the model has embeddings for; None where no model is known
    texts: what has been encoded already; None: nothing is kept
    assumed: whether the template is burnish's plain one, because the model directory has none
    ends: more token ids that end a reply, as the model's generation_config.json lists them
    pictures: the processor of a model that sees (models/chat_pictures.py)
    tool_parser: the format of tool calls, by name; None: that of the template
    padding, tail: of a scoring model: the token that its score is not read at, and those that it reads after a reply
    (models/scored_end.py)
    """

    def __init__(self, tokenizer: Tokenizer, *, assumed: bool = False) -> None:
        self.tokenizer, self.assumed = tokenizer, assumed
        self.vocabulary: int | None = None
        self.texts: TextCache | None = None
        self.ends: tuple[int, ...] = ()
        self.pictures = ChatPictures()
        self.padding: int | None = None
        self.tail: Tensor | None = None
        self.tool_parser: str | None = None
        # tokens of observations, which games repeat; not in `texts`, which is a disk's: there may be any number of them
        self._said: dict[str, Tensor] = {}
        self.templated = bool(getattr(tokenizer, "chat_template", None))
        self.spelling = Detokenizer(tokenizer)

    @cached_property
    def files(self) -> dict[str, bytes]:
        """The tokenizer as the files that a model directory holds. It never changes, and writing it takes a while."""
        with tempfile.TemporaryDirectory(prefix="burnish-tokenizer-") as folder:
            self.tokenizer.save_pretrained(folder)
            files = {file.name: file.read_bytes() for file in sorted(Path(folder).iterdir())}
        return files if self.pictures.reader is None else files | self.pictures.reader.files

    @cached_property
    def identity(self) -> str:
        """A hash of the tokenizer and its template: what the tokens of a text depend on."""
        inner = backend(self.tokenizer)
        told = inner.to_str() if inner is not None else "".join(map(str, self.files.values()))
        return hashlib.sha256(f"{told}\x1f{self.tokenizer.chat_template}".encode()).hexdigest()

    def text_identity(self) -> str | None:
        """A name for all that the tokens of a text depend on; None for a template that reads the clock."""
        if self.templated and "strftime_now" in self.template.text:
            return None
        special = sorted(map(int, self.tokenizer.all_special_ids)), self.tokenizer.eos_token_id
        values = sorted(self.template.values.items()) if self.templated else []
        told = f"{ENCODING}\x1f{self.identity}\x1f{special}\x1f{values}\x1f{self.vocabulary}"
        return hashlib.sha256(told.encode()).hexdigest()[:32]

    @property
    def plain_bytes(self) -> bool:
        """Whether a text never has more tokens than bytes: no normalizer rewrites it first."""
        inner = backend(self.tokenizer)
        return inner is not None and inner.normalizer is None

    @cached_property
    def closing(self) -> Tensor:
        """The tokens that end a reply: what the template writes up to its end-of-turn token; else eos."""
        return self._encode(self._end) if self._end else torch.tensor([self._eos])

    @property
    def _eos(self) -> int:
        assert (number := self.tokenizer.eos_token_id) is not None, "load_chat refuses a tokenizer without one"
        return number

    @cached_property
    def stops(self) -> tuple[int, ...]:
        """The token ids that end a reply: eos, the token with which the template closes an assistant's message, and
        those that the model's own generation settings list. Not one that ends a message inside of a reply (harmony)."""
        inner = {token for token in self.closing.tolist() if self.tokenizer.decode([token]) in self.reader.format.inner}
        return tuple(dict.fromkeys(t for t in (self._eos, int(self.closing[-1]), *self.ends) if t not in inner))

    def prompt(self, task: Task) -> Tensor:
        """A task's prompt, up to where the reply begins."""
        if shows_pictures(task):  # its tokens depend on files
            return self._prompt(task)
        return self._once(self.prompt_identity(task), lambda: self._prompt(task))

    def prompt_identity(self, task: Task) -> tuple[object, ...]:
        """What the tokens of a task's prompt depend on: the key of the cache."""
        return "prompt", task.prompt, task.given.get("tools")

    def rendered(self, task: Task) -> str | None:
        """What the template makes of a task's prompt; None where its texts spell control tokens, or with pictures."""
        text, marked = self._render(as_messages(task.prompt), task.given.get("tools"))
        return None if marked or shows_pictures(task) else text

    def reply(self, text: str) -> Tensor:
        """A demonstration's reply, closed as the template closes it; or the picture that it is."""
        if (picture := self.pictures.drawn(text)) is not None:
            return picture
        return self._once(("reply", text), lambda: self._reply(text))

    def samples_once(self, what: tuple[object, ...], encode: Callable[[], Samples]) -> Samples:
        """What `encode` makes of these values, from the cache where it has been encoded before."""
        return encode() if self.texts is None else self.texts.samples(text_key(*what), encode)

    def _once(self, what: tuple[object, ...], encode: Callable[[], Tensor]) -> Tensor:
        return encode() if self.texts is None else self.texts.tokens(text_key(*what), encode)

    def _prompt(self, task: Task) -> Tensor:
        if isinstance(task.prompt, str) and not self.templated:
            return self._untemplated(task.prompt)
        messages = as_messages(task.prompt)
        if not self.templated:
            refuse_tool_calls(messages)
            return self.pictures.seen(self._untemplated(self.pictures.lines(messages) + "\n"), messages)
        return self._conversation(messages, tools=task.given.get("tools"))

    def between(self, messages: Sequence[Message]) -> Tensor:
        """What stands between two replies without a template; pictures are placeholders."""
        return self._encode_text("\n" + self.pictures.lines(messages) + "\n")

    def _reply(self, text: str) -> Tensor:
        text, header = self.start.text(text), self.start.header
        if header:
            return torch.cat([self._encode(header), self._after(header, text), self.closing])
        return torch.cat([self._after(self._lead, text) if self._lead else self._encode_text(text), self.closing])

    @cached_property
    def start(self) -> ReplyStart:
        """What the template writes between a prompt and the text of a reply."""
        if not self.templated:
            return ReplyStart()
        render = partial(self.template.render, _ASKED[:1])
        return reply_start(render, self._around.before, lambda text: self.control.spelled.search(text) is not None)

    def written(self, text: str) -> Tensor:
        """Words of a method's own, as the model would write them: a control token that they spell is one."""
        return self._encode(text)

    def observation(self, observed: str | Sequence[Message]) -> Tensor:
        """What the environment says after a reply (text of a user, or messages), up to where the next reply begins.

        The reply before it ended with its stop token, so this starts with whatever the template puts after that token.
        """
        if not isinstance(observed, str):
            return self._observation(list(observed))
        tokens = self._said.get(observed)
        if tokens is None:
            if len(self._said) >= OBSERVATIONS:
                self._said.clear()
            tokens = self._said[observed] = self._observation([{"role": "user", "content": observed}])
        return tokens

    def _observation(self, messages: list[Message]) -> Tensor:
        if not self.templated:
            return self.pictures.seen(self.between(messages), messages)
        return self._conversation([*_ASKED, *messages], after_reply=True)

    def plain(self, text: str) -> Tensor:
        """A text as it is, outside of any template."""
        return self._untemplated(text)

    @cached_property
    def turn_end(self) -> tuple[str, str]:
        """What the template writes after a reply, with its end-of-turn token, and that token; empty without one."""
        match = self.control.spelled.search(self._end) if self._end else None
        return self._end, match[0] if match else ""

    @cached_property
    def after_last(self) -> str:
        """What the template writes after the last reply of a conversation."""
        return self._around.last if self.templated else ""

    @property
    def lead(self) -> str:
        """What stands before a reply, where its tokens depend on it; else empty."""
        return self._lead

    def encode_rendered(self, text: str, lead: str, marked: bool) -> Tensor:
        """The tokens that a part of a rendered conversation has after `lead`. marked: see models/control.py."""
        return self._following(lead, self.pictures.placed(text), marked)

    def prepared(self, messages: Sequence[Message], tools: object = None) -> tuple[list[Message], object, bool]:
        """Messages and tools as the template takes them, and whether control tokens are marked (models/control.py)."""
        for message in messages:
            check_role(message)
        taken = self._as_the_template_takes(messages)
        if not self.control.inside(taken) and not self.control.inside(tools):
            return taken, tools, False
        return list(self.control.marked_messages(taken)), self.control.marked(tools), True

    def text(self, tokens: Tensor) -> str:
        """What a reply says, without its stop token."""
        if self._unhidden and len(tokens) and int(tokens[-1]) in self._unhidden:
            tokens = tokens[:-1]
        return self.spelling.text(tokens.numpy())

    def action(self, tokens: Tensor) -> str:
        """What a reply says to an environment: its text, with the special tokens that mark tool calls spelled out."""
        return spelled(tokens, self.text, self._call_marks)

    @cached_property
    def _call_marks(self) -> dict[int, str]:
        """The special tokens that mark tool calls: decoding leaves them out."""
        return call_marks(self.tokenizer, self.reader)

    @cached_property
    def reader(self) -> Reader:
        """How the tool calls and the thoughts of its replies are read: by its template, or as `tool_parser` says."""
        if not self.templated:
            return reader_of("", "", self.tool_parser)
        texts = [self.template.text, *([self._tool_template.text] if self._tool_template is not None else [])]
        return reader_of("\n".join(texts), self.start.opened, self.tool_parser)

    def fit(self, vocabulary: int) -> None:
        """Refuse token ids that a model has no embeddings for: those of the template now, others as they come."""
        self.vocabulary = vocabulary
        self.check()
        self.ids(self._reply("?").tolist())

    def check(self) -> None:
        """Render and encode a short conversation: a template that cannot be used is refused before a run starts."""
        self.prompt(Task("question", "?", {}, "?"))
        self.observation("?")
        self._reply("?")

    @cached_property
    def template(self) -> Template:
        text = self.tokenizer.chat_template
        if isinstance(text, Mapping):  # several, by name
            text = text.get("default") or next(iter(text.values()))
        return self.pictures.with_parts(Template(text or "", special_values(self.tokenizer)))

    @cached_property
    def _tool_template(self) -> Template | None:
        """The template for tools and their answers, where a tokenizer has one by the name `tool_use` (Hermes)."""
        named = self.tokenizer.chat_template
        if not isinstance(named, Mapping) or "tool_use" not in named:
            return None
        return Template(named["tool_use"], self.template.values)

    @cached_property
    def _around(self) -> Around:
        whole = self.template.render([*_ASKED, {"role": "user", "content": _NEXT}], generation=False)
        last = self.template.render(_ASKED, generation=False)
        before, mark, after = whole.partition(_MARK)
        if not mark or _NEXT not in after or _MARK not in last:
            raise ValueError(
                "the chat template drops or changes the text of messages, which hides where a reply ends; "
                "use another with --chat-template"
            )
        return Around(before, after.partition(_NEXT)[0], last.partition(_MARK)[2])

    @cached_property
    def _end(self) -> str:
        """What the template writes after a reply, up to and with its end-of-turn token; "" where there is none.

        The end of a turn stands after a reply in the middle of a conversation as well as after the last one; what
        begins the next message does not. A template that closes only replies that are followed by a message closes
        them with a token that does not begin messages.
        """
        if not self.templated:
            return ""
        around = self._around
        shared = os.path.commonprefix([around.after, around.last])
        match = self.control.spelled.search(around.after)
        if match is None or (match.end() > len(shared) and match[0] in around.before):
            return ""
        return around.after[: match.end()]

    @cached_property
    def _lead(self) -> str:
        """What the template writes before a reply, from its last control token on, where a reply's tokens depend on it.

        SentencePiece puts a space before the beginning of every text. A reply is not the beginning.
        """
        alone = self._numbers("a")
        if not self.templated or self._numbers("\na")[-len(alone) :] == alone:
            return ""
        prompt = self.template.render([{"role": "user", "content": "?"}], generation=True)
        marks = list(self.control.spelled.finditer(prompt))
        return prompt[marks[-1].start() :] if marks else ""

    @cached_property
    def control(self) -> Control:
        around = self._around if self.templated else Around("", "", "")
        return Control(self.tokenizer, around.before + around.after)

    @cached_property
    def _unhidden(self) -> frozenset[int]:
        """The stops that decoding does not leave out by itself."""
        return frozenset(self.stops) - frozenset(self.tokenizer.all_special_ids)

    def _conversation(self, messages: Sequence[Message], after_reply: bool = False, tools: object = None) -> Tensor:
        """A conversation up to where the next reply begins. after_reply: from the end of the reply _MARK on."""
        text, marked = self._render(messages, tools)
        text = self.pictures.placed(text)
        if not after_reply:
            ids = self.ids(self.control.encode_marked(text)) if marked else self._encode(text)
        else:
            ids = self._following(self._end, text.partition(_MARK)[2].removeprefix(self._end), marked)
        return self.pictures.seen(ids, messages)

    def _render(self, messages: Sequence[Message], tools: object) -> tuple[str, bool]:
        """A conversation as text, and whether control tokens are marked in it."""
        messages, tools, marked = self.prepared(messages, tools)
        tooled = tools or any(message["role"] == "tool" or message.get("tool_calls") for message in messages)
        if tooled and self._tool_template is not None:
            return self._tool_template.render(messages, generation=True, tools=tools or []), marked
        return self.template.render(messages, generation=True, tools=tools), marked

    def _as_the_template_takes(self, messages: Sequence[Message]) -> list[Message]:
        """The messages with parts of text joined: templates of text models take text. Other keys stay as they are."""
        if "tool_calls" not in self.template.text and self._tool_template is None:
            refuse_tool_calls(messages)
        return [self.pictures.told(message, self.template) for message in messages]

    def _after(self, lead: str, text: str) -> Tensor:
        """A text in the tokens that it has after `lead`, which the template wrote."""
        spelled = self.control.in_text(text)
        return self._following(lead, str(self.control.marked(text)) if spelled else text, spelled)

    def _following(self, lead: str, text: str, marked: bool) -> Tensor:
        """The tokens of lead + text after those of lead; those of text alone where a token spans the two."""
        encode = self.control.encode_marked if marked else self._numbers
        before, whole = self._numbers(lead) if lead else [], encode(lead + text)
        return self.ids(whole[len(before) :] if whole[: len(before)] == before else encode(text))

    def _untemplated(self, text: str) -> Tensor:
        """A prompt as it is, with the bos that the tokenizer may put before it, but without an eos after it."""
        if (seen := self.pictures.encoded(text, self._untemplated, self._encode_text)) is not None:
            return seen
        if self.control.in_text(text):
            ids = self.ids(self.control.encode_text(text, special=True))
        else:
            ids = self._encode(text, special=True)
        return ids[:-1] if len(ids) > 1 and int(ids[-1]) == self.tokenizer.eos_token_id else ids

    def _encode_text(self, text: str) -> Tensor:
        if (seen := self.pictures.encoded(text, self._encode_text, self._encode_text)) is not None:
            return seen
        return self.ids(self.control.encode_text(text)) if self.control.in_text(text) else self._encode(text)

    def _encode(self, text: str, special: bool = False) -> Tensor:
        return self.ids(self.tokenizer.encode(text, add_special_tokens=special))

    def _numbers(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False)
        return ids

    def numbers_of(self, texts: list[str]) -> list[list[int]]:
        """The ids of each text, encoded in one call where the tokenizer can."""
        together = getattr(self.tokenizer, "encode_many", None)
        return list(map(self._numbers, texts)) if together is None else together(texts)

    def ids(self, ids: list[int]) -> Tensor:
        """The ids as a tensor; those that the model has no embeddings for are refused."""
        if self.vocabulary is not None and ids and max(ids) >= self.vocabulary:
            token = self.tokenizer.decode([max(ids)])
            raise ValueError(
                f"the tokenizer encodes {token!r} as {max(ids)}, but the model has embeddings for {self.vocabulary} "
                "tokens only; "
                "take the tokenizer that belongs to the model, or resize the model's embeddings"
            )
        return torch.tensor(ids, dtype=torch.long)
