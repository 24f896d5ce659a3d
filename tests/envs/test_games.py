"""The environments in the box: rules by hand, experts that win, keys, forks, splits, and hostile actions."""

from __future__ import annotations

import hashlib
import json
import random
from typing import Any

import pytest

from burnish.core.messages import as_messages
from burnish.core.task import NoVerifier
from burnish.envs.expert import expert_episode
from burnish.envs.games.deal import Bargain, Haggling
from burnish.envs.games.files import Job, Shell
from burnish.envs.games.form import Filling, Page
from burnish.envs.games.game import Game
from burnish.envs.games.maze import Plan, Walk
from burnish.envs.games.nim import Heap, Taking
from burnish.envs.games.questions import Items, Questions
from burnish.envs.games.table import GAMES
from burnish.envs.games.text_nav import Adventure, House
from burnish.envs.games.wordle import Spelling, Words, marks
from burnish.envs.guarded import GuardedEnv
from burnish.envs.protocol import Outcome
from burnish.models.known_models import resolve
from burnish.models.load import load_chat
from burnish.rollout.demonstrated import demonstration, demonstration_trace
from burnish.tasks.environment import EnvSource
from burnish.tasks.table import source

GOLDEN = {
    "deal": "6a5d440dd65ebd8a",
    "files": "4fd51e9df750b22f",
    "form": "1e0c424ac8f2a8c9",
    "maze": "b638788ab1c295fe",
    "nim": "5a1b85f3277012df",
    "reach": "3d1827740b85d185",
    "text_nav": "e0f54fbe12a699b2",
    "twenty_questions": "7f16e70f70431824",
    "wordle": "58900f66e5ceb378",
    "zoom": "9dae1d4c6c5a6cfd",
}  # of level 1: the same games in every process and every version
LEVELS = [(name, level) for name in GAMES for level in GAMES[name].levels]


def started(game: Game) -> Any:
    game.reset()
    return game


def earned(outcome: Outcome) -> float:
    return (outcome.reward or 0.0) + outcome.rewards.get("player", 0.0)


@pytest.mark.parametrize(("name", "level"), LEVELS)
def test_the_expert_wins_and_splits_are_apart(name: str, level: int) -> None:
    family = source(f"{name}:{level}")
    keys: dict[str, set[str]] = {"train": set(), "heldout": set()}
    for split in keys:
        for index in range(6):
            task = family.task(split, index)
            keys[split].add(task.key)
            assert (
                task == family.task(split, index)
                or task.given["messages"] == family.task(split, index).given["messages"]
            )
            game = task.given["env"]()
            prompt = game.reset()
            assert task.prompt == as_messages(prompt)
            total, outcome = 0.0, Outcome()
            for message in task.given["messages"]:
                if message["role"] == "assistant":
                    assert not outcome.over
                    outcome = game.step(message["content"])
                    total += earned(outcome)
            assert outcome.terminated and total == 1.0
    assert not keys["train"] & keys["heldout"] and len(keys["train"]) > 3


@pytest.mark.parametrize("name", GAMES)
def test_a_game_is_what_it_was(name: str) -> None:
    told = []
    for split in ("train", "heldout"):
        for index in range(60):
            found = source(f"{name}:1").task(split, index)
            told.append([found.kind, str(found.prompt), [("demo", found.given["demo"])], found.key])
    assert hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16] == GOLDEN[name]


@pytest.mark.parametrize("name", GAMES)
def test_a_fork_goes_its_own_way_and_keys_name_states(name: str) -> None:
    for index in range(5):
        game = started(source(f"{name}:2").task("train", index).given["env"]())
        twin = game.fork()
        assert twin.key() == game.key()
        before, said = game.key(), twin.expert()
        mine = twin.step(said)
        assert game.key() == before and game.made == 0
        assert game.step(said) == mine and game.key() == twin.key()


@pytest.mark.parametrize("name", GAMES)
def test_no_action_raises_and_random_words_rarely_win(name: str) -> None:
    dice, wins = random.Random(0), 0
    odd = [
        "",
        " ",
        "\x00",
        "../../etc",
        "9" * 5000,
        "mv",
        "mv / /",
        "cd ..",
        "=",
        "a=b=c",
        "-1",
        "go",
        "\u00e9\U0001f600",
    ]
    for index in range(20):
        game = started(source(f"{name}:3").task("train", index).given["env"]())
        for _ in range(60):
            outcome = game.step(dice.choice(odd))
            wins += earned(outcome) > 0.5
            if outcome.over:
                break
        assert outcome.over, "an episode of nonsense ends by itself"
        with pytest.raises(ValueError, match="over"):
            game.step("1")
    assert wins <= 2


def test_a_maze_by_hand() -> None:
    """Two rows of two cells, open 1,1-2,1, 2,1-2,2 and 1,1-1,2: from 1,2 to 2,2 the way is s, e, n."""
    plan = Plan(2, (((1, 1), (1, 2)), ((1, 1), (2, 1)), ((2, 1), (2, 2))), (1, 2), (2, 2))
    game = Walk(plan)
    assert game.reset() == "Go to 2,2. At 1,2: s"
    assert game.expert() == "s" and game.most == 8
    assert game.step("e").observation == "wall. At 1,2: s"
    assert game.step("go south").observation == "At 1,1: n e"
    assert game.step("?").observation == "say n, e, s or w. At 1,1: n e"
    assert game.step("e").observation == "At 2,1: n w"
    assert game.step("n") == Outcome("there", 1.0, terminated=True)
    wanders = started(Walk(plan))
    assert [wanders.step("n").truncated for _ in range(8)] == [False] * 7 + [True]


def test_marks_of_letters() -> None:
    assert marks("abc", "abc") == "===" and marks("abc", "cab") == "+++" and marks("ddd", "abc") == "---"
    assert marks("aab", "bca") == "+-+"  # the word has one a and one b
    assert marks("aba", "aab") == "=++"
    game = started(Spelling(Words(("abc", "abd", "cab"), "cab", 2)))
    assert game.step("zzz").observation == "not in the list"
    assert game.step("abc") == Outcome("abc +++", 0.0, terminated=True)


def test_questions_by_hand() -> None:
    game = started(Questions(Items(("ab", "b", "a"), 2, 3)))
    assert game.step("b").observation == "no" and game.left == ["C"] and game.expert() == "C"
    assert game.step("A").observation == "wrong"
    assert game.step("C") == Outcome("correct", 1.0, terminated=True)
    slow = started(Questions(Items(("ab", "b", "a"), 2, 1)))
    assert slow.step("b") == Outcome("no turns left", 0.0, terminated=True)


def test_an_adventure_by_hand() -> None:
    game = Adventure(House((("a", "b"), ("b", "c")), "a", "c", "b"))
    assert game.reset() == "Bring the box from c to b. In a: b"
    assert game.step("go c").observation == "no door. In a: b"
    assert game.step("take").observation == "nothing here. In a: b"
    for said in ("go b", "go c", "take", "go b"):
        assert game.step(said).reward == 0.0
    assert game.step("drop") == Outcome("dropped. In b: a c", 1.0, terminated=True)


def test_a_deal_by_hand() -> None:
    """Worth 10 to the buyer and 6 to the seller, who asks 8: a price of 7 gives the buyer (10 - 7) / 4."""
    position = Bargain(True, 10, 6, 8, 2)
    game = Haggling(position)
    assert game.reset() == "You buy, worth 10 to you, 2 rounds. I ask 8."
    assert game.step("5").observation == "I ask 7."
    done = game.step("7")
    assert done.terminated and done.rewards == {"player": 0.75, "opponent": 0.25}
    stubborn = started(Haggling(position))
    assert not stubborn.step("1").over and stubborn.step("no price") == Outcome("no deal", 0.0, terminated=True)
    assert started(Haggling(position)).step("6").rewards["player"] == 1.0
    sells = started(Haggling(Bargain(False, 4, 6, 5, 2)))
    assert sells.step("6").rewards == {"player": 1.0, "opponent": 0.0}
    assert position.share("player", 99) == -1.0


def test_a_shell_by_hand() -> None:
    job = Job((("t", None), ("u", None), ("a", "12"), ("u/b", "77")), "77", "t")
    game = started(Shell(job))
    game.most = 0  # no limit
    for said, answer in (
        ("ls", "a t/ u/"),
        ("cat a", "12"),
        ("cat t", "cat: no file t"),
        ("cd u", "ok"),
        ("ls", "b"),
        ("pwd", "/u"),
        ("cd ../..", "ok"),
        ("grep 77", "u/b"),
    ):
        assert game.step(said).observation == answer
    assert game.step("mv u/b nowhere/x").observation == "no folder for nowhere/x"
    assert game.step("rm -rf /").observation == "rm: wrong number of arguments"
    assert game.step("cp u/b t").reward == 0.0  # a copy is left behind
    assert game.step("rm u/b") == Outcome("ok", 1.0, terminated=True)


def test_a_form_by_hand() -> None:
    page = Page(("age", "code"), ("40", "x1"), ("", "kk"), True)
    game = Filling(page)
    assert game.reset() == "Fill in age 40, code x1. age[] code[kk]"
    assert game.step("age=40").observation == "age[40] code[kk]"
    assert game.step("send").observation == "Send it? yes no" and game.expert() == "no"
    assert game.step("no").observation == "age[40] code[kk]"
    game.step("code=x1")
    game.step("send")
    assert game.step("yes") == Outcome("sent", 1.0, terminated=True)
    wrong = started(Filling(Page(("age",), ("40",), ("",), False)))
    assert wrong.step("send") == Outcome("sent with mistakes", 0.0, terminated=True)


def test_nim_by_hand() -> None:
    """Of 6, taking 2 leaves 4, a loss for the other; taking 1 leaves 5, of which it takes 1."""
    game = Taking(Heap(6, "player"))
    assert game.reset() == "Take 1 to 3, the last one wins. 6 left." and game.expert() == "2"
    assert game.step("1").observation == "I take 1. 4 left."
    lost = game.step("3")
    assert lost.terminated and lost.rewards == {"opponent": 1.0, "player": 0.0}
    assert started(Taking(Heap(6, "player"))).step("4").rewards["player"] == 0.0
    assert started(Taking(Heap(3, "player"))).step("3").rewards == {"player": 1.0, "opponent": 0.0}


def test_demonstrations_are_conversations_by_demo_and_env() -> None:
    chat = load_chat(resolve("tiny"))
    task = source("maze:1").task("train", 1)
    (pieces,) = demonstration(task, chat, "all")
    trace = demonstration_trace(pieces, "demo", 0)
    assert trace.authors() == ("task", "demo", "env")
    replies = [m["content"] for m in task.given["messages"] if m["role"] == "assistant"]
    assert [chat.text(turn.tokens) for turn in trace.turns if turn.author == "demo"] == replies
    assert trace.turns[0].tokens.tolist() == chat.prompt(task).tolist()


class Lights:
    """Switch the light on."""

    def reset(self) -> str:
        return "dark"

    def step(self, action: str) -> tuple[str, float, bool]:
        return "light", 1.0, action == "on"

    def expert(self) -> str:
        return "on"


class Never(Lights):
    def expert(self) -> str:
        return "off"


def test_an_environment_of_the_user_demonstrates_with_its_expert() -> None:
    own = EnvSource(Lights)
    assert own.gives == {"env", "demo", "messages"}
    assert own.task("train", 0).given["messages"] == [
        {"role": "user", "content": "dark"},
        {"role": "assistant", "content": "on"},
    ]
    assert expert_episode(GuardedEnv(Lights), None, 0)[-1]["content"] == "on"
    with pytest.raises(ValueError, match="has not ended the episode after 200 actions"):
        EnvSource(Never).task("train", 0)
    with pytest.raises(NoVerifier, match="played, not verified"):
        own.verify(own.task("train", 0), "on")


def test_demonstrations_of_another_seat() -> None:
    """The user of twenty_questions: it is told the item, and says yes or no; splits stay apart; nothing is played."""
    family = source("twenty_questions:1", seat="user")
    assert family.gives == {"demo", "messages"} and "env" in source("twenty_questions:1").gives
    for index in range(5):
        task = family.task("train", index)
        system, first, *rest = task.given["messages"]
        assert system["role"] == "system" and task.prompt == (system, first) and "env" not in task.given
        item, asked = first["content"].removeprefix("Your item: ").rstrip("?").split(". ")
        questions = [asked, *(m["content"].rstrip("?") for m in rest if m["role"] == "user")]
        said = [m["content"] for m in rest if m["role"] == "assistant"]
        assert said == ["yes" if letter in item else "no" for letter in questions]
    keys = [{family.task(split, i).key for i in range(8)} for split in ("train", "heldout")]
    assert not keys[0] & keys[1]
    for name, why in (("twenty_questions", "it is user"), ("maze", "the game has one player")):
        with pytest.raises(ValueError, match=why):
            source(name, seat="dealer")
