"""``replaypack sign`` and ``keygen``: an Ed25519 signature over the content digest."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from replaypack.errors import UsageError

from ._common import JsonFlag, LocatorArgument, OptionList, located, recording_at
from ._files import read_file, unwritable, write_file
from ._output import Output

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

PASSWORD = "REPLAYPACK_KEY_PASSWORD"
_MAX_KEY = 64 << 10


def sign(
    locator: LocatorArgument,
    key: Annotated[Path, typer.Option(metavar="FILE", help="Ed25519 private key: PEM (PKCS #8) or OpenSSH.")],
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a copy of the signature to a file.")] = None,
    detached: Annotated[bool, typer.Option("--detached", help="Write the file alone, nothing to the archive.")] = False,
    overwrite: Annotated[bool, typer.Option(help="Replace a file that is there.")] = False,
    json: JsonFlag = False,
    option: OptionList = None,
) -> None:
    """Sign the content digest of a finished recording. The signature lies beside its manifests.

    Nothing is verified first: run `replaypack verify` before you vouch for a recording. The password of an encrypted
    key is asked for, or taken from REPLAYPACK_KEY_PASSWORD. Signing again with the same key changes nothing; each key
    has a signature of its own. `replaypack keygen`, `openssl genpkey -algorithm ed25519` and
    `ssh-keygen -t ed25519` make keys.
    """
    from replaypack.audit import detached_signature
    from replaypack.audit import sign as put
    from replaypack.format.dsse import key_id

    if detached and out is None:
        raise UsageError("--detached needs --out FILE")
    output = Output(json=json)
    private = _private_key(key)
    if not detached:
        located(locator, option)[0].storage.require_writable("sign")
    with recording_at(locator, option, fresh=True) as recording:
        if out is not None:
            write_file(out, detached_signature(recording, private), overwrite=overwrite)
        done = None if detached else put(recording, private)
        place, digest = recording.locator, recording.content_digest
    own = key_id(private.public_key().public_bytes_raw())
    if json:
        output.document(
            {
                "recording": place,
                "content_digest": digest,
                "key_id": own,
                "object": done.object if done is not None else None,
                "existed": done is not None and done.existed,
                "file": str(out) if out is not None else None,
            }
        )
        return
    output.line(f"{place}: {'was signed before' if done is not None and done.existed else 'signed'}, key id {own}")
    output.line(f"content digest {digest}")
    for written in (done.object if done is not None else None, out):
        if written is not None:
            output.line(str(written))


def keygen(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where the private key goes; FILE.pub is the public.")],
    password: Annotated[
        bool, typer.Option("--password", help=f"Encrypt it: asks for a password, or takes {PASSWORD}.")
    ] = False,
) -> None:
    """Make an Ed25519 key pair to sign with: the private key as PEM, for its owner alone to read."""
    from replaypack.audit import load_public_key, new_key
    from replaypack.format.dsse import key_id

    public_file = file.with_name(file.name + ".pub")
    if public_file.exists():
        raise UsageError(f"{public_file} is there already", hint="choose another name: keys are not replaced")
    private, public = new_key(_password("new password", confirm=True) if password else None)
    made = False
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        made = True
        with open(descriptor, "wb") as stream:
            stream.write(private)
        write_file(public_file, public, overwrite=False)
    except BaseException as error:
        if made:  # half a pair would be in the way of the next run
            file.unlink(missing_ok=True)
        if isinstance(error, FileExistsError):
            raise UsageError(f"{file} is there already", hint="choose another name: keys are not replaced") from None
        if isinstance(error, OSError):
            raise unwritable(file, error) from None
        raise
    output = Output(json=False)
    output.line(f"{file}: private key; {public_file}: public key, for those who verify")
    output.line(f"key id {key_id(load_public_key(public).public_bytes_raw())}")


def _private_key(file: Path) -> Ed25519PrivateKey:
    from replaypack.audit import load_private_key

    try:
        data = read_file(file, _MAX_KEY)
    except UsageError as error:
        if not os.path.lexists(file):
            error.hint = "`replaypack keygen FILE` makes a key pair"
        raise
    try:
        try:
            return load_private_key(data)
        except UsageError as error:
            if "encrypted" not in error.message:
                raise
        return load_private_key(data, _password(f"password of {file}", confirm=False))
    except UsageError as error:
        hint = error.hint
        if b"PUBLIC KEY-----" in data or data.startswith(b"ssh-ed25519 "):
            hint = "it is a public key: sign with the private one"
        raise UsageError(f"{file}: {error.message}", hint=hint) from None


def _password(prompt: str, *, confirm: bool) -> bytes:
    text = os.environ.get(PASSWORD)
    if text is None:
        if not sys.stdin.isatty():
            raise UsageError("a password is needed, and there is no terminal to ask on", hint=f"set {PASSWORD}")
        text = typer.prompt(prompt, hide_input=True, confirmation_prompt=confirm, err=True)
    if not text:
        raise UsageError("the password is empty")
    return str(text).encode()
