"""What one run of a program may use."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

SECONDS = 10.0


@dataclass(frozen=True)
class Limits:
    """Limits of one run; what goes over them is killed.

    seconds   wall time of the whole run
    cpu       seconds of CPU time
    memory    bytes of address space of a process
    together  bytes of memory of all processes of a run that may start programs, looked at 20 times a second
    scratch   bytes of files in the working folder, which is in memory
    files     files in the working folder
    open      descriptors
    threads   threads, the first included; new processes are refused
    output    bytes of standard output, and of the values that are returned
    """

    seconds: float = SECONDS
    cpu: float = SECONDS
    memory: int = 512 << 20
    scratch: int = 16 << 20
    files: int = 256
    open: int = 64
    threads: int = 16
    output: int = 1 << 20
    together: int = 1 << 30

    def __post_init__(self) -> None:
        for name in (field.name for field in fields(self)):
            if getattr(self, name) <= 0:
                raise ValueError(f"a code limit of {name}={getattr(self, name)} allows no program; make it positive")

    def within(self, seconds: float) -> Limits:
        """The same limits with another wall time; the CPU time does not exceed it."""
        return replace(self, seconds=seconds, cpu=seconds)
