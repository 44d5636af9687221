"""Real data sets, found on disk or downloaded once, and small generators with a known rule.

Every loader of a file searches these places in this order and takes the first file it finds:

1. its argument ``path``;
2. the folder named by the environment variable ``SKLEARN_RESTRANS_DATA``: first the data set's own
   subfolder, then the folder itself;
3. the user's cache: the folder named by ``SKLEARN_RESTRANS_CACHE``, or the usual place of the
   operating system;
4. the public address. A download is checked before it gets its name in the cache, so a broken one
   leaves nothing behind and a second call starts again. ``SKLEARN_RESTRANS_MIRROR`` names another
   address (``http://host/folder``) that serves the same file names. Downloads need the optional
   package pooch.

Nothing is read or downloaded that is larger, packed or unpacked, than the argument ``max_bytes``.
"""

from .generators import make_planted_sequences, make_random_checkpoint
from .loaders import fetch_jena_climate, fetch_sst2, load_etth1, load_nyc_weather

__all__ = [
    "fetch_jena_climate",
    "fetch_sst2",
    "load_etth1",
    "load_nyc_weather",
    "make_planted_sequences",
    "make_random_checkpoint",
]
