"""``replaypack verify``: is everything there, and is it what was recorded?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from replaypack.errors import (
    DAMAGED,
    ArchiveError,
    FormatError,
    RecordingNotFoundError,
    UsageError,
)

from ._common import JsonFlag, OptionList, archive_at, located
from ._output import Output, checking
from ._progress import progress_bar
from ._signers import Signers
from ._text import counted, human_size, missing

if TYPE_CHECKING:
    from replaypack import Archive
    from replaypack.audit import Fault, Progress, Unnamed


def verify(
    target: Annotated[str, typer.Argument(metavar="URL|LOCATOR", help="An archive, or one recording of it.")],
    level: Annotated[
        Literal["manifest", "structure", "frames", "full"],
        typer.Option(help="How much: manifests; packs and tables; every byte; every record, key and payload."),
    ] = "full",
    newest_only: Annotated[bool, typer.Option("--newest-only", help="Leave older revisions out.")] = False,
    expect_digest: Annotated[str | None, typer.Option(metavar="HEX", help="The content digest it must have.")] = None,
    expect_manifest: Annotated[
        str | None, typer.Option(metavar="HEX", help="The manifest digest it must have.")
    ] = None,
    key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Ed25519 public key that must have signed: PEM or OpenSSH.")
    ] = None,
    signature: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Check this signature, not those in the archive.")
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Note here what is checked; after an interruption, go on from there."),
    ] = None,
    json: JsonFlag = False,
    option: OptionList = None,
) -> None:
    """Check an archive or a recording, and list everything that is wrong with it.

    With --key it also says of the signature whether it is valid, unsigned, wrong key, altered or unreadable; without,
    signatures are listed and not checked. With --state an interrupted run can be continued: packs that were sound then
    are not read again, and the file is removed at the end. The exit code is 0 where all is sound (and the signature
    valid), 1 where there are faults, 2 where nothing could be checked: there is no such archive or recording, or the
    store could not be asked. Of a whole archive it also says, from --level structure on, how many packs no recording
    names; that is no fault.
    """
    from replaypack._arguments import check_digest
    from replaypack.audit import Resumed, verify_archive
    from replaypack.audit.verify import unexpected

    output = Output(json=json)
    check_digest("content", expect_digest)
    check_digest("manifest", expect_manifest)
    if state is not None and "@" in target.rpartition("#")[2]:
        raise UsageError("--state is of an archive, or of one recording with all its revisions")
    if signature is not None and (key is None or "#" not in target):
        raise UsageError("--signature needs --key and the locator of one recording")
    signers = Signers(key, signature)
    if "#" in target:
        archive, at = located(target, option)
        name, revision = at.name, at.revision
    else:
        archive, name, revision = archive_at(target, option), None, None
        if expect_digest is not None or expect_manifest is not None:
            raise UsageError("an expected digest is of one recording: give its locator")
    with archive, checking():
        if name is None:
            names = list(archive.recordings())
            if not names:
                archive.require()
        else:
            names = [name]
        found: list[Fault] = []
        resumed: list[Resumed] = []
        unnamed: list[Unnamed] = []
        purged, withheld = _not_there(archive, names, revision, named=name is not None)
        with progress_bar(json) as report:
            if name is not None and revision is not None:
                faults = _one(archive, name, revision, level, report)
            else:
                faults = verify_archive(
                    archive,
                    names,
                    listed=name is None,
                    level=level,
                    revisions=not newest_only,
                    progress=report,
                    state=state,
                    on_resume=resumed.append,
                    on_unnamed=unnamed.append,
                )
            if name is not None:
                expected = unexpected(
                    archive, name, revision, content_digest=expect_digest, manifest_digest=expect_manifest
                )
                faults = chain(expected, faults)
            try:
                for fault in faults:
                    found.append(fault)
                    if not json:
                        _print(output, fault)
            except KeyboardInterrupt:
                again = "the same command goes on from here" if state else "with --state FILE it can be continued"
                raise KeyboardInterrupt(again) from None
        seals = [seal for each in names for seal in signers.of(archive, each, revision)]
    earlier = resumed[0] if resumed else Resumed()
    if json:
        output.document(
            {
                "target": f"{archive.url}" + (f"#{name}" + (f"@{revision}" if revision else "") if name else ""),
                "level": level,
                "recordings": len(names),
                "sound": not found,
                "purged": purged,
                "withheld": withheld,
                "faults": [fault._asdict() for fault in found],
                "signatures": [seal._asdict() for seal in seals],
                "resumed": {"packs": earlier.packs, "recordings": earlier.recordings},
                "unnamed": {"packs": unnamed[0].packs, "bytes": unnamed[0].bytes} if unnamed else None,
            }
        )
    else:
        count, number = counted(len(names), "recording"), counted(len(found), "fault")
        gone = missing(purged, withheld)
        for seal in seals:
            output.line(str(seal))
        if earlier.packs or earlier.recordings:
            parts = f"{counted(earlier.recordings, 'revision')} and {counted(earlier.packs, 'other pack')}"
            output.line(f"resumed: {parts} as an earlier run found them, not read again")
        if unnamed and unnamed[0].packs:
            size = human_size(unnamed[0].bytes) if output.terminal else f"{unnamed[0].bytes} bytes"
            output.line(
                f"note: {counted(unnamed[0].packs, 'pack')} ({size}) that no recording names: a writer's, or for `gc`; "
                "`recover --into` finds recordings in them"
            )
        output.line(f"{number} in {count} (level {level}){gone}" if found else f"sound: {count} (level {level}){gone}")
    if found or not signers.satisfied(seals):
        raise typer.Exit(1)


def _not_there(archive: Archive, names: list[str], revision: int | None, *, named: bool) -> tuple[int, list[str]]:
    """How many records are purged, and which roles are withheld, by the manifests that can be read.

    Raises `RecordingNotFoundError` where the recording was ``named``, rather than listed, and is not there.
    """
    purged = 0
    withheld: set[str] = set()
    for name in names:
        try:
            manifest = archive.manifests.find(name, revision, fresh=False)
        except RecordingNotFoundError:
            if named:
                raise
            continue
        except (ArchiveError, FormatError):
            continue  # verify says why
        purged += manifest.purged
        withheld.update(manifest.storage.withheld)
    return purged, sorted(withheld)


def _one(
    archive: Archive,
    name: str,
    revision: int,
    level: Literal["manifest", "structure", "frames", "full"],
    report: Callable[[Progress], None] | None,
) -> Iterator[Fault]:
    from replaypack.audit import verify_recording
    from replaypack.audit.verify import unopened

    try:
        recording = archive.open(name, revision)
    except DAMAGED as error:
        yield unopened(error, name)._replace(recording=f"{name}@{revision}")
        return
    for fault in verify_recording(recording, level=level, progress=report):
        yield fault._replace(recording=f"{name}@{revision}")


def _print(output: Output, fault: Fault) -> None:
    if not output.terminal:
        output.table((), [(*fault[:4], fault.recording)])
        return
    output.line(f"{fault.code}  {fault.recording}")
    output.line(f"    {fault.where}: {fault.message}")
    output.line(f"    → {fault.remedy}")
