"""Bodies are measured, and decoded under a cap."""

from __future__ import annotations

import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedline.datasets.fetching.attempts import Failure
from feedline.datasets.fetching.http_body import Receiver


def received(
    body: bytes, *headers: str, status: int = 200, max_bytes: int = 1000, piece: int = 16
) -> Receiver:
    receiver = Receiver(max_bytes)
    for line in (f"HTTP/1.1 {status} Reason", *headers, ""):
        receiver.on_header(line.encode("latin-1") + b"\r\n")
    for start in range(0, len(body), piece):
        receiver.on_body(body[start : start + piece])
    return receiver


def kind_of(receiver: Receiver) -> str:
    outcome = receiver.finish()
    assert isinstance(outcome, Failure)
    return outcome.kind


def test_pieces_are_joined_and_a_single_one_is_not_copied() -> None:
    assert received(b"x" * 100).finish() == b"x" * 100
    piece = b"y" * 100
    receiver = received(b"")
    receiver.on_body(piece)
    assert receiver.finish() is piece
    assert received(b"").finish() == b""


def test_a_body_of_exactly_the_limit_is_taken_and_one_byte_more_is_not() -> None:
    assert received(b"x" * 1000).finish() == b"x" * 1000
    failure = received(b"x" * 1001, "Content-Length: 1001").finish()
    assert isinstance(failure, Failure)
    assert failure.kind == "too_large"
    assert "max_bytes=1000" in failure.message
    assert "1001 bytes" in failure.message
    assert not failure.passing


@pytest.mark.parametrize("status", [204, 205, 206, 302, 404, 503])
def test_bodies_of_other_statuses_are_no_items(status: int) -> None:
    assert received(b"x" * 5000, status=status).finish() == b""


def test_the_last_answer_counts_and_trailers_do_not() -> None:
    receiver = Receiver(100)
    for line in [
        b"HTTP/1.1 103 Early\r\n",
        b"A: 1\r\n",
        b"\r\n",
        b"HTTP/1.1 200 OK\r\n",
        b"B: x:y \r\n",
        b"\r\n",
        b"C: 3\r\n",
    ]:
        receiver.on_header(line)
    assert receiver.status == 200
    assert receiver.headers == [(b"b", b"x:y")]


def test_a_length_over_the_cap_stops_at_the_end_of_the_headers() -> None:
    receiver = Receiver(100)
    answers = [
        receiver.on_header(line) for line in (b"HTTP/1.1 200 OK\r\n", b"content-LENGTH:101\r\n", b"\r\n")
    ]
    assert answers == [None, None, 0]
    assert receiver.is_too_large
    failure = receiver.finish() if not receiver.stopped else receiver.too_large()
    assert isinstance(failure, Failure)
    assert "101 bytes" in failure.message


@pytest.mark.parametrize("status", [404, 302, 204])
def test_the_body_of_an_error_is_read_for_a_while_and_then_no_more(status: int) -> None:
    receiver = received(b"", "Content-Length: 1000000", status=status, max_bytes=10)
    assert not receiver.stopped
    assert receiver.on_body(b"x" * 1000) is None
    assert receiver.on_body(b"x" * 100_000) == 0
    assert not receiver.is_too_large
    assert receiver.finish() == b""


def test_lines_may_end_without_a_carriage_return() -> None:
    receiver = Receiver(100)
    for line in (b"HTTP/1.1 200 OK\n", b"Content-Encoding: gzip\n", b"\n"):
        receiver.on_header(line)
    receiver.on_body(gzip.compress(b"hello"))
    assert receiver.finish() == b"hello"


def test_folded_and_broken_header_lines_do_no_harm() -> None:
    receiver = received(b"", "A: 1", " 2", "broken", ": empty", "B:")
    assert receiver.headers == [(b"a", b"1 2"), (b"", b"empty"), (b"b", b"")]


@pytest.mark.parametrize(
    ("headers", "length"),
    [
        (["Content-Length: 12"], 12),
        (["content-length:12"], 12),
        (["Content-Length: 12", "Transfer-Encoding: chunked"], None),
        (["Content-Length: -1"], None),
        (["Content-Length: x"], None),
        ([], None),
    ],
)
def test_the_declared_length_counts_without_a_transfer_coding(headers: list[str], length: int | None) -> None:
    assert received(b"", *headers).declared_length == length


def raw_deflate(data: bytes) -> bytes:
    squeeze = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return squeeze.compress(data) + squeeze.flush()


ENCODERS = {"gzip": gzip.compress, "x-gzip": gzip.compress, "deflate": zlib.compress, "Deflate": raw_deflate}


@pytest.mark.parametrize("coding", ENCODERS)
@pytest.mark.parametrize("piece", [1, 7, 4096])
@pytest.mark.parametrize("data", [b"", b"a", b"hello " * 100])
def test_encoded_bodies_are_decoded_whole(coding: str, piece: int, data: bytes) -> None:
    body = ENCODERS[coding](data)
    assert received(body, f"Content-Encoding: {coding}", piece=piece).finish() == data


@given(st.lists(st.binary(max_size=60), min_size=1, max_size=4), st.integers(1, 50), st.integers(0, 3))
def test_several_gzip_members_are_one_body(parts: list[bytes], piece: int, padding: int) -> None:
    body = b"".join(map(gzip.compress, parts)) + b"\0" * padding
    assert received(body, "Content-Encoding: gzip", piece=piece).finish() == b"".join(parts)


@pytest.mark.parametrize("coding", ENCODERS)
def test_an_encoded_body_that_is_cut_is_truncated_and_may_pass(coding: str) -> None:
    body = ENCODERS[coding](bytes(range(256)))
    for cut in (2, 12, len(body) // 2, len(body) - 1):
        failure = received(body[:cut], f"Content-Encoding: {coding}").finish()
        assert isinstance(failure, Failure)
        assert failure.kind == "truncated"
        assert failure.passing


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_a_bomb_stops_at_the_cap(coding: str) -> None:
    body = ENCODERS[coding](b"\0" * 50_000_000)
    assert (
        kind_of(received(body, f"Content-Encoding: {coding}", max_bytes=10_000, piece=16384)) == "too_large"
    )


def test_the_cap_is_on_the_decoded_size() -> None:
    exact = gzip.compress(b"\0" * 1000)
    assert received(exact, "Content-Encoding: gzip").finish() == b"\0" * 1000
    assert kind_of(received(gzip.compress(b"\0" * 1001), "Content-Encoding: gzip")) == "too_large"
    incompressible = gzip.compress(bytes(range(10)), 0)
    assert len(incompressible) > 10
    assert received(incompressible, "Content-Encoding: gzip", max_bytes=10).finish() == bytes(range(10))


@pytest.mark.parametrize("coding", ["br", "zstd", "compress", "gzip, gzip", "aws-chunked", "\xff"])
def test_other_codings_are_errors_that_name_them(coding: str) -> None:
    failure = received(b"x", f"Content-Encoding: {coding}").finish()
    assert isinstance(failure, Failure)
    assert failure.kind == "encoding"
    assert coding in failure.message


@pytest.mark.parametrize("coding", ["identity", "", "IDENTITY, identity"])
def test_identity_is_no_coding(coding: str) -> None:
    assert received(b"x", f"Content-Encoding: {coding}").finish() == b"x"


@pytest.mark.parametrize("body", [b"not gzip at all", gzip.compress(b"abc")[:-5] + b"\0" * 5])
def test_a_corrupt_body_is_an_encoding_error(body: bytes) -> None:
    assert kind_of(received(body, "Content-Encoding: gzip")) == "encoding"


@given(st.binary(max_size=80), st.sampled_from(["gzip", "deflate"]), st.integers(1, 20))
def test_any_bytes_decode_or_fail(body: bytes, coding: str, piece: int) -> None:
    outcome = received(body, f"Content-Encoding: {coding}", piece=piece).finish()
    assert isinstance(outcome, (bytes, Failure))
