"""Hostile replies against every scorer: does any run code, and does any hang? python scripts/hostile_replies.py

Replies that try to run code, to compute for ever, to eat memory or to break a parser are judged by all reasoning-gym
datasets, by math-verify and by the built-in tasks, as a run would have them judged. A reply that runs code makes a file
(the canary); the same replies are also judged without the sandbox, by the scorers alone. A reply hangs where its
verdict takes longer than the limit and the start of another worker. The result is written as JSON:
benchmarks/results/hostile.json.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from burnish.core.task import Task
from burnish.tasks.data import Dataset
from burnish.tasks.gym import PREFIX, ReasoningGym, names
from burnish.tasks.source import Source
from burnish.tasks.table import BUILTIN, source
from burnish.tasks.task_set import limited, sandboxed
from burnish.verifiers.checks import make
from burnish.verifiers.final_answer import final_answer
from burnish.verifiers.verifier import verifier

OUT = Path(__file__).parent.parent / "benchmarks" / "results" / "hostile.json"
RESTART = 30.0  # seconds beyond the limit that a verdict may take: a worker is killed and another imports its libraries
UNMADE = {"composite"}  # datasets that need options of their own
SAMPLE = (
    "string_insertion",
    "spiral_matrix",
    "binary_matrix",
    "n_queens",
    "coin_flip",
    "countdown",
    "puzzle24",
    "simple_integration",
    "polynomial_multiplication",
    "decimal_arithmetic",
    "graph_color",
    "chain_sum",
)

CODE = (  # {x}: the canary's path
    "__import__('os').system('touch {x}')",
    "[0]" + " " * 5000 + "+[__import__('os').system('touch {x}')]",
    "[0]" + "\n" * 5000 + "+[__import__('os').system('touch {x}')]",
    "[__import__('os').system('touch {x}')]",
    "open('{x}', 'w')",
    "[open('{x}', 'w').write('1')]",
    "[[open('{x}', 'w')]]",
    "exec(\"open('{x}', 'w')\")",
    "eval(\"open('{x}', 'w')\")",
    "S(\"__import__('os').system('touch {x}')\")",
    "N(\"__import__('os').system('touch {x}')\")",
    "sympify(\"__import__('os').system('touch {x}')\")",
    "[c for c in ().__class__.__base__.__subclasses__() if c.__name__ == 'Popen'][0](['touch', '{x}'])",
    "(lambda: open('{x}', 'w'))()",
    "(f := open('{x}', 'w'))",
    "f\"{{open('{x}', 'w')}}\"",
    "x + 1 if open('{x}', 'w') else 2",
    "x.__class__.__init__.__globals__['__builtins__']['open']('{x}', 'w')",
    "1 # \n__import__('os').system('touch {x}')",
    "1;import os;os.system('touch {x}')",
    "$(touch {x})",
    "`touch {x}`",
    "| touch {x}",
    r"\write18{{touch {x}}}",
    r"\input{{|touch {x}}}",
    "!!python/object/apply:os.system ['touch {x}']",
    '{{"__reduce__": ["os.system", ["touch {x}"]]}}',
    "cos\nsystem\n(S'touch {x}'\ntR.",
    "Symbol('x').func.__globals__['os'].system('touch {x}')",
    "lambdify(x, \"__import__('os').system('touch {x}')\")(1)",
)
SLOW = (
    "1e999999999",
    "-1e999999999/3",
    "1E+99999999999",
    "0x" + "f" * 5000,
    "9" * 100_000,
    "1/" * 5000 + "1",
    "-" * 5000 + "1",
    "sin(exp(exp(99)))",
    "exp(exp(exp(20)))",
    "(x+y+z+a+b+c+d)**20",
    "((x+y+z+a+b)**5)**4",
    "tan(exp(99)**20)",
    "9**9**9**9",
    "9^9^9^9",
    "2**(2**(2**(2**9)))",
    "10**10**10",
    "factorial(10**8)",
    "99999999!",
    "binomial(10**9, 10**8)",
    "integrate(exp(x**x), x)",
    "x**" * 100 + "2",
    "cos(x)**20*sin(y)**20*tan(z)**20+exp(a*b*c)**9",
    "sqrt(" * 60 + "2" + ")" * 60,
    r"\sin(\exp(\exp(99)))",
    r"\Gamma(99999999)",
    r"\lfloor\exp(\exp(20))\rfloor",
    r"\lceil e^{e^{20}} \rceil",
    r"\binom{10^9}{10^8}",
    r"\sum_{i=1}^{10^9} i^i",
    r"\prod_{n=1}^{10^{9}} n",
    r"2^{2^{2^{2^{9}}}}",
    r"\frac{1}{" * 300,
    r"\sqrt[99999999]{2}",
    r"\int_0^{10^9} e^{x^x} dx",
    r"(x+y+z+a+b+c+d)^{20}",
    r"\exp(\exp(99)) \mod 7",
    r"\boxed{" * 2857,
    r"\boxed{" * 2857 + "}" * 2857,
    r"\text{" * 3000,
    "answer:" * 3000,
    "#### " * 4000,
)
ODD = (
    "",
    "\0",
    "\ud800",
    "nan",
    "inf",
    "-inf",
    "1e400",
    "0/0",
    "1/0",
    "None",
    "True",
    "[]",
    "{}",
    "()",
    "''",
    "\u202e12",
    "١٢٣",
    "[" * 3000,
    "(" * 3000,
    "{" * 3000,
    "[[" * 2000 + "]]" * 2000,
    '{"a":' * 3000,
    '"' * 5001,
    "'" * 5001,
    "\\" * 5001,
    "a " * 50_000,
    "1 " * 50_000,
    "1," * 50_000,
    "\n" * 50_000,
    " " * 50_000,
    "R U R' U' " * 5000,
    "(0,0) " * 5000,
    "up down left right " * 5000,
    "[1, 2], " * 5000,
    '{"0": ' + '{"0": ' * 900 + "1" + "}" * 901,
    "ａｎｓｗｅｒ: １２",
    "[[0]*10**9]",
    "'a'*10**10",
    "bytearray(10**11)",
    "[0]*10**11",
    "range(10**12)",
    "A" * 20_001,
    "{{{}}}" * 3000,
    "%s%n" * 3000,
)
FORMS: tuple[Callable[[str, str], str], ...] = (
    lambda text, right: text,
    lambda text, right: f"answer: {text}",
    lambda text, right: rf"so \boxed{{{text}}}",
    lambda text, right: f"#### {text}",
    lambda text, right: f"answer: {right}+{text}",
    lambda text, right: f"{text}\nanswer: [{text}]",
    lambda text, right: f"[{right!r}]" + " " * 5000 + f"+[{text}]",
)


def attacks(rng: random.Random, canary: Path, right: str) -> Iterator[str]:
    """Hostile replies without end: each way to attack, in a random form, sometimes padded or cut."""
    while True:
        for text in rng.sample((*CODE, *SLOW, *ODD), len(CODE) + len(SLOW) + len(ODD)):
            said = text.format(x=canary) if text in CODE else text
            reply = rng.choice(FORMS)(said, right)
            if rng.random() < 0.1:
                reply = (
                    reply[: rng.randrange(1, len(reply) + 1)] if rng.random() < 0.5 and reply else reply + " " * 5000
                )
            yield reply


def first_attacks(canary: Path) -> list[str]:
    """The attacks that once worked, which every scorer gets."""
    run = "[0]" + " " * 5000 + f"+[__import__('os').system('touch {canary}')]"
    return [
        run,
        f"answer: {run}",
        "answer: 1e999999999",
        "answer: sin(exp(exp(99)))",
        "answer: (x+y+z+a+b+c+d)**20",
        r"\boxed{\sin(\exp(\exp(99)))}",
        r"\boxed{\Gamma(99999999)}",
        r"\boxed{\lfloor\exp(\exp(20))\rfloor}",
        r"\boxed{" * 2857,
    ]


def targets(gyms: list[str], folder: Path) -> Iterator[Source]:
    """Every scorer there is."""
    for name in sorted(BUILTIN):
        yield source(name)
    rows = [{"prompt": f"What is {k}?", "answer": right} for k, right in enumerate((r"\sqrt{2}", "x+1", "72", "Paris"))]
    data = folder / "answers.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    yield Dataset(data)
    for name in gyms:
        yield ReasoningGym(name)


def go(
    count: int,
    *,
    seed: int = 0,
    seconds: float = 2.0,
    gyms: list[str] | None = None,
    say: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Judge at least `count` hostile replies; what they did."""
    rng, began = random.Random(seed), time.monotonic()
    found: Counter[str] = Counter()
    slowest, longest_reading, hung, ran, spoilt, bare = 0.0, 0.0, [], [], [], 0
    with tempfile.TemporaryDirectory() as folder:
        canary = Path(folder) / "canary"
        every = list(targets([n for n in names() if n not in UNMADE] if gyms is None else gyms, Path(folder)))
        each = -(-count // len(every))
        for target in every:
            stopped = limited(target, seconds)
            tasks = [target.task("train", i) for i in range(4)]
            stream = attacks(rng, canary, str(tasks[0].given.get("answer", "1")))
            replies = (first_attacks(canary) + [next(stream) for _ in range(each)])[: max(each, 9)]
            for k, reply in enumerate(replies):
                task, start = tasks[k % len(tasks)], time.process_time()
                final_answer(reply, str(task.given.get("answer", "")))
                longest_reading = max(longest_reading, time.process_time() - start)
                start = time.monotonic()
                verdict = stopped.verify(task, reply)
                took = time.monotonic() - start
                slowest = max(slowest, took)
                found["replies"] += 1
                found[_kind(verdict.reason) if verdict.failed else "judged"] += 1
                if took > seconds + RESTART:
                    hung.append([target.name, reply[:80], round(took, 1)])
                if canary.exists():
                    ran.append([target.name, reply[:80]])
                    canary.unlink()
            bare += _without_sandbox(target, tasks, canary)
            if not _still_works(stopped, tasks):
                spoilt.append(target.name)
            say(f"{target.name}: {found['replies']} replies, {dict(found)}, {len(ran)} ran code, {len(hung)} hung")
        left = [place.name for place in Path(folder).iterdir() if place.name != "answers.jsonl"]
    return {
        "scorers": len(every),
        "replies": found["replies"],
        "code_executions": len(ran),
        "hangs": len(hung),
        "code_executions_without_the_sandbox": bare,
        "judged": found["judged"],
        "stopped_by_the_time_limit": found["time"],
        "stopped_by_the_memory_limit": found["memory"],
        "died": found["died"],
        "scorers_that_no_longer_judge_right": spoilt,
        "files_left": left,
        "limit_s": seconds,
        "slowest_verdict_s": round(slowest, 2),
        "slowest_reading_in_the_run_s": round(longest_reading, 4),
        "seed": seed,
        "seconds": round(time.monotonic() - began, 1),
        "isolation": verifier("builtin").isolation,
        "ran": ran,
        "hung": hung,
    }


def _without_sandbox(target: Source, tasks: list[Task], canary: Path) -> int:
    """How many of the replies that try to run code do so where only the scorer itself stops them, in this process."""
    inner = sandboxed(target)
    assert inner is not None
    scorer, ran = make(inner.scorer()), 0
    for text in CODE:
        for form in FORMS[:2]:
            scorer.verdict(inner.facts(tasks[0]), form(text.format(x=canary), ""))
            if canary.exists():
                canary.unlink()
                ran += 1
    return ran


def _kind(reason: str) -> str:
    return "time" if "had not answered" in reason else "memory" if "memory" in reason else "died"


def _still_works(source: Source, tasks: list[Task]) -> bool:
    """Whether a right reply is still right after all that."""
    right = next((task for task in tasks if "demo" in task.given or "answer" in task.given), None)
    if right is None or source.name == "guess":
        return True
    verdict = source.verify(right, str(right.given.get("demo", right.given.get("answer"))))
    return verdict.correct


def main() -> None:
    """Run it, print it, write it."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--replies", type=int, default=2000)
    asked.add_argument("--seed", type=int, default=0)
    asked.add_argument("--seconds", type=float, default=2.0, help="the time limit for one reply")
    asked.add_argument("--only", nargs="*", help=f"names of reasoning-gym datasets, without {PREFIX}")
    asked.add_argument("--out", type=Path, default=OUT)
    told = asked.parse_args()
    faulthandler.dump_traceback_later(3600, exit=True)
    found = go(told.replies, seed=told.seed, seconds=told.seconds, gyms=told.only)
    print(json.dumps(found, indent=1))
    told.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
