"""`burnish push RUN|MODEL owner/name`: an export with its model card, uploaded to the hub."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from burnish.commands.export import ExportOptions, export_of
from burnish.config.flags import read
from burnish.util.terminal import stdout_console


@dataclass(frozen=True)
class PushOptions(ExportOptions):
    """burnish push RUN|MODEL owner/name: export a model as `burnish export` does, and upload it as one commit.

    A directory that `burnish export` has written is uploaded as it is. The token is that of `hf auth login`, or
    HF_TOKEN; HF_ENDPOINT names another hub."""

    private: bool = False
    """Create the repository as private; one that exists stays as it is."""
    revision: str | None = None
    """The branch to commit to; it is made where there is none. By default main."""
    message: str = "Upload by burnish"
    """The message of the commit."""
    dry_run: bool = False
    """Write the export and the card, list what would be uploaded, and send nothing."""


def main(words: list[str]) -> int:
    asked = read(PushOptions, "push", words, plain=2)
    if asked is None:
        return 0
    if len(asked[0]) < 2:
        raise ValueError("say what to push, and where to: burnish push last owner/name")
    from burnish.export.push import require_name

    (what, repository), options = asked
    require_name(repository)
    if options.out:
        raise ValueError("burnish push keeps no directory; write one with burnish export --out, then push it")
    if _is_export(Path(what)):
        _upload(Path(what), repository, options)
        return 0
    from burnish.export.found import find_model
    from burnish.export.write import write_export

    model = find_model(what, options.checkpoint)
    with tempfile.TemporaryDirectory(prefix="burnish-push-") as folder:
        out = write_export(model, Path(folder) / "export", export_of(options, repository))
        _upload(out, repository, options)
    return 0


def _is_export(path: Path) -> bool:
    """Whether a directory is one that `burnish export` wrote: it has a card, and a model of its own."""
    from burnish.export.licence import front_matter

    tags = front_matter(path / "README.md").get("tags")
    return isinstance(tags, list) and "burnish" in tags


def _upload(folder: Path, repository: str, options: PushOptions) -> None:
    from burnish.export.push import files_of, upload

    console = stdout_console()
    files = files_of(folder)
    for name, size in files:
        console.print(f"{name}  [dim]{size / 1e6:,.2f} MB[/]", soft_wrap=True, highlight=False)
    total = sum(size for _, size in files)
    if options.dry_run:
        branch = f", branch {options.revision}" if options.revision else ""
        console.print(f"would upload {len(files)} files, {total / 1e6:,.2f} MB, to {repository}{branch}; sent nothing")
        return
    options = replace(options, message=options.message.strip() or PushOptions.message)
    address = upload(folder, repository, private=options.private, revision=options.revision, message=options.message)
    console.print(address, soft_wrap=True)
