"""Upload an export to the hub."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from burnish.models.hub import hub_name


def files_of(folder: Path) -> list[tuple[str, int]]:
    """The files that would be uploaded, with their sizes in bytes."""
    return [
        (path.relative_to(folder).as_posix(), path.stat().st_size)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith(".")
    ]


def require_name(repository: str) -> None:
    """Raise ValueError where a text cannot be the name of a repository."""
    name = hub_name(repository)
    if name is None or name.revision is not None:
        raise ValueError(f"{repository!r} is no name of a repository of the hub; write owner/name")


def upload(folder: Path, repository: str, *, private: bool, revision: str | None, message: str) -> str:
    """Create the repository where there is none, upload the folder as one commit, and return the commit's address."""
    from huggingface_hub import HfApi

    api = HfApi()
    with _readable(repository):
        api.create_repo(repository, private=private, exist_ok=True)
        if revision is not None:
            api.create_branch(repository, branch=revision, exist_ok=True)
        commit: Any = api.upload_folder(
            repo_id=repository, folder_path=folder, commit_message=message, revision=revision, ignore_patterns=[".*"]
        )
    return str(commit.commit_url)


@contextmanager
def _readable(repository: str) -> Iterator[None]:
    """Errors of the hub in one sentence."""
    from huggingface_hub import constants
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    try:
        yield
    except OfflineModeIsEnabled:
        raise ValueError("HF_HUB_OFFLINE forbids to upload; unset it, or use --dry-run") from None
    except HfHubHTTPError as error:
        code = error.response.status_code if error.response is not None else 0
        if code in (401, 403):
            raise ValueError(
                f"the hub does not let you write to {repository}; log in with a token that may write (`hf auth login`, "
                "or HF_TOKEN), or choose another owner"
            ) from None
        why = str(error).strip().partition("\n")[0][:200]
        raise ValueError(f"the upload to {constants.ENDPOINT}/{repository} failed ({why}); run it again") from None
    except Exception as error:
        if not isinstance(error, OSError) and type(error).__module__.partition(".")[0] not in ("httpx", "httpcore"):
            raise
        why = str(error).strip().partition("\n")[0][:200] or type(error).__name__
        raise ValueError(
            f"{constants.ENDPOINT} cannot be reached ({why}); check the network, then run the same command again"
        ) from None
