"""Content of a file: plain, gzip or zip, of bounded size, as UTF-8 or Latin-1 lines.

Nothing is ever extracted to disk: names inside an archive are compared with a pattern, and nothing
else is done with them, so ``..`` and links in an archive lead nowhere.
"""

from __future__ import annotations

import codecs
import fnmatch
import gzip
import io
import lzma
import os
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO, NoReturn

# Largest file, packed or unpacked, that is read by default: 128 MiB, three times the largest of the
# data sets, which is the ten-minute weather of Jena with 42 MB of text.
MAX_BYTES = 134_217_728
# The archives of the data sets have fewer than ten members; zipfile keeps about 500 bytes of each.
_MOST_MEMBERS = 10_000
_CHUNK = 2**20
# Lines of the data sets have less than 500 characters. A character takes up to four bytes, and
# parsers copy a line several times.
_LONGEST_LINE = 2**20
# Except for deflate, zipfile unpacks whatever it reads at one go. 64 bytes of bzip2 are at most two
# blocks, which unpack to less than 100 MB; of LZMA they unpack to less than 1 MB.
_SMALL_CHUNK = 64

# What gzip, zipfile and their decompressors raise for bytes that are not what they should be.
_DAMAGED = (
    EOFError,
    IndexError,
    MemoryError,  # a damaged LZMA header asks for gigabytes
    OSError,
    OverflowError,
    RuntimeError,
    UnicodeDecodeError,
    struct.error,
    lzma.LZMAError,
    zipfile.BadZipFile,
    zlib.error,
)


def cut(text: str, most: int = 80) -> str:
    """``text`` in quotes for a message, of at most `most` characters with its quotes."""
    written = repr(text[:most])
    return written if len(written) <= most and len(text) <= most else f"{written[: most - 4]}...'"


def file_name(name: str) -> str:
    """The name of a file, or of a member of an archive, for a message: printable and not long."""
    name = name if name.isprintable() else repr(name[:100])[1:-1]
    return name if len(name) <= 100 else f"{name[:97]}..."


def read_lines(path: Path, member: str, max_bytes: int = MAX_BYTES) -> Iterator[str]:
    """Return the lines of a plain, gzip or zip file, told apart by content and not by name.

    Parameters
    ----------
    path : Path
        File to read.
    member : str
        Pattern of the one file wanted from a zip archive, such as ``"*.csv"``.
    max_bytes : int, default=134217728
        Largest size of the file, and of its content after unpacking.

    Returns
    -------
    iterator of str
        Lines without their end, which may be any of ``\\n``, ``\\r\\n`` and ``\\r``. The whole
        content is decoded as UTF-8, or as Latin-1 where that fails (the Jena institute serves
        Latin-1).

    Raises
    ------
    ValueError
        If the file is damaged, too large, or an archive without exactly one such member; while
        the lines are taken, if one of them is too long.
    OSError
        If the operating system does not let the file be read.
    """
    return decode_lines(read_content(path, member, max_bytes), path.name)


def read_content(path: Path, member: str, max_bytes: int = MAX_BYTES) -> io.BytesIO:
    """Return the unpacked content of a file; parameters and errors as for `read_lines`."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise type(error)(
            f"The file {cut(str(path), 200)} cannot be read ({error.strerror}); check its "
            "permissions."
        ) from error
    with file:
        if os.fstat(file.fileno()).st_size > max_bytes:
            _refuse_size(path.name, max_bytes)
        return _collect(_unpacked(file, path.name, member, max_bytes), path.name, max_bytes)


def decode_lines(content: io.BytesIO, source: str) -> Iterator[str]:
    """Yield the lines of a content, without their ends and without a byte-order mark."""
    mark = codecs.BOM_UTF8
    content.seek(len(mark) if content.getbuffer()[: len(mark)] == mark else 0)
    text = io.TextIOWrapper(content, encoding=_encoding(content), newline=None)
    number = 0
    while line := text.readline(_LONGEST_LINE):
        number += 1
        if len(line) == _LONGEST_LINE:
            raise ValueError(
                f"{file_name(source)}, line {number}: expected a line of less than {_LONGEST_LINE} "
                f"characters, found {cut(line)}."
            )
        yield line.removesuffix("\n")


def _encoding(content: io.BytesIO) -> str:
    """Return the encoding of a content, decoding it in pieces so that no second copy is made."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    with content.getbuffer() as view:
        try:
            for start in range(0, len(view), _CHUNK):
                decoder.decode(bytes(view[start : start + _CHUNK]))
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return "latin-1"
    return "utf-8"


def _collect(chunks: Iterable[bytes], source: str, max_bytes: int) -> io.BytesIO:
    """Put chunks together, counting what came and trusting no declared size."""
    content = io.BytesIO()
    for chunk in chunks:
        if content.tell() + len(chunk) > max_bytes:
            _refuse_size(source, max_bytes)
        content.write(chunk)
    content.seek(0)
    return content


def _refuse_size(source: str, max_bytes: int) -> NoReturn:
    raise ValueError(
        f"{file_name(source)} holds more than max_bytes={max_bytes} bytes, packed or unpacked; "
        "pass a larger max_bytes if the file is really meant to be that large."
    )


def _unpacked(file: BinaryIO, source: str, member: str, max_bytes: int) -> Iterator[bytes]:
    """Yield the content of a file in chunks of bounded size."""
    start = file.read(4)
    file.seek(0)
    gzipped = start.startswith(b"\x1f\x8b")
    zipped = start in (b"PK\3\4", b"PK\5\6")  # a first member, or the end of an empty archive
    if not gzipped and not zipped:
        yield from _chunks(file, _CHUNK)
        return
    try:
        if gzipped:
            with gzip.GzipFile(fileobj=file) as unzipped:
                yield from _chunks(unzipped, _CHUNK)
        else:
            yield from _member_chunks(file, source, member, max_bytes)
    except _DAMAGED as error:
        raise ValueError(
            f"{file_name(source)} is a damaged or truncated archive, or one of an unknown kind "
            f"({str(error)[:100]}); expected a complete gzip or zip file holding {member}. "
            "Fetch it again."
        ) from error


def _chunks(file: BinaryIO, size: int) -> Iterator[bytes]:
    while chunk := file.read(size):
        yield chunk


def _member_chunks(file: BinaryIO, source: str, member: str, max_bytes: int) -> Iterator[bytes]:
    """Yield the content of the one matching member of a zip archive."""
    # zipfile creates an object for every entry of the directory, so the entries are counted first,
    # by their signature. The few that occur by chance in packed data do not matter at this limit.
    signatures = sum(chunk.count(b"PK\1\2") for chunk in _chunks(file, _CHUNK))
    if signatures > _MOST_MEMBERS:
        raise ValueError(
            f"{file_name(source)} is a zip archive of more than {_MOST_MEMBERS} files; expected "
            f"one that holds exactly one {member}."
        )
    with zipfile.ZipFile(file) as archive:
        info = _matching_member(archive, source, member)
        if info.file_size > max_bytes:
            _refuse_size(source, max_bytes)
        bounded = info.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
        with archive.open(info) as unzipped:
            if not bounded:
                unzipped.MIN_READ_SIZE = _SMALL_CHUNK
            yield from _chunks(unzipped, _CHUNK if bounded else _SMALL_CHUNK)


def _matching_member(archive: zipfile.ZipFile, source: str, member: str) -> zipfile.ZipInfo:
    """Return the one file of an archive that matches, leaving out what macOS adds of its own."""
    files = [info for info in archive.infolist() if not info.is_dir()]
    # Some programs of Windows write backslashes.
    paths = [PurePosixPath(info.filename.replace("\\", "/")) for info in files]
    found = [
        info
        for info, path in zip(files, paths, strict=True)
        if fnmatch.fnmatchcase(path.name.lower(), member.lower())
        and "__MACOSX" not in path.parts
        and not path.name.startswith(".")
    ]
    if len(found) != 1:
        held = ", ".join(file_name(info.filename) for info in (found or files)[:5]) or "nothing"
        raise ValueError(
            f"{file_name(source)} is a zip archive that should hold exactly one {member}, but "
            f"{len(found)} match; it holds: {held}."
        )
    return found[0]
