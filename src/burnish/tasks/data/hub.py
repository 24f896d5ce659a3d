"""Datasets of the Hugging Face hub: their data files are downloaded into the hub's own cache; no code of theirs runs.

Offline (HF_HUB_OFFLINE=1), and where the hub cannot be reached, the cached copy of the revision is used.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from burnish.tasks.data.files import readable
from burnish.tasks.data.layout import split_files

SECONDS = 10.0  # how long the hub has for its first answer
_COMMIT = re.compile(r"[0-9a-f]{40}")


def download(name: str, revision: str | None, config: str | None) -> Path:
    """The folder of a dataset with the data files of one configuration. A file is downloaded once."""
    import huggingface_hub

    described = _described(name, revision)
    if isinstance(described, str):
        return _cached(name, revision, described)
    commit, files = described
    common: dict[str, Any] = {"repo_type": "dataset", "revision": commit}
    try:
        card = None
        if "README.md" in files:
            card = Path(huggingface_hub.hf_hub_download(name, "README.md", **common)).read_text(errors="replace")
        parts = split_files(readable(files), card, config, name)
        wanted = [file for of_split in parts.values() for file in of_split]
        if not wanted:
            scripts = any(file.endswith(".py") for file in files)
            why = "its loading script, which is code, is not run" if scripts else "it holds no files that can be read"
            raise ValueError(
                f"dataset {name!r} cannot be loaded: {why}; {name}@refs/convert/parquet is the hub's Parquet copy"
            )
        if revision != commit:  # so that the cache knows the commit of the branch or tag
            common["revision"] = revision or "main"
        return Path(huggingface_hub.snapshot_download(name, allow_patterns=[*wanted, "README.md"], **common))
    except (OSError, RuntimeError) as error:
        raise ValueError(_why_not(name, revision, error)) from None


def pinned(name: str, revision: str | None) -> str | None:
    """The commit of a dataset's revision, from the cache: what a run has used. None where nothing is cached."""
    if revision is not None and _COMMIT.fullmatch(revision):
        return revision
    try:
        return _cached(name, revision, "").name
    except ValueError:
        return None


def _described(name: str, revision: str | None) -> tuple[str, list[str]] | str:
    """The commit of a revision and its files; or why the hub does not say: it is offline, or does not answer."""
    import huggingface_hub
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    try:
        info = huggingface_hub.HfApi().dataset_info(name, revision=revision, timeout=SECONDS)
    except OfflineModeIsEnabled:
        return "the hub is offline (HF_HUB_OFFLINE)"
    except HfHubHTTPError as error:
        if error.response is not None and error.response.status_code >= 500:
            return f"the hub answers with status {error.response.status_code}"
        raise ValueError(_why_not(name, revision, error)) from None
    except Exception as error:  # the HTTP library's errors: no route, no name, a timeout
        if type(error).__module__.partition(".")[0] not in ("httpx", "httpx2", "httpcore", "requests", "builtins"):
            raise
        return f"the hub cannot be reached ({type(error).__name__}: {_first_line(str(error))})"
    return str(info.sha), [sibling.rfilename for sibling in info.siblings or ()]


def _cached(name: str, revision: str | None, why: str) -> Path:
    """The folder of the cached revision; raise ValueError with one sentence where there is none."""
    import huggingface_hub

    try:
        found = huggingface_hub.snapshot_download(
            name, repo_type="dataset", revision=revision, local_files_only=True, allow_patterns=["README.md"]
        )
    except OSError:
        raise ValueError(
            f"cannot load dataset {name!r}: {why}, and no copy is in its cache; check the network, or pass a file "
            "(no file has that name)"
        ) from None
    return Path(found)


def _why_not(name: str, revision: str | None, error: Exception) -> str:
    """One sentence for an error of the hub."""
    kind = type(error).__name__
    if kind == "GatedRepoError":
        return (
            f"dataset {name!r} is gated: accept its terms on the hub, then log in with `hf auth login` or set HF_TOKEN"
        )
    if kind == "RevisionNotFoundError":
        return f"dataset {name!r} has no revision {revision!r}; check the branch, tag or commit after @"
    if kind == "RepositoryNotFoundError":
        return (
            f"there is no file {name!r}, and no dataset of that name on the hub that can be seen; check the name, or "
            "log in with `hf auth login` (or HF_TOKEN) if it is private"
        )
    return f"cannot load dataset {name!r} from the hub ({kind}: {_first_line(str(error))}); try again, or pass a file"


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0][:200].rstrip(".")
