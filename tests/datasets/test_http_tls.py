"""Whom an https connection trusts, and through which proxy it goes."""

from __future__ import annotations

import asyncio
import pickle
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from feedline.datasets.fetching.retry import Retry
from feedline.datasets.fetching.tls import TlsSettings, read_verify
from feedline.datasets.http import HttpDataset
from feedline.errors import FetchError, OptionError
from servers.fault_server import CLOSE, FaultServer, Request, redirect, respond

pytest.importorskip("pycurl", reason="pycurl is not installed")
trustme = pytest.importorskip("trustme", reason="trustme is not installed")

QUICK = Retry(2, 0.001, 0.01)


class Authority:
    """A certificate authority of the test's own, with its root as a file."""

    def __init__(self, folder: Path) -> None:
        self.ca = trustme.CA()
        self.roots = folder / "roots.pem"
        self.ca.cert_pem.write_to_path(str(self.roots))

    def server_context(self, *names: str) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.ca.issue_cert(*names).configure_cert(context)
        return context


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def server(authority: Authority) -> Iterator[FaultServer]:
    with FaultServer(respond(b"secure"), tls=authority.server_context("127.0.0.1", "localhost")) as running:
        yield running


def fetch(url: str, **options: Any) -> Any:
    dataset = HttpDataset([url], **{"retry": QUICK, **options})
    return fetch_from(dataset)


def fetch_from(dataset: HttpDataset) -> Any:
    async def main() -> Any:
        async with asyncio.timeout(60):
            try:
                return await dataset[0]
            except FetchError as error:
                return error
            finally:
                await dataset.aclose()

    return asyncio.run(main())


def folder_of(authority: Authority, tmp_path: Path) -> Path:
    """Roots as OpenSSL wants them in a folder: named after a hash of their subject."""
    import subprocess

    command = ["openssl", "x509", "-hash", "-noout", "-in", str(authority.roots)]
    try:
        name = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.strip()
    except FileNotFoundError:
        pytest.skip("the openssl command is not installed")
    (tmp_path / f"{name}.0").write_bytes(authority.roots.read_bytes())
    return tmp_path


def test_a_certificate_is_verified_against_the_roots_that_are_given(
    server: FaultServer, authority: Authority, tmp_path: Path
) -> None:
    context = ssl.create_default_context(cafile=str(authority.roots))
    for verify in (
        authority.roots,
        str(authority.roots),
        bytes(authority.roots),
        folder_of(authority, tmp_path),
        context,
    ):
        assert fetch(server.url(), verify=verify) == b"secure"
        assert fetch(server.url(host="localhost"), verify=verify) == b"secure"


@pytest.mark.parametrize(
    "verify", [True, ssl.create_default_context(), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)]
)
def test_a_certificate_that_nobody_vouches_for_is_a_lasting_error(server: FaultServer, verify: Any) -> None:
    error = fetch(server.url("/x?secret"), verify=verify)
    assert isinstance(error, FetchError)
    assert (error.kind, error.attempts) == ("connection", 1)
    assert "certificate" in str(error)
    assert "secret" not in str(error)


def test_a_certificate_for_another_name_is_a_lasting_error(authority: Authority) -> None:
    with FaultServer(respond(b"x"), tls=authority.server_context("elsewhere.example")) as other:
        error = fetch(other.url(), verify=authority.roots)
        assert (error.kind, error.attempts) == ("connection", 1)
        lax = ssl.create_default_context(cafile=str(authority.roots))
        lax.check_hostname = False
        assert fetch(other.url(), verify=lax) == b"x"


def test_verification_can_be_turned_off(server: FaultServer) -> None:
    trusting = ssl.create_default_context()
    trusting.check_hostname = False
    trusting.verify_mode = ssl.CERT_NONE
    assert fetch(server.url(), verify=False) == b"secure"
    assert fetch(server.url(), verify=trusting) == b"secure"


def test_the_versions_of_a_context_count(server: FaultServer, authority: Authority) -> None:
    old = authority.server_context("127.0.0.1")
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    context = ssl.create_default_context(cafile=str(authority.roots))
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    with FaultServer(respond(b"x"), tls=old) as other:
        assert fetch(other.url(), verify=context).kind == "connection"
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        assert fetch(other.url(), verify=context) == b"x"


def test_the_settings_are_read_when_built_and_pickle(server: FaultServer, authority: Authority) -> None:
    context = ssl.create_default_context(cafile=str(authority.roots))
    dataset = HttpDataset([server.url()], verify=context, retry=QUICK)
    context.check_hostname = False
    assert fetch_from(pickle.loads(pickle.dumps(dataset))) == b"secure"


def test_a_server_that_speaks_no_tls_is_a_lasting_error() -> None:
    with FaultServer(b"", greeting=b"220 mail.example ESMTP\r\n") as plain:
        error = fetch(plain.url().replace("http:", "https:"))
    assert (error.kind, error.attempts) == ("connection", 1)


def test_a_redirect_from_https_to_http_is_refused(authority: Authority) -> None:
    with (
        FaultServer(respond(b"x")) as plain,
        FaultServer(redirect(plain.url()), tls=authority.server_context("127.0.0.1")) as secure,
    ):
        error = fetch(secure.url(), verify=authority.roots)
        assert (error.kind, error.attempts) == ("redirect", 1)
        assert plain.requests == []


def test_a_body_that_is_cut_is_noticed_under_tls_too(authority: Authority) -> None:
    answer = [respond(b"x" * 400, length=1000), CLOSE]
    with FaultServer(answer, tls=authority.server_context("127.0.0.1")) as server:
        error = fetch(server.url(), verify=authority.roots)
    assert (error.kind, error.attempts) == ("truncated", 3)


def test_a_kept_connection_under_tls_is_used_again(authority: Authority) -> None:
    with FaultServer(respond(b"x"), tls=authority.server_context("127.0.0.1")) as server:
        dataset = HttpDataset([server.url()] * 5, verify=authority.roots, retry=Retry(0))

        async def main() -> None:
            for index in range(5):
                assert await dataset[index] == b"x"
            await dataset.aclose()

        asyncio.run(main())
    assert {request.connection for request in server.requests} == {1}


def test_verify_is_read_into_settings(authority: Authority, tmp_path: Path) -> None:
    certifi = pytest.importorskip("certifi")
    assert read_verify(True) == TlsSettings(ca_file=certifi.where())
    assert read_verify(False) == TlsSettings(verify=False, check_hostname=False)
    assert read_verify(tmp_path) == TlsSettings(ca_path=str(tmp_path))
    (tmp_path / "text.pem").write_text("no certificate")
    for bad in (tmp_path / "none.pem", tmp_path / "text.pem"):
        with pytest.raises(OptionError, match=f"verify='{bad}'"):
            read_verify(bad)
    for wrong in (None, 1, [True]):
        with pytest.raises(TypeError, match="verify"):
            read_verify(wrong)


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultServer]:
    def answer(request: Request) -> bytes:
        return respond(f"{request.method} {request.target}".encode())

    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    with FaultServer(answer) as running:
        monkeypatch.setenv("http_proxy", running.url("/", user="user:secret@"))
        yield running


def test_proxies_of_the_environment_are_used_and_get_the_whole_url(proxy: FaultServer) -> None:
    assert (
        fetch("http://u:p@example.invalid/a%2fb/../c?x=%c3") == b"GET http://example.invalid/a%2fb/../c?x=%c3"
    )
    assert proxy.requests[0].header("proxy-authorization") == "Basic dXNlcjpzZWNyZXQ="
    assert proxy.requests[0].header("authorization") == "Basic dTpw"


def test_no_proxy_names_hosts_that_are_asked_directly(
    proxy: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "elsewhere.example,127.0.0.1")
    with FaultServer(respond(b"direct")) as server:
        assert fetch(server.url()) == b"direct"
    assert proxy.requests == []


def test_https_goes_through_a_tunnel_without_the_headers(
    proxy: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", proxy.url("", user="user:secret@").removeprefix("http://"))
    error = fetch("https://example.invalid/path?secret", headers={"X-Key": "secret"})
    assert error.kind == "connection"
    assert "secret" not in str(error)
    first = proxy.requests[0]
    assert (first.method, first.target) == ("CONNECT", "example.invalid:443")
    assert first.header("x-key") is None


def test_a_netrc_file_is_not_read_and_cookies_are_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login user password secret\n")
    (tmp_path / ".netrc").chmod(0o600)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    with FaultServer(respond(b"x", headers=["Set-Cookie: a=b; Path=/"])) as server:
        dataset = HttpDataset([server.url()] * 2)

        async def main() -> None:
            await dataset[0]
            await dataset[1]
            await dataset.aclose()

        asyncio.run(main())
    for request in server.requests:
        assert request.header("authorization") is None
        assert request.header("cookie") is None


def test_many_threads_may_talk_tls_at_once(server: FaultServer, authority: Authority) -> None:
    dataset = HttpDataset([server.url()], verify=authority.roots)
    results: list[Any] = []
    threads = [threading.Thread(target=lambda: results.append(fetch_from(dataset))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == [b"secure"] * 4
