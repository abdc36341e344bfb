"""``replaypack recover``: finish what dead recorders left, or salvage what is whole of a damaged archive."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Annotated

import typer

from replaypack.errors import ObjectMissingError, StorageError
from replaypack.format.names import manifest_parts

from ._common import JsonFlag, OptionList, UrlArgument, archive_at
from ._output import Output, checking, exit_code
from ._progress import progress_bar
from ._text import counted

if TYPE_CHECKING:
    from replaypack import Archive

_SUFFIX = ".rpk"


def recover(
    url: UrlArgument,
    into: Annotated[
        str | None, typer.Option(metavar="URL", help="Salvage: make an archive anew here of what is whole.")
    ] = None,
    keep_journals: Annotated[bool, typer.Option(help="Leave the journals in place afterwards.")] = False,
    json: JsonFlag = False,
    option: OptionList = None,
) -> None:
    """Finish the recordings whose recorder died on this machine, from their journals.

    Recorders that are alive are left alone. The exit code is 1 where a journal could not be used, 2 where the store
    could not be asked; the journal is kept.

    With --into nothing is finished, and nothing written at URL, which may be a damaged archive or a directory of packs:
    of whatever is whole there an archive is made anew in an empty place, and verified. What is lost is listed. The exit
    code is 1 where anything is lost. Interrupted, it can be run again.
    """
    if into is not None:
        _salvage(url, into, json, option)
        return
    from replaypack.recover import recover as recover_all

    output = Output(json=json)
    with archive_at(url, option) as archive:
        if not archive.leftovers():
            _require(archive)
        found = []
        for item in recover_all(archive, keep_journals=keep_journals):
            found.append(item)
            if not json:
                output.line(
                    f"{item.name}: {counted(item.records, 'record')}, {item.from_journal} of them from the journal"
                    if item.error is None
                    else f"{item.name}: failed: {item.error} (journal kept: {item.journal})"
                )
        if json:
            output.document(
                [
                    {
                        "name": item.name,
                        "records": item.records,
                        "from_journal": item.from_journal,
                        "journal": item.journal,
                        "error": item.error.to_dict() if item.error is not None else None,
                    }
                    for item in found
                ]
            )
        elif not found:
            packs = 0 if _has_recordings(archive) else _packs(archive)
            more = f", but {counted(packs, 'pack')} that no recording names: {_into(archive)} finds recordings in them"
            output.line("nothing to recover" + (more if packs else ""))
    codes = [exit_code(item.error) for item in found if item.error is not None]
    if codes:
        raise typer.Exit(max(codes))


def _require(archive: Archive) -> None:
    try:
        archive.require()
    except ObjectMissingError as error:
        if _packs(archive):
            error.hint = f"it holds packs: {_into(archive)} makes an archive of them"
        raise


def _into(archive: Archive) -> str:
    return f"`replaypack recover {archive.url} --into NEW`"


def _has_recordings(archive: Archive) -> bool:
    try:
        return any(manifest_parts(info.key) is not None for info in archive.storage.list("recordings/"))
    except StorageError:
        return True  # it cannot be listed, and nothing is to be said of it


def _packs(archive: Archive) -> int:
    """How many packs there are at first sight: where an archive has them, or in a directory that has been one."""
    names: list[str] = []
    with contextlib.suppress(StorageError):  # it cannot be listed
        names = [info.key for info in archive.storage.list("packs/") if info.key.endswith(_SUFFIX)]
    path = archive.storage.local_path
    if path is not None and not names:
        names = [each.name for pattern in ("*", "*/*") for each in path.glob(pattern + _SUFFIX)]
    return len(names)


def _salvage(url: str, into: str, json: bool, option: list[str] | None) -> None:
    from replaypack.audit import salvage

    output = Output(json=json)
    with archive_at(url, option) as source, archive_at(into, option) as target:
        with checking(), progress_bar(json) as report:
            done = salvage(source.storage, target, progress=report)
        if json:
            output.document(
                {
                    "recordings": [item._asdict() for item in done.recordings],
                    "lost": [item._asdict() for item in done.lost],
                    "damage": [item._asdict() for item in done.damage],
                    "faults": [item._asdict() for item in done.faults],
                    "notes": done.notes,
                    "whole": done.whole,
                }
            )
        else:
            for item in done.recordings:
                said = "whole" if item.exact else "not as it was"
                output.line(f"{item.name}@{item.revision}: {counted(item.records, 'record')}, {said}")
            for lost in done.lost:
                where = "" if lost.first is None else f" {lost.first}" + (f"-{lost.last}" * (lost.last != lost.first))
                output.line(f"lost: {lost.recording or '?'}: {lost.what}{where}: {lost.reason}")
            for fault in done.faults:
                output.line(f"fault of the result: {fault}")
            for note in done.notes:
                output.line(f"note: {note}")
            if not done.recordings:
                output.line("nothing was found that can be recovered")
            elif done.whole:
                output.line(f"nothing is lost: {counted(len({item.name for item in done.recordings}), 'recording')}")
    if not done.whole or not done.recordings:
        raise typer.Exit(1)
