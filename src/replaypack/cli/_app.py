"""The application: its commands, and what becomes of errors.

Exit codes: 0 fine; 1 faults found, not found, failed; 2 wrong usage, or the store could not be asked; 130
interrupted; 141 the reader of a pipe went away.
"""

from __future__ import annotations

import logging
import os
import sys
import traceback
import warnings
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from replaypack import __version__
from replaypack.errors import ReplaypackError

from . import (
    cat,
    catalog,
    compact,
    copy,
    diff,
    explain,
    gc,
    interchange,
    log,
    ls,
    migrate,
    prove,
    purge,
    recover,
    rekey,
    rm,
    scan,
    show,
    sign,
    stats,
    verify,
    zip,
)
from ._output import exit_code, print_error, silence
from ._text import dump_json, escape

__all__ = ["app", "run"]


class _Told(Exception):
    """A command was interrupted, and that was said."""


class _Group(TyperGroup):
    """Turns every error into a sentence and an exit code, and mistyped commands into suggestions."""

    def invoke(self, ctx: Any) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except ReplaypackError as error:
            _debug()
            print_error(error.message, error.hint)
            if "in output" not in getattr(error, "__notes__", ()):
                _json_error(error.to_dict())
            raise typer.Exit(exit_code(error)) from None
        except KeyboardInterrupt as error:
            _interrupted(str(error))
            raise _Told from None
        except BrokenPipeError:
            silence(sys.stdout)
            raise typer.Exit(141) from None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            import difflib

            near = difflib.get_close_matches(args[0], self.list_commands(ctx), n=1, cutoff=0.5)
            ctx.fail(f"there is no command {args[0]!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=_Group,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"replaypack {__version__}\n")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Look into, check and keep archives of recorded LLM and agent runs."""


app.command("ls")(ls.ls)
app.command("show")(show.show)
app.command("cat")(cat.cat)
app.command("verify")(verify.verify)
app.command("sign")(sign.sign)
app.command("keygen")(sign.keygen)
app.command("prove")(prove.prove)
app.command("check-proof")(prove.check_proof)
app.command("scan")(scan.scan)
app.command("diff")(diff.diff)
app.command("stats")(stats.stats)
app.command("log")(log.log)
app.command("explain")(explain.explain)
app.command("import")(interchange.import_)
app.command("export")(interchange.export)
app.command("recover")(recover.recover)
app.command("rekey")(rekey.rekey)
app.command("compact")(compact.compact)
app.command("migrate")(migrate.migrate)
app.command("rm")(rm.rm)
app.command("purge")(purge.purge)
app.command("catalog")(catalog.catalog)
app.command("copy")(copy.copy)
app.command("gc")(gc.gc)
app.command("zip")(zip.zip_)
app.command("unzip")(zip.unzip)


def run(arguments: list[str]) -> int:
    """Run one command line; return its exit code. Without arguments, help is shown."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    warnings.showwarning = _show_warning
    logger = logging.getLogger("replaypack")
    if not logger.handlers:
        logger.addHandler(_Logged(logging.WARNING))
    _json.wanted = "--json" in arguments
    try:
        code = typer.main.get_command(app).main(arguments or ["--help"], prog_name="replaypack", standalone_mode=False)
        if code == 130:  # what the parser makes of an interrupt while it is at work itself
            return _interrupted()
        return code if isinstance(code, int) else 0
    except _Told:
        return 130
    except (typer.Abort, KeyboardInterrupt):
        return _interrupted()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    except Exception as error:
        return _unexpected(error)


def _interrupted(how: str = "") -> int:
    print(f"interrupted: {how}" if how else "interrupted", file=sys.stderr)
    return 130


class _json:
    wanted = False


def _json_error(value: dict[str, Any]) -> None:
    if _json.wanted:
        try:
            sys.stdout.write(dump_json({"error": value}, indent=2) + "\n")
            sys.stdout.flush()
        except BrokenPipeError:
            silence(sys.stdout)


def _unexpected(error: Exception) -> int:
    _debug()
    format_message = getattr(error, "format_message", None)
    if format_message is not None:  # what the parser of the command line says
        message = str(format_message()).rstrip(".")
        if not message:
            return 2  # it was help that was asked for
        print_error(message, "--help lists commands and options")
        _json_error({"code": "usage", "message": message, "hint": None})
        return 2
    if isinstance(error, MemoryError):
        print_error("out of memory")
        return 1
    message = f"unexpected {type(error).__name__}: {error}"
    print_error(message, "REPLAYPACK_DEBUG=1 shows where")
    _json_error({"code": "unexpected", "message": message, "hint": None})
    return 1


def _debug() -> None:
    if os.environ.get("REPLAYPACK_DEBUG", "0") not in ("", "0"):
        traceback.print_exc()


class _Logged(logging.Handler):
    """What the library logs is a warning of the command line."""

    def emit(self, record: logging.LogRecord) -> None:
        _show_warning(record.getMessage())


def _show_warning(message: Warning | str, *_args: Any, **_options: Any) -> None:
    print(f"warning: {escape(str(message))}", file=sys.stderr)
