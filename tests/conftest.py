"""What every test meets: one thread, known seeds, an empty working folder, the real data."""

import os

os.environ.setdefault("MPLBACKEND", "Agg")  # before anything imports matplotlib

import random
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

# Two torch threads collapse (10x and worse) as soon as another process holds a core.
torch.set_num_threads(1)

ROOT = Path(__file__).resolve().parents[1]
DATA = "SKLEARN_RESTRANS_DATA"
if DATA in os.environ:  # a relative path means the folder that pytest was called in
    os.environ[DATA] = str(Path(os.environ[DATA]).resolve())


def _seed():
    return int(os.environ.get("SKLEARN_RESTRANS_SEED", "0"))


def pytest_report_header():
    return (
        f"seed {_seed()} (SKLEARN_RESTRANS_SEED), torch {torch.__version__}, "
        f"CUDA {torch.cuda.is_available()}"
    )


def pytest_collection_modifyitems(items):
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs CUDA"))


@pytest.fixture(scope="session")
def seed():
    """First seed of a test that uses several; its claim must hold for any."""
    return _seed()


@pytest.fixture(autouse=True)
def _global_generators_are_seeded(seed):
    """A test that draws from a global generator gives the same result alone and in the suite."""
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002  the legacy generator is the global one
    torch.manual_seed(seed)


@pytest.fixture(scope="session", autouse=True)
def _working_folder(tmp_path_factory):
    """The whole session runs in an empty folder, so that a file written there is seen."""
    folder, before = tmp_path_factory.mktemp("working_folder"), Path.cwd()
    os.chdir(folder)
    yield folder
    os.chdir(before)


@pytest.fixture(autouse=True)
def _working_folder_stays_empty(_working_folder):
    yield
    now = Path.cwd()
    os.chdir(_working_folder)
    left = sorted(_working_folder.iterdir())
    for path in left:  # so that only the test that wrote it fails
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert not left, f"the test left {[path.name for path in left]} in the working folder"
    assert now == _working_folder, f"the test left the working folder for {now}"


@pytest.fixture(scope="session")
def data_dir():
    """Folder of the real data: SKLEARN_RESTRANS_DATA, or ``shared/data`` beside the checkout."""
    named = os.environ.get(DATA)
    folder = Path(named) if named else ROOT.parent / "shared" / "data"
    if folder.is_dir():
        return folder
    # A name that leads nowhere is a mistake; no data beside the checkout is usual.
    assert not named, f"{DATA} names {named}, which is not a folder"
    pytest.skip(f"no real data: set {DATA} to their folder")


# ---- pretrained encoders ----------------------------------------------------------------------


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory):
    """``checkpoints(family, activation)``: the folder of a tiny random checkpoint."""
    from tinycheckpoints import save

    made = {}

    def folder_of(family, activation="gelu"):
        key = family, activation
        if key not in made:
            made[key] = save(family, tmp_path_factory.mktemp(f"{family}-{activation}"), activation)
        return made[key]

    return folder_of


@pytest.fixture
def offline(monkeypatch):
    """A test in which every attempt at a connection or a download fails."""
    import socket

    import huggingface_hub

    def refuse(*args, **kwargs):
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", refuse)
