"""Make texts equal that look alike: letter case, invisible characters, accents in parts."""

from __future__ import annotations

import re
import unicodedata

# Control characters that are not white space: NUL, the escape character and their like.
_CONTROLS = "\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f"
# Unicode's Default_Ignorable_Code_Point (soft hyphen, zero-width space, byte-order mark, marks of
# direction, fillers, ...) without the joiners, variation selectors and tags below, which change
# what is seen beside some characters.
_IGNORABLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f"
    "\u3164\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e001f\U000e0080-\U000e00ff\U000e01f0-\U000e0fff"
)
_JOINERS = "\u200c\u200d"
_SELECTORS = "\u180b-\u180d\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef"
_TAGS = "\U000e0020-\U000e007f"
# Letters and accents of the Latin, Greek, Cyrillic and Armenian scripts, which no joiner or
# selector changes.
_PLAIN = "A-Za-z\u00c0-\u058f\u1d00-\u1fff"

_ASCII_CONTROLS = re.compile("[\x00-\x08\x0e-\x1b\x7f]+")
_INVISIBLE = re.compile(f"[{_CONTROLS}{_IGNORABLE}{_JOINERS}{_SELECTORS}{_TAGS}]")
_ALWAYS_INVISIBLE = re.compile(f"[{_CONTROLS}{_IGNORABLE}]+")
# Joiners, selectors and tags where they have nothing to act upon.
_STRAY = re.compile(
    rf"(?:^|(?<=[\s\x00-\x7f{_PLAIN}\u2000-\u200b\u2010-\u206f]))[{_JOINERS}]+"
    rf"|(?<!\u200c)\u200c+(?=\s|$)"
    rf"|(?:^|(?<=[\s{_PLAIN}]))[{_JOINERS}{_SELECTORS}]+"
    rf"|(?<![\U0001f000-\U0001faff{_TAGS}])[{_TAGS}]+"
)
# The dot above i and j is part of the letter. Marks below the letter may stand before the dot.
_SECOND_DOT = re.compile("([ijịįіј][\u0316-\u0333\u0339-\u033c\u0347-\u0349\u034d\u034e]*)\u0307")


def lower_case(text):
    """The text in lower case, in which "İstanbul" is "istanbul".

    `str.lower` writes the dotted capital I as "i" with a second dot, a combining one; it is the
    only character that becomes two. This is not `str.casefold`, which would write "ß" as "ss":
    tokens stay words that a dictionary or a table of pretrained vectors has.
    """
    text = text.lower()
    return _SECOND_DOT.sub(r"\1", text) if "\u0307" in text else text


def visible(text):
    """The text without invisible characters, and with every accented letter in one part (NFC).

    NFKC is not used, because it changes what is seen: it writes "²" as "2" and "…" as three dots.
    """
    if text.isascii():
        return text if text.isprintable() else _ASCII_CONTROLS.sub("", text)
    if _INVISIBLE.search(text):
        text = _STRAY.sub("", _ALWAYS_INVISIBLE.sub("", text))
    return unicodedata.normalize("NFC", text)
