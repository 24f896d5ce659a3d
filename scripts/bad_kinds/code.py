"""Reward functions, environments and tools that raise, hang, end Python or return what nobody expects."""

from __future__ import annotations

import json
import random
from pathlib import Path

from bad_kinds.case import SMALL, Case

HEAD = """
import asyncio, decimal, fractions, os, signal, sys, threading, time

class Shy:
    def __repr__(self): raise RuntimeError("no words")
    def __float__(self): raise RuntimeError("no number")
    def __len__(self): return -1

class Mute(Exception):
    def __str__(self): raise RuntimeError("no words")

class Ends(BaseException): pass

def deep(n=100000):
    x = []
    for _ in range(n): x = [x]
    return x

def endless():
    while True: yield 1.0

def again(): return again()
"""
VALUES = (
    """None|1|1.5|-0.0|True|float('nan')|float('inf')|10**400|10**5000|1j|'x'|'1'|b'\\xff'|''|[]|{}|()|[None]|[[1]]
{'a': 1}|{1, 2}|object()|Shy()|Mute()|decimal.Decimal('1.5')|decimal.Decimal('sNaN')|fractions.Fraction(1, 3)|range(3)
endless()|deep()|'\\ud800'|'\\0'|'x' * 10**6|lambda: 1|sys|type|NotImplemented|...|iter([1.0])|bytearray(3)
__import__('numpy').float32(1)|__import__('numpy').array([1.0, 2.0])|__import__('torch').tensor([1.0])
__import__('torch').tensor(float('nan'))|asyncio.sleep(0)|{'reward': 1.0}|[1.0, 2.0, 3.0]|(1.0, 'why')|('a', 1.0, True)
""".replace("\n", "|")
    .strip("|")
    .split("|")
)
RAISES = (
    """ValueError('no')|KeyError('a')|Mute()|Ends('no')|SystemExit(3)|SystemExit(None)|SystemExit(Shy())
KeyboardInterrupt()|GeneratorExit()|MemoryError()|RecursionError('deep')|StopIteration()|OSError(28, 'full')
UnicodeDecodeError('utf-8', b'x', 0, 1, 'bad')|TimeoutError('slow')|BrokenPipeError()|Exception('x' * 10**6)
Exception('a\\nb\\0c\\ud800')|AssertionError()|ImportError('gone')|ArithmeticError(Shy())
ExceptionGroup('g', [OSError()])
""".replace("\n", "|")
    .strip("|")
    .split("|")
)
DOES = (
    """os._exit(0)|os._exit(3)|sys.exit()|os.kill(os.getpid(), 9)|os.abort()|again()|time.sleep(60)|os.close(1)
os.close(2)|sys.stdout.write('x' * 10**6)|os.write(1, b'\\xff\\x00{"a"')|print('[]')|os.chdir('/')
sys.modules.clear()|os.close(0)|threading.Thread(target=again).start()|sys.setrecursionlimit(10)|sys.stdout.close()|os.fork()|signal.alarm(1)
sum(1 for _ in endless())|os.dup2(0, 1)|setattr(sys, 'stdout', None)|os.environ.clear()|asyncio.run(asyncio.sleep(0))
""".replace("\n", "|")
    .strip("|")
    .split("|")
)
FILES = ["def", "", "\0", "é = (", "import gone_module", "raise SystemExit(0)", "raise KeyboardInterrupt", "1/0"]
FILES += ["def f(): pass\n" * 3, "f = 5", "f = None", "class f: pass", "import f", "\ud800", "from __future__ import x"]
FILES += [
    "while True: break\nf = print",
    "# coding: nope\n",
    "f = lambda: 0",
    "class f:\n    def __new__(c, *a): return 1",
]
SIGNATURES = ["completions, **columns"] * 8 + [
    "",
    "a",
    "a, b",
    "a, b, c, d",
    "*a",
    "**a",
    "completions, /",
    "*, gone",
    "x=1",
]
SIGNATURES += [
    "completions, answer",
    "completions, nosuch",
    "prompts, completions",
    "completions, prompts=None, *, answer",
]


def body(rng: random.Random, plain: str) -> tuple[str, str]:
    """Statements of a function, and what is odd about them. plain: what a sound one returns."""
    how = rng.random()
    if how < 0.45:
        value = rng.choice(VALUES)
        return f"return {value}", f"returns {value}"
    if how < 0.65:
        what = rng.choice(RAISES)
        return f"raise {what}", f"raises {what}"
    if how < 0.9:
        what = rng.choice(DOES)
        return f"{what}\n        return {plain}", f"does {what}"
    value = rng.choice(VALUES)
    return f"yield {value}", f"yields {value}"


def _written(folder: Path, text: str) -> str:
    file = folder / "mine.py"
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    return str(file)


def reward(rng: random.Random, folder: Path) -> Case:
    """A reward function, alone, in a mixture, of a class, or in a file that is none."""
    if rng.random() < 0.15:
        text = what = rng.choice(FILES)
    else:
        lines, what = body(rng, "[1.0 for _ in completions]")
        per_reply = rng.random() < 0.5 and lines.startswith("return ")
        lines = f"return [{lines.removeprefix('return ')} for _ in completions]" if per_reply else lines
        names = "completions, **columns" if per_reply else rng.choice(SIGNATURES)
        start = rng.choice(["def"] * 9 + ["async def"])
        text = f"{HEAD}\n{start} f({names}):\n    if True:\n        {lines}\n"
        what = f"{start} f({names}) {what}, per reply {per_reply}"
    path = _written(folder, text)
    given = rng.choice([f"{path}:f"] * 8 + [path, f"{path}:g", f"{path}:f*0.5,{path}:f*nan", f"{path}:f,success"])
    how = ["--reward-timeout", "3", "--on-reward-failure", rng.choice(["zero", "drop"])]
    how += ["--reward-workers", "2"] if rng.random() < 0.1 else []
    return Case("rewards", ["train", "grpo", *SMALL, "--n", "2", "--reward", given, *how, *_out(folder)], what)


def _out(folder: Path) -> list[str]:
    return ["--out", str(folder / "out")]


ENVIRONMENT = """
class Env:
    def __init__(self):
        self.steps = 0
        {init}
    def reset(self, task=None, seed=0):
        {reset}
    def step(self, action):
        self.steps += 1
        {step}
    def key(self):
        {key}
    def close(self):
        {close}
"""
SOUND = {
    "init": "pass",
    "reset": "return 'begin'",
    "step": "return 'end', 1.0, True",
    "key": "return str(self.steps)",
    "close": "pass",
}


def environment(rng: random.Random, folder: Path) -> Case:
    """An environment with a method that misbehaves."""
    if rng.random() < 0.1:
        text = what = rng.choice(FILES)
    else:
        name = rng.choice(["step", "step", "step", "reset", "reset", *SOUND])
        lines, what = body(rng, SOUND[name].removeprefix("return "))
        if name == "step" and lines.startswith("return ") and rng.random() < 0.6:
            value, place = lines.removeprefix("return "), rng.randrange(4)
            lines = (
                f"return {', '.join([value if k == place else part for k, part in enumerate(('1.0', '1.0', 'True'))])}"
            )
            lines = lines if place < 3 else f"return 'end', 1.0, True, False, {value}"
        lines = lines.replace("return pass", "return")
        text = HEAD + ENVIRONMENT.format(**{**SOUND, name: lines})
        what = f"{name}: {lines}"
    path = _written(folder, text)
    words = [
        "train",
        rng.choice(["grpo", "grpo", "ppo", "sft"]),
        *SMALL,
        "--task",
        f"{path}:{rng.choice(['Env'] * 9 + ['f'])}",
    ]
    return Case("environments", [*words, "--turns", "2", "--env-timeout", "3", *_out(folder)], what)


ANNOTATIONS = (
    """int|str|float|bool|list[int]|dict|None|5|'Nope'|'int['|lambda: 1|[1]|{}|Shy()|type|object|'x' * 1000|list|tuple
__import__('typing').Literal['a', None]|__import__('typing').Annotated[int, Shy()]|__import__('typing').Any|int or None
__import__('typing').TypeVar('T')|__import__('typing').Callable|list['Nope']|dict[str, list[dict[str, int]]]|set[Shy]
""".replace("\n", "|")
    .strip("|")
    .split("|")
)
ARGUMENTS = [
    "{}",
    "[]",
    "null",
    "1",
    '"x"',
    "{",
    '{"a": 1e999}',
    '{"a": NaN}',
    '{"b": 1}',
    '{"a": {"a": []}}',
    "{'a': 1}",
]
ARGUMENTS += [
    "[" * 50_000,
    '{"a":' * 20_000,
    '{"a": "\\ud800"}',
    '{"a": 1' + "0" * 5000 + "}",
    '{"self": 1}',
    '{"": 1}',
]
FORMATS = [
    '<tool_call>{{"name": "f", "arguments": {0}}}</tool_call>',
    '<tool_call>{{"name": {0}, "arguments": {{}}}}</tool_call>',
    "<tool_call>{0}</tool_call>",
    "<tool_call>" * 2000 + "{0}",
    '[TOOL_CALLS][{{"name": "f", "arguments": {0}}}]',
    "[TOOL_CALLS]f[ARGS]{0}",
    '{{"name": "f", "parameters": {0}}}',
    '<|python_tag|>{{"name": "f", "parameters": {0}}}',
    "[TOOL_CALLS]" * 1000,
]


def tool(rng: random.Random, folder: Path) -> Case:
    """A tool with an odd signature in a run; or a call of a tool that misbehaves, with odd arguments."""
    lines, what = body(rng, "'4'")
    names = f"a: {rng.choice(ANNOTATIONS)}" + rng.choice(["", "", f" = {rng.choice(VALUES)}"])
    names = rng.choice([names] * 8 + ["*a", "**a", "a, /", "", "self", "a, a2: int", "*, a: str"])
    doc = rng.choice(["'Adds.'", "''", "'x' * 3", "Shy", "f'{1}'", "'\\0 <|end|> {{ x }}'"])
    text = f"{HEAD}\ndef f({names}) -> {rng.choice(ANNOTATIONS)}:\n    {doc}\n    if True:\n        {lines}\n"
    if rng.random() < 0.1:
        text = what = rng.choice(FILES)
    path = _written(folder, text)
    if rng.random() < 0.4:
        given = rng.choice(
            [f"{path}:f"] * 6 + [f"{path}:f,{path}:f", path, "mcp:", "mcp:true", "mcp:/gone", f"mcp:cat {path}"]
        )
        words = ["train", "grpo", *SMALL, "--task", "add", "--tools", given, "--turns", "2", "--env-timeout", "3"]
        return Case("tools", [*words, *_out(folder)], f"f({names}) {what}")
    said = rng.choice(FORMATS).format(rng.choice(ARGUMENTS))
    harmless = not what.startswith("does ") and not any(
        word in lines + names for word in ("Exit", "Ends", "Interrupt", "endless")
    )
    if not harmless:  # what ends a process is for the guards around a tool, which runs have
        path = _written(folder, f"{HEAD}\ndef f({names}):\n    return a\n")
    return Case("tools", [], f"f({names}) {what} called by {said[:100]}", lambda: called(f"{path}:f", said))


def called(spec: str, said: str) -> int:
    """Answer a reply's calls as an environment does: with messages, whatever is called."""
    from burnish.envs.named_tools import read_tools
    from burnish.envs.tools import ToolEnv

    try:
        env = ToolEnv(read_tools(spec))
    except ValueError:
        return 2
    outcome = env.step(said)
    json.dumps(outcome.observation).encode()
    return 0
