"""What a put flushes, and in which order: a power cut after it leaves the whole document."""

import os
import socket
import uuid
from contextlib import suppress
from pathlib import Path

import pytest

from shared.adapters.archive.folder_files import FolderFiles


@pytest.fixture
def calls(monkeypatch):
    """The system calls that make a file durable, with their paths, in order."""
    found: list[tuple[str, str]] = []
    fsync, link = os.fsync, os.link

    def path_of(descriptor):
        return Path(f"/proc/self/fd/{descriptor}").readlink()

    def fsync_noted(descriptor):
        found.append(("fsync", str(path_of(descriptor))))
        fsync(descriptor)

    def link_noted(source, target, *, dst_dir_fd, **options):
        found.append(("link", str(path_of(dst_dir_fd) / target)))
        link(source, target, dst_dir_fd=dst_dir_fd, **options)

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

    def link_late(source, target, **options):
        attempts.append(target)
        if len(attempts) == 1:
            (tmp_path / "archive/v1/c").rmdir()
        link(source, target, **options)

    monkeypatch.setattr(os, "link", link_late)
    files.put("v1/c/a.json.zst", b"data")
    assert files.get("v1/c/a.json.zst", 10) == b"data"


def test_folder_that_another_process_removes_while_it_is_opened_is_made_again(files, monkeypatch, tmp_path):
    files.put("v1/kind/day/one/a", b"data")
    mkdir, removed = os.mkdir, list[str]()

    def mkdir_late(name, *args, **options):
        if name == "two" and not removed:
            removed.append(name)
            files.delete(["v1/kind/day/one/a"])  # and both folders above it
        mkdir(name, *args, **options)

    monkeypatch.setattr(os, "mkdir", mkdir_late)
    files.put("v1/kind/day/two/a", b"data")
    assert (removed, files.get("v1/kind/day/two/a", 10)) == (["two"], b"data")


def test_descriptors_are_closed_whatever_happens(files, tmp_path):
    def count():
        return len(list(Path("/proc/self/fd").iterdir()))

    files.put("v1/a/b/file", b"data")
    (tmp_path / "archive/v1/link").symlink_to(tmp_path)
    before = count()
    for _ in range(20):
        files.put("v1/a/b/file", b"data")
        with suppress(NotADirectoryError):
            files.put("v1/link/file", b"data")
        for path in ("v1/a/b/none", "v1/none/file", "v1/link/file", "v1/a"):
            with suppress(KeyError):
                files.get(path, 1_000)
        walk = files.walk("")
        next(walk)
        walk.close()
        files.names("v1/")
        files.delete(["v1/a/c/file", "v1/link/file"])
    assert count() == before


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
    for path in ("v1/link", "v1/loop/v1/a/file"):
        with pytest.raises(KeyError):
            files.head(path)
        with pytest.raises(KeyError):
            files.open(path)


@pytest.mark.parametrize("link", [".tmp", "v1", "v1/kind", "v1/kind/day"])
def test_nothing_outside_of_the_archive_is_written_or_deleted(files, tmp_path, link):
    """Whatever link another writer puts in the place of a folder."""
    outside = tmp_path / "outside"
    for name in ("old", "v1/kind/day/file", "kind/day/file", "day/file", "file", uuid.uuid4().hex):
        (outside / name).parent.mkdir(parents=True, exist_ok=True)
        (outside / name).write_bytes(b"precious")
        os.utime(outside / name, (0, 0))
    before = sorted(outside.rglob("*"))
    place = tmp_path / "archive" / link
    place.parent.mkdir(parents=True)
    place.symlink_to(outside)

    for replaces in (False, True):
        with pytest.raises(NotADirectoryError):
            files.put("v1/kind/day/file", b"data", replaces=replaces)
    files.delete(["v1/kind/day/file"])

    assert sorted(outside.rglob("*")) == before
    assert list(files.walk("")) == []
    assert files.names(link) == []


def test_only_old_files_with_a_name_of_ours_are_removed_from_the_temporary_folder(files, tmp_path):
    folder = tmp_path / "archive/.tmp"
    folder.mkdir(parents=True)
    left_behind, young, foreign, link = folder / ("a" * 32), folder / ("b" * 32), folder / "notes", folder / ("c" * 32)
    for path in (left_behind, young, foreign):
        path.write_bytes(b"data")
    link.symlink_to(foreign)
    for path in (left_behind, foreign, link):
        os.utime(path, (0, 0), follow_symlinks=False)

    files.put("v1/kind/day/file", b"data")

    assert sorted(folder.iterdir()) == [young, link, foreign]


def make_socket(path):
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(os.path.relpath(path))  # a path of a socket has at most 107 characters


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, make_socket], ids=["pipe", "folder", "socket"])
def test_what_is_no_file_is_not_there_and_holds_no_thread(files, tmp_path, make):
    files.put("v1/a/file", b"data")
    make(tmp_path / "archive/v1/a/other")
    for read in (files.head, files.open, lambda path: files.get(path, 10)):
        with pytest.raises(KeyError):
            read("v1/a/other")
    assert [file.path for file in files.walk("")] == ["v1/a/file"]


def test_files_of_an_archive_are_not_readable_for_others(files, tmp_path):
    files.put("v1/a/file", b"data")
    assert (tmp_path / "archive/v1/a/file").stat().st_mode & 0o027 == 0
    assert (tmp_path / "archive").stat().st_mode & 0o027 == 0
