"""URLs are sent byte for byte, shown without secrets, and followed through redirects without being tidied."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from feedline.datasets.fetching.urls import UrlRules, parse_url, resolve_redirect
from feedline.errors import OptionError

RULES = UrlRules()


@pytest.mark.parametrize(
    "target",
    [
        "/a%2Fb%27%28%3A%7E%2B",
        "/caf%c3%a9",
        "/a+b",
        "//x//y",
        "/a/../b/./c",
        "/p?x=1&X-Amz-Signature=ab%2Fcd==",
        "/p?",
        "/p?a?b",
        "/%",
        "/%zz",
        "/a\\b^`{}|\"<>'",
        "/a;b,c!$&'()*+,;=:@",
    ],
)
def test_path_and_query_stay_as_they_are(target: str) -> None:
    assert parse_url("http://host" + target).target == target


@pytest.mark.parametrize(
    ("url", "origin", "address"),
    [
        ("http://Host", ("http", "host", 80), "http://Host/"),
        ("HTTPS://host:443/a", ("https", "host", 443), "https://host/a"),
        ("https://host:8443?q", ("https", "host", 8443), "https://host:8443/?q"),
        ("http://host:/x", ("http", "host", 80), "http://host/x"),
        ("http://[::1]:81/x#y", ("http", "[::1]", 81), "http://[::1]:81/x"),
        ("http://a_b.c/x#?y", ("http", "a_b.c", 80), "http://a_b.c/x"),
        ("http://u:p@host/x", ("http", "host", 80), "http://host/x"),
    ],
)
def test_a_url_is_taken_apart(url: str, origin: tuple[str, str, int], address: str) -> None:
    parsed = parse_url(url)
    assert (parsed.origin, parsed.address) == (origin, address)


@pytest.mark.parametrize(
    ("user", "header"),
    [
        ("user:pass@", "Basic dXNlcjpwYXNz"),
        ("user@", "Basic dXNlcjo="),
        ("us%20er:p%40ss%3A@", "Basic dXMgZXI6cEBzczo="),
        ("a@b:c@", "Basic YUBiOmM="),
        (":@", "Basic Og=="),
        ("", None),
    ],
)
def test_user_and_password_become_basic_authentication(user: str, header: str | None) -> None:
    assert parse_url(f"http://{user}host/").authorization == header


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("http://host/a b", "a space at byte 13 .*%20"),
        ("http://host/a\nb", "U\\+000A at byte 13 .*%0A"),
        ("http://host/\x7f", "%7F"),
        ("http://host/caf\u00e9", "byte 15 .*%C3%A9"),
        ("http://host/\u00e9\u4e2d x", "U\\+00E9 at byte 12 .*'http://host/%C3%A9%E4%B8%AD%20x'"),
        ("http://b\u00fccher.example/", "xn--bcher-kva.example"),
        ("http://ho st/", "no such character"),
        ("http://host/\ud800", "byte 12"),
        ("ftp://host/x", "ftp://host/x"),
        ("host/x", "host/x"),
        ("http:///x", "http:///x"),
        ("http:/host", "form http://"),
        ("", "form http://"),
        ("http://host:0/", "not from 1 to 65535"),
        ("http://host:65536/", "not from 1 to 65535"),
        ("http://host:12x/", "form http://"),
        ("http://[::g]/", "form http://"),
        ("http://[1:2]/", "IPv6"),
        ("http://host\\@evil/", "form http://"),
        ("http://h/" + "x" * 65530, "65536"),
    ],
)
def test_what_can_not_be_sent_is_refused_with_what_to_write(url: str, named: str) -> None:
    with pytest.raises(OptionError, match=named):
        RULES.check(url)


def test_a_url_that_is_no_str_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="bytes"):
        RULES.check(b"http://host/")


SECRET = "s3cr3t"


@pytest.mark.parametrize(
    "url",
    [
        f"http://host/path?sig={SECRET}",
        f"http://user:{SECRET}@host/path",
        f"http://{SECRET}@host/path#{SECRET}",
        f"http://user:{SECRET}@host/path with space?x={SECRET}",
        f"http://host/path?x= {SECRET}",
        f"http://user:{SECRET}/x@host:port/path",
        f"http://user:pa?{SECRET}@host/",
        f"http://user:pa#{SECRET}@host/",
        f"user:{SECRET}@host/path",
        f"//user:{SECRET}@host/path?{SECRET}",
        f"ftp://user:{SECRET}@host/path?{SECRET}",
        f"http://user:{SECRET}@b\u00fccher.example/?{SECRET}",
        f"http://user:{SECRET}@host:99999/?{SECRET}",
        f"http://user:{SECRET}@[::zz]/?{SECRET}",
        f"http://user:{SECRET}@[1:2]/?{SECRET}",
    ],
)
def test_query_user_and_password_are_never_shown(url: str) -> None:
    assert SECRET not in RULES.show(url)
    refused = refusal(url)
    assert refused is None or SECRET not in str(refused)
    assert refused is None or refused.__cause__ is None


def refusal(url: str) -> OptionError | None:
    try:
        RULES.check(url)
    except OptionError as error:
        return error
    return None


@given(st.text(), st.text(alphabet="s3cr3t-", min_size=6))
@example("h:1", "......")
def test_whatever_is_given_shows_printably_and_without_its_query(before: str, secret: str) -> None:
    shown = RULES.show(f"http://h/{before}?{secret}zz")
    assert "?" not in shown
    assert shown.isascii()


@pytest.mark.parametrize(
    ("location", "address"),
    [
        ("http://other/a%2fb?c#d", "http://other/a%2fb?c"),
        ("HTTP://other", "http://other/"),
        ("//other:81/x", "https://other:81/x"),
        ("/x/../y%2F", "https://host/x/../y%2F"),
        ("?b=2", "https://host/a/b/c?b=2"),
        ("d", "https://host/a/b/d"),
        ("../d?x", "https://host/a/d?x"),
        ("../../../d", "https://host/d"),
        ("./d/./e", "https://host/a/b/d/e"),
        ("..", "https://host/a/"),
        (".", "https://host/a/b/"),
        ("#frag", "https://host/a/b/c?q=1"),
        (" /trimmed\t", "https://host/trimmed"),
        ("/with space", "https://host/with%20space"),
        ("/caf\u00e9?\u4e2d", "https://host/caf%C3%A9?%E4%B8%AD"),
        ("/a:b", "https://host/a:b"),
    ],
)
def test_a_redirect_is_resolved_and_else_left_alone(location: str, address: str) -> None:
    base = parse_url("https://host/a/b/c?q=1")
    assert resolve_redirect(base, location.encode("utf-8")).address == address


def test_bytes_that_are_no_utf_8_are_encoded_as_they_came() -> None:
    assert resolve_redirect(parse_url("http://h/"), b"/caf\xe9").target == "/caf%E9"


@pytest.mark.parametrize(
    "location", [b"ftp://host/x", b"file:///etc/passwd", b"javascript:1", b"http://", b"http://h:99999/"]
)
def test_a_redirect_to_something_else_is_refused(location: bytes) -> None:
    with pytest.raises(OptionError):
        resolve_redirect(parse_url("http://h/"), location)


@given(st.binary(max_size=60))
def test_any_location_is_followed_or_refused(location: bytes) -> None:
    try:
        url = resolve_redirect(parse_url("http://host/a/b"), location)
    except OptionError:
        return
    assert url.target.startswith("/")
    assert url.target.isascii()
    assert " " not in url.target
