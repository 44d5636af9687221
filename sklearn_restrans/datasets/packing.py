"""Bytes of a file to its text: plain, gzip or zip, UTF-8 or Latin-1."""

from __future__ import annotations

import gzip
import io
import zipfile
import zlib
from pathlib import Path, PurePosixPath


def read_text(path: Path, member: str) -> str:
    """Return the text of a plain, gzip or zip file, told apart by content and not by name.

    Parameters
    ----------
    path : Path
        File to read.
    member : str
        Pattern of the one file wanted from a zip archive, such as ``"*.csv"``.

    Returns
    -------
    str
        Decoded as UTF-8, or as Latin-1 where that fails (the Jena institute serves Latin-1);
        lines end with a newline character alone.

    Raises
    ------
    ValueError
        If the file is empty, damaged, or an archive without exactly one such member.
    """
    data = path.read_bytes()
    try:
        if data.startswith(b"\x1f\x8b"):
            data = gzip.decompress(data)
        elif data.startswith(b"PK"):
            data = _read_member(io.BytesIO(data), path.name, member)
    except (EOFError, OSError, zlib.error, zipfile.BadZipFile, RuntimeError) as error:
        raise ValueError(
            f"{path.name} is a damaged or truncated archive ({error}); expected a complete gzip "
            f"or zip file holding {member}. Fetch it again."
        ) from error
    if not data.strip():
        raise ValueError(f"{path.name} is empty; expected a header line and data rows.")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _read_member(file: io.BytesIO, source: str, member: str) -> bytes:
    """Return the one archive member that matches, leaving out what macOS adds of its own."""
    with zipfile.ZipFile(file) as archive:
        names = [
            name
            for name in archive.namelist()
            if PurePosixPath(name.lower()).match(member.lower())
            and not name.startswith("__MACOSX/")
            and not PurePosixPath(name).name.startswith(".")
        ]
        if len(names) != 1:
            held = ", ".join(names or archive.namelist()[:5]) or "nothing"
            raise ValueError(
                f"{source} is a zip archive that should hold exactly one {member}, but "
                f"{len(names)} match; it holds: {held}."
            )
        return archive.read(names[0])
