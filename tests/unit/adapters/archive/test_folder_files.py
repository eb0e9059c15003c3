"""What a put flushes, and in which order: a power cut after it leaves the whole document."""

import os
from pathlib import Path

import pytest

from shared.adapters.archive.folder_files import FolderFiles


@pytest.fixture
def calls(monkeypatch):
    """The system calls that make a file durable, with their paths, in order."""
    found: list[tuple[str, str]] = []
    fsync, link = os.fsync, os.link

    def fsync_noted(descriptor):
        found.append(("fsync", str(Path(f"/proc/self/fd/{descriptor}").readlink())))
        fsync(descriptor)

    def link_noted(source, target):
        found.append(("link", str(target)))
        link(source, target)

    monkeypatch.setattr(os, "fsync", fsync_noted)
    monkeypatch.setattr(os, "link", link_noted)
    return found


@pytest.fixture
def files(tmp_path):
    return FolderFiles(tmp_path / "archive")


def names(calls, tmp_path):
    return [(call, path.removeprefix(f"{tmp_path}/").split(".tmp/")[0]) for call, path in calls]


def test_first_put_flushes_the_file_before_its_name_and_then_every_folder(files, calls, tmp_path):
    files.put("v1/c/a.json.zst", b"data")
    assert names(calls, tmp_path) == [
        ("fsync", "archive/"),  # the file, under its temporary name
        ("link", "archive/v1/c/a.json.zst"),
        ("fsync", "archive/v1/c"),
        ("fsync", "archive/v1"),
        ("fsync", "archive"),
        ("fsync", str(tmp_path)),
    ]


def test_second_put_flushes_the_folders_that_may_have_new_entries(files, calls, tmp_path):
    files.put("v1/c/day/one/a.json.zst", b"data")
    calls.clear()
    files.put("v1/c/day/two/a.json.zst", b"data")
    assert names(calls, tmp_path)[2:] == [
        ("fsync", "archive/v1/c/day/two"),
        ("fsync", "archive/v1/c/day"),
        ("fsync", "archive/v1/c"),
    ]


def test_day_that_was_deleted_and_made_again_is_flushed_again_whatever_its_inode_is(files, calls, tmp_path):
    """A file system may give the inode of a deleted folder to the next one."""
    for number in range(50):
        path = f"v1/kind-{number}/day/name/a.json.zst"
        files.put(path, b"data")
        FolderFiles(tmp_path / "archive").delete([path])
        calls.clear()
        files.put(path, b"data")
        assert ("fsync", f"archive/v1/kind-{number}") in names(calls, tmp_path)


def test_put_of_an_existing_file_flushes_the_folders_of_its_first_writer(files, calls, tmp_path):
    files.put("v1/c/a.json.zst", b"first")
    calls.clear()
    other = FolderFiles(tmp_path / "archive")
    other.put("v1/c/a.json.zst", b"second")
    assert ("fsync", "archive/v1/c") in names(calls, tmp_path)
    assert ("fsync", "archive") in names(calls, tmp_path)
    assert other.get("v1/c/a.json.zst", 10) == b"first"


def test_folder_of_a_kind_that_was_moved_and_made_again_is_flushed_again(files, calls, tmp_path):
    files.put("v1/c/kind/day/one/a.json.zst", b"data")
    kind = tmp_path / "archive/v1/c/kind"
    kind.rename(tmp_path / "elsewhere")  # keeps its inode
    calls.clear()
    files.put("v1/c/kind/day/two/a.json.zst", b"data")
    assert ("fsync", "archive/v1/c") in names(calls, tmp_path)


def test_failed_flush_leaves_no_document_and_no_temporary_file(files, monkeypatch, tmp_path):
    def fail(_descriptor):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="Input/output error"):
        files.put("v1/c/a.json.zst", b"data")
    assert [path for path in (tmp_path / "archive").rglob("*") if path.is_file()] == []


def test_folder_that_another_process_removed_meanwhile_is_made_again(files, monkeypatch, tmp_path):
    link, attempts = os.link, []

    def link_late(source, target):
        attempts.append(target)
        if len(attempts) == 1:
            Path(target).parent.rmdir()
        link(source, target)

    monkeypatch.setattr(os, "link", link_late)
    files.put("v1/c/a.json.zst", b"data")
    assert files.get("v1/c/a.json.zst", 10) == b"data"


def test_delete_removes_the_empty_folders_of_a_name_and_of_a_day(files, tmp_path):
    for name in ("one", "two"):
        files.put(f"v1/kind/day/{name}/a.json.zst", b"data")
    files.delete(["v1/kind/day/one/a.json.zst", "v1/kind/day/none/a.json.zst"])
    assert [path.name for path in (tmp_path / "archive/v1/kind/day").iterdir()] == ["two"]
    files.delete(["v1/kind/day/two/a.json.zst"])
    assert list((tmp_path / "archive/v1/kind").iterdir()) == []


def test_links_are_neither_followed_nor_listed(files, tmp_path):
    files.put("v1/a/file", b"data")
    (tmp_path / "archive/v1/loop").symlink_to(tmp_path / "archive")
    (tmp_path / "archive/v1/link").symlink_to(tmp_path / "archive/v1/a/file")
    assert [file.path for file in files.walk("")] == ["v1/a/file"]
    with pytest.raises(KeyError):
        files.head("v1/link")


def test_files_of_an_archive_are_not_readable_for_others(files, tmp_path):
    files.put("v1/a/file", b"data")
    assert (tmp_path / "archive/v1/a/file").stat().st_mode & 0o027 == 0
    assert (tmp_path / "archive").stat().st_mode & 0o027 == 0
