"""Compress and decompress documents and logs with zstd, in bounded memory."""

import sys
import threading
from collections.abc import AsyncIterator, Iterator, Mapping

from shared.core.archive.document import DOCUMENT_BYTES_MAX

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

WINDOW_LOG_MAX = 23
"""The window of a frame whose size is unknown has at most 8 MiB (2 to this power), which all decompressors support and
of which ours needs 512 KiB. The memory of a decompressor is its window and what it returns."""

_LEVEL = 1  # a Job of 6 KB: 14 µs and 2.0 KB; level 3 takes 26 µs and saves 2 %
_WINDOW_LOG_MAX_OF_SIZE = 26  # a frame that has its size has a window of at most this size, which is checked before
_CHUNK_BYTES = 1024 * 1024
# The checksum covers the line about the archiving too, which the digest of the object does not.
_OPTIONS: Mapping[int, int] = {
    zstd.CompressionParameter.compression_level: _LEVEL,
    zstd.CompressionParameter.checksum_flag: 1,
}
_LIMITS: Mapping[int, int] = {zstd.DecompressionParameter.window_log_max: WINDOW_LOG_MAX}
_LIMITS_OF_SIZE: Mapping[int, int] = {zstd.DecompressionParameter.window_log_max: _WINDOW_LOG_MAX_OF_SIZE}
_own = threading.local()


class CodecError(Exception):
    """The bytes are not one whole zstd frame, or it has too many bytes; the message says which."""


def compress(data: bytes) -> bytes:
    """Compress a document into one frame; each thread uses one compressor again, which takes half the time."""
    compressor: zstd.ZstdCompressor | None = getattr(_own, "compressor", None)
    if compressor is None:
        compressor = _own.compressor = zstd.ZstdCompressor(options=_OPTIONS)
    return compressor.compress(data, zstd.ZstdCompressor.FLUSH_FRAME)


def find_size(data: bytes) -> int:
    """Return how many bytes a document has at most when it is decompressed, as the header of its frame says.

    Each document that `compress` returns has its size in the header. A decompressor returns no other size.

    Raises:
        CodecError: It has more than DOCUMENT_BYTES_MAX bytes.
    """
    size = _size_in_header(data)
    if size is not None and size > DOCUMENT_BYTES_MAX:
        raise CodecError(f"it has more than {DOCUMENT_BYTES_MAX} bytes when it is decompressed")
    return DOCUMENT_BYTES_MAX if size is None else size


def _size_in_header(data: bytes) -> int | None:
    """Return None without a size, and if the data is no frame."""
    try:
        return zstd.get_frame_info(data).decompressed_size
    except zstd.ZstdError:
        return None


def decompress(data: bytes) -> bytes:
    """Decompress a document, and allocate no more than three times its size: the window, the pieces, and the whole.

    Raises:
        CodecError: The data is not one whole frame, or the document has more than DOCUMENT_BYTES_MAX bytes.
    """
    size = find_size(data)
    limits = _LIMITS if _size_in_header(data) is None else _LIMITS_OF_SIZE
    decompressor = zstd.ZstdDecompressor(options=limits)
    try:
        document = decompressor.decompress(data, max(size, 1))
    except zstd.ZstdError:
        raise CodecError("it is not a zstd frame, or the checksum of the frame is wrong") from None
    if decompressor.eof:
        if decompressor.unused_data:
            raise CodecError("bytes follow the end of the zstd frame")
        return document
    if len(document) >= DOCUMENT_BYTES_MAX:
        raise CodecError(f"it has more than {DOCUMENT_BYTES_MAX} bytes when it is decompressed")
    raise CodecError("the zstd frame is cut off")


async def compress_stream(chunks: AsyncIterator[bytes], read: list[int]) -> AsyncIterator[bytes]:
    """Compress a log into one frame.

    Args:
        chunks: The log.
        read: The number of bytes of each chunk that was read is added to its first element.
    """
    compressor = zstd.ZstdCompressor(options=_OPTIONS)
    async for chunk in chunks:
        for start in range(0, len(chunk), _CHUNK_BYTES):
            if data := compressor.compress(chunk[start : start + _CHUNK_BYTES]):
                yield data
        read[0] += len(chunk)
    yield compressor.flush(zstd.ZstdCompressor.FLUSH_FRAME)


async def decompress_stream(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Decompress a log, at most 1 MiB at a time.

    Raises:
        CodecError: The chunks are not one whole frame.
    """
    decompressor = zstd.ZstdDecompressor(options=_LIMITS)
    async for chunk in chunks:
        for data in _decompress(decompressor, chunk):
            yield data
    if not decompressor.eof:
        raise CodecError("the zstd frame is cut off")


def _decompress(decompressor: zstd.ZstdDecompressor, chunk: bytes) -> Iterator[bytes]:
    if decompressor.eof and chunk:
        raise CodecError("bytes follow the end of the zstd frame")
    try:
        while data := decompressor.decompress(chunk, _CHUNK_BYTES):
            yield data
            chunk = b""
            if decompressor.eof or decompressor.needs_input:
                break
    except zstd.ZstdError:
        raise CodecError("it is not a zstd frame, or the checksum of the frame is wrong") from None
    if decompressor.unused_data:
        raise CodecError("bytes follow the end of the zstd frame")
