"""Real data sets, found on disk or downloaded once, and small generators with a known rule.

Every loader of a file looks, in this order, at its argument ``path``; at the folder named by the
environment variable ``SKLEARN_RESTRANS_DATA`` (in the data set's own subfolder, then in the folder
itself); at the user's cache (the folder named by ``SKLEARN_RESTRANS_CACHE``, or the usual place of
the operating system); and then at the public address. A download is checked before it gets its
name in the cache, so a broken one leaves nothing behind and a second call starts again.
``SKLEARN_RESTRANS_MIRROR`` names another address (``http://host/folder``) that serves the same
file names. Downloads need the optional package pooch.
"""

from .generators import make_planted_sequences
from .loaders import fetch_jena_climate, fetch_sst2, load_etth1, load_nyc_weather

__all__ = [
    "fetch_jena_climate",
    "fetch_sst2",
    "load_etth1",
    "load_nyc_weather",
    "make_planted_sequences",
]
