"""What went wrong at an object store, read from its client's exceptions, and told without any secret.

The client (obstore, over Rust's `object_store`) has one exception class for most failures; the facts stand in its
message: a line of prose, an empty line, and the Rust error in debug form, one field a line. The prose may hold a URL
with its query (a signature) and the answer's body, so it is never passed on whole: known causes get words of our own,
and of an unknown one only a line is shown, with every URL taken out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from http import HTTPStatus

__all__ = ["Fault", "error_document", "read_fault", "scrub"]


@dataclass(frozen=True)
class Fault:
    """Why an object did not come.

    Attributes:
        kind: that of the `FetchError` it becomes.
        reason: words for the message, without secrets.
        status: the HTTP status, where there was one.
        attempts: requests that went out, as far as the client tells.
        passing: whether it may be different when the object is asked for anew, and the client has not tried that.
    """

    kind: str
    reason: str
    status: int | None = None
    attempts: int = 1
    passing: bool = False


# The debug form escapes line ends in strings, so a field at the start of a line is never part of an answer's body.
_STATUS = re.compile(r"^\s*status: (\d{3}),$", re.MULTILINE)
_RETRIES = re.compile(r"^\s*retries: (\d+),$", re.MULTILINE)
_STATUS_IN_PROSE = re.compile(r"non-2xx status code: (\d{3})")
_RETRIES_IN_PROSE = re.compile(r", after (\d+) retries, max_retries: ")
_CODE = re.compile(r"<Code>([A-Za-z0-9.]{1,64})</Code>")
_NO_CREDENTIALS = re.compile(r"//(169\.254\.\d+\.\d+|metadata\.google\.internal|\[fd00:ec2::254\])[:/]")

# Looked for in this order: (what stands in the debug form, kind, words).
_CAUSES: tuple[tuple[re.Pattern[str], str, str], ...] = tuple(
    (re.compile(pattern, re.MULTILINE), kind, words)
    for pattern, kind, words in [
        (
            r"\bStartTooLarge\b",
            "location",
            "the range begins at or past the object's end",
        ),
        (r"^\s*(?:kind: Timeout|source: TimedOut|TimedOut),$", "timeout", "no whole answer in time"),
        (r"^\s*kind: PermissionDenied,$", "denied", "permission denied"),
        (r"^\s*kind: NotADirectory,$", "not_found", "there is no such object"),
        (r"\b(?:TooManyRedirects|kind: Redirect)\b", "redirect", "a redirect could not be followed"),
        (
            r"^\s*source: BadScheme,$",
            "store",
            'the endpoint has no TLS: allow that by client_options={"allow_http": True}',
        ),
        (r"\bRange request not supported\b", "store", "the server does not serve ranges"),
        (r"\b(?:IncompleteBody|UnexpectedEof)\b", "truncated", "the body ended early"),
        (r"\bdns error\b", "connection", "the host's name can't be resolved"),
        (
            r"\b(?:InvalidCertificate|invalid peer certificate|UnknownIssuer|CertificateRequired)\b",
            "connection",
            "the TLS certificate does not verify",
        ),
        (r"\bConnectionRefused\b", "connection", "the connection was refused"),
        (r"\bConnectionReset\b", "connection", "the connection was reset"),
        (r"\bIncompleteMessage\b", "connection", "the connection was closed before an answer"),
        (r"\bHttpError \{", "connection", "the connection failed"),
    ]
)


def read_fault(error: Exception, *, in_body: bool) -> Fault:
    """Return what the client's exception tells; `in_body` if the object's size was known already."""
    prose, _, debug = str(error).partition("\n\nDebug source:")
    status = _number(_STATUS, debug) or _number(_STATUS_IN_PROSE, prose)
    retries = _number(_RETRIES, debug) or _number(_RETRIES_IN_PROSE, prose) or 0
    if in_body and status in (412, 416):
        return Fault("truncated", "the object changed while it was read", status, retries + 1, passing=True)
    kind, words = _cause(error, status, prose, debug)
    # What the client's own retry has given up is lasting. It does not cover a body that it could not resume: the object
    # has changed since, or the server does not do ranges. Asking for the whole object anew may still help.
    retried = "RetryError" in debug
    passing = in_body or (kind in ("connection", "timeout", "truncated") and not retried)
    return Fault(kind, words, status, retries + 1, passing and status is None)


def _cause(error: Exception, status: int | None, prose: str, debug: str) -> tuple[str, str]:
    if _NO_CREDENTIALS.search(prose):
        return (
            "denied",
            "no credentials were given, and this machine's metadata service gave none: pass them as options, "
            "or skip_signature=True for a public bucket",
        )
    code = _CODE.search(prose)
    told = f" ({code[1]})" if code else ""
    if status == 404 or (status is None and isinstance(error, FileNotFoundError)):
        return "not_found", f"there is no such object{told}"
    if status in (401, 403) or type(error).__name__ in ("PermissionDeniedError", "UnauthenticatedError"):
        answer = f"the store answered {status}{told}" if status else scrub(prose)
        return "denied", f"not allowed: {answer}"
    if status == 416:
        return "location", f"the range begins at or past the object's end{told}"
    if status is not None:
        return "status", f"the store answered {status} {_phrase(status)}{told}"
    for pattern, kind, words in _CAUSES:
        if pattern.search(debug) or pattern.search(prose):
            return kind, words
    return "store", scrub(prose)


def _number(pattern: re.Pattern[str], text: str) -> int | None:
    match = pattern.search(text)
    return int(match[1]) if match else None


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "(not a registered status)"


_URL_IN_TEXT = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s\"'<>]+")
_PAIR_IN_TEXT = re.compile(
    r"[\w-]*(?:key|secret|token|sig|signature|password|credential)[\w-]*=\S+", re.IGNORECASE
)


def scrub(text: str) -> str:
    """Return the first line of `text`, at most 300 characters, without URLs and without `name=value` of secrets.

    Example:
        >>> scrub("Generic S3 error: GET https://host/key?X-Amz-Signature=abc failed")
        'Generic S3 error: GET <URL> failed'
    """
    line = text.strip().partition("\n")[0]
    return _PAIR_IN_TEXT.sub("<secret>", _URL_IN_TEXT.sub("<URL>", line))[:300]


_ERROR_DOCUMENT = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*\?>)?\s*<Error(?:\s[^>]*)?>.{0,65536}?<Code>([A-Za-z0-9.]{1,64})</Code>",
    re.DOTALL,
)


def error_document(data: bytes) -> str | None:
    """Return the code of the error document that a store sent in an object's place, with status 200; else `None`.

    Only meant for answers without an ETag: every object of S3, Google Cloud Storage and Azure comes with one.

    Example:
        >>> error_document(b"<?xml version='1.0'?><Error><Code>SlowDown</Code></Error>")
        'SlowDown'
    """
    if len(data) > 65536:
        return None
    match = _ERROR_DOCUMENT.match(data)
    return match[1].decode("ascii") if match else None
