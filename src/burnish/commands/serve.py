"""`burnish serve MODEL`: an OpenAI-compatible endpoint for a model, on the loopback address."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from burnish.config.flags import read
from burnish.core.option import Option
from burnish.tool_calls.table import NAMES as CALL_FORMATS
from burnish.util.terminal import stdout_console


@dataclass(frozen=True)
class ServeOptions:
    """burnish serve MODEL: answer OpenAI's and Anthropic's protocols, on 127.0.0.1.

    MODEL is a name (burnish models), a directory such as runs/DIR/model, or a model of the hub. It prints the base URL
    and the API key that clients need; Ctrl-C ends it. To train an agent: burnish train METHOD --agent file.py:run, or
    burnish serve MODEL --train METHOD --task ... [flags of train], where a program pulls episodes (docs/agents.md)."""

    port: Annotated[int, Option(at_least=0, at_most=65535)] = 8765
    """The port; 0 takes a free one."""
    host: str = "127.0.0.1"
    """The address that it listens on: that of a network card, or all of them, lets containers and other
    machines in (docs/agents.md). The API key is always needed."""
    max_new_tokens: Annotated[int | None, Option(at_least=1)] = None
    """The longest reply, in tokens, where a request does not say; by default 512, or half of a shorter context."""
    temperature: Annotated[float, Option(at_least=0)] = 1.0
    """The temperature of requests that name none."""
    guide: str | None = None
    """Models that guide it token by token, with weights: a, or a*0.7,b*0.3 (docs/decoding.md)."""
    against: str | None = None
    """The model that those of --guide were tuned from: what tuning changed is added, not all that they say."""
    tool_parser: Annotated[str | None, Option(choices=CALL_FORMATS)] = None
    """The format in which the model writes tool calls; by default that of its chat template."""
    device: str = "auto"
    """cpu, cuda, or auto."""
    chat_template: str | None = None
    """The chat template: a file with a Jinja template, or chatml, plain, none or tools. By default the model's own."""


def main(words: list[str]) -> int:
    if "--train" in words:
        return train_served(words)
    asked = read(ServeOptions, "serve", words, plain=1)
    if asked is None:
        return 0
    if not asked[0]:
        raise ValueError("say which model to serve: burnish serve tiny, or burnish serve runs/DIR/model")
    serve(asked[0][0], asked[1])
    return 0


def train_served(words: list[str]) -> int:
    """burnish serve MODEL --train METHOD ...: train on the episodes that a program pulls and pays for."""
    from burnish.commands import train
    from burnish.serve.pulled import PREFIX, pulled

    at = words.index("--train")
    model, method, rest = words[:at], words[at + 1 : at + 2], words[at + 2 :]
    if len(model) != 1 or model[0].startswith("-") or not method or method[0].startswith("-"):
        raise ValueError("write burnish serve MODEL --train METHOD --task TASK [flags of burnish train]")
    port = ServeOptions.port
    if "--port" in rest:
        k = rest.index("--port")
        if not "".join(rest[k + 1 : k + 2]).isdecimal():
            raise ValueError("--port needs a number from 0 to 65535; 0 takes a free one")
        port, rest = int(rest[k + 1]), rest[:k] + rest[k + 2 :]
    desk = pulled(port)
    _ = desk.server  # it prints its address before the model is loaded
    pays = [] if "--agent-pays" in rest else ["--agent-pays", "on"]  # off: the task's verifier judges
    try:
        return train.main([method[0], "--model", model[0], "--agent", f"{PREFIX}{port}", *pays, *rest])
    finally:
        desk.close()


def serve(model: str, options: ServeOptions, requests: int | None = None) -> None:
    """Answer requests until interrupted, or `requests` of them."""
    from burnish.commands.guiding import read_guides
    from burnish.commands.loaded import load_policy
    from burnish.core.step import Settings, Step
    from burnish.core.types import Clock, Task
    from burnish.models.template import Style, read_template
    from burnish.rollout.asking import Asker, answer, waiting
    from burnish.serve import ChatServer

    settings = Settings() if options.max_new_tokens is None else Settings(max_new_tokens=options.max_new_tokens)
    guides = read_guides(options.guide, options.against)
    style = Style(read_template(options.chat_template), calls=options.tool_parser)
    models = load_policy(model, settings, options.device, style, more=guides.models)
    guides.check(models)
    if options.max_new_tokens is None:
        settings = Settings(max_new_tokens=min(512, min(one.context for one in models) // 2))
    server = ChatServer(model, options.port, host=options.host, strict=True)
    session = server.open(name="default")  # before its address is known
    console = stdout_console()
    console.print(f"base URL:  {server.url}/v1", soft_wrap=True)
    console.print(f"API key:   {server.token}", soft_wrap=True)
    console.print("Ctrl-C ends it.", style="dim")
    step = Step(Clock(0, 1), models, settings)
    done = 0
    try:
        while requests is None or done < requests:
            questions = waiting(server, patience=0.5)
            if not questions:
                continue
            step = replace(step, clock=Clock(done, done + 1))  # other noise for every batch
            session.state = Asker(step, Task("question", "", {}, "served"), 0, temperature=options.temperature)
            done += answer(server, questions, step, guides.blend)
    except KeyboardInterrupt:
        console.print("stopped.")
    finally:
        server.end()
