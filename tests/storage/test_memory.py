"""Objects in this process."""

from __future__ import annotations

import pytest

from replaypack.storage import MemoryStorage, Storage, open_storage
from tests.storage.contract import StorageContract


class TestMemory(StorageContract):
    @pytest.fixture
    def storage(self) -> Storage:
        return MemoryStorage()


def test_one_url_is_one_set_of_objects() -> None:
    open_storage("memory://shared/a").put("k", b"1")
    assert open_storage("memory://shared/a/").get("k") == b"1"
    assert not list(open_storage("memory://shared/b").list())
    assert not list(MemoryStorage().list())


def test_no_private_one_has_the_name_of_one_that_is_gone() -> None:
    assert len({MemoryStorage().url for _ in range(100)}) == 100
