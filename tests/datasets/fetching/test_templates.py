"""The grammar of templates, and what values may do in paths, URLs and keys."""

from __future__ import annotations

import pickle
import re
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedline.datasets.fetching.locations import Locations
from feedline.datasets.fetching.object_keys import KeyRules
from feedline.datasets.fetching.paths import PathRules
from feedline.datasets.fetching.templates import Template
from feedline.datasets.fetching.urls import UrlRules
from feedline.errors import FetchError, OptionError

PATHS, URLS, KEYS = PathRules(), UrlRules(), KeyRules()


def render(template: str, columns: dict[str, Any] | None = None, index: int = 0, rules: Any = PATHS) -> str:
    length = None if columns else 10
    location = Locations.from_template(rules, template, columns, length).locate(index)[1]
    assert isinstance(location, str)
    return location


@pytest.mark.parametrize(
    ("template", "columns", "expected"),
    [
        ("tile-{index}.bin", None, "tile-7.bin"),
        ("tile-{index:06}.bin", None, "tile-000007.bin"),
        ("{index:01}", None, "7"),
        ("{index:020}", None, "0" * 19 + "7"),
        ("{{{index}}}", None, "{7}"),
        ("a{{b}}c{index}", None, "a{b}c7"),
        ("{split}/{name}.jpg", {"split": ["t"] * 10, "name": [f"n{i}" for i in range(10)]}, "t/n7.jpg"),
        ("{x:04}-{x}", {"x": range(10)}, "0007-7"),
        ("{x:04}", {"x": np.arange(10) - 14}, "-007"),
        ("{ä}", {"ä": ["ö"] * 10}, "ö"),
    ],
)
def test_placeholders_are_filled(template: str, columns: dict[str, Any] | None, expected: str) -> None:
    assert render(template, columns, 7) == expected


@pytest.mark.parametrize(
    ("template", "columns", "named"),
    [
        ("a{index", None, "unclosed { at byte 1"),
        ("ü{index", None, "unclosed { at byte 2"),
        ("{{{", None, "unclosed { at byte 2"),
        ("{a{index}", None, "unclosed { at byte 0"),
        ("a}b{index}", None, "lone } at byte 1"),
        ("{index}}", None, "lone } at byte 7"),
        ("x{}", None, "byte 1"),
        ("x{1a}", None, "byte 1"),
        ("x{a b}", None, "byte 1"),
        ("x{name}", None, "{name} at byte 1 of the template is unknown"),
        ("x{index}", {"a": [1]}, "does not use column 'a'"),
        ("{a}{b}", {"a": [1], "b": [1, 2]}, "'a' has 1 values, 'b' has 2"),
        ("{index:6}", None, "from 1 to 20, not '6'"),
        ("{index:00}", None, "'00'"),
        ("{index:021}", None, "'021'"),
        ("{index:}", None, "from 1 to 20"),
        ("{index:06x}", None, "'06x'"),
        ("xy{name:03}", {"name": ["a"]}, "column 'name' holds strings, so {name} at byte 2"),
        ("{index}", {"index": [1]}, "no column may be called 'index'"),
        ("plain", None, "no placeholder"),
        ("{{index}}", None, "no placeholder"),
        ("{index}" + "x" * 8192, None, "8192"),
        ("{index}" + "ü" * 4096, None, "8199 bytes"),
    ],
)
def test_errors_of_the_grammar_name_the_byte_or_the_column(
    template: str, columns: dict[str, Any] | None, named: str
) -> None:
    with pytest.raises(OptionError, match=re.escape(named)):
        Template.build(template, columns, None if columns else 3)


def test_the_limits_are_64_columns_and_8_kib() -> None:
    names = [f"c{number}" for number in range(65)]
    text = "".join(f"{{{name}}}" for name in names)
    with pytest.raises(OptionError, match="at most 64 columns, not 65"):
        Template.build(text, {name: [1] for name in names})
    assert (
        Template.build(
            "".join(f"{{{name}}}" for name in names[:64]), {name: [1] for name in names[:64]}
        ).length
        == 1
    )
    assert Template.build("{index}" + "x" * (8192 - 7), None, 1).length == 1


def test_length_is_needed_without_columns_and_must_agree_with_them() -> None:
    with pytest.raises(OptionError, match="needs length="):
        Template.build("{index}")
    with pytest.raises(OptionError, match=r"length=3 does not agree with column 'a', which has 2 values"):
        Template.build("{a}", {"a": [1, 2]}, 3)
    assert Template.build("{a}", {"a": [1, 2]}, 2).length == 2
    for bad, error in [(-1, OptionError), (1.5, TypeError), ("3", TypeError), (True, OptionError)]:
        with pytest.raises(error, match="length"):
            Locations.from_template(PATHS, "{index}", None, bad)


def test_wrong_types_are_type_errors_naming_the_column() -> None:
    with pytest.raises(TypeError, match="template is a str"):
        Template.build(b"{index}", None, 1)
    with pytest.raises(TypeError, match="columns must be a mapping"):
        Template.build("{a}", [1, 2])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"column 'a': .*position 1"):
        Template.build("{a}", {"a": ["x", 2]})


def test_item_0_is_checked_when_built_and_the_others_when_they_are_fetched() -> None:
    with pytest.raises(OptionError, match=r"item 0 of the template: column 'a', item 0: .*'x/y'"):
        Locations.from_template(PATHS, "d/{a}", {"a": ["x/y", "ok"]}, None)
    locations = Locations.from_template(PATHS, "d/{a}", {"a": ["ok", "x/y"]}, None)
    assert locations.locate(0) == (0, "d/ok")
    with pytest.raises(FetchError) as caught:
        locations.locate(-1)
    assert (caught.value.kind, caught.value.index, caught.value.attempts) == ("location", 1, 0)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


def test_a_template_of_no_items_is_empty() -> None:
    assert len(Locations.from_template(PATHS, "{a}", {"a": []}, None)) == 0
    assert len(Locations.from_template(PATHS, "{index}", None, 0)) == 0


def test_a_rendered_location_may_have_at_most_64_kib() -> None:
    with pytest.raises(OptionError, match="65536"):
        render("{a}", {"a": ["x" * 65537]})
    with pytest.raises(OptionError, match="65536"):
        render("http://h/{a}", {"a": ["x" * 65536]}, rules=URLS)


@pytest.mark.parametrize("value", ["a/b", "a\\b", "a\0b", ".", "..", ""])
def test_a_value_in_a_path_stays_in_its_component(value: str) -> None:
    with pytest.raises(OptionError, match="column 'v', item 0"):
        render("root/{v}/x", {"v": [value]})


def test_dots_are_refused_only_where_they_are_the_whole_component() -> None:
    assert render("r/a{v}/x", {"v": [".."]}) == "r/a../x"
    assert render("r/{v}.x", {"v": [""]}) == "r/.x"
    assert render("../{v}/x", {"v": ["a"]}) == "../a/x"
    with pytest.raises(OptionError, match=r"'\.\.'"):
        render("r/.{v}", {"v": ["."]})
    with pytest.raises(OptionError, match=r"'\.\.'"):
        render("{v}{w}", {"v": ["."], "w": ["."]})


@pytest.mark.parametrize("value", ["", "a/b", "a\nb", "a\x7fb", "a\x85b", ".", ".."])
def test_a_value_in_a_key_is_refused_where_it_would_change_the_key(value: str) -> None:
    with pytest.raises(OptionError, match="column 'v', item 0"):
        render("p/{v}", {"v": [value]}, rules=KEYS)


def test_values_in_keys_are_written_as_they_are() -> None:
    assert render("p/{v}", {"v": ["ü %41\\?#"]}, rules=KEYS) == "p/ü %41\\?#"


@pytest.mark.parametrize(
    "template", ["http://h/{v}", "http://h/{v}/x", "http://h/a/{v}?q", "http://h/%2e{v}"]
)
def test_a_value_in_a_url_may_not_make_a_dot_component(template: str) -> None:
    with pytest.raises(OptionError, match="column 'v', item 0"):
        render(template, {"v": ["."]}, rules=URLS)


def test_dots_in_a_query_are_no_path_component() -> None:
    assert render("http://h/a?p=/{v}", {"v": [".."]}, rules=URLS) == "http://h/a?p=/.."


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_value_in_a_url_can_not_add_a_segment_a_query_or_a_fragment(value: str) -> None:
    if value in (".", ".."):
        return
    parts = urlsplit(render("https://h/a/{v}/b?q={v}", {"v": [value]}, rules=URLS))
    segments = parts.path.split("/")
    assert len(segments) == 4
    assert unquote(segments[2]) == value
    assert unquote(parts.query[2:]) == value
    assert parts.fragment == ""


def test_everything_but_unreserved_characters_is_encoded_as_utf_8() -> None:
    value = "AZaz09-._~ /?#%&=+ü中"
    rendered = render("http://h/{v}", {"v": [value]}, rules=URLS)
    assert rendered == "http://h/AZaz09-._~%20%2F%3F%23%25%26%3D%2B%C3%BC%E4%B8%AD"


def test_a_lone_surrogate_in_a_url_is_refused() -> None:
    with pytest.raises(OptionError, match="valid Unicode"):
        render("http://h/{v}", {"v": ["\udcff"]}, rules=URLS)


@given(st.text(alphabet="{}:0ai6n dexü/", max_size=30))
def test_every_text_is_a_template_or_an_option_error(text: str) -> None:
    try:
        template = Template.build(text, None, 2)
    except OptionError:
        return
    assert template.length == 2


def test_templates_pickle_small() -> None:
    locations = Locations.from_template(URLS, "http://h/{index:08}", None, 10**9)
    data = pickle.dumps(locations)
    assert len(data) < 1000
    assert pickle.loads(data).locate(-1) == (10**9 - 1, "http://h/999999999")
