"""The command line: one word chooses a command, and a mistake is answered in one sentence."""

from __future__ import annotations

import difflib
import importlib
import os
import sys

from burnish import __version__

COMMANDS: dict[
    str, tuple[str, str]
] = {  # word -> (module of burnish.commands with a function `main(words)`, what it does)
    "train": ("train", "train a model; measure it on held-out tasks before and after"),
    "methods": ("methods", "list the methods"),
    "show": ("show", "one method: paper, formula, composition, flags"),
    "tasks": ("tasks", "list the tasks, or show one"),
    "models": ("models", "list the models that have a name, or fetch one"),
    "eval": ("evaluate", "pass@k and majority@k of a model on a task"),
    "runs": ("runs", "list the runs, show or export one, pause or stop one"),
    "ui": ("ui", "the dashboard: curves, health, and every trace, in a browser"),
    "report": ("report", "one run as a page that stands alone, and as Markdown"),
    "chat": ("chat", "talk to a model"),
    "compare": ("compare", "methods under one budget: which is better, and is it sure?"),
    "sweep": ("sweep", "try values of a method's flags: what does each do?"),
    "ablate": ("ablate", "switch a method's parts off in turn: which of them matter?"),
    "check": ("check", "what is installed, what is missing, and does one step run"),
    "doctor": ("doctor", "what of a run folder is whole, and how to go on"),
}

HELP = """\
burnish post-trains language models.

Start here:
  burnish train                                   GRPO on a tiny model that comes along: minutes on a CPU
  burnish train dpo --task add --steps 100        another method, another task
  burnish train grpo --model path/to/model --task data.jsonl --lora 16
  burnish train run.yaml --lr 3e-5                options from a file; flags come on top
  burnish train my_method.py:mine                 a method of your own, in one file
  burnish train --resume runs/DIR                 go on where a run stopped
  burnish eval runs/DIR/model --task sort         how good is it?
  burnish chat runs/DIR/model                     talk to it
  burnish ui                                      watch the runs in a browser: curves, warnings, every trace

Commands:
{commands}

burnish COMMAND --help says more; burnish train METHOD --help lists every flag of a method.
--debug (or BURNISH_DEBUG=1) shows the traceback of an error; --version prints the version."""


def main(argv: list[str] | None = None) -> int:
    """Run one command. 0: fine; 1: something is broken; 2: a mistake in what was asked; 130: interrupted."""
    words = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in words or os.environ.get("BURNISH_DEBUG", "0") not in ("", "0")
    words = [word for word in words if word != "--debug"]
    try:
        return _dispatch(words)
    except (ValueError, FloatingPointError) as error:
        if debug:
            raise
        return _say(str(error), 2)
    except KeyboardInterrupt:
        return _say("stopped.", 130)
    except BrokenPipeError:  # whoever read our output has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except RuntimeError as error:
        if debug or type(error).__name__ != "OutOfMemoryError":
            raise
        return _say("out of memory: lower --token-budget or --prompts, or add --checkpoint-activations.", 1)


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in ("--help", "-h", "help"):
        print(HELP.format(commands="\n".join(f"  {name:<9} {what}" for name, (_, what) in COMMANDS.items())))
        return 0
    if words[0] in ("--version", "-V"):
        print(f"burnish {__version__}")
        return 0
    if words[0] not in COMMANDS:
        raise ValueError(f"there is no command {words[0]!r}; {_nearest(words[0])} (burnish --help lists the commands)")
    module = importlib.import_module(f"burnish.commands.{COMMANDS[words[0]][0]}")
    return module.main(words[1:])


def _nearest(word: str) -> str:
    near = difflib.get_close_matches(word, COMMANDS, 1, 0.75)
    if not near:  # perhaps a method, whose names take longer to load
        from burnish.methods.table import METHODS, load_all

        load_all()
        near = [f"train {word}"] if word in METHODS else difflib.get_close_matches(word, COMMANDS, 1, 0.5)
    return f"did you mean burnish {near[0] if near else 'train'}?"


def _say(sentence: str, code: int) -> int:
    from rich.console import Console

    console = Console(stderr=True, markup=False, highlight=False)
    console.print(sentence, style="red", soft_wrap=not console.is_terminal)
    return code


if __name__ == "__main__":
    sys.exit(main())
