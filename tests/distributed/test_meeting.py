"""Ranks of several machines meet with a token, as equals, or say in one sentence why not; each within a second here."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch.distributed as dist

from burnish.distributed import meeting
from burnish.distributed.launch import Node
from burnish.distributed.meeting import Address, meet
from burnish.models.ranks import Ranks


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(meeting.WAIT, "3")


def outcomes(*tokens: str, world: int = 2) -> list[str]:
    """What came of ranks with these tokens that meet: a value that the first wrote, or a sentence."""
    address, found = Address("127.0.0.1", free_port()), dict[int, str]()
    stores: list[dist.Store] = []

    def come(rank: int, token: str) -> None:
        try:
            store = meet(Ranks(rank, world), address, token)
            stores.append(store)
            if not rank:
                store.set("word", "hello")
            found[rank] = store.get("word").decode()
        except ValueError as error:
            found[rank] = str(error)

    threads = [threading.Thread(target=come, args=(rank, token)) for rank, token in enumerate(tokens)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return [found[rank] for rank in range(len(tokens))]


def test_equals_meet() -> None:
    assert outcomes("one", "one") == ["hello", "hello"]


def test_another_token_is_named_on_both_sides() -> None:
    for other, said in zip((1, 0), outcomes("one", "two"), strict=True):
        assert said.startswith(f"rank {other} has another token than rank {1 - other}") and "BURNISH_TOKEN" in said


def test_a_rank_that_does_not_come_is_named() -> None:
    began = time.monotonic()
    (said,) = outcomes("one")
    assert said.startswith("rank 1 did not come to 127.0.0.1:") and "within 3 s" in said
    assert time.monotonic() - began < 10


def test_a_dead_port_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(meeting.WAIT, "1")
    port = free_port()
    with pytest.raises(ValueError, match=rf"^rank 1 cannot reach 127.0.0.1:{port} within 1 s: .*firewall$"):
        meet(Ranks(1, 2), Address("127.0.0.1", port), "one")


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = int(server.getsockname()[1])
        with pytest.raises(ValueError, match=rf"^rank 0 cannot listen at 127.0.0.1:{port} \(Address already in use\)"):
            meet(Ranks(0, 2), Address("127.0.0.1", port), "one")


@pytest.mark.parametrize(
    ("what", "fix"), [("burnish", "install one version"), ("command", "same file and flags"), ("ranks", "--per-node")]
)
def test_ranks_that_differ_are_told_apart(what: str, fix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = meeting._hello
    monkeypatch.setattr(
        meeting, "_hello", lambda own, token: whole(own, token) | ({what: "other"} if own.rank == 1 else {})
    )
    for said in outcomes("one", "one"):
        assert said.startswith(f"rank 1 has {what} other and rank 0 has ") and fix in said


def test_the_token_is_not_sent() -> None:
    hello = json.dumps(meeting._hello(Ranks(1, 2), "a secret text"))
    assert "a secret text" not in hello and json.loads(hello)["token"] != meeting._proof("a secret text", 0)


def test_no_port_is_open_to_others_without_a_token() -> None:
    with pytest.raises(ValueError, match="which other machines can reach, and there is no token; set BURNISH_TOKEN"):
        meet(Ranks(0, 2), Address("192.0.2.1", 29500), "")
    assert Address("127.0.0.1", 1).local and not Address("192.0.2.1", 1).local


@pytest.mark.parametrize("text", ["node0", "node0:", ":29500", "node0:70000", "node0:port"])
def test_an_address_is_a_host_and_a_port(text: str) -> None:
    with pytest.raises(ValueError, match="it is HOST:PORT"):
        Address.read(text)


def test_ranks_talk_by_the_interface_that_reaches_the_first_machine() -> None:
    told = Node(1, 2, Address("127.0.0.1", 29500)).variables(["run.yaml"])
    assert told["GLOO_SOCKET_IFNAME"] == told["NCCL_SOCKET_IFNAME"] == "lo"
    assert told[meeting.ADDRESS] == "127.0.0.1:29500" and len(told[meeting.SAME]) == 64


NAMES = ("burnish-a", "burnish-b")


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
def test_two_machines_in_network_namespaces_train_together(tmp_path: Path) -> None:
    """Two network stacks with a cable between them: nothing of one is reachable by the other but through it."""
    try:
        for name in NAMES:
            _ip("netns", "add", name)
        _ip("link", "add", "burnish-va", "netns", NAMES[0], "type", "veth", "peer", "burnish-vb", "netns", NAMES[1])
    except (OSError, subprocess.CalledProcessError) as error:
        for name in NAMES:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
        pytest.skip(f"this kernel makes no network namespaces: {error}")
    try:
        for name, link, place in zip(NAMES, ("burnish-va", "burnish-vb"), ("10.77.0.1", "10.77.0.2"), strict=True):
            _ip("-n", name, "addr", "add", f"{place}/24", "dev", link)
            _ip("-n", name, "link", "set", link, "up")
            _ip("-n", name, "link", "set", "lo", "up")
        run = ["sft", "--model", "tiny", "--task", "sort", "--steps", "2", "--prompts", "4", "--eval-tasks", "0"]
        run += ["--device", "cpu", "--out"]
        own = {**os.environ, "BURNISH_TOKEN": "t" * 32, meeting.WAIT: "120"}
        started = [
            subprocess.Popen(
                ["ip", "netns", "exec", name, sys.executable, "-m", "burnish", "launch", "node", "--nodes", "2"]
                + ["--node", str(number), "--meet", "10.77.0.1:29500", "--per-node", "1", "--", *run, "run"],
                cwd=tmp_path,
                env=own,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for number, name in enumerate(NAMES)
        ]
        said = [process.communicate(timeout=280)[0] for process in started]
        assert [process.returncode for process in started] == [0, 0], said
        assert "step 2/2" in said[0] and (tmp_path / "run" / "model" / "config.json").is_file()
    finally:
        for name in NAMES:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
