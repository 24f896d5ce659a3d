"""The measures that each program's process takes before it reads the program, and what they are called in reports."""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass

from burnish.sandbox import landlock, seccomp
from burnish.sandbox.code import kernel, root
from burnish.sandbox.code.limits import Limits

_SPARE = 3  # processes that the kernel may count besides the program's threads: guard, zygote, the process of tests


@dataclass(frozen=True)
class Plan:
    """What the zygote has prepared for its children.

    own_root    the zygote sees its own root only (root.py)
    rules       Landlock rules for programs that may write in their folder, -1 without Landlock
    user        the user as which programs run, None for the zygote's
    folder      the working folder of programs
    required    a process that could not take all measures ends
    programs    programs of the system may be started; they see no more than the process that starts them
    """

    own_root: bool
    rules: int
    user: int | None
    folder: str
    required: bool
    programs: bool = False


def confine(plan: Plan, limits: Limits) -> dict[str, str]:
    """Take all measures in this process. Returns measure -> "yes: detail", or "no: reason"."""
    os.chdir(plan.folder)
    report = {"limits": _attempt(lambda: _limit(plan, limits))}
    report["files"] = _attempt(lambda: _files(plan))
    report["privileges"] = _attempt(lambda: _privileges(plan))
    report["seccomp"] = _attempt(lambda: _seccomp(plan))
    return report


def missing(report: dict[str, str]) -> str:
    """Why a process with these measures is not isolated; empty if it is."""
    absent = [f"{name} ({state.removeprefix('no: ')})" for name, state in report.items() if state.startswith("no")]
    return ", ".join(absent)


def _attempt(measure: Callable[[], str]) -> str:
    try:
        return measure()
    except Exception as error:  # noqa: BLE001 - the other measures are taken anyway, and the report says so
        return f"no: {error}"


def _limit(plan: Plan, limits: Limits) -> str:
    cpu = max(1, int(limits.cpu + 0.999))
    for what, most in (
        (resource.RLIMIT_AS, limits.memory),
        (resource.RLIMIT_CPU, cpu),
        (resource.RLIMIT_FSIZE, limits.scratch if plan.own_root else 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, limits.open),
        (resource.RLIMIT_NPROC, limits.threads + _SPARE),
    ):
        resource.setrlimit(what, (most, most))
    return f"yes: {limits.memory >> 20} MiB of memory, {cpu} s of CPU, about {limits.threads} threads"


def _files(plan: Plan) -> str:
    if plan.rules >= 0:
        landlock.enforce(plan.rules)
        return "yes: " + ("a root of its own, and Landlock" if plan.own_root else "Landlock, nothing is writable")
    if plan.own_root:
        return "yes: a root of its own"
    raise OSError("neither namespaces nor Landlock hide files on this machine")


def _privileges(plan: Plan) -> str:
    if sys.platform != "linux":
        raise OSError("capabilities are Linux's")
    if plan.user is not None:
        os.setgroups([])
        os.setresgid(plan.user, plan.user, plan.user)
        os.setresuid(plan.user, plan.user, plan.user)
    kernel.drop_capabilities()
    kernel.die_with_parent(signal.SIGKILL)
    kernel.hide_memory()
    return "yes: no capability" + ("" if plan.user is None else ", the user nobody")


def _seccomp(plan: Plan) -> str:
    if sys.platform != "linux":
        raise OSError("seccomp is Linux's")
    if plan.programs:
        if not plan.own_root:
            raise OSError("programs of the system are only started in namespaces")
        seccomp.install(seccomp.FILE_WRITES | seccomp.PROGRAMS)
        return "yes: no socket, no new namespace"
    seccomp.install(seccomp.FILE_WRITES if plan.own_root else frozenset())
    return "yes: no exec, no new process, no socket, no signal to others"


def landlock_rules(own_root: bool, programs: bool = False) -> int:
    """A descriptor of Landlock rules for programs; -1 where the kernel has no Landlock."""
    try:
        readable, listed = root.without_packages()
        started = [*readable, *root.programs()] if programs else []
        scratch = [root.SCRATCH] if own_root else []
        rules, _ = landlock.ruleset(
            [*readable, *root.devices()], scratch, started, listed, devices=root.devices() if programs else ()
        )
    except OSError:
        return -1
    return rules
