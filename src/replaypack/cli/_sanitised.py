"""``replaypack export --to``: a recording without what must not be shared."""

from __future__ import annotations

import json as json_
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from replaypack.errors import ExportError, FormatError, RecordingExistsError, UsageError

from ._common import located, opened, values_of
from ._files import new_file
from ._output import Output
from ._progress import progress_bar
from ._text import counted

if TYPE_CHECKING:
    from replaypack.audit.sanitise import Removal
    from replaypack.policies.redaction import RedactionPolicy

__all__ = ["export_sanitised"]


def export_sanitised(
    locator: str,
    to: str,
    *,
    redact: str | None,
    allow: list[str] | None,
    secret_env: list[str] | None,
    report: str | None,
    overwrite: bool,
    json: bool,
    option: list[str] | None,
) -> None:
    """Write the recording, and the report where one is asked for."""
    from replaypack.audit.sanitise import sanitise

    output = Output(json=json)
    policy = _policy(redact)
    secrets = values_of(secret_env or [])
    path = Path(report) if report is not None else None
    if path is not None and path.exists() and not overwrite:
        raise ExportError(f"{path} is there already", hint="--overwrite replaces it")
    archive, at = located(to, option)
    if at.revision is not None:
        raise UsageError("a sanitised recording is a new one: leave out the @revision")
    with archive, opened(locator, option) as source, progress_bar(json) as progress, _other_name():
        options: dict[str, Any] = {"redact": policy, "allow": allow, "secrets": secrets, "progress": progress}
        if path is None:
            done = sanitise(source, archive, at.name, **options)
        else:
            with new_file(path, overwrite=overwrite) as file:

                def note(removal: Removal) -> None:
                    file.write(json_.dumps(removal._asdict()).encode() + b"\n")

                done = sanitise(source, archive, at.name, report=note, **options)
    if json:
        output.document(done._asdict())
        return
    output.line(f"exported {counted(done.records, 'record')} of {source.locator} as {done.locator}")
    output.line(f"content digest {done.content_digest}, derived from {done.derived_from}")
    kinds = ", ".join(f"{rule} {count}" for rule, count in done.removed.items())
    output.line(f"removed from {counted(done.changed, 'record')}: {kinds or 'nothing'}")
    if done.kept_keys:
        output.line(f"note: {counted(done.kept_keys, 'key')} of the host stay as they are, as digests")


@contextmanager
def _other_name() -> Iterator[None]:
    try:
        yield
    except RecordingExistsError as error:
        error.hint = "give --to another name, or remove that recording with `replaypack rm`"
        raise


def _policy(text: str | None) -> RedactionPolicy | Literal["default"] | None:
    """The policy of ``--redact``: default, none, or one as JSON in a file."""
    from replaypack.policies.redaction import RedactionPolicy

    if text in (None, "default"):
        return "default"
    if text == "none":
        return None
    try:
        data = json_.loads(Path(text or "").read_text("utf-8"))
        if not isinstance(data, dict):
            raise ValueError("it is no object")
        return RedactionPolicy.from_data(data)
    except (OSError, ValueError, RecursionError, FormatError) as error:
        raise UsageError(
            f"--redact {text}: {error}", hint="default, none, or a file with a policy as it stands in a manifest"
        ) from None
