"""A seccomp filter for a process that only computes: no exec, no new process, no socket, no file opened for writing.

The filter is a BPF program over the number and arguments of a system call. A refused call fails with EPERM, which is
PermissionError in Python. The numbers are from the kernel headers, for x86_64 and aarch64.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct

ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # column in the tables, AUDIT_ARCH
X32 = 0x40000000  # system calls of the x32 ABI have this bit set: other numbers for the same calls

REFUSED: dict[str, tuple[int | None, int | None]] = {
    # network and other ways to talk to processes
    "socket": (41, 198),
    "connect": (42, 203),
    "accept": (43, 202),
    "sendto": (44, 206),
    "bind": (49, 200),
    "listen": (50, 201),
    "socketpair": (53, 199),
    "accept4": (288, 242),
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "pidfd_send_signal": (424, 424),
    "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    # processes
    "fork": (57, None),
    "vfork": (58, None),
    "execve": (59, 221),
    "execveat": (322, 281),
    "setpgid": (109, 154),
    "setsid": (112, 157),
    "setpriority": (141, 140),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
    "ioprio_set": (251, 30),
    # files
    "truncate": (76, 45),
    "ftruncate": (77, 46),
    "fallocate": (285, 47),
    "rename": (82, None),
    "renameat": (264, 38),
    "renameat2": (316, 276),
    "mkdir": (83, None),
    "mkdirat": (258, 34),
    "rmdir": (84, None),
    "creat": (85, None),
    "link": (86, None),
    "linkat": (265, 37),
    "unlink": (87, None),
    "unlinkat": (263, 35),
    "symlink": (88, None),
    "symlinkat": (266, 36),
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "chown": (92, None),
    "fchown": (93, 55),
    "lchown": (94, None),
    "fchownat": (260, 54),
    "mknod": (133, None),
    "mknodat": (259, 33),
    "utime": (132, None),
    "utimes": (235, None),
    "futimesat": (261, None),
    "utimensat": (280, 88),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "open_by_handle_at": (304, 265),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    # the system
    "personality": (135, 92),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "acct": (163, 89),
    "mount": (165, 40),
    "umount2": (166, 39),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "quotactl": (179, 60),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "unshare": (272, 97),
    "setns": (308, 268),
    "perf_event_open": (298, 241),
    "bpf": (321, 280),
    "userfaultfd": (323, 282),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "syslog": (103, 116),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "adjtimex": (159, 171),
    "clock_adjtime": (305, 266),
}
UNKNOWN = {"clone3": (435, 435), "openat2": (437, 437)}  # their flags lie in memory: "no such call", so others are used
OPENS = {"open": ((2, None), 1), "openat": ((257, 56), 2)}  # (numbers, which argument holds the flags)
CLONE = (56, 220)
COMMANDS = {  # (numbers, commands that send signals to others or type into a terminal)
    "fcntl": ((72, 25), (8, 10, 15)),  # F_SETOWN, F_SETSIG, F_SETOWN_EX
    "ioctl": ((16, 29), (0x8901, 0x8902, 0x5412)),  # FIOSETOWN, SIOCSPGRP, TIOCSTI
}
OWN = {"kill": (62, 129), "tkill": (200, 130), "tgkill": (234, 131), "prlimit64": (302, 261)}  # of this process alone

# The calls of a process that may write files in the folders that it sees.
FILE_WRITES = frozenset(
    (
        *("open", "openat", "creat", "truncate", "ftruncate", "fallocate", "rename", "renameat", "renameat2", "mkdir"),
        *("mkdirat", "rmdir", "link", "linkat", "unlink", "unlinkat", "symlink", "symlinkat", "utimensat"),
    )
)
# The calls of a process that may start programs, which then are its own: "clone" stands for new processes.
PROGRAMS = frozenset(
    (
        *("fork", "vfork", "clone", "execve", "execveat", "setpgid", "setsid", "kill", "tkill", "tgkill", "chmod"),
        *("fchmod", "fchmodat", "fchmodat2", "utime", "utimes", "futimesat", "setxattr", "fsetxattr", "lsetxattr"),
    )
)
NEWEST = 463  # calls from this number on are newer than this table

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
CLONE_THREAD = 0x00010000
CLONE_NEW = 0x7E020000  # of clone(): new namespaces
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NUMBER, _ARCHITECTURE = 0, 4  # offsets in struct seccomp_data


def _argument(index: int) -> int:
    """Offset of the low 32 bits of an argument."""
    return 16 + 8 * index


def program(machine: str, pid: int, allowed: frozenset[str] = frozenset()) -> list[tuple[int, int, int, int]]:
    """The filter's instructions, each (code, jump if true, jump if false, constant).

    allowed: names of REFUSED, OPENS and OWN that are not filtered, and "clone" for new processes
    """
    column, architecture = ARCHITECTURES[machine]
    refuse, unknown, allow = ((_RETURN, 0, 0, value) for value in (_ERRNO | errno.EPERM, _ERRNO | errno.ENOSYS, _ALLOW))
    instructions = [(_LOAD, 0, 0, _ARCHITECTURE), (_EQUAL, 1, 0, architecture), refuse, (_LOAD, 0, 0, _NUMBER)]
    if machine == "x86_64":
        instructions += [(_AT_LEAST, 0, 1, X32), refuse]
    instructions += [(_AT_LEAST, 0, 1, NEWEST), unknown]
    for numbers in UNKNOWN.values():
        instructions += [(_EQUAL, 0, 1, numbers[column]), unknown]
    for name, which in REFUSED.items():
        if (number := which[column]) is not None and name not in allowed:
            instructions += [(_EQUAL, 0, 1, number), refuse]
    for name, (opened, argument) in OPENS.items():
        if (number := opened[column]) is not None and name not in allowed:
            check = [(_LOAD, 0, 0, _argument(argument)), (_ANY_BIT, 0, 1, WRITING), refuse, allow]
            instructions += [(_EQUAL, 0, len(check), number), *check]
    threads = [(_LOAD, 0, 0, _argument(0)), (_ANY_BIT, 1, 0, CLONE_THREAD), refuse, allow]
    if "clone" in allowed:
        threads = [(_LOAD, 0, 0, _argument(0)), (_ANY_BIT, 0, 1, CLONE_NEW), refuse, allow]
    instructions += [(_EQUAL, 0, len(threads), CLONE[column]), *threads]
    for numbers, commands in COMMANDS.values():
        check = [(_LOAD, 0, 0, _argument(1))]
        for command in commands:
            check += [(_EQUAL, 0, 1, command), refuse]
        instructions += [(_EQUAL, 0, len(check) + 1, numbers[column]), *check, allow]
    for name, numbers in OWN.items():
        if name in allowed:
            continue
        also = 0 if name == "prlimit64" else pid  # prlimit64 calls this process 0; kill(0) is the whole group
        check = [(_LOAD, 0, 0, _argument(0)), (_EQUAL, 2, 0, pid), (_EQUAL, 1, 0, also), refuse, allow]
        instructions += [(_EQUAL, 0, len(check), numbers[column]), *check]
    return [*instructions, allow]


def install(allowed: frozenset[str] = frozenset()) -> None:
    """Install the filter in this process, irrevocably; raise OSError if the kernel or machine does not support it.

    allowed: names of calls that are not filtered, such as FILE_WRITES
    """
    machine = platform.machine()
    if machine not in ARCHITECTURES:
        raise OSError(f"no filter is written for {machine}")
    load(program(machine, os.getpid(), allowed))


class _Program(ctypes.Structure):
    """struct sock_fprog."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def load(instructions: list[tuple[int, int, int, int]]) -> None:
    """Install a filter of these instructions; raise OSError if the kernel does not support it."""
    packed = b"".join(struct.pack("=HBBI", *instruction) for instruction in instructions)
    code = ctypes.create_string_buffer(packed, len(packed))
    compiled = _Program(len(packed) // 8, ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(38, 1, 0, 0, 0):  # PR_SET_NO_NEW_PRIVS
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_NO_NEW_PRIVS) failed")
    if libc.prctl(22, 2, ctypes.byref(compiled), 0, 0):  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_SECCOMP) failed")
