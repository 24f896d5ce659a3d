"""Environments and tools of other libraries. Each test is skipped where its library is not installed."""

from __future__ import annotations

import re
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import SMALL, build_cast

from burnish.compose.multi_turn import played
from burnish.core.loop import loop
from burnish.core.method import Method
from burnish.core.step import Step
from burnish.core.types import Clock, Group
from burnish.envs.named_tools import read_tools
from burnish.envs.tools import ToolEnv
from burnish.methods.table import find
from burnish.models.known_models import TINY
from burnish.reward_functions.load import load_function
from burnish.tasks.resolve import resolve_task
from burnish.tasks.source import Source

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def groups_of(source: Source, model: Path, **settings: Any) -> list[Group]:
    """One batch of grpo's episodes on a task."""
    method: Method = played(find("grpo").build(source, n=2), source)
    step = Step(Clock(0, 1), build_cast(method, model), replace(SMALL, max_new_tokens=4, **settings))
    tasks = [source.task("train", i) for i in range(2)]
    return method.phases[0].rollout.call(tasks, step)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("module", "task", "extra"),
    [
        ("gymnasium", "gymnasium:FrozenLake-v1", "gymnasium"),
        ("textarena", "textarena:TicTacToe-v0", "textarena"),
        ("websockets.sync.client", "openenv:http://127.0.0.1:9", "openenv"),
        ("verifiers", "verifiers:gsm8k", "verifiers"),
    ],
)
def test_a_missing_library_is_a_sentence_with_the_command(
    module: str, task: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ValueError, match=re.escape(f"pip install 'burnish[{extra}]'")):
        resolve_task(task).task("train", 0)


def test_mcp_that_is_missing_is_a_sentence_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    with pytest.raises(ValueError, match=re.escape("pip install 'burnish[mcp]'")):
        read_tools("mcp:python server.py")


def test_a_prefix_without_a_name_is_refused() -> None:
    with pytest.raises(ValueError, match="names no environment"):
        resolve_task("gymnasium:")


@pytest.mark.parametrize(
    ("name", "action", "shown"),
    [
        ("FrozenLake-v1", "right", "[S]FFF"),
        ("CliffWalking-v1", "up", "x"),
        ("Taxi-v4", "south", "+---------+"),
        ("Blackjack-v1", "stick", ", "),
    ],
)
def test_gymnasium_text_environments_are_played(name: str, action: str, shown: str) -> None:
    pytest.importorskip("gymnasium")
    source = resolve_task(f"gymnasium:{name}")
    task = source.task("train", 0)
    [prompt] = task.prompt
    assert action in prompt["content"] and shown in prompt["content"]
    env = task.given["env"]()
    env.reset(seed=task.given["seed"])
    before = env.key()
    refused = env.step("I do not know")
    assert "Reply with" in refused.observation and not refused.over and env.key() == before
    found = env.step(f"I go left or rather: {action}")
    assert isinstance(found.reward, float) and (name != "Blackjack-v1" or found.terminated)
    env.close()


def test_gymnasium_follows_the_environment_step_by_step() -> None:
    """The way over the lake that is known to reach the goal, against Gymnasium itself."""
    gym = pytest.importorskip("gymnasium")
    source = resolve_task("gymnasium:FrozenLake-v1,is_slippery=False")
    env = source.task("train", 0).given["env"]()
    plain = gym.make("FrozenLake-v1", is_slippery=False)
    env.reset(seed=1), plain.reset(seed=1)
    names = ("left", "down", "right", "up")
    for action in (1, 1, 2, 2, 1, 2):
        found, (_, reward, terminated, truncated, _) = env.step(names[action]), plain.step(action)
        assert (found.reward, found.terminated, found.truncated) == (float(reward), terminated, truncated)
    assert found.reward == 1.0 and found.terminated and "[G]" in found.observation


def test_gymnasium_tasks_train(small_model: Path) -> None:
    pytest.importorskip("gymnasium")
    groups = groups_of(resolve_task("gymnasium:Blackjack-v1"), small_model, turns=3)
    assert all(trace.note["turns"] >= 1 and "failed" not in trace.note for group in groups for trace in group.traces)


def test_gymnasium_refuses_what_cannot_be_written() -> None:
    pytest.importorskip("gymnasium")
    for name, why in (("Nowhere-v1", "cannot make 'Nowhere-v1'"), ("Pendulum-v1", "only Discrete")):
        with pytest.raises(ValueError, match=why):
            resolve_task(f"gymnasium:{name}").task("train", 0)


def test_textarena_games_of_one_and_two_players() -> None:
    pytest.importorskip("textarena")
    alone = resolve_task("textarena:GuessTheNumber-v0").task("train", 0)
    env = alone.given["env"]()
    assert "Guess The Number" in env.reset(seed=3)
    for number in range(1, 21):
        found = env.step(f"[{number}]")
        if found.over:
            break
        assert "Guess The Number" not in found.observation  # only what is new
    assert found.over
    two = resolve_task("textarena:TicTacToe-v0").task("train", 0).given["env"]
    games = []
    for _ in range(2):
        env = two()
        seen = [env.reset(seed=5)]
        for cell in (0, 4, 8, 1, 2, 3, 5, 6, 7):
            found = env.step(f"[{cell}]")
            seen.append(found.observation)
            if found.over:
                break
        games.append((seen, found.reward))
    assert games[0] == games[1] and found.over  # the opponent and the game draw by the seed alone


def test_textarena_pays_nothing_for_an_invalid_move_at_the_end() -> None:
    pytest.importorskip("textarena")
    env = resolve_task("textarena:TowerOfHanoi-v0").task("train", 0).given["env"]()
    env.reset(seed=1)
    for _ in range(10):
        found = env.step("[Z Q]")
        if found.over:
            break
    assert found.over and found.reward is not None and found.reward <= 0 and found.info["invalid"]
    with pytest.raises(ValueError, match="cannot make 'Nothing-v0'"):
        resolve_task("textarena:Nothing-v0").task("train", 0)


def test_textarena_tasks_train() -> None:
    pytest.importorskip("textarena")
    groups = groups_of(resolve_task("textarena:TicTacToe-v0"), TINY, turns=2)  # its prompt has 500 letters
    assert all("failed" not in trace.note for group in groups for trace in group.traces)


def test_mcp_tools_answer_and_their_errors_are_observations(tmp_path: Path) -> None:
    pytest.importorskip("mcp")
    tools = read_tools(f"mcp:{sys.executable} {EXAMPLES / 'mcp_server.py'}")
    assert [tool.name for tool in tools] == ["add", "divide"]
    assert tools[0].schema["function"]["parameters"]["required"] == ["a", "b"]
    env = ToolEnv(tools)

    def ask(name: str, arguments: str) -> str:
        [answer] = env.step(f'<tool_call>{{"name": "{name}", "arguments": {arguments}}}</tool_call>').observation  # type: ignore[misc]
        return str(answer["content"])

    assert ask("add", '{"a": 2, "b": 3}') == "5"
    assert ask("divide", '{"a": 1, "b": 0}').startswith("error: RuntimeError: ")
    assert ask("add", '{"a": "x", "b": 3}').startswith("error: ") and ask("add", '{"a": 1}').startswith("error: ")
    found: list[str] = []
    threads = [threading.Thread(target=lambda i=i: found.append(ask("add", f'{{"a": {i}, "b": 1}}'))) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(int, found)) == list(range(1, 9))


def test_an_mcp_server_that_dies_costs_a_call_and_one_that_cannot_start_is_a_sentence(tmp_path: Path) -> None:
    pytest.importorskip("mcp")
    from burnish.envs.of_mcp import McpServer

    file = tmp_path / "dies.py"
    file.write_text(
        (EXAMPLES / "mcp_server.py")
        .read_text()
        .replace("    return a + b", "    import os, signal\n    os.kill(os.getpid(), signal.SIGKILL)\n    return 0")
    )
    server = McpServer(f"{sys.executable} {file}", seconds=20)
    with pytest.raises(RuntimeError):
        server.call("add", {"a": 1, "b": 2})
    with pytest.raises(ValueError, match="could not be started|had not answered"):
        McpServer("no-such-program-anywhere", seconds=5)
    with pytest.raises(ValueError, match="names no command"):
        McpServer("")


ECHO = """
from openenv.core.env_server import Action, Environment, Observation, State

class EchoAction(Action):
    message: str

class EchoObservation(Observation):
    text: str = ""

class Echo(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True
    def __init__(self):
        super().__init__()
        self._state = State()
    def reset(self, seed=None, episode_id=None, **more):
        self._state = State(step_count=0)
        return EchoObservation(text=f"say something, seed {seed}", done=False, reward=None)
    def step(self, action, timeout_s=None, **more):
        if action.message == "break":
            raise RuntimeError("broken inside")
        self._state.step_count += 1
        reward = float("aeiou".count(action.message[:1] or "-"))
        return EchoObservation(text=f"you said {action.message}", reward=reward, done=self._state.step_count >= 2)
    @property
    def state(self):
        return self._state
"""


@pytest.fixture(scope="module")
def openenv_server(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A real OpenEnv server, of the package openenv-core, on the loopback address."""
    core = pytest.importorskip("openenv.core.env_server")
    uvicorn = pytest.importorskip("uvicorn")
    file = tmp_path_factory.mktemp("openenv") / "echo_env.py"
    file.write_text(ECHO)
    echo = load_function(f"{file}:Echo", "environment")
    module = sys.modules[echo.__module__]
    app = core.create_fastapi_app(echo, module.EchoAction, module.EchoObservation, max_concurrent_envs=16)
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error"))
    threading.Thread(target=server.run, daemon=True).start()
    for _ in range(400):
        if server.started:
            break
        time.sleep(0.05)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True


@pytest.mark.extras
def test_openenv_episodes_of_a_real_server(openenv_server: str, small_model: Path) -> None:
    source = resolve_task(f"openenv:{openenv_server}")
    task = source.task("train", 0)
    assert task.prompt[0]["content"].startswith("say something, seed ")
    one, other = task.given["env"](), task.given["env"]()
    one.reset(seed=1), other.reset(seed=2)
    assert (one.step("ab").observation, one.step("b").terminated) == ("you said ab", True)
    found = other.step("e")  # a session of its own
    assert (found.reward, found.terminated) == (1.0, False)
    assert "broken inside" in other.step("break").observation
    one.close(), other.close()
    groups = groups_of(source, small_model, turns=3)
    assert [trace.note["turns"] for group in groups for trace in group.traces] == [2, 2, 2, 2]
    assert all("failed" not in trace.note for group in groups for trace in group.traces)


def test_an_openenv_server_that_is_not_there_is_a_sentence() -> None:
    pytest.importorskip("websockets")
    with pytest.raises(ValueError, match="no OpenEnv server answers at http://127.0.0.1:9/schema"):
        resolve_task("openenv:http://127.0.0.1:9").task("train", 0)
    with pytest.raises(ValueError, match="is no address"):
        resolve_task("openenv:somewhere").task("train", 0)


V1 = """
import verifiers.v1 as vf

class Data(vf.TaskData):
    answer: str = ""

class Sum(vf.Task[Data]):
    @vf.reward
    async def right(self, trace: vf.Trace) -> float:
        return float(trace.last_reply == self.data.answer)

    @vf.reward(weight=0.5)
    async def short(self, trace: vf.Trace) -> float:
        return float(len(trace.last_reply) < 4)

class Sums(vf.Taskset[Sum, vf.TasksetConfig]):
    \"\"\"Sums of two digits.\"\"\"
    def load(self):
        for a in range(4):
            for b in range(10):
                yield Sum(Data(prompt=f"{a} + {b}?", system_prompt="Add.", answer=str(a + b)), self.config.task)

__all__ = ["Sums"]
"""


def test_a_taskset_of_verifiers_v1_is_a_source_with_its_own_rewards(
    tmp_path: Path, small_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("verifiers.v1.taskset")
    if hasattr(__import__("verifiers"), "load_environment"):
        pytest.skip("this version of verifiers has both generations, and finds environments first")
    (tmp_path / "sums_for_tests.py").write_text(V1)
    monkeypatch.syspath_prepend(str(tmp_path))
    source = resolve_task("verifiers:sums_for_tests")
    assert (source.size("train") or 0) + (source.size("heldout") or 0) == 40 and source.summary == "Sums of two digits."
    task = source.task("train", 0)
    assert [message["role"] for message in task.prompt] == ["system", "user"]
    answer = task.given["verifiers_task"].data.answer
    assert [source.verify(task, reply).score for reply in (answer, "x", "nothing at all")] == [1.5, 0.5, 0.0]
    method = find("grpo").build(source, n=2)
    report = next(loop(method, build_cast(method, small_model), replace(SMALL, max_new_tokens=4), steps=1))
    assert "reward" in report.metrics
    with pytest.raises(ValueError, match="verifiers has no taskset 'nowhere_at_all'"):
        resolve_task("verifiers:nowhere_at_all")


V0 = """
import verifiers as vf
from datasets import Dataset

def load_environment(most=2):
    rows = Dataset.from_list([{"question": f"{a} + 1?", "answer": str(a + 1)} for a in range(20)])

    class Twice(vf.MultiTurnEnv):
        async def env_response(self, messages, state, **more):
            return [{"role": "user", "content": "are you sure?"}]

        @vf.stop
        async def enough(self, state, **more):
            return len(state["trajectory"]) >= most

    def length(completion, **more):
        return float(sum(message["role"] == "assistant" for message in completion))

    return Twice(dataset=rows, rubric=vf.Rubric(funcs=[length], weights=[0.5]))
"""


@pytest.mark.extras
def test_an_environment_of_verifiers_before_v1_plays_itself_and_pays(
    tmp_path: Path, small_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = pytest.importorskip("verifiers")
    if not hasattr(root, "load_environment"):
        pytest.skip("this version of verifiers has v1 alone")
    (tmp_path / "twice_for_tests.py").write_text(V0)
    monkeypatch.syspath_prepend(str(tmp_path))
    source = resolve_task("verifiers:twice_for_tests,most=3")
    assert source.size("train") and source.size("heldout")
    groups = groups_of(source, small_model, env_timeout=60.0)
    for trace in (trace for group in groups for trace in group.traces):
        assert "failed" not in trace.note, trace.note
        assert trace.scores["reward"] == 1.5  # three replies, each 0.5
        assert [turn.author for turn in trace.turns] == ["task", "policy", "env", "policy", "env", "policy"]
