"""What other libraries' exceptions mean. They are told by name and shape, since most need not be installed."""

from __future__ import annotations

import errno
import re
import socket
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from replaypack.errors import (
    AccessDeniedError,
    ObjectExistsError,
    ObjectMissingError,
    ObjectTooShortError,
    ReadOnlyStorageError,
    StorageError,
    StorageFullError,
    StorageTimeoutError,
    StorageUnavailableError,
    StorageUnsupportedError,
)

__all__ = ["Failure", "Kind", "ShortBody", "StatusError", "build_error", "classify"]


class Kind(Enum):
    """What went wrong, in the words of the error tree."""

    MISSING = ObjectMissingError
    MISSING_OR_DENIED = "missing or denied"
    DENIED = AccessDeniedError
    EXISTS = ObjectExistsError
    TOO_SHORT = ObjectTooShortError
    FULL = StorageFullError
    READ_ONLY = ReadOnlyStorageError
    UNAVAILABLE = StorageUnavailableError
    TIMEOUT = StorageTimeoutError
    UNSUPPORTED = StorageUnsupportedError
    FAILED = StorageError


@dataclass(frozen=True, slots=True)
class Failure:
    """A classified exception. ``message`` may still hold credentials; `build_error` gets the cleaned one.

    ``hint`` says what to do where that is not what the error of its kind says.
    """

    kind: Kind
    message: str
    retry: bool = False
    hint: str | None = None


class StatusError(Exception):
    """An HTTP answer that is none of the bytes asked for. ``code`` is the store's own word for it."""

    def __init__(self, status: int, code: str = "", message: str = "") -> None:
        super().__init__(f"HTTP {status} {code} {message}")
        self.status = status
        self.code = code
        self.message = message


class ShortBody(Exception):
    """The answer broke off: it has fewer bytes than it announced, or than were asked for."""


# Codes of 403 (and some of 400) that speak of the credentials, not of the object.
_CREDENTIAL_CODES: Final = frozenset(
    {"SignatureDoesNotMatch", "InvalidAccessKeyId", "ExpiredToken", "InvalidToken", "TokenRefreshRequired"}
    | {"RequestTimeTooSkewed", "InvalidSecurity", "AccountProblem", "AuthenticationFailed", "AuthFailure"}
    | {"AuthorizationHeaderMalformed", "AuthorizationQueryParametersError", "UnrecognizedClientException"}
)
_PLAIN_DENIALS: Final = frozenset({"", "403", "AccessDenied", "Forbidden", "AuthorizationPermissionMismatch"})
_BUSY_CODES: Final = frozenset(
    {"SlowDown", "RequestTimeout", "InternalError", "ServiceUnavailable", "Throttling", "ThrottlingException"}
    | {"RequestThrottled", "ServerBusy", "OperationTimedOut", "ConditionalRequestConflict", "OperationAborted"}
    | {"BadDigest", "IncompleteBody", "XAmzContentSHA256Mismatch"}
)
_FULL_CODES: Final = frozenset({"QuotaExceeded", "XMinioStorageFull", "InsufficientStorage"})
_EXISTS_CODES: Final = frozenset({"PreconditionFailed", "BlobAlreadyExists", "ConditionNotMet"})

_TIMEOUTS: Final = frozenset(
    {"ReadTimeoutError", "ConnectTimeoutError", "ServerTimeoutError", "FSTimeoutError", "TimeoutError"}
    | {"ServiceRequestTimeoutError", "ServiceResponseTimeoutError", "ReadTimeout", "ConnectTimeout", "Timeout"}
)
_CONNECTION: Final = frozenset(
    {"ConnectionError", "HTTPClientError", "EndpointConnectionError", "ConnectionClosedError", "ClientError"}
    | {"IncompleteRead", "IncompleteReadError", "ResponseParserError", "ResponseStreamingError", "TransportError"}
    | {"HTTPException", "RequestException", "ServiceRequestError", "ServiceResponseError", "ChecksumError", "EOFError"}
    | {"FlexibleChecksumError", "SSHException", "ClientPayloadError", "SSLError", "NoValidConnectionsError"}
)
_CREDENTIALS: Final = frozenset(
    {"NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError", "TokenRetrievalError"}
    | {"DefaultCredentialsError", "RefreshError", "GoogleAuthError", "ClientAuthenticationError", "NoAuthTokenError"}
    | {"ProfileNotFound", "UnauthorizedSSOTokenError", "SSOTokenLoadError", "AuthenticationException"}
    | {"LogonFailure", "SMBAuthenticationError"}
)
# Options of a filesystem end in a constructor, or in each request.
_UNKNOWN_OPTION: Final = re.compile(
    r"(?:__init__|_request|create_client)\(\) got an unexpected keyword argument '(\w+)'"
)
_MISSING_OPTION: Final = re.compile(r"__init__\(\) missing \d+ required .*arguments?: (.+)")
_FULL_ERRNO: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NETWORK_ERRNO: Final = {errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EHOSTDOWN, errno.EADDRNOTAVAIL}


def classify(error: BaseException, *, reading: bool) -> Failure:
    """What ``error`` means. ``reading`` an object, a refusal may also mean that it does not exist."""
    if isinstance(error, ShortBody):
        return Failure(Kind.UNAVAILABLE, str(error), retry=True)
    answer = _http_answer(error)
    if answer is not None:
        return _by_status(*answer, reading=reading)
    names = {name.__name__ for name in type(error).__mro__}
    text = str(error)
    if isinstance(error, ImportError):
        return Failure(Kind.UNSUPPORTED, f"a package is missing: {error.name or text}")
    if isinstance(error, FileExistsError):
        return Failure(Kind.EXISTS, "the object already exists")
    if isinstance(error, FileNotFoundError | IsADirectoryError | NotADirectoryError):
        return Failure(Kind.MISSING, "no such object")
    if names & _CREDENTIALS:
        return Failure(Kind.DENIED, f"no usable credentials: {text}")
    if isinstance(error, PermissionError):
        return Failure(Kind.DENIED, text or "permission denied")
    if "SSLCertVerificationError" in names or any("Certificate" in name for name in names):
        hint = "check the URL, and which certificates this machine trusts"
        return Failure(Kind.UNAVAILABLE, f"the server's certificate was not accepted: {text}", hint=hint)
    if isinstance(error, TimeoutError) or names & _TIMEOUTS:
        return Failure(Kind.TIMEOUT, f"no answer in time: {type(error).__name__}", retry=True)
    if isinstance(error, OSError) and error.errno in _FULL_ERRNO:
        return Failure(Kind.FULL, "no space left")
    if isinstance(error, OSError) and error.errno == errno.EROFS:
        return Failure(Kind.READ_ONLY, "the filesystem can only be read")
    if isinstance(error, socket.gaierror):
        return Failure(Kind.UNAVAILABLE, f"its host is not found: {error.strerror or text}", retry=True)
    if names & _CONNECTION or isinstance(error, ConnectionError | EOFError):
        return Failure(Kind.UNAVAILABLE, f"{type(error).__name__}: {text}", retry=True)
    if isinstance(error, OSError) and error.errno in _NETWORK_ERRNO:
        return Failure(Kind.UNAVAILABLE, error.strerror or text, retry=True)
    if type(error).__module__ == "ftplib":
        return _by_ftp_reply(text)
    unknown = _UNKNOWN_OPTION.search(text) if isinstance(error, TypeError) else None
    if unknown is not None:
        return Failure(Kind.UNSUPPORTED, f"the filesystem has no storage option '{unknown[1]}'")
    missing = _MISSING_OPTION.search(text) if isinstance(error, TypeError) else None
    if missing is not None:
        return Failure(Kind.UNSUPPORTED, f"the filesystem needs more storage options: {missing[1]}")
    if isinstance(error, ValueError) and text.startswith("Protocol not known"):
        return Failure(Kind.UNSUPPORTED, f"no filesystem is known for {text.rpartition(' ')[2]}://")
    if isinstance(error, ValueError) and text.startswith("Invalid endpoint"):  # one of the environment's
        return Failure(Kind.UNSUPPORTED, f"{text} (an endpoint begins with http:// or https://)")
    if isinstance(error, NotImplementedError):
        return Failure(Kind.UNSUPPORTED, f"not supported: {text}" if text else "not supported")
    return Failure(Kind.FAILED, f"{type(error).__name__}: {text}")


def _by_ftp_reply(text: str) -> Failure:
    """What an FTP server's reply means, ``NNN text``."""
    code, lower = text[:3], text.lower()
    if code in ("430", "530", "532"):
        return Failure(Kind.DENIED, f"the login was refused: {text}")
    if code in ("452", "552"):
        return Failure(Kind.FULL, text)
    if code[:1] == "4":
        return Failure(Kind.UNAVAILABLE, text, retry=True)
    if "denied" in lower or "permi" in lower or code == "553":
        return Failure(Kind.DENIED, text)
    if code == "550" and ("no such" in lower or "not found" in lower or "not exist" in lower):
        return Failure(Kind.MISSING, "no such object")
    return Failure(Kind.UNSUPPORTED if code in ("500", "502", "504") else Kind.FAILED, text)


def build_error(failure: Failure, *, operation: str, url: str, message: str) -> StorageError:
    """One of our errors; ``message`` is the failure's, cleaned."""
    if failure.kind is Kind.MISSING_OR_DENIED:
        error: StorageError = ObjectMissingError(
            "missing or not permitted",
            operation=operation,
            url=url,
            hint="without permission to list, a store answers 403 for an object that does not exist",
        )
        assert isinstance(error, ObjectMissingError)
        error.may_be_denied = True
        return error
    error_type: type[StorageError] = failure.kind.value
    return error_type(message, operation=operation, url=url, hint=failure.hint)


def _http_answer(error: BaseException) -> tuple[int, str, str] | None:
    """Status, the store's code and its message, from whichever exception a client library made of them."""
    if isinstance(error, StatusError):
        return error.status, error.code, error.message
    for candidate in (error, error.__cause__, error.__context__):
        response: Any = getattr(candidate, "response", None)
        if isinstance(response, dict) and isinstance(response.get("Error"), dict):  # botocore
            status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            code = str(response["Error"].get("Code", ""))
            return int(status or _number(code)), code, str(response["Error"].get("Message", ""))
    names = {name.__name__ for name in type(error).__mro__}
    if "HttpError" in names and _number(getattr(error, "code", None)):  # gcsfs
        return _number(getattr(error, "code", None)), "", str(error)
    if "HttpResponseError" in names and getattr(error, "status_code", None):  # azure
        code = getattr(getattr(error, "error_code", ""), "value", getattr(error, "error_code", ""))
        return _number(getattr(error, "status_code", None)), str(code or ""), str(getattr(error, "message", ""))
    if "ClientResponseError" in names and getattr(error, "status", None):  # aiohttp
        return _number(getattr(error, "status", None)), "", str(getattr(error, "message", ""))
    if type(error) is OSError and str(error).startswith("Forbidden: "):  # gcsfs, of a 403
        return 403, "", str(error)
    return None


def _number(value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError):
        return 0


def _by_status(status: int, code: str, message: str, *, reading: bool) -> Failure:
    told = " ".join(part for part in (f"HTTP {status}", code if code != str(status) else "", message) if part)
    lower = message.lower()
    if code in _BUSY_CODES or status in (408, 425, 429, 500, 502, 503, 504) or "rate limit" in lower:
        return Failure(Kind.UNAVAILABLE, told, retry=True)
    if code in _FULL_CODES or status == 507:
        return Failure(Kind.FULL, told)
    if code in _CREDENTIAL_CODES:
        return Failure(Kind.DENIED, told)
    if status in (401, 403):
        # GCS answers 401 to the anonymous and adds this remark; S3 says "AccessDenied" of what is merely absent.
        unsure = "may not exist" in lower or (status == 403 and code in _PLAIN_DENIALS and "expired" not in lower)
        return Failure(Kind.MISSING_OR_DENIED if reading and unsure else Kind.DENIED, told)
    if status in (404, 410):
        return Failure(Kind.MISSING, "no such bucket" if code == "NoSuchBucket" else "no such object")
    if status == 412 or code in _EXISTS_CODES:
        return Failure(Kind.EXISTS, "the object already exists")
    if status == 409:
        return Failure(Kind.UNAVAILABLE, told, retry=True)  # two writers at the same moment: one has to ask again
    if status == 416:
        return Failure(Kind.TOO_SHORT, "the object ends before the range asked for")
    if status in (405, 501):
        return Failure(Kind.UNSUPPORTED, told)
    return Failure(Kind.FAILED, told)
