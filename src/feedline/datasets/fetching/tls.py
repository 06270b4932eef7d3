"""Whom an https connection trusts: `verify=` as settings that pickle."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass
from typing import Any

from feedline.errors import MissingExtraError, OptionError

__all__ = ["TlsSettings", "read_verify"]


@dataclass(frozen=True)
class TlsSettings:
    """How a server's certificate is checked.

    Attributes:
        verify: False trusts anybody.
        check_hostname: whether the certificate must be for the host that is asked.
        ca_file: a file of roots in PEM form, or `None`.
        ca_path: a folder of roots, hashed as OpenSSL does, or `None`.
        ca_data: roots in PEM form, or `None`.
        minimum: the lowest version allowed, `"1.0"` to `"1.3"`, or `None` for the library's own.
        maximum: the highest, likewise.
    """

    verify: bool = True
    check_hostname: bool = True
    ca_file: str | None = None
    ca_path: str | None = None
    ca_data: bytes | None = None
    minimum: str | None = None
    maximum: str | None = None


def read_verify(verify: Any) -> TlsSettings:
    """Read `verify=`: True (certifi's roots), False (no check), a file or folder of roots, or an `ssl.SSLContext`.

    Of a context its roots, `verify_mode`, `check_hostname` and the lowest and highest version are taken, now; a
    context without roots of its own means the system's. Its client certificates and ciphers can't be read back.

    Raises:
        TypeError: it is none of these.
        OptionError: the file or folder does not exist, or the file has no certificates.
        MissingExtraError: `verify=True` without certifi.
    """
    if isinstance(verify, bool):
        return (
            TlsSettings(ca_file=_bundled_roots())
            if verify
            else TlsSettings(verify=False, check_hostname=False)
        )
    if isinstance(verify, ssl.SSLContext):
        return _read_context(verify)
    if isinstance(verify, (str, bytes, os.PathLike)):
        return _read_path(os.path.abspath(os.fsdecode(verify)))
    raise TypeError(
        f"verify must be True, False, a path to roots in PEM form, or an ssl.SSLContext, not a {type(verify).__name__}"
    )


def _bundled_roots() -> str:
    try:
        import certifi
    except ImportError:
        raise MissingExtraError.of("HttpDataset", "http") from None
    return certifi.where()


def _read_path(path: str) -> TlsSettings:
    if os.path.isdir(path):
        return TlsSettings(ca_path=path)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cafile=path)
    except (OSError, ssl.SSLError) as error:
        reason = error.strerror or "it holds no certificates in PEM form"
        raise OptionError(f"verify={path!r} is not a usable file of roots: {reason}") from None
    return TlsSettings(ca_file=path)


_VERSIONS = {
    ssl.TLSVersion.TLSv1: "1.0",
    ssl.TLSVersion.TLSv1_1: "1.1",
    ssl.TLSVersion.TLSv1_2: "1.2",
    ssl.TLSVersion.TLSv1_3: "1.3",
}


def _read_context(context: ssl.SSLContext) -> TlsSettings:
    roots = context.get_ca_certs(binary_form=True)
    data = "".join(ssl.DER_cert_to_PEM_cert(root) for root in roots).encode("ascii")
    system = ssl.get_default_verify_paths()
    return TlsSettings(
        verify=context.verify_mode != ssl.CERT_NONE,
        check_hostname=context.check_hostname,
        ca_file=None if roots else system.cafile,
        ca_path=None if roots else system.capath,
        ca_data=data or None,
        minimum=_VERSIONS.get(context.minimum_version),
        maximum=_VERSIONS.get(context.maximum_version),
    )
