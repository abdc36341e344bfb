"""What the commands of audits and maintenance show of an archive cannot act on a terminal."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from replaypack import Archive
from replaypack.format.names import signature_key
from replaypack.storage import LocalStorage

from .conftest import CANARY, is_safe, run, run_on_terminal

PURGE = ["purge", "{archive}#team/mixed", "--records", "1", "--reason", CANARY, "--yes", "--keep-shared"]


@pytest.fixture
def url(archive: str, tmp_path: Path) -> str:
    """The archive, with a signature and a manifest that are none, and named so."""
    path = shutil.copytree(archive, tmp_path / "runs")
    with Archive(path).open("team/mixed") as recording:
        where = signature_key(recording.name, recording.content_digest, "0" * 64)
    LocalStorage(path).put(
        where, b'{"payloadType":"\\u001b[31m","payload":"","signatures":[{"keyid":"\\u001b","sig":""}]}'
    )
    return str(path)


@pytest.mark.parametrize(
    "arguments",
    [
        ["stats", "{archive}#team/mixed"],
        ["stats", "{archive}"],
        ["diff", "{archive}#team/mixed", "{archive}#team/appended"],
        ["diff", "{archive}#team/mixed", "{archive}#team/mixed"],
        ["copy", "{archive}", "{target}"],
        ["copy", "{archive}", "{target}", "--responses-only"],
        ["zip", "{archive}#team/mixed", "-o", "{target}.zip"],
        ["gc", "{archive}"],
        ["gc", "{archive}", "--apply"],
        ["compact", "{archive}"],
        PURGE,
        ["prove", "{archive}#team/mixed", "1"],
        ["verify", "{archive}"],
        ["verify", "{archive}#team/mixed", "--level", "full"],
        ["catalog", "{archive}"],
        ["recover", "{archive}", "--into", "{target}"],
        ["scan", "{archive}#team/mixed"],
        ["migrate", "{archive}"],
        ["show", "{archive}#team/mixed"],
        ["log", "{archive}#team/mixed"],
        ["copy", "{archive}", "{target}", CANARY],
        ["stats", "{archive}#" + CANARY],
        ["gc", CANARY],
        ["compact", "{archive}", CANARY],
        ["zip", "{archive}#team/mixed", "-o", "{target}/" + CANARY + "/x.zip"],
        ["check-proof", CANARY, "--digest", "0" * 64],
        ["verify", "{archive}#team/mixed", "--key", CANARY],
    ],
    ids=lambda arguments: ascii(" ".join(arguments))[:40],
)
def test_nothing_acts(url: str, tmp_path: Path, arguments: list[str]) -> None:
    for number, more in enumerate([[], ["--json"]]):
        here = shutil.copytree(url, tmp_path / f"copy-{number}")
        given = [part.format(archive=here, target=tmp_path / f"target-{number}") for part in arguments]
        if more and arguments[0] in ("prove",):
            continue
        result = run(*given, *more)
        assert result.code in (0, 1, 2)
        assert result.out or result.err
        assert is_safe(result.out) or (arguments[0] == "prove" and result.out.startswith("{"))
        assert is_safe(result.err)


def test_a_reason_is_text_of_the_archive(url: str) -> None:
    assert run(*(part.format(archive=url) for part in PURGE)).code == 0
    for arguments in (["cat", f"{url}#team/mixed", "1"], ["show", f"{url}#team/mixed"], ["verify", url], ["log", url]):
        for result in (run(*arguments), run(*arguments, "--json")):
            assert is_safe(result.out)
            assert is_safe(result.err)
    shown = run_on_terminal("cat", f"{url}#team/mixed", "1")
    assert not {"\x1b[31m", "\x1b]", "\x9b", "\u202e"} & set(shown.out.split())
    assert "\x1b]" not in shown.out
    assert "\x1b[31m" not in shown.out
