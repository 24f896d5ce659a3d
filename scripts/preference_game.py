"""An intransitive game on `tiny`: how near to its equilibrium do methods come that are told only who beats whom?

Three replies: a beats b 9 times of 10, c beats a 9 times, b beats c 6 times. No score of single replies explains that.
Whoever always plays c is beaten by b; nobody can beat the mixture of the Nash equilibrium, which plays each reply as
often as the other two lie apart: a 1/9, b and c 4/9. With a KL of weight tau to the start, which plays a, b and c 6, 2
and 2 times of 10, the equilibrium is the one solution of pi(y) ~ start(y) exp(P(y > pi) / tau).

Every method starts from the same SFT model. A method on pairs gets pairs of replies of the start, each labelled by a
draw of the same chances. After every fourth step the chances of the three replies are computed, and of the mean policy
of the last quarter of the steps: its distance to the equilibrium (half the sum of the differences), and by how much its
best answer beats it.

    OMP_NUM_THREADS=1 python scripts/preference_game.py           about 10 minutes on two idle cores
    python scripts/preference_game.py --draw
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from burnish.cli import main as burnish
from burnish.compose.passes import Additions, composed
from burnish.core.loop import loop
from burnish.core.step import Settings
from burnish.core.types import Trace, Turn
from burnish.methods.table import find
from burnish.models.build import Models, build
from burnish.report.charts import Line, line_chart, standalone
from burnish.rewards.oracles import named_oracle
from burnish.tasks.resolve import resolve_task
from burnish.tasks.task_set import unscored

ROOT = Path(__file__).parent.parent
OUT, SVG = ROOT / "benchmarks" / "results" / "preference_game.json", ROOT / "docs" / "preference-game.svg"
REPLIES, ROUNDS = ("a", "b", "c"), 256  # equal prompts would be sampled alike, so each names its round
WINS = {"a": {"b": 0.9}, "b": {"c": 0.6}, "c": {"a": 0.9}}
START = (0.6, 0.2, 0.2)
EVERY = 4  # steps between two measurements
SHOWN = 8  # prompts over which the chances are averaged
Policy = tuple[float, ...]


@dataclass(frozen=True)
class Player:
    """A method with its options, its learning rate, and the tau of the equilibrium that its theory has it reach."""

    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    tau: float = 0.0
    lr: float = 1e-5
    steps: int = 200
    prompts: int = 32


TAU = 0.1
PLAYERS = {
    "inpo": Player("inpo", {"n": 2, "eta": 1.0, "share": TAU, "sync": 2}, TAU),
    "online_dpo": Player("online_dpo", {"beta": TAU}, TAU),
    "dpo": Player("dpo", {"beta": TAU}, TAU),
    "online_ipo": Player("online_ipo", {"tau": TAU}, TAU),
    "nash_md": Player("nash_md", {"n": 2, "beta": 0.125, "tau": TAU}, TAU),
}


def prompt(number: int) -> str:
    return f"Round {number}: choose a, b or c."


def over(first: str, second: str) -> float:
    """P(first > second)."""
    if first == second:
        return 0.5
    return WINS[first][second] if second in WINS[first] else 1 - WINS[second][first]


def against(reply: str, policy: Sequence[float]) -> float:
    """P(reply > policy)."""
    return sum(p * over(reply, other) for p, other in zip(policy, REPLIES, strict=True))


def equilibrium(tau: float, start: Sequence[float] = START) -> Policy:
    """The policy that nobody beats; with tau, less the KL to the start: pi(y) ~ start(y) exp(P(y > pi) / tau)."""
    if tau == 0:  # the differences of the other two, for three replies that beat each other in turn
        edges = [abs(over(REPLIES[(i + 1) % 3], REPLIES[(i + 2) % 3]) - 0.5) for i in range(3)]
        return tuple(edge / sum(edges) for edge in edges)
    policy, eta = list(start), 0.01
    for _ in range(20_000):  # mirror descent with a small step, which converges in the regularised game
        logs = [
            (1 - eta) * math.log(p) + eta * (math.log(s) + against(reply, policy) / tau)
            for p, s, reply in zip(policy, start, REPLIES, strict=True)
        ]
        most = max(logs)
        weights = [math.exp(x - most) for x in logs]
        policy = [weight / sum(weights) for weight in weights]
    return tuple(policy)


def distance(one: Sequence[float], other: Sequence[float]) -> float:
    """Half the sum of the differences: how much probability would have to move."""
    return sum(abs(p - q) for p, q in zip(one, other, strict=True)) / 2


def exploitability(policy: Sequence[float]) -> float:
    """By how much the best answer beats the policy: max over y of P(y > pi) - 1/2."""
    return max(against(reply, policy) for reply in REPLIES) - 0.5


def prepared(folder: Path, seed: int) -> Path:
    """The files of the game, and the model that plays a, b, c with the chances of START; the model's folder."""
    dice = random.Random(seed)
    rows = [reply for reply, p in zip(REPLIES, START, strict=True) for _ in range(round(2000 * p))]
    pairs = []
    while len(pairs) < 2000:
        first, second = dice.choices(REPLIES, START, k=2)
        if first != second:
            won = dice.random() < over(first, second)
            pairs.append({"chosen": first if won else second, "rejected": second if won else first})
    files = {
        "start.jsonl": [{"prompt": prompt(dice.randrange(ROUNDS)), "completion": reply} for reply in rows],
        "play.jsonl": [{"prompt": prompt(number)} for number in range(ROUNDS)],
        "pairs.jsonl": [{"prompt": prompt(i % ROUNDS), **pair} for i, pair in enumerate(pairs)],
    }
    for name, listed in files.items():
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in listed))
    (folder / "game.json").write_text(json.dumps(WINS))
    words = ["--task", str(folder / "start.jsonl"), "--steps", "60", "--prompts", "100", "--lr", "3e-4"]
    words += ["--lr-schedule", "cosine", "--eval-tasks", "0", "--save-every", "0", "--out", str(folder / "start")]
    if burnish(["train", "sft", *words, "--seed", str(seed), "--device", "cpu", "--quiet"]):
        raise SystemExit("the starting policy could not be trained")
    return folder / "start" / "model"


def plays(models: Models, tasks: Sequence[Any]) -> Policy:
    """The chances of the three replies, among themselves: the mean over some prompts."""
    policy = models["policy"]
    prompts = [Turn(policy.chat.prompt(task), "task") for task in tasks]
    traces = [Trace((p, Turn(policy.chat.reply(reply), "demo", parent=p))) for p in prompts for reply in REPLIES]
    found = policy.streams(traces, [trace.by("demo") for trace in traces], {"logp"}, 8192)
    logs = torch.stack([streams["logp"].nansum() for streams in found]).double()
    return tuple(logs.view(len(tasks), len(REPLIES)).softmax(1).mean(0).tolist())


def played(player: Player, folder: Path, base: Path, seed: int, steps: int | None = None) -> list[Policy]:
    """What the policy plays before the first step and after every fourth."""
    pairs = player.method == "dpo"
    source = resolve_task(str(folder / ("pairs.jsonl" if pairs else "play.jsonl")), ())
    source = source if pairs else unscored(source)
    oracle = None if pairs else named_oracle(f"table({folder / 'game.json'})", source)
    method = composed(
        find(player.method).build(source, **player.options), Additions(player.method, source, oracle=oracle)
    )
    settings = Settings(prompts=player.prompts, max_new_tokens=4, lr=player.lr, lr_schedule="cosine", token_budget=8192)
    models = build(method.models, base, settings, device="cpu")
    tasks = [source.task("train", i) for i in range(SHOWN)]
    found = [plays(models, tasks)]
    for number, _ in enumerate(loop(method, models, settings, steps=steps or player.steps, seed=seed), 1):
        if number % EVERY == 0:
            found.append(plays(models, tasks))
    return found


def result(player: Player, curve: Sequence[Policy]) -> dict[str, Any]:
    """The mean policy of the last quarter, beside the equilibrium of the method's own tau from its own start."""
    last = curve[-len(curve) // 4 :]
    mean = tuple(statistics.fmean(column) for column in zip(*last, strict=True))
    aim = equilibrium(player.tau, curve[0])
    return {
        "policy": [round(p, 4) for p in mean],
        "equilibrium": [round(p, 4) for p in aim],
        "distance": round(distance(mean, aim), 4),
        "start": round(distance(curve[0], aim), 4),
        "exploitability": round(exploitability(mean), 4),
        "curve": [[round(p, 4) for p in policy] for policy in curve[:: max(1, len(curve) // 60)]],
    }


def table(stored: Mapping[str, Any]) -> list[str]:
    """The distances and what the policies play, as a Markdown table."""
    lines = ["| method | plays a, b, c | equilibrium | distance | at the start | its best answer wins |"]
    lines.append("|---|---|---|---|---|---|")
    for name in (name for name in PLAYERS if name in stored):
        for run in stored[name]["runs"].values():
            plays_, aim = (", ".join(f"{100 * p:.0f}%" for p in run[key]) for key in ("policy", "equilibrium"))
            numbers = f"{run['distance']:.2f} | {run['start']:.2f} | {100 * (0.5 + run['exploitability']):.0f}%"
            lines.append(f"| `{name}` | {plays_} | {aim} | {numbers} |")
    return lines


def drawn(stored: Mapping[str, Any]) -> str:
    """The distance of each method to its equilibrium, step by step."""
    lines = []
    for name in (name for name in PLAYERS if name in stored):
        run = next(iter(stored[name]["runs"].values()))
        far = [distance(policy, run["equilibrium"]) for policy in run["curve"]]
        lines.append(Line(name, [(stored[name]["steps"] * i / max(1, len(far) - 1), d) for i, d in enumerate(far)]))
    return standalone(line_chart(lines, title="Distance to the equilibrium", x="step", y="distance"))


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--players", default=",".join(PLAYERS))
    parser.add_argument("--draw", action="store_true", help="draw the stored results and print the table")
    given = parser.parse_args(words)
    stored: dict[str, Any] = json.loads(OUT.read_text()) if OUT.exists() else {}
    for seed in () if given.draw else range(given.seeds):
        with tempfile.TemporaryDirectory() as made:
            base = prepared(Path(made), seed)
            for name in given.players.split(","):
                player = PLAYERS[name]
                run = result(player, played(player, Path(made), base, seed))
                print(name, seed, {key: value for key, value in run.items() if key != "curve"}, flush=True)
                setting = {"steps": player.steps, "prompts": player.prompts, "lr": player.lr, "tau": player.tau}
                runs = stored.get(name, {}).get("runs", {})
                stored[name] = {"options": dict(player.options), **setting, "runs": {**runs, str(seed): run}}
                OUT.write_text(json.dumps(stored, indent=1) + "\n")
    SVG.write_text(drawn(stored))
    print("\n".join(table(stored)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
