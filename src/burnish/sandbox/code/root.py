"""The files that a program sees: Python's standard library, the system's shared libraries, and an empty folder.

The zygote builds this root in a mount namespace of its own and changes to it, so home folders, the project, installed
packages, /proc and /sys are not there at all.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from burnish.sandbox.code import kernel

SCRATCH = "/scratch"
_SYSTEM = ("/lib", "/lib32", "/lib64", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")
_PACKAGES = ("site-packages", "dist-packages")


def python_folders() -> list[str]:
    """The folders and files that Python needs to import its standard library."""
    libraries = [f"{sys.base_prefix}/lib", f"{sys.base_prefix}/lib64"]
    places = [os.path.dirname(os.__file__), *libraries, *_SYSTEM, "/usr/share/zoneinfo"]
    return [place for place in dict.fromkeys(places) if os.path.exists(place)]


def programs() -> list[str]:
    """The folders of the system's programs, and of this Python's; and the links by which Debian names programs."""
    places = ["/bin", "/usr/bin", "/etc/alternatives", f"{sys.base_prefix}/bin"]
    return [place for place in dict.fromkeys(places) if os.path.exists(place)]


def devices() -> list[str]:
    return [device for device in _DEVICES if os.path.exists(device)]


def hidden_folders(places: list[str]) -> list[str]:
    """Folders of installed packages below these places."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    inside = [f"{place}/{python}/{name}" for place in places for python in (version, "python3") for name in _PACKAGES]
    beside = [f"{place}/{name}" for place in places for name in _PACKAGES]
    return [folder for folder in dict.fromkeys([*inside, *beside]) if os.path.isdir(folder)]


def without_packages() -> tuple[list[str], list[str]]:
    """The folders that Python needs, split so that installed packages are not below them; and the folders split.

    For Landlock, which can only allow: beside a folder of packages, everything else is named.
    """
    places, listed = python_folders(), []
    for hidden in hidden_folders(places):
        place = next((place for place in places if hidden.startswith(place + "/")), None)
        while place is not None:
            listed.append(place)
            inside = [entry.path for entry in os.scandir(place)]
            places = [*(one for one in places if one != place), *(one for one in inside if one != hidden)]
            place = next((one for one in inside if hidden.startswith(one + "/")), None)
    return places, listed


def build(new: str, scratch_options: str, more: list[str]) -> None:
    """Build the root in the folder `new` and change to it. Needs a mount namespace of its own.

    more: places that are shown besides those that Python needs
    """
    kernel.mount("none", "/", None, kernel.RECURSIVE | kernel.PRIVATE)
    kernel.mount("tmpfs", new, "tmpfs", kernel.NO_SETUID | kernel.NO_DEVICES, "size=1m,mode=0755")
    places = python_folders()
    for place in sorted([*places, *more], key=len):
        _show(new, place)
    for folder in hidden_folders(places):
        kernel.mount("tmpfs", new + folder, "tmpfs", kernel.READ_ONLY, "size=4k,mode=0755")
    for device in devices():
        target = new + device
        os.makedirs(os.path.dirname(target), exist_ok=True)
        Path(target).touch()
        kernel.mount(device, target, None, kernel.BIND)
    os.mkdir(new + SCRATCH)
    kernel.pivot_root(new)
    kernel.restrict_root(kernel.READ_ONLY | kernel.NO_SETUID | kernel.NO_DEVICES)
    fresh_scratch(scratch_options)


def _show(new: str, place: str) -> None:
    """Show a file or folder at its own place, read-only; a link is copied."""
    target = new + place
    if os.path.lexists(target):
        return  # inside a folder that is shown already
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if os.path.islink(place):
        os.symlink(os.readlink(place), target)
        place = os.path.realpath(place)
        if not os.path.lexists(new + place):
            _show(new, place)
        return
    if os.path.isdir(place):
        os.mkdir(target)
    else:
        Path(target).touch()
    kernel.mount(place, target, None, kernel.BIND | kernel.RECURSIVE)
    kernel.restrict_mount(target, kernel.READ_ONLY | kernel.NO_SETUID | kernel.NO_DEVICES)


def fresh_scratch(options: str) -> None:
    """Mount an empty working folder."""
    flags = kernel.NO_SETUID | kernel.NO_DEVICES | kernel.NO_EXEC
    kernel.mount("tmpfs", SCRATCH, "tmpfs", flags, options)


def clean_scratch(options: str) -> bool:
    """Replace the working folder by an empty one, if a program has left something in it; whether it was replaced."""
    with os.scandir(SCRATCH) as entries:
        if next(entries, None) is None:
            return False
    kernel.unmount(SCRATCH)
    fresh_scratch(options)
    return True
