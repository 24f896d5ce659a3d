"""The command line: dispatch to a command, and report errors in one sentence."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import os
import select
import sys
import warnings

from burnish import __version__
from burnish.commands.table import COMMANDS
from burnish.util.failures import LOST_RANK, LostRankError, out_of_memory, sentence

HELP = """\
burnish post-trains language models.

Start here:
  burnish choose                            which method for my data? It asks
  burnish train                             GRPO: the tiny model learns paths
  burnish train dpo --task add --steps 100  another method, another task
  burnish train grpo --model path/to/model --task data.jsonl --lora 16
  burnish train run.yaml --lr 3e-5          options of a file; flags override it
  burnish train my_method.py:mine           a method of your own, in one file
  burnish train --resume runs/DIR           resume from the newest checkpoint
  burnish eval runs/DIR/model --task sort   pass@k on held-out tasks
  burnish chat runs/DIR/model               talk to it
  burnish ui                                watch the runs in a browser

Commands:
{commands}

burnish COMMAND --help describes a command. burnish train METHOD --help lists
the method's flags and the common ones, --help-all every flag.
--debug (or BURNISH_DEBUG=1) shows the traceback of an error; --version prints
the version."""


# commands whose work is what they print: a closed pipe, as of `| head`, is no error
PRINTING = {"methods", "show", "tasks", "rewards", "papers", "models", "plan", "runs", "check", "doctor", "completion"}
PRINTING |= {"choose"}


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code: 0 success, 1 failure, 2 user error, 130 interrupted."""
    words = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in words or os.environ.get("BURNISH_DEBUG", "0") not in ("", "0")
    words = [word for word in words if word != "--debug"]
    if argv is None and not debug and not sys.warnoptions:  # what libraries tell their own users says nothing to ours
        for category in (FutureWarning, DeprecationWarning, PendingDeprecationWarning, UserWarning):
            warnings.simplefilter("ignore", category)
    try:
        code = _dispatch(words)
        sys.stdout.flush()  # raise write errors here, not at interpreter shutdown
        return code
    except (ValueError, FloatingPointError) as error:
        if debug:
            raise
        return _print_error(str(error), 2)
    except KeyboardInterrupt:
        return _print_error("stopped.", 130)
    except SystemExit as error:
        if isinstance(error.__context__, BrokenPipeError):  # rich ends the process where a console's pipe is closed
            return _output_closed(words)
        raise
    except BrokenPipeError as error:
        if _stdout_is_closed():
            return _output_closed(words)
        return _print_error(f"a process that this one writes to has ended ({error.strerror}).", 1)
    except LostRankError as error:
        return LOST_RANK if error.quiet else _print_error(str(error), LOST_RANK)
    except Exception as error:
        message = sentence(error)
        if debug or message is None:
            raise
        if not out_of_memory(error):
            return _print_error(message, 2)
        _print_error(message, 1)
        if argv is None:  # skip interpreter shutdown, which would run out of memory again
            os._exit(1)
        return 1


def _stdout_is_closed() -> bool:
    """Whether the reader of our standard output has closed the pipe, as `head` does."""
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))
    except (OSError, ValueError):  # standard output is no file
        return False


def _output_closed(words: list[str]) -> int:
    """What a command prints is not read. One that does more than print says that it ended before it was done."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if not words or words[0] in PRINTING or {"-h", "--help", "--help-all", "--version"} & set(words):
        return 0
    return _print_error(
        f"the reader of standard output closed the pipe, so burnish {words[0]} ended before it was done; let it write "
        "to a file (> log.txt). burnish train --resume RUN goes on from the last checkpoint of a run.",
        1,
    )


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in ("--help", "-h", "help"):
        print(HELP.format(commands="\n".join(f"  {name:<13} {what}" for name, (_, what) in COMMANDS.items())))
        return 0
    if words[0] in ("--version", "-V"):
        print(f"burnish {__version__}")
        return 0
    if words[0] not in COMMANDS:
        raise ValueError(f"there is no command {words[0]!r}; {_nearest(words[0])} (burnish --help lists the commands)")
    module = importlib.import_module(f"burnish.commands.{COMMANDS[words[0]][0]}")
    status: int = module.main(words[1:])
    return status


def _nearest(word: str) -> str:
    near = [name for name in COMMANDS if len(word) > 2 and (name.startswith(word) or word.startswith(name))]
    near = near or difflib.get_close_matches(word, COMMANDS, 1, 0.75)
    if not near:  # the word may be a method's name; methods are loaded only now, because loading is slow
        from burnish.methods.table import METHODS, load_all

        load_all()
        near = [f"train {word}"] if word in METHODS else difflib.get_close_matches(word, COMMANDS, 1, 0.5)
    return f"did you mean burnish {near[0] if near else 'train'}?"


def _print_error(sentence: str, code: int) -> int:
    """Print an error to standard error and return the exit code; failing to print is not a second error."""
    sentence = "".join(c if c.isprintable() or c == "\n" else " " for c in sentence.encode("utf-8", "replace").decode())
    try:
        from rich.console import Console

        console = Console(stderr=True, markup=False, highlight=False)
        console.print(sentence, style="red", soft_wrap=not console.is_terminal)
    except (OSError, MemoryError, ImportError):
        with contextlib.suppress(OSError):
            sys.stderr.write(sentence + "\n")
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # full disk: Python would flush again at shutdown and print a traceback
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return code


if __name__ == "__main__":
    sys.exit(main())
