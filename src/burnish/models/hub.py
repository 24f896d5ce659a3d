"""Models of the Hugging Face hub: `owner/name`, or `owner/name@revision` with a branch, a tag or a commit.

huggingface_hub downloads and caches them, and finds the token (HF_TOKEN, or the file that `hf auth login` writes) and
the settings (HF_HOME, HF_ENDPOINT, HF_HUB_OFFLINE). Only configuration, tokenizer and safetensors files of the top
folder are fetched, never code or pickled weights.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from huggingface_hub.hf_api import RepoSibling

PATTERNS = ["*.safetensors", "*.json", "*.jinja", "*.txt", "*.model"]
LEFT_OUT = ["*/*", "consolidated*", "*.fp16.*", "*.non_ema.*"]  # other folders; the same weights in other formats
SECONDS = 10.0  # to wait for the hub's first answer
_NAME = re.compile(r"([A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(?:@([\w./-]+))?")
_COMMIT = re.compile(r"[0-9a-f]{40}")


class HubName(NamedTuple):
    """A repository and a revision of it; without one, the main branch."""

    repository: str
    revision: str | None = None

    def __str__(self) -> str:
        return f"{self.repository}@{self.revision}" if self.revision else self.repository

    @property
    def is_pinned(self) -> bool:
        """Whether the revision is a commit, which never changes."""
        return bool(self.revision and _COMMIT.fullmatch(self.revision))


_FETCHED: dict[HubName, Path] = {}  # a run asks for a model several times, and must get one commit


def hub_name(name: str) -> HubName | None:
    """The repository that a name stands for; None if it cannot be one. A local directory of that name comes first."""
    match = _NAME.fullmatch(name)
    if match is None or os.path.exists(name) or name.partition("/")[0] in (".", ".."):
        return None
    return HubName(match[1], match[2])


def fetch(name: HubName) -> Path:
    """The directory of a model of the hub, downloaded where it is not in the cache yet.

    The directory is named for its commit. A revision that is a commit and lies in the cache needs no network; of any
    other, the hub is asked once in a process which commit it is, and without an answer the cached one is used.
    """
    if name not in _FETCHED or not _FETCHED[name].is_dir():
        _FETCHED[name] = _fetch(name)
    return _FETCHED[name]


def _fetch(name: HubName) -> Path:
    from huggingface_hub import HfApi
    from huggingface_hub.errors import LocalEntryNotFoundError

    if name.is_pinned:
        try:
            return _snapshot(name, local_files_only=True)
        except LocalEntryNotFoundError:
            pass
    with _readable(name):
        try:
            info = HfApi().model_info(name.repository, revision=name.revision, timeout=SECONDS, files_metadata=True)
        except Exception as error:
            if not _unreachable(error):
                raise
            return _cached(name, error)
        _require_safetensors(name, [file.rfilename for file in info.siblings or ()])
        pinned = HubName(name.repository, info.sha)
        try:
            _snapshot(pinned, local_files_only=True)
        except LocalEntryNotFoundError:
            _announce(pinned, info.siblings or ())
        return _snapshot(
            HubName(name.repository, name.revision or "main")
        )  # not by commit: the cache learns the branch


def name_of(path: Path) -> HubName | None:
    """Name and commit of a model in the hub's cache, models--owner--name/snapshots/COMMIT; None if it is not one."""
    owner, dashes, name = path.parent.parent.name.removeprefix("models--").partition("--")
    if path.parent.name != "snapshots" or not dashes or not _COMMIT.fullmatch(path.name):
        return None
    return HubName(f"{owner}/{name}", path.name)


def pinned(name: str, path: Path) -> str:
    """A model's name with the commit that was fetched, so that a resumed run takes the same; other names unchanged."""
    return name if hub_name(name) is None else str(name_of(path) or name)


def _snapshot(name: HubName, *, local_files_only: bool = False) -> Path:
    from huggingface_hub import snapshot_download

    return Path(
        snapshot_download(
            name.repository,
            revision=name.revision,
            allow_patterns=PATTERNS,
            ignore_patterns=LEFT_OUT,
            local_files_only=local_files_only,
        )
    )


def _cached(name: HubName, error: Exception) -> Path:
    """The cached model of a hub that cannot be reached."""
    from huggingface_hub.errors import LocalEntryNotFoundError, OfflineModeIsEnabled

    try:
        return _snapshot(name, local_files_only=True)
    except LocalEntryNotFoundError:
        pass
    if isinstance(error, OfflineModeIsEnabled):
        why, fix = "HF_HUB_OFFLINE forbids to download it", "unset it"
    else:
        why, fix = f"{_endpoint()} cannot be reached ({_first_line(error)})", "check the network"
    raise ValueError(
        f"model {str(name)!r} is neither a local directory nor in the cache of the Hugging Face hub, and {why}; {fix}, "
        "or pass a local directory"
    ) from None


@contextmanager
def _readable(name: HubName) -> Iterator[None]:
    """Errors of the hub in one sentence."""
    from huggingface_hub import errors

    try:
        yield
    except errors.GatedRepoError:
        raise ValueError(
            f"model {str(name)!r} is gated: accept its terms at {_endpoint()}/{name.repository}, then log in with "
            "`hf auth login`, or set HF_TOKEN"
        ) from None
    except errors.RepositoryNotFoundError:
        raise ValueError(
            f"no model {str(name)!r}: it is neither a local directory nor a model at {_endpoint()} that you can see; "
            "check the name, and if it is private, log in with `hf auth login`, or set HF_TOKEN"
        ) from None
    except errors.RevisionNotFoundError:
        raise ValueError(
            f"model {name.repository!r} has no revision {name.revision!r}; the branches, tags and commits that it has "
            f"are at {_endpoint()}/{name.repository}/commits/main"
        ) from None
    except errors.HFValidationError as error:
        raise ValueError(f"{str(name)!r} cannot be the name of a model of the hub ({_first_line(error)})") from None
    except Exception as error:
        if not isinstance(error, OSError) and not _unreachable(error):
            raise
        raise ValueError(
            f"the download of model {str(name)!r} from {_endpoint()} failed ({_first_line(error)}); run the same "
            "command again: the files that are here already are not downloaded again"
        ) from None


def _unreachable(error: Exception) -> bool:
    """Whether the hub gave no answer, or that of a server that is down; its client raises errors of another library."""
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    if isinstance(error, HfHubHTTPError):
        return error.response is not None and error.response.status_code >= 500
    library = type(error).__module__.partition(".")[0]
    return isinstance(error, OfflineModeIsEnabled | ConnectionError | TimeoutError) or library in ("httpx", "httpx2")


def _require_safetensors(name: HubName, files: list[str]) -> None:
    top = [file for file in files if "/" not in file]
    if any(file.endswith(".safetensors") for file in top):
        return
    weights = sorted(
        file for file in top if file.endswith((".bin", ".pt", ".pth", ".ckpt", ".gguf", ".h5", ".msgpack"))
    )
    has = f"only {weights[0]}" if weights else "no weights"
    raise ValueError(
        f"model {str(name)!r} has {has}, and burnish loads safetensors only; pass a revision that has them (often "
        f"{name.repository}@refs/pr/1), or convert them once with save_pretrained in transformers"
    )


def _announce(name: HubName, files: Iterable[RepoSibling]) -> None:
    """One line before a download; a bar follows where someone is watching."""
    from huggingface_hub import constants, utils

    sizes = {file.rfilename: file.size or 0 for file in files}
    wanted = utils.filter_repo_objects(sizes, allow_patterns=PATTERNS, ignore_patterns=LEFT_OUT)
    size = sum(sizes[file] for file in wanted)
    size_shown = f" ({size / 1e6:,.0f} MB)" if size >= 5e5 else ""
    print(f"fetching {name.repository}{size_shown} from {_endpoint()} into {constants.HF_HUB_CACHE}", file=sys.stderr)
    if constants.HF_HUB_DISABLE_PROGRESS_BARS is None:  # transformers turns the bars off when it loads a model
        (utils.enable_progress_bars if _is_watched() else utils.disable_progress_bars)()


def _is_watched() -> bool:
    return sys.stderr.isatty() or "ipykernel" in sys.modules


def _endpoint() -> str:
    from huggingface_hub import constants

    return str(constants.ENDPOINT)


def _first_line(error: BaseException) -> str:
    return (str(error).strip().partition("\n")[0] or type(error).__name__)[:200].rstrip(". ")
