"""URLs as they go out: checked, taken apart, shown without secrets, and followed through redirects; never tidied.

A URL's request target (path and query) is sent byte for byte as given. Only the fragment is dropped, `user:password@`
becomes a header, and an empty path becomes `/`, as HTTP has no way to send none.
"""

from __future__ import annotations

import base64
import ipaddress
import re
from typing import Any, NamedTuple
from urllib.parse import quote, unquote_to_bytes

from feedline.datasets.fetching.locations import MAX_LOCATION_BYTES
from feedline.errors import OptionError

__all__ = ["Url", "UrlRules", "parse_url", "resolve_redirect"]

_URL = re.compile(
    r"(?P<scheme>https?)://"
    r"(?:(?P<user>[!\"$-.0->@-\[\]-~]*)@)?"
    r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~-]+)"
    r"(?::(?P<port>[0-9]{0,5}))?"
    r"(?P<target>[/?][!-\"$-~]*)?"
    r"(?:\#[!-~]*)?",
    re.IGNORECASE | re.ASCII,
)
_PATH = re.compile(r"/[!-\"$-~]*", re.ASCII)
# Scheme, host and port by how URLs begin that have been taken apart; none with a user or a password.
_servers: dict[str, tuple[str, str, int]] = {}
_MAX_SERVERS = 1024
_UNSENDABLE = re.compile(r"[^!-~]")
_DEFAULT_PORTS = {"http": 80, "https": 443}
_UNRESERVED = "-._~"  # quote() adds letters and digits


class Url(NamedTuple):
    """A URL in its parts.

    Attributes:
        scheme: `"http"` or `"https"`.
        host: as given; an IPv6 address in brackets.
        port: the port that is connected to, 80 or 443 where none is given.
        target: path and query, as given; never empty.
        credentials: `user:password` as bytes, unescaped; `None` without.
    """

    scheme: str
    host: str
    port: int
    target: str
    credentials: bytes | None = None

    @property
    def origin(self) -> tuple[str, str, int]:
        """Scheme, host and port: what headers and credentials belong to."""
        return self.scheme, self.host.lower(), self.port

    @property
    def address(self) -> str:
        """The URL that is asked for: without credentials and fragment."""
        return f"{self.scheme}://{self.authority}{self.target}"

    @property
    def shown(self) -> str:
        """The URL for messages: without credentials, query and fragment."""
        return f"{self.scheme}://{self.authority}{self.target.partition('?')[0]}"

    @property
    def authorization(self) -> str | None:
        """The value of the `Authorization` header that the credentials ask for (RFC 7617), or `None`."""
        if self.credentials is None:
            return None
        return "Basic " + base64.b64encode(self.credentials).decode("ascii")

    @property
    def authority(self) -> str:
        """Host, and the port where it is not the scheme's own: what the `Host` header has."""
        return self.host if self.port == _DEFAULT_PORTS[self.scheme] else f"{self.host}:{self.port}"


def parse_url(text: str) -> Url:
    """Take an http or https URL apart.

    Raises:
        OptionError: raw spaces, control or non-ASCII characters (with their encoded form), another scheme, no host, a
            port out of range, or more than 64 KiB. Messages never show query, user or password.
    """
    if len(text) > MAX_LOCATION_BYTES:
        raise OptionError(f"a URL may have at most {MAX_LOCATION_BYTES} bytes, not {len(text)}")
    # Most URLs of a dataset differ from one another in path and query alone.
    slash = text.find("/", len("https://"))
    server = _servers.get(text[:slash]) if slash > 0 else None
    if server is not None and _PATH.fullmatch(text, slash):
        return Url(*server, text[slash:])
    match = _URL.fullmatch(text)
    if match is None:
        if (bad := _UNSENDABLE.search(text)) is not None:
            raise OptionError(_unsendable(text, bad.start()))
        raise OptionError(f"not a URL of the form http://host/path or https://host/path: {_redact(text)!r}")
    scheme, host = match["scheme"].lower(), match["host"]
    port = int(match["port"] or _DEFAULT_PORTS[scheme])
    if not 1 <= port <= 65535:
        raise OptionError(f"the port of {_redact(text)!r} is {port}, not from 1 to 65535")
    if host.startswith("["):
        _check_address(host, text)
    target = match["target"] or "/"
    if target.startswith("?"):
        target = "/" + target
    user = match["user"]
    if user is None and match.start("target") == slash:
        _remember(text[:slash], (scheme, host, port))
    return Url(scheme, host, port, target, None if user is None else _credentials(user))


def _remember(start: str, server: tuple[str, str, int]) -> None:
    if len(_servers) >= _MAX_SERVERS:
        _servers.clear()
    _servers[start] = server


def _credentials(user: str) -> bytes:
    name, colon, password = user.partition(":")
    return unquote_to_bytes(name) + b":" + unquote_to_bytes(password if colon else "")


def _check_address(host: str, text: str) -> None:
    try:
        ipaddress.IPv6Address(host[1:-1])
    except ValueError:
        raise OptionError(f"the host of {_redact(text)!r} is not an IPv6 address") from None


def _unsendable(text: str, place: int) -> str:
    character = text[place]
    offset = len(text[:place].encode("utf-8", "surrogatepass"))
    encoded = quote(character.encode("utf-8", "surrogatepass"), safe="")
    host = re.match(r"[^:/?#]*://(?:[^/?#]*@)?(?P<host>[^/?#:]*)", text)
    if host is not None and host.start("host") <= place < host.end("host"):
        advice = (
            "a host has no such character" if character.isascii() else f"write {_ascii_host(host['host'])}"
        )
    else:
        advice = f"write it as {encoded}"
    return (
        f"a URL may not have raw spaces, control or non-ASCII characters: {_name(character)} at byte {offset} of "
        f"{_redact(text)!r}: {advice}"
    )


def _name(character: str) -> str:
    return "a space" if character == " " else f"U+{ord(character):04X}"


def _ascii_host(host: str) -> str:
    try:
        return host.encode("idna").decode("ascii")
    except UnicodeError:
        return quote(host.encode("utf-8", "surrogatepass"))


def _redact(text: str) -> str:
    """Return a URL that may be no URL without anything that may be its query, user or password; percent-encoded."""
    scheme, mark, rest = text.partition("://")
    if not mark or not scheme.isalnum():
        scheme, mark, rest = "", "", text
    # What is broken can't be taken apart for certain: everything up to the last "@" may be a password with "/" or "?".
    rest = rest.rpartition("@")[2]
    rest = re.split(r"[?#]", rest, maxsplit=1)[0]
    return scheme + mark + quote(rest.encode("utf-8", "surrogatepass"), safe="!$%&'()*+,/:;=[]~\\|^`{}<>\"")


class UrlRules:
    """http and https URLs, sent byte for byte; values of templates are percent-encoded."""

    noun = "URL"

    def check(self, value: Any) -> str:
        """Return the URL.

        Raises:
            TypeError: it is not a `str`.
            OptionError: as `parse_url` does.
        """
        if not isinstance(value, str):
            raise TypeError(f"a URL is a str, not a {type(value).__name__}")
        parse_url(value)
        return value

    def show(self, value: Any) -> str:
        """Return the URL without query, fragment, user and password."""
        if not isinstance(value, str):
            return f"a {type(value).__name__}"
        try:
            return parse_url(value).shown
        except OptionError:
            return _redact(value)

    def value_text(self, value: str) -> str:
        """Return `value` percent-encoded as UTF-8, everything except `A-Z a-z 0-9 - . _ ~`."""
        try:
            return quote(value.encode("utf-8"), safe=_UNRESERVED)
        except UnicodeEncodeError:
            raise OptionError("a value in a URL must be valid Unicode, without lone surrogates") from None

    def check_component(self, text: str, start: int, end: int) -> None:
        """Refuse a path component around a value that is `.` or `..`, dots written as `%2e` too."""
        authority = text.find("://") + 3
        path = text.find("/", authority)
        stop = re.compile(r"[?#]|\Z").search(text, authority).start()  # type: ignore[union-attr]
        if not 0 <= path < start <= stop:
            return
        begin = text.rfind("/", 0, start) + 1
        slash = text.find("/", end, stop)
        component = text[begin : slash if slash >= 0 else stop]
        if re.sub("%2e", ".", component, flags=re.IGNORECASE) in (".", ".."):
            raise OptionError(f"a path component of a URL made from a value may not be {component!r}")


def resolve_redirect(base: Url, location: bytes) -> Url:
    """Return the URL that a `Location` header asks for, relative to `base`, byte for byte as far as it can be sent.

    Spaces, control characters and bytes beyond ASCII are percent-encoded; dot segments are resolved (RFC 3986, 5.2)
    only in a reference with a relative path, where they mean a place beside `base`. The fragment is dropped.

    Raises:
        OptionError: the result is not an http or https URL that can be asked for.
    """
    reference = re.sub(rb"[^!-~]", lambda match: b"%%%02X" % match[0][0], location.strip(b" \t")).decode(
        "ascii"
    )
    reference = reference.partition("#")[0]
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", reference):
        return parse_url(reference)
    if reference.startswith("//"):
        return parse_url(f"{base.scheme}:{reference}")
    path, _, query = base.target.partition("?")
    if reference.startswith("/"):
        target = reference
    elif reference.startswith("?"):
        target = path + reference
    elif not reference:
        target = base.target
    else:
        relative, mark, query = reference.partition("?")
        target = _merge(path, relative) + mark + query
    return Url(base.scheme, base.host, base.port, target, base.credentials)


def _merge(path: str, relative: str) -> str:
    segments = path.split("/")[:-1]
    parts = relative.split("/")
    for place, part in enumerate(parts):
        last = place == len(parts) - 1
        if part == "..":
            if len(segments) > 1:
                segments.pop()
            if last:
                segments.append("")
        elif part == ".":
            if last:
                segments.append("")
        else:
            segments.append(part)
    return "/".join(segments) if segments[0] == "" else "/" + "/".join(segments)
