"""What libcurl's error codes mean for a fetch: its kind, and whether another attempt may succeed."""

from __future__ import annotations

import errno

from feedline.datasets.fetching.attempts import Failure
from feedline.datasets.fetching.http_body import Receiver

__all__ = ["FILESIZE_EXCEEDED", "describe"]

# Codes of <curl/curl.h>; they are frozen, so the names of whatever pycurl is installed are not needed.
_URL_MALFORMED = 3
_PARTIAL_FILE = 18
_OUT_OF_MEMORY = 27
_TIMED_OUT = 28
_GOT_NOTHING = 52
_RECV_ERROR = 56
FILESIZE_EXCEEDED = 63
_TLS = {
    35: "the TLS handshake failed",
    53: "no TLS engine",
    58: "a bad client certificate",
    59: "no TLS cipher",
    60: "the server's certificate could not be verified",
    66: "no TLS engine",
    77: "the roots could not be read",
    80: "the TLS shutdown failed",
    82: "the revocation list could not be read",
    83: "the issuer check failed",
    90: "the pinned key does not match",
    91: "the certificate's status is invalid",
}
_LOST = {errno.ECONNRESET, errno.ECONNABORTED, errno.EPIPE, errno.ETIMEDOUT}


def describe(code: int, message: str, os_error: int, receiver: Receiver, timeout: float | None) -> Failure:
    """Return the failure that libcurl's `code` and `message` tell.

    Args:
        code: a `CURLE_` code, not 0.
        message: libcurl's text; it may name hosts and ports, and never has the URL's path or query.
        os_error: `errno` of the failed call, or 0.
        receiver: what had come until then.
        timeout: the limit per attempt, for the message.
    """
    if code == _TIMED_OUT:
        limit = "" if timeout is None else f" after {timeout:g} s"
        return Failure("timeout", f"timed out{limit}, with {_progress(receiver)}", passing=True)
    if code == FILESIZE_EXCEEDED:
        return receiver.too_large()
    if code in _TLS:
        # A connection that is lost in the middle of a handshake says nothing about the certificate.
        lost = code == 35 and os_error in _LOST
        return Failure("connection", f"{_TLS[code]}: {message}", passing=lost)
    if code == _PARTIAL_FILE or (code == _RECV_ERROR and receiver.progress):
        return Failure(
            "truncated", f"the body was cut short, with {_progress(receiver)}: {message}", passing=True
        )
    if code == _URL_MALFORMED:
        return Failure("location", "the HTTP client refuses the URL")
    return Failure("connection", f"the connection failed: {message or f'libcurl error {code}'}", passing=True)


def _progress(receiver: Receiver) -> str:
    if not receiver.progress:
        return "no answer"
    wanted = receiver.declared_length
    return f"{receiver.received} bytes" if wanted is None else f"{receiver.received} of {wanted} bytes"
