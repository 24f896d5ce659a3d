"""A stranger's walk: a wheel in a fresh virtual environment, and 60 commands of the documentation typed one by one.

Each command stands on the page that is named (the fast test checks it). It is typed with the stranger's own file names,
and with flags that keep it short. BURNISH_WALK=DIR keeps what was printed, and a second walk goes on where it failed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHORT = "--steps 2 --prompts 2 --eval-tasks 2"
SECONDS = 240.0  # of one command, on a busy machine


@dataclass(frozen=True)
class Typed:
    """A command of a page. `with_` are the stranger's words in place of the page's, `more` is added, `says` appears."""

    page: str
    command: str
    says: str
    more: str = ""
    with_: tuple[tuple[str, str], ...] = ()
    code: int = 0

    def words(self) -> list[str]:
        line = self.command
        for theirs, own in self.with_:
            line = line.replace(theirs, own)
        return shlex.split(f"{line} {self.more}")[1:]


def typed(page: str, command: str, says: str, more: str = "", code: int = 0, **with_: str) -> Typed:
    return Typed(page, command, says, more, tuple((k.replace("__", "/"), v) for k, v in with_.items()), code)


RM = {"runs__DIR": "runs/rm"}
WALK = [
    typed("README.md", "burnish train", r"\+?-?[\d.]+ points", "--steps 2 --eval-tasks 4 --out runs/demo"),
    typed("README.md", "burnish choose", "burnish train dpo", "--task pairs.jsonl --signal none --model tiny"),
    typed(
        "docs/start.md",
        "burnish train sft --model Qwen/Qwen2.5-0.5B-Instruct --task chats.jsonl",
        "held-out sft/nll",
        f"{SHORT} --out runs/sft",
        **{"Qwen/Qwen2.5-0.5B-Instruct": "tiny"},
    ),
    typed(
        "docs/start.md",
        "burnish train dpo --model Qwen/Qwen2.5-0.5B-Instruct --task pairs.jsonl",
        "held-out reply/accuracy",
        f"{SHORT} --out runs/dpo",
        **{"Qwen/Qwen2.5-0.5B-Instruct": "tiny"},
    ),
    typed(
        "docs/start.md",
        "burnish train grpo --model Qwen/Qwen2.5-0.5B-Instruct --task questions.jsonl",
        "next:   burnish chat",
        f"{SHORT} --n 2 --out runs/grpo",
        **{"Qwen/Qwen2.5-0.5B-Instruct": "tiny"},
    ),
    typed("docs/start.md", "burnish export last --to gguf", "gguf", "--out exported.gguf"),
    typed(
        "docs/runs.md",
        "burnish train grpo --task countdown --steps 100 --out runs/first",
        "step 2/2",
        "--prompts 2 --n 2 --eval-tasks 2",
        **{"--steps 100": "--steps 2"},
    ),
    typed("docs/runs.md", "burnish train --resume runs/first", "step 3/3", "--steps 3"),
    typed("docs/runs.md", "burnish train grpo --help", "The ten that matter first"),
    typed(
        "docs/runs.md",
        "burnish train grpo --steps 500 --patience 3",
        "step ",
        "--prompts 2 --n 2 --eval-tasks 2 --out runs/patient",
        **{"--steps 500": "--steps 2"},
    ),
    typed("docs/runs.md", "burnish train sft --patience 2 --product best", "model:", f"{SHORT} --out runs/best"),
    typed(
        "docs/runs.md",
        "burnish train dpo --task add --steps 10",
        "held-out reply/accuracy: 50.0% (100% ties) -> ",
        "--prompts 2 --eval-tasks 4 --out runs/pairs",
        **{"--steps 10": "--steps 2"},
    ),
    typed("docs/runs.md", "burnish completion bash", "complete"),
    typed("docs/runs.md", "burnish runs", "runs show RUN"),
    typed("docs/runs.md", "burnish report last", "report.html"),
    typed("docs/store.md", "burnish runs show last", "metric"),
    typed("docs/store.md", "burnish runs export last --to parquet", "metrics.parquet: 2 rows"),
    typed("docs/commands.md", "burnish methods", "grpo"),
    typed("docs/commands.md", "burnish show grpo", "rollout"),
    typed("docs/commands.md", "burnish tasks", "countdown"),
    typed("docs/commands.md", "burnish rewards", "math"),
    typed("docs/commands.md", "burnish papers", "2402.03300"),
    typed("docs/commands.md", "burnish models", "smollm2"),
    typed("docs/commands.md", "burnish check", "one step"),
    typed("docs/commands.md", "burnish doctor runs/DIR", "finished and intact", runs__DIR="runs/dpo"),
    typed("docs/commands.md", "burnish eval tiny --task sort --k 16", "pass@k", "--tasks 4", **{"--k 16": "--k 2"}),
    typed(
        "docs/commands.md",
        "burnish pairs --model tiny --task sort -o pairs.jsonl",
        "pairs",
        "--tasks 8 --n 4",
        **{"pairs.jsonl": "made.jsonl"},
    ),
    typed("docs/commands.md", "burnish rate --model tiny --task sort -o rated.jsonl", "rated.jsonl", "--tasks 4 --n 2"),
    typed(
        "docs/commands.md",
        "burnish decontaminate --task train.jsonl --against test.jsonl -o clean.jsonl",
        "clean.jsonl",
        **{"train.jsonl": "questions.jsonl", "test.jsonl": "chats.jsonl"},
    ),
    typed("docs/commands.md", "burnish steps --model tiny --task multiply -o s.jsonl", "s.jsonl", "--tasks 4"),
    typed(
        "docs/commands.md",
        "burnish toggle --task data.jsonl -o both.jsonl",
        "both.jsonl",
        **{"data.jsonl": "thoughts.jsonl"},
    ),
    typed("docs/commands.md", "burnish recipe tulu3", "rlvr:", "--size real --dry-run"),
    typed("docs/recipes.md", "burnish recipe", "am-thinking-v1"),
    typed("docs/recipes.md", "burnish recipe show tulu3", "stages:"),
    typed("docs/data.md", "burnish tasks sort", "mistake"),
    typed("docs/data.md", "burnish tasks data.jsonl --model tiny", "trained on", **{"data.jsonl": "chats.jsonl"}),
    typed(
        "docs/data.md",
        "burnish train sft --task data.jsonl --columns prompt=body,completion=reply",
        "held-out sft/nll",
        f"{SHORT} --out runs/columns",
        **{"data.jsonl": "odd.jsonl"},
    ),
    typed(
        "docs/rewards.md",
        'burnish train grpo --task data.jsonl --reward "math,my_rewards.py:brief*0.1"',
        r"reward: math@\w+, brief@",
        f"{SHORT} --n 2 --out runs/rewards",
        **{"data.jsonl": "questions.jsonl"},
    ),
    typed(
        "docs/rewards.md",
        'burnish train grpo --task data.jsonl --reward math --shape "overlong(0.2)"',
        "step 2/2",
        f"{SHORT} --n 2 --out runs/shape",
        **{"data.jsonl": "questions.jsonl"},
    ),
    typed(
        "docs/reward-models.md",
        "burnish train reward_model --task pairs.jsonl",
        "held-out end/accuracy",
        f"{SHORT} --out runs/rm",
    ),
    typed(
        "docs/reward-models.md",
        "burnish eval-reward runs/DIR/model --task pairs.jsonl",
        "pairs in the right order",
        **RM,
    ),
    typed(
        "docs/reward-models.md",
        'burnish train grpo --task prompts.jsonl --reward "rm(runs/DIR/model)"',
        "held-out reward",
        f"{SHORT} --n 2 --out runs/learned",
        **RM,
    ),
    typed(
        "docs/preferences.md",
        "burnish eval runs/DIR/model --task sort --reference tiny",
        "win rate",
        "--tasks 4 --k 1",
        runs__DIR="runs/dpo",
    ),
    typed(
        "docs/compare.md",
        'burnish compare grpo "grpo(n=16)" "grpo(n=16, lr=3e-5)" --task add',
        "grpo(n=4)",
        "--budget steps=2 --prompts 2 --eval-tasks 2 --replies 2 --points 1 --seeds 1 --workers 1 --out compared",
        **{"n=16": "n=4"},
    ),
    typed("docs/migrate.md", "burnish import grpo_config.yaml -o ours.yaml", "ours.yaml"),
    typed("docs/migrate.md", "burnish plan ours.yaml", "GiB"),
    typed("docs/migrate.md", "burnish train grpo --num-generations 8", "in burnish: --n", code=2),
    typed(
        "docs/models.md",
        "burnish plan grpo --model path/to/8b --lora 16 --prompts 16 --max-new-tokens 256",
        "peak on a GPU",
        path__to__8b="tiny",
    ),
    typed(
        "docs/models.md",
        "burnish train sft --model path/to/model --task data.jsonl --lora 16 --lora-alpha 32 --lora-dropout 0.05",
        "held-out sft/nll",
        f"{SHORT} --out runs/lora",
        **{"path__to__model": "tiny", "data.jsonl": "chats.jsonl"},
    ),
    typed("docs/export.md", "burnish export runs/DIR --to merged", "merged", "--out merged", runs__DIR="runs/lora"),
    typed("docs/export.md", "burnish push runs/DIR owner/name --to merged --dry-run", "would", runs__DIR="runs/lora"),
    typed(
        "docs/environments.md",
        "burnish train sft --task maze:1 --steps 25",
        "step 2/2",
        "--prompts 2 --eval-tasks 2 --out runs/maze",
        **{"--steps 25": "--steps 2"},
    ),
    typed(
        "docs/agents.md",
        "burnish train ppo --task my_env.py:Corridor --turns 8",
        "step 2/2",
        f"{SHORT} --out runs/corridor",
    ),
    typed(
        "docs/agents.md",
        "burnish train grpo --task questions.jsonl --tools my_tools.py:search,my_tools.py:add",
        "step 2/2",
        f"{SHORT} --n 2 --turns 2 --out runs/tools",
    ),
    typed(
        "docs/process-rewards.md",
        "burnish train process_reward_model --model tiny --task steps.jsonl",
        "step 2/2",
        f"{SHORT} --out runs/prm",
        **{"steps.jsonl": "s.jsonl"},
    ),
    typed(
        "docs/process-rewards.md",
        'burnish train best_of_n --task multiply --reward "prm(runs/DIR/model)"',
        "the method's replies",
        "--steps 1 --prompts 2 --eval-tasks 2 --n 2 --out runs/chosen",
        runs__DIR="runs/prm",
    ),
    typed(
        "docs/decoding.md",
        "burnish train vas_value --model tiny --task add --steps 30",
        "burnish train vas",
        "--prompts 2 --eval-tasks 2 --out runs/values",
        **{"--steps 30": "--steps 2"},
    ),
    typed(
        "docs/own-method.md",
        "burnish train examples/my_method.py:thrifty_reinforce --task add --cost 0.005",
        "step 2/2",
        f"{SHORT} --out runs/own",
        **{"examples__my_method.py": "my_method.py"},
    ),
    typed(
        "docs/own-method.md",
        "burnish train examples/my_method.py:thrifty_reinforce --cost -1",
        "--cost",
        code=2,
        **{"examples__my_method.py": "my_method.py"},
    ),
    typed(
        "docs/commands.md",
        "burnish arena tiny runs/DIR/model --task sort",
        "Elo",
        "--tasks 4",
        runs__DIR="runs/dpo",
    ),
]

TOOLS = '''
def search(query: str) -> str:
    """Search.

    Args:
        query: what for
    """
    return "nothing found"


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b
'''


def belongings(place: Path) -> None:
    """The stranger's own files."""

    def lines(name: str, rows: list[dict[str, object]]) -> None:
        (place / name).write_text("".join(json.dumps(row) + "\n" for row in rows))

    many = range(1, 25)
    chat = [[{"role": "user", "content": f"Say {i}."}, {"role": "assistant", "content": f"{i}!"}] for i in many]
    lines("chats.jsonl", [{"messages": one} for one in chat])
    lines("pairs.jsonl", [{"prompt": f"Say {i}.", "chosen": f"{i}!", "rejected": "No."} for i in many])
    lines("questions.jsonl", [{"prompt": f"What is {i} + 25?", "answer": str(i + 25)} for i in many])
    lines("prompts.jsonl", [{"prompt": f"What is {i} + 25?"} for i in many])
    lines("odd.jsonl", [{"body": f"Say {i}.", "reply": f"{i}!"} for i in many])
    lines("thoughts.jsonl", [{"prompt": f"{i}?", "completion": f"<think>Hm.</think>{i}"} for i in many])
    (place / "my_rewards.py").write_text(
        "def brief(completions):\n    return [float(len(c) < 40) for c in completions]\n"
    )
    corridor = re.search(r"```python\n(class Corridor:.*?)```", (ROOT / "docs" / "agents.md").read_text(), re.S)
    assert corridor is not None
    (place / "my_env.py").write_text(corridor[1])
    (place / "my_tools.py").write_text(TOOLS)
    (place / "my_method.py").write_text((ROOT / "examples" / "my_method.py").read_text())
    trl = "learning_rate: 1.0e-6\nnum_generations: 2\nmax_steps: 2\nper_device_train_batch_size: 4\n"
    (place / "grpo_config.yaml").write_text(trl + "model_name_or_path: tiny\ndataset_name: questions.jsonl\n")


def spaced(text: str) -> str:
    return re.sub(r"\s+", " ", text.replace("\\\n", " "))


def test_there_are_sixty_commands_and_each_stands_on_its_page() -> None:
    assert len(WALK) == 60
    pages = {one.page: spaced((ROOT / one.page).read_text()) for one in WALK}
    assert [one.command for one in WALK if spaced(one.command) not in pages[one.page]] == []


@pytest.fixture(scope="module")
def burnish(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command of a wheel in an environment of its own, whose other packages are those of this one."""
    kept = os.environ.get("BURNISH_WALK")  # at the same place again: adapters name the folder of their base model
    place = Path(kept) / "wheel" if kept else tmp_path_factory.mktemp("wheel")
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    source = place / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "src"):
        subprocess.run(["cp", "-r", str(ROOT / name), str(source / name)], check=True)
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--wheel-dir", str(place), str(source)], check=True, timeout=SECONDS)
    (wheel,) = place.glob("burnish-*.whl")
    venv.create(place / "env", with_pip=False, symlinks=True)
    python = place / "env" / "bin" / "python"
    inside = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], capture_output=True, text=True
    ).stdout.strip()
    (Path(inside) / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")  # no editable burnish comes along
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps"]
    subprocess.run([*install, "--no-index", "--force-reinstall", str(wheel)], check=True, timeout=SECONDS)
    return place / "env" / "bin" / "burnish"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    kept = os.environ.get("BURNISH_WALK")
    place = Path(kept) if kept else tmp_path_factory.mktemp("stranger")
    place.mkdir(parents=True, exist_ok=True)
    belongings(place)
    yield place


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("number", range(len(WALK)), ids=[one.command[8:40] for one in WALK])
def test_a_stranger_types_it(number: int, burnish: Path, home: Path) -> None:
    """It ends as it should, says what the page promises, and never shows a traceback or a library's warning."""
    one = WALK[number]
    name = hashlib.sha256(shlex.join(one.words()).encode()).hexdigest()[:12]
    seen = home / f"said-{name}.txt"
    if seen.exists():
        return  # BURNISH_WALK: it passed before
    if "--out" in one.words():  # what a walk left that failed here
        shutil.rmtree(home / one.words()[one.words().index("--out") + 1], ignore_errors=True)
    env = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "BURNISH"))}
    env |= {"COLUMNS": "160", "BURNISH_HOME": str(home / "cache"), "NO_COLOR": "1"}
    run = subprocess.run(
        [burnish, *one.words()],
        cwd=home,
        env=env,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        stdin=subprocess.DEVNULL,
    )
    told = f"$ burnish {shlex.join(one.words())}\n{run.stdout}\n--- stderr\n{run.stderr}"
    assert run.returncode == one.code, told
    assert "Traceback" not in told and "Warning:" not in told, told
    assert one.says in told or re.search(one.says, told), told
    seen.write_text(told)
