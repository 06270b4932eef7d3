"""Tests of `feedline.collate.image`."""

from __future__ import annotations

import pickle
from typing import NamedTuple

import numpy as np
import pytest

from feedline.collate.buffers import BatchMemory, BufferPool
from feedline.collate.image import ImageBatch, ImageCollator
from feedline.errors import CollateError, OptionError
from feedline.loader.stats import nbytes_of
from feedline.transforms.images.image_type import ImageKind

DTYPES = ["uint8", "uint16", "float32"]


def noise(shape, dtype="uint8", seed=0):
    values = np.random.default_rng(seed).integers(0, 256, shape)
    return (values / 256).astype(dtype) if dtype == "float32" else values.astype(dtype)


def images(count=3, shape=(5, 7, 3), dtype="uint8"):
    return [noise(shape, dtype, seed) for seed in range(count)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("layout_in", ["HWC", "CHW"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_every_layout_becomes_the_layout_of_the_batch(layout, layout_in, channels, dtype):
    hwc = images(3, (5, 7, channels), dtype)
    given = hwc if layout_in == "HWC" else [image.transpose(2, 0, 1).copy() for image in hwc]
    batch = ImageCollator(layout, layout_in=layout_in)(given)
    expected = np.stack(hwc)
    np.testing.assert_array_equal(
        batch.data, expected if layout == "NHWC" else expected.transpose(0, 3, 1, 2)
    )
    assert batch.layout == layout
    assert batch.data.flags.c_contiguous
    assert batch.data.flags.writeable


def test_views_with_any_strides_and_read_only_images_are_joined_and_left_as_they_are():
    base = noise((12, 14, 3))
    base.flags.writeable = False
    views = [base[::2, ::2], base[::-2, ::2], base[1::2, ::-2], base[:6, 7:]]
    batch = ImageCollator()(views)
    np.testing.assert_array_equal(batch.data, np.stack(views).transpose(0, 3, 1, 2))


def test_a_loader_counts_the_bytes_of_a_batch():
    batch = ImageCollator("NHWC")(images(count=3, shape=(5, 7, 3)))
    assert nbytes_of((batch, np.zeros(3))) == 3 * 5 * 7 * 3 + 24


def test_images_without_a_pipeline_are_taken_for_hwc_even_if_the_shape_looks_otherwise():
    batch = ImageCollator()([np.zeros((3, 8, 4), np.uint8)])
    assert batch.shape == (1, 4, 3, 8)


def test_a_shape_that_is_no_image_in_the_layout_says_what_to_do():
    with pytest.raises(CollateError, match=r"no HWC image.*layout_in="):
        ImageCollator()([np.zeros((3, 8, 8), np.uint8)])


def test_the_layout_comes_from_the_pipeline():
    collator = ImageCollator().bind(ImageKind("CHW"))
    assert collator.layout_in == "CHW"
    assert ImageCollator().bind(None) == ImageCollator()
    assert ImageCollator().bind(ImageKind()).layout_in is None
    assert ImageCollator(layout_in="HWC").bind(ImageKind("HWC")) == ImageCollator(layout_in="HWC")


def test_a_layout_that_contradicts_the_pipeline_is_refused():
    with pytest.raises(OptionError, match="come as CHW from the pipeline, not as HWC"):
        ImageCollator(layout_in="HWC").bind(ImageKind("CHW"))


class Sample(NamedTuple):
    image: np.ndarray
    label: int
    name: str


def test_extras_are_joined_beside_the_images():
    batch, labels, names = ImageCollator()([(image, n, str(n)) for n, image in enumerate(images())])
    assert batch.shape == (3, 3, 5, 7)
    np.testing.assert_array_equal(labels, [0, 1, 2])
    assert names == ["0", "1", "2"]


def test_named_tuples_keep_their_type():
    batch = ImageCollator()([Sample(image, n, str(n)) for n, image in enumerate(images())])
    assert isinstance(batch, Sample)
    assert isinstance(batch.image, ImageBatch)


def test_different_sizes_are_an_error_naming_index_row_and_shapes():
    items = [*images(2), noise((5, 8, 3))]
    with pytest.raises(CollateError) as caught:
        ImageCollator()(items, None, [40, 41, 17])
    message = str(caught.value)
    assert "item 17 (row 2 of the batch) is an array" in message
    assert "item 40 (row 0 of the batch) is an array" in message
    assert "(5, 8, 3)" in message
    assert "(5, 7, 3)" in message
    assert "pad=True" in message
    assert caught.value.positions == (0, 2)


@pytest.mark.parametrize("other", [noise((5, 7, 4)), noise((5, 7, 3), "float32")])
def test_different_channels_and_dtypes_are_refused_even_with_padding(other):
    with pytest.raises(CollateError, match="one shape and dtype"):
        ImageCollator(pad=True)([noise((5, 7, 3)), other])


@pytest.mark.parametrize("layout_in", ["HWC", "CHW"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_padding_puts_zeros_at_the_right_and_at_the_bottom(layout, layout_in):
    hwc = [np.full((2, 5, 3), 9, np.uint8), np.full((4, 3, 3), 8, np.uint8), np.full((1, 1, 3), 7, np.uint8)]
    given = hwc if layout_in == "HWC" else [image.transpose(2, 0, 1) for image in hwc]
    batch = ImageCollator(layout, pad=True, layout_in=layout_in)(given)
    data = batch.data if layout == "NHWC" else batch.data.transpose(0, 2, 3, 1)
    assert data.shape == (3, 4, 5, 3)
    for image, row in zip(hwc, data):
        height, width, _ = image.shape
        np.testing.assert_array_equal(row[:height, :width], image)
        assert row.sum() == image.sum(dtype=np.int64)


def test_padded_rows_are_zero_in_memory_that_was_used_before():
    pool = BufferPool(min_bytes=0)
    used = pool.allocate((2, 3, 40, 40), "uint8")
    used[...] = 255
    del used
    batch = ImageCollator(pad=True)(
        [np.zeros((40, 40, 3), np.uint8), np.zeros((2, 2, 3), np.uint8)], BatchMemory(pool, 2)
    )
    assert not batch.data.any()


@pytest.mark.parametrize("bad", [None, np.zeros((5, 7)), np.zeros((5, 7, 3)), b"\xff\xd8", [[1]]])
def test_what_is_no_image_is_refused_with_its_row(bad):
    with pytest.raises(CollateError, match=r"^row 1 of the batch is no image") as caught:
        ImageCollator()([noise((5, 7, 3)), bad])
    assert caught.value.positions == (1,)


@pytest.mark.parametrize("bad", [np.zeros((0, 7, 3), np.uint8), np.zeros((5, 7, 5), np.uint8)])
def test_empty_images_and_too_many_channels_are_refused(bad):
    with pytest.raises(CollateError, match="1 to 4 channels"):
        ImageCollator()([bad])


def test_items_of_different_structure_are_refused():
    with pytest.raises(CollateError, match="row 1 of the batch is a tuple of 3"):
        ImageCollator()([(noise((2, 2, 3)), 1), (noise((2, 2, 3)), 1, 2)])
    with pytest.raises(CollateError, match="row 1 of the batch is an array"):
        ImageCollator()([(noise((2, 2, 3)), 1), noise((2, 2, 3))])
    with pytest.raises(CollateError, match="a tuple of 0"):
        ImageCollator()([()])
    with pytest.raises(CollateError, match="zero images"):
        ImageCollator()([])


def test_rows_of_the_batch_are_not_copied():
    memory = BatchMemory(BufferPool(), 2)
    rows = [memory.row(place, (3, 5, 7), "float32") for place in range(2)]
    for place, row in enumerate(rows):
        row[...] = place
    base = rows[0].base
    batch, labels = ImageCollator(layout_in="CHW")([(rows[0], 0), (rows[1], 1)], memory)
    assert np.shares_memory(batch.data, base)
    np.testing.assert_array_equal(batch.data[1], np.ones((3, 5, 7)))
    np.testing.assert_array_equal(labels, [0, 1])


def test_rows_in_another_layout_are_turned():
    memory = BatchMemory(BufferPool(), 2)
    rows = [memory.row(place, (5, 7, 3), "uint8") for place in range(2)]
    for place, row in enumerate(rows):
        row[...] = noise((5, 7, 3), seed=place)
    batch = ImageCollator(layout_in="HWC")(rows, memory)
    np.testing.assert_array_equal(batch.data, np.stack(images(2)).transpose(0, 3, 1, 2))


def test_a_batch_exports_by_dlpack_and_array_without_a_copy():
    batch = ImageCollator()(images())
    assert np.asarray(batch) is batch.data
    exported = np.from_dlpack(batch)
    assert np.shares_memory(exported, batch.data)
    assert np.array(batch, copy=True) is not batch.data
    assert np.asarray(batch, dtype=np.float64).dtype == np.float64
    with pytest.raises(ValueError, match="without a copy"):
        np.array(batch, dtype=np.float64, copy=False)


def test_torch_sees_the_same_memory():
    torch = pytest.importorskip("torch")
    batch = ImageCollator()(images())
    tensor = torch.from_dlpack(batch)
    tensor[0, 0, 0, 0] = 77
    assert batch.data[0, 0, 0, 0] == 77
    assert tuple(tensor.shape) == batch.shape


def test_a_batch_tells_what_it_is_and_pickles():
    batch = ImageCollator("NHWC")(images(dtype="float32"))
    assert repr(batch) == "ImageBatch(NHWC, shape=(3, 5, 7, 3), dtype=float32)"
    assert len(batch) == 3
    assert batch.dtype == np.float32
    copy = pickle.loads(pickle.dumps(batch))
    np.testing.assert_array_equal(copy.data, batch.data)
    assert copy.layout == "NHWC"
    collator = ImageCollator("NHWC", pad=True)
    assert pickle.loads(pickle.dumps(collator)) == collator


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"layout": "CHWN"}, OptionError, "layout must be 'NCHW' or 'NHWC', not 'CHWN'"),
        ({"layout_in": "NCHW"}, OptionError, "layout_in must be 'HWC', 'CHW' or None, not 'NCHW'"),
        ({"pad": 1}, TypeError, "pad must be True or False, not 1"),
    ],
)
def test_bad_arguments_are_refused_when_built(arguments, error, message):
    with pytest.raises(error, match=message):
        ImageCollator(**arguments)
