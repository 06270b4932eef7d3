"""The base of image steps: tuples, checks, and what a chain knows when it is built."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass

import numpy as np
import pytest

from feedline.errors import OptionError
from feedline.transforms.compose import Compose
from feedline.transforms.images.image_type import ImageKind, ImageStep, Region, map_first
from feedline.transforms.protocol import ItemContext, wants_context


class Invert(ImageStep):
    dtypes = frozenset({"uint8"})

    def apply(self, image, context):
        return 255 - image

    def __repr__(self):
        return "Invert()"


@dataclass(frozen=True)
class Mean(ImageStep):
    """Works on either layout."""

    layout = None

    def apply(self, image, context):
        return image.mean(axis=(1, 2) if self.layout == "CHW" else (0, 1))


class Turn(ImageStep):
    def apply(self, image, context):
        return image.transpose(2, 0, 1)

    def becomes(self, kind):
        return kind.with_(layout="CHW")


class Draw(ImageStep):
    def apply(self, image, context):
        return np.full_like(image, context.rng.integers(256))


IMAGE = np.zeros((2, 3, 1), np.uint8)


def test_a_step_works_by_hand_and_in_a_chain():
    assert Invert()(IMAGE)[0, 0, 0] == 255
    assert wants_context(Invert())
    drawn = Draw()(IMAGE)
    np.testing.assert_array_equal(drawn, Compose([Draw()])(IMAGE))
    assert (drawn != Compose([Draw()])(IMAGE, ItemContext(1, 0, 0))).all()


def test_only_the_first_part_of_a_tuple_is_the_image():
    assert Invert()((IMAGE, "a", 3))[1:] == ("a", 3)
    pair = namedtuple("pair", "image label")
    result = Invert()(pair(IMAGE, 1))
    assert isinstance(result, pair)
    assert result.label == 1
    with pytest.raises(ValueError, match="empty tuple"):
        map_first((), lambda part: part)
    with pytest.raises(TypeError, match=r"not list"):
        Invert()([IMAGE, 1])
    with pytest.raises(TypeError, match="the image must be the item, or the first part of a tuple"):
        Invert()({"image": IMAGE})


def test_a_step_for_either_layout_is_told_which_in_a_chain():
    image = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    assert Mean()(image).shape == (4,)
    assert Compose([Mean()])(image).shape == (4,)
    chain = Compose([Turn(), Mean()])
    assert chain(image).shape == (4,)
    np.testing.assert_array_equal(chain(image), Mean()(image))
    # The step itself is not changed: it may be in other chains.
    assert chain.steps[1].layout is None


def test_the_number_of_channels_is_looked_for_where_the_layout_has_it():
    planar = np.zeros((3, 9, 8), np.uint8)
    bound = Mean().bind(ImageKind("CHW"))
    assert bound(planar).shape == (3,)
    with pytest.raises(
        ValueError, match=r"images \(height, width, channels\) with 1 or 2 or 3 or 4 channels"
    ):
        Mean()(planar)


@pytest.mark.parametrize("shape", [(0, 3, 1), (3, 0, 1), (3, 3, 0), (3, 3, 5)])
def test_empty_axes_and_odd_channels_are_refused(shape):
    with pytest.raises(ValueError, match="no empty axis"):
        Invert()(np.zeros(shape, np.uint8))


def test_a_chain_knows_what_it_gives():
    assert Compose([Invert()]).result == ImageKind("HWC", frozenset({"uint8"}))
    assert Compose([Invert(), Turn()]).result == ImageKind("CHW", frozenset({"uint8"}))
    assert Compose([Invert(), lambda image: image]).result is None
    assert Compose([Turn(), lambda image: image.transpose(1, 2, 0), Invert()]).result.layout == "HWC"


def test_a_chain_that_can_not_work_is_an_error_when_built():
    with pytest.raises(
        OptionError, match=r"Invert\(\) takes images in the layout HWC, .* put it before ToChw"
    ):
        Compose([Turn(), Invert()])
    floats = Turn()
    floats.becomes = lambda kind: kind.with_(dtypes=frozenset({"float32"}))
    with pytest.raises(OptionError, match=r"Invert\(\) takes images of dtype uint8, but .* give float32"):
        Compose([floats, Invert()])


def test_a_step_without_work_says_so():
    with pytest.raises(TypeError, match="ImageStep defines no apply"):
        ImageStep()(IMAGE)


def test_a_region_is_told_by_its_methods():
    assert not isinstance(Invert(), Region)
