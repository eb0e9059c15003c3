"""Compression: bounded memory, whole frames, and what a damaged one says."""

import random
import sys
import threading
import tracemalloc

import pytest

from shared.adapters.archive.codec import (
    CodecError,
    compress,
    compress_stream,
    decompress,
    decompress_stream,
    find_size,
)
from shared.core.archive.document import DOCUMENT_BYTES_MAX

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

pytestmark = pytest.mark.anyio


async def chunked(data, size):
    for start in range(0, len(data), size):
        yield data[start : start + size]


@pytest.mark.parametrize("size", [0, 1, 6_000, 1_500_000])
def test_document_is_decompressed_as_it_was(size):
    data = random.Random(size).randbytes(size)
    assert decompress(compress(data)) == data


def test_compressor_is_used_again_in_each_thread():
    data, found = b"x" * 10_000, []
    expected = compress(data)
    threads = [threading.Thread(target=lambda: found.append({compress(data) for _ in range(50)})) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [{expected}] * 4


def test_document_of_the_largest_size_is_decompressed():
    frame = compress(bytes(DOCUMENT_BYTES_MAX))
    assert find_size(frame) == DOCUMENT_BYTES_MAX
    assert len(decompress(frame)) == DOCUMENT_BYTES_MAX


def in_a_stream(size):
    """A frame without its size, as from a pipe."""
    compressor = zstd.ZstdCompressor()
    return compressor.compress(bytes(size)) + compressor.flush()


@pytest.mark.parametrize(("make", "copies"), [(lambda size: zstd.compress(bytes(size)), 0.1), (in_a_stream, 2.5)])
def test_bomb_is_rejected_in_bounded_memory(make, copies):
    bomb = make(4 * DOCUMENT_BYTES_MAX)
    assert len(bomb) < 20_000
    tracemalloc.start()
    try:
        with pytest.raises(CodecError, match=f"more than {DOCUMENT_BYTES_MAX} bytes"):
            decompress(bomb)
        assert tracemalloc.get_traced_memory()[1] < copies * DOCUMENT_BYTES_MAX
    finally:
        tracemalloc.stop()


async def test_document_without_its_size_is_decompressed_within_the_limit():
    frame = in_a_stream(5_000)
    assert find_size(frame) == DOCUMENT_BYTES_MAX
    assert decompress(frame) == bytes(5_000)


@pytest.mark.parametrize("claimed", [100_000, 69_000])
def test_document_of_another_size_than_its_header_says_is_damaged(claimed):
    frame = bytearray(zstd.compress(bytes(70_000)))
    at = frame.find((70_000).to_bytes(4, "little"))
    frame[at : at + 4] = claimed.to_bytes(4, "little")
    with pytest.raises(CodecError, match="not a zstd frame"):
        decompress(bytes(frame))


async def test_frame_with_a_huge_window_is_rejected():
    compressor = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: 24})
    frame = compressor.compress(b"x" * 100) + compressor.compress(b"y" * 100) + compressor.flush()
    with pytest.raises(CodecError):
        decompress(frame)
    with pytest.raises(CodecError):
        [chunk async for chunk in decompress_stream(chunked(frame, 700))]


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda data: b"", "cut off"),
        (lambda data: data[:-1], "cut off"),
        (lambda data: b"{}", "not a zstd frame|cut off"),
        (lambda data: data[:-6] + bytes([data[-6] ^ 1]) + data[-5:], "not a zstd frame, or the checksum"),
        (lambda data: data + b"x", "bytes follow"),
        (lambda data: data + data, "bytes follow"),
    ],
)
async def test_damaged_frame_is_named(damage, problem):
    data = random.Random(1).randbytes(5_000)
    frame = damage(compress(data))
    with pytest.raises(CodecError, match=problem):
        decompress(frame)
    with pytest.raises(CodecError, match=problem):
        [chunk async for chunk in decompress_stream(chunked(frame, 700))]


@pytest.mark.parametrize("size", [1, 700, 1_000_000, 10_000_000])
async def test_log_is_decompressed_as_it_was(size):
    data, read = random.Random(1).randbytes(3_000_000) + b"line\n" * 500_000, [0]
    frame = b"".join([chunk async for chunk in compress_stream(chunked(data, max(size, 1_000)), read)])
    assert read == [len(data)]
    chunks = [chunk async for chunk in decompress_stream(chunked(frame, max(size, 1_000)))]
    assert b"".join(chunks) == data
    assert max(map(len, chunks)) <= 1024 * 1024
