"""Names of hosts, without a resolver."""

from __future__ import annotations

import socket
from typing import Any

import pytest


def no_invalid_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    """No host below ``.invalid`` is found, and no server is asked, whose answers differ from network to network."""
    real = socket.getaddrinfo

    def getaddrinfo(host: Any, *arguments: Any, **options: Any) -> Any:
        if str(host).endswith(".invalid"):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return real(host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
