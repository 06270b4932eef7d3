"""Planned chains give what the steps give one by one."""

from __future__ import annotations

import pickle
import re
import struct
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feedline.collate.buffers import BatchMemory, BufferPool
from feedline.errors import ImageError
from feedline.transforms.compose import Compose
from feedline.transforms.images.convert import Normalize, ToChw, ToFloat
from feedline.transforms.images.crop import CenterCrop, Crop, RandomCrop, RandomResizedCrop
from feedline.transforms.images.decode import Decode
from feedline.transforms.images.flip import HorizontalFlip, RandomHorizontalFlip
from feedline.transforms.images.formats import jpeg
from feedline.transforms.images.image_type import ImageStep
from feedline.transforms.images.joined import JoinedChain
from feedline.transforms.images.plan import DecodeRegion, FloatTail
from feedline.transforms.images.resize import Resize
from feedline.transforms.images.scratch import borrowed
from feedline.transforms.protocol import ItemContext
from image_files import BAD, GOOD, encode, picture, read

# Levels of 255, where the decoder's inverse transform does part of the smoothing and edges come out a little sharper:
# on average over photos, and at any pixel of them. Thumbnails of a few pixels are nothing but edges.
MEAN_LEVELS = 1.5
MOST_LEVELS = 50
THUMBNAIL_LEVELS = 10

FULL_SCALE = [
    Crop(0, 0, 1, 1),
    CenterCrop(9, 7),
    CenterCrop(40, 30),
    RandomCrop(8, pad_if_needed=True),
    RandomCrop((1, 1)),
    RandomResizedCrop(24, antialias=False),
    RandomResizedCrop(96, scale=(0.05, 0.4)),
    RandomResizedCrop((5, 9), filter="nearest"),
    Resize((31, 20), antialias=False),
    Resize((9, 12), filter="nearest"),
]


def both(*steps):
    return Compose(steps), Compose(steps, plan=False)


def run(chain, item, index=0):
    return chain(item, ItemContext(index, 3, 5))


@pytest.mark.parametrize("step", FULL_SCALE, ids=repr)
@pytest.mark.parametrize(
    "options", [{}, {"mode": "RGB", "exif": True}, {"mode": "L", "fast": True}], ids=repr
)
def test_planned_is_unplanned_on_every_known_file(step, options):
    planned, plain = both(Decode(**options), step)
    for name in GOOD:
        data = read(name)
        for index in range(3):
            np.testing.assert_array_equal(run(planned, data, index), run(plain, data, index), err_msg=name)


JPEGS = {
    "4:4:4": encode(picture(61, 83), "JPEG", quality=90, subsampling=0),
    "4:2:2": encode(picture(61, 83), "JPEG", quality=90, subsampling=1),
    "4:2:0": encode(picture(61, 83), "JPEG", quality=90, subsampling=2),
    "gray": encode(picture(61, 83).convert("L"), "JPEG", quality=90),
    "CMYK": encode(picture(61, 83).convert("CMYK"), "JPEG", quality=90),
    "odd CMYK": encode(picture(61, 83).convert("CMYK"), "JPEG", quality=90, subsampling=2),
    "progressive": encode(picture(61, 83), "JPEG", quality=90, progressive=True),
    "restarts in a row": encode(picture(61, 83), "JPEG", quality=90, restart_marker_blocks=2),
    "restarts over rows": encode(picture(61, 83), "JPEG", quality=90, restart_marker_blocks=7),
    "restarts by rows": encode(picture(61, 83), "JPEG", quality=90, restart_marker_rows=1),
}


@pytest.mark.parametrize("name", JPEGS)
@settings(max_examples=60)
@given(data=st.data())
def test_any_rectangle_of_a_jpeg_is_exact(name, data):
    top, left = data.draw(st.integers(0, 60)), data.draw(st.integers(0, 82))
    height, width = data.draw(st.integers(1, 61 - top)), data.draw(st.integers(1, 83 - left))
    planned, plain = both(Decode(), Crop(top, left, height, width))
    np.testing.assert_array_equal(planned(JPEGS[name]), plain(JPEGS[name]))


@pytest.mark.parametrize("name", JPEGS)
def test_random_crops_at_full_scale_are_exact_for_many_draws(name):
    planned, plain = both(Decode("RGB"), RandomResizedCrop(64), RandomHorizontalFlip())
    for index in range(60):
        np.testing.assert_array_equal(run(planned, JPEGS[name], index), run(plain, JPEGS[name], index))


@pytest.mark.parametrize("name", JPEGS)
@pytest.mark.parametrize(
    "step",
    [Resize(7), Resize((30, 41)), Resize((15, 10)), Resize(5, filter="lanczos3"), RandomResizedCrop(6)],
    ids=repr,
)
def test_thumbnails_at_a_reduced_scale_show_the_same(name, step):
    planned, plain = both(Decode("RGB"), step)
    for index in range(20):
        fast, slow = run(planned, JPEGS[name], index).astype(int), run(plain, JPEGS[name], index).astype(int)
        assert fast.shape == slow.shape
        assert np.abs(fast - slow).mean() <= THUMBNAIL_LEVELS


@pytest.mark.parametrize("size", [16, 32, 60, 64])
def test_a_photo_at_a_reduced_scale_differs_little(size):
    data = encode(picture(480, 640), "JPEG", quality=92)
    planned, plain = both(Decode("RGB"), RandomResizedCrop(size))
    differences = np.stack(
        [np.abs(run(planned, data, index).astype(int) - run(plain, data, index)) for index in range(20)]
    )
    assert differences.mean() <= MEAN_LEVELS
    assert differences.max() <= MOST_LEVELS


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize(
    "step", [RandomResizedCrop(40), RandomResizedCrop(3), RandomCrop(9), Resize(8)], ids=repr
)
def test_parts_of_turned_pictures_are_the_right_ones(orientation, step):
    data = read(f"exif_orientation_{orientation}.jpg")
    planned, plain = both(Decode("RGB", exif=True), step)
    for index in range(12):
        fast, slow = run(planned, data, index).astype(int), run(plain, data, index).astype(int)
        assert fast.shape == slow.shape
        assert np.abs(fast - slow).mean() <= THUMBNAIL_LEVELS


@pytest.mark.parametrize("factor", [1, 2, 4, 8])
@pytest.mark.parametrize("subsampling", [0, 1, 2])
def test_reduced_pictures_have_the_size_rounded_up(factor, subsampling):
    for height, width in [(1, 1), (7, 9), (8, 16), (17, 33), (64, 63), (65, 100)]:
        data = memoryview(encode(picture(height, width), "JPEG", subsampling=subsampling))
        header = jpeg.read_header(data, exif=False)
        pixels = jpeg.decode_rows(data, header, "RGB", factor=factor)
        assert pixels.shape == (-(-height // factor), -(-width // factor), 3)


def test_no_more_rows_are_decoded_than_are_needed(monkeypatch):
    asked = []

    def spy(*arguments, **options):
        asked.append((options["rows"], options["factor"]))
        return decode_rows(*arguments, **options)

    decode_rows = jpeg.decode_rows
    monkeypatch.setattr(jpeg, "decode_rows", spy)
    data = JPEGS["4:2:0"]
    for step in (Crop(10, 10, 20, 20), Crop(41, 0, 20, 20), Resize((15, 20)), Resize((7, 10)), Resize(3)):
        Compose([Decode(), step])(data)
    assert asked == [(32, 1), (61, 1), (61, 4), (61, 8), (61, 8)]


def test_a_missing_part_is_an_error_wherever_it_is():
    for name in ("4:4:4", "4:2:0", "progressive", "restarts by rows", "odd CMYK"):
        cut = JPEGS[name][: len(JPEGS[name]) * 2 // 3]
        for step in (Crop(50, 0, 10, 10), Crop(0, 0, 61, 83), Resize(6)):
            with pytest.raises(ImageError) as caught:
                Compose([Decode(), step])(cut)
            assert caught.value.kind == "truncated"


def test_rows_that_end_early_inside_a_whole_file_are_truncated():
    data = JPEGS["4:2:0"]
    scan = data.rindex(b"\xff\xda")
    hollow = data[: scan + (len(data) - scan) // 2].rstrip(b"\xff") + b"\xff\xd9"
    for chain in (
        Compose([Decode()]),
        Compose([Decode(), Crop(50, 0, 10, 10)]),
        Compose([Decode(), Resize(6)]),
    ):
        with pytest.raises(ImageError) as caught:
            chain(hollow)
        assert caught.value.kind == "truncated"
    # What is there and asked for is there.
    np.testing.assert_array_equal(
        Compose([Decode(), Crop(0, 0, 10, 83)])(hollow), Compose([Decode(), Crop(0, 0, 10, 83)])(data)
    )


@pytest.mark.parametrize(("name", "kind"), BAD)
def test_bad_files_are_refused_alike(name, kind):
    with pytest.raises(ImageError) as caught:
        Compose([Decode(), Crop(0, 0, 1, 1)])(read(name))
    assert caught.value.kind == kind


def test_a_box_outside_is_the_same_error():
    planned, plain = both(Decode(), Crop(50, 0, 20, 20))
    for chain in (planned, plain):
        with pytest.raises(ValueError, match="reaches out of an image of 61 x 83"):
            chain(JPEGS["4:4:4"])


def test_each_step_draws_at_its_own_place_as_written():
    seen = []

    class Spy(RandomCrop):
        def box(self, height, width, context):
            seen.append(context.place)
            return super().box(height, width, context)

    chain = Compose([lambda item: item, Decode(), Spy(4), RandomHorizontalFlip(), ToFloat()])
    chain(JPEGS["gray"])
    assert seen == [2]


def test_a_failure_happens_at_the_place_of_the_step_that_fails():
    context = ItemContext(0, 0, 0)
    with pytest.raises(ImageError):
        Compose([Decode(), Crop(0, 0, 1, 1)])(read("truncated_60pct.jpg"), context)
    assert context.place == 0
    with pytest.raises(ValueError, match="reaches out"):
        Compose([Decode(), Crop(99, 0, 1, 1)])(JPEGS["gray"], context)
    assert context.place == 1


def test_results_stay_when_the_thread_decodes_the_next_image():
    for step in (Crop(3, 3, 20, 20), Resize((61, 83)), RandomResizedCrop(20)):
        chain = Compose([Decode("RGB"), step])
        first = chain(JPEGS["4:4:4"])
        kept = first.copy()
        chain(JPEGS["CMYK"])
        np.testing.assert_array_equal(first, kept)


def test_a_thread_lends_its_buffer_once_at_a_time():
    with borrowed() as outer:
        memory = outer(100)
        with borrowed() as inner:
            assert not np.may_share_memory(inner(100), memory)
            assert outer.holds(memory)
            assert not inner.holds(memory)
    with borrowed() as again:
        assert not np.may_share_memory(again(10), np.empty(10, np.uint8))


def test_threads_decode_parts_at_the_same_time():
    chain = Compose([Decode("RGB"), RandomResizedCrop(24), ToFloat(), ToChw()])
    expected = [run(chain, data, index) for index, data in enumerate(JPEGS.values())]
    wrong = []

    def work():
        for _ in range(5):
            for index, data in enumerate(JPEGS.values()):
                if not np.array_equal(run(chain, data, index), expected[index]):
                    wrong.append(index)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong


TAILS = [
    [ToFloat(), Normalize.imagenet(), ToChw()],
    [ToFloat(), Normalize(0.5, 0.25), ToChw()],
    [ToChw(), ToFloat(), Normalize.imagenet()],
    [ToFloat(), ToChw(), Normalize.imagenet()],
    [ToFloat(), Normalize.imagenet()],
    [ToFloat(), ToChw()],
    [ToChw(), ToFloat()],
    [ToFloat()],
]


@pytest.mark.parametrize("tail", TAILS, ids=repr)
@pytest.mark.parametrize("before", [[], [RandomHorizontalFlip(1.0)], [Crop(1, 2, 11, 13)]], ids=repr)
def test_a_tail_is_one_pass_into_the_memory_of_the_batch(tail, before):
    image = np.asarray(picture(40, 30))
    planned, plain = both(*before, *tail)
    memory = BatchMemory(BufferPool(), 2)
    rows = [planned(image, ItemContext(0, 0, 0, memory, position)) for position in range(2)]
    assert memory.match(rows) is not None
    result = rows[0]
    np.testing.assert_array_equal(result, plain(image))
    assert result.dtype == np.float32
    assert planned.result == plain.result


@pytest.mark.parametrize("tail", TAILS[:5], ids=repr)
def test_a_tail_takes_16_bits_and_labels(tail):
    image = np.asarray(picture(9, 8)).astype(np.uint16) * 257
    planned, plain = both(*tail)
    result, label = planned((image, "a"), ItemContext(0, 0, 0))
    np.testing.assert_array_equal(result, plain(image))
    assert label == "a"


@pytest.mark.parametrize("image", [np.zeros((4, 4, 1), np.uint8), np.zeros((4, 4), np.uint8), b"", None])
def test_a_tail_refuses_what_its_steps_refuse(image):
    planned, plain = both(ToFloat(), Normalize.imagenet(), ToChw())
    with pytest.raises((TypeError, ValueError)) as expected:
        plain(image)
    with pytest.raises(type(expected.value)) as caught:
        planned(image)
    assert str(caught.value) == str(expected.value)


@pytest.mark.parametrize(
    "steps",
    [
        [ToFloat(), lambda image: image],
        [ToChw(), ToFloat(), ToFloat()],
        [ToFloat(), ToChw(), RandomHorizontalFlip()],
        [lambda image: image, ToChw()],
    ],
)
def test_other_orders_are_run_step_by_step(steps):
    try:
        chain = Compose(steps)
    except ValueError:
        return
    assert "one pass" not in chain.explain()


JOINED = [
    [RandomResizedCrop(24), RandomHorizontalFlip()],
    [RandomResizedCrop(24), RandomHorizontalFlip(), HorizontalFlip(), RandomHorizontalFlip()],
    [RandomResizedCrop(24), ToFloat(), Normalize(0.5, 0.25), ToChw()],
    [RandomResizedCrop(24, antialias=False), RandomHorizontalFlip(), ToChw(), ToFloat()],
    [CenterCrop(20, 30), HorizontalFlip()],
    [CenterCrop(90, 30), HorizontalFlip(), ToFloat()],
    [RandomCrop(16), RandomHorizontalFlip(), ToFloat(), Normalize(0.5, 0.25)],
    [Crop(3, 4, 20, 30), ToFloat(), ToChw()],
    [Resize((31, 42)), RandomHorizontalFlip()],
    [Resize((61, 83)), HorizontalFlip(), ToFloat(), ToChw()],
]


def one_by_one(chain):
    """The planned chain with nothing joined but what `DecodeRegion` and `FloatTail` join."""
    apart = Compose(chain.steps)
    apart._runs = [(place, run, True) for place, run in apart._runs[0][1].parts()]
    return apart


@pytest.mark.parametrize("options", [{}, {"mode": "RGB", "exif": True}, {"mode": "L"}], ids=repr)
@pytest.mark.parametrize("steps", JOINED, ids=repr)
def test_a_joined_chain_gives_what_its_parts_give_and_puts_it_into_the_batch(steps, options):
    chain = Compose([Decode(**options), *steps])
    assert [type(run) for _, run, _ in chain._runs] == [JoinedChain]
    apart = one_by_one(chain)
    files = [*JPEGS.values(), *(read(name) for name in GOOD if name.endswith((".jpg", ".png")))]
    for number, data in enumerate(files):
        memory = BatchMemory(BufferPool(), 1)
        try:
            expected = run(apart, data, number)
        except ValueError as error:
            with pytest.raises(ValueError, match=re.escape(str(error))):
                run(chain, data, number)
            continue
        result = chain(data, ItemContext(number, 3, 5, memory, 0))
        np.testing.assert_array_equal(result, expected)
        assert memory.match([result]) is not None or isinstance(
            steps[-1], HorizontalFlip | RandomHorizontalFlip
        )
        np.testing.assert_array_equal(chain((data, 3), ItemContext(number, 3, 5))[0], expected)


def test_a_turned_picture_of_inks_is_cut_and_mirrored_in_a_joined_chain():
    block = b"Exif\0\0II*\0\x08\0\0\0\x01\0" + struct.pack("<HHIHH", 274, 3, 1, 6, 0) + bytes(4)
    data = JPEGS["CMYK"]
    data = data[:2] + b"\xff\xe1" + struct.pack(">H", len(block) + 2) + block + data[2:]
    steps = [Decode("RGB", exif=True), CenterCrop(40, 30), HorizontalFlip()]
    assert Decode("RGB", exif=True)(data).shape == (83, 61, 3)
    np.testing.assert_array_equal(Compose(steps)(data), Compose(steps, plan=False)(data))


def test_steps_behind_a_joined_chain_get_memory_that_stays():
    kept = []
    chain = Compose(
        [Decode("RGB"), RandomResizedCrop(24), RandomHorizontalFlip(), lambda image: kept.append(image)]
    )
    assert [type(run) for _, run, _ in chain._runs[:1]] == [JoinedChain]
    apart = one_by_one(Compose(chain.steps[:3]))
    for index in range(4):
        run(chain, JPEGS["4:4:4"], index)
    for index, image in enumerate(kept):
        np.testing.assert_array_equal(image, run(apart, JPEGS["4:4:4"], index))


def test_regions_and_flips_of_ones_own_are_not_joined():
    class Region(RandomResizedCrop):
        pass

    class Flip(RandomHorizontalFlip):
        pass

    for steps in ([Region(8), RandomHorizontalFlip()], [RandomResizedCrop(8), Flip()]):
        assert isinstance(Compose([Decode(), *steps])._runs[0][1], DecodeRegion)
        assert not isinstance(Compose([Decode(), *steps])._runs[0][1], JoinedChain)


def test_a_failure_in_a_joined_chain_happens_at_the_place_of_its_step():
    chain = Compose([Decode("RGB"), Crop(50, 0, 20, 20), HorizontalFlip(), ToFloat()])
    context = ItemContext(0, 0, 0)
    with pytest.raises(ImageError):
        chain(read("truncated_60pct.jpg")[:900], context)
    assert context.place == 0
    with pytest.raises(ValueError, match="reaches out"):
        chain(JPEGS["4:2:0"], context)
    assert context.place == 1


def test_a_chain_tells_what_is_joined():
    chain = Compose([Decode("RGB"), Resize(8), RandomHorizontalFlip(), ToFloat(), ToChw()])
    lines = chain.explain().splitlines()
    assert lines[0].startswith("0: Decode('RGB') + Resize(")
    assert lines[0].endswith("(of a JPEG: rows down to the box, at 1/2, 1/4 or 1/8 where that is enough)")
    assert lines[1] == "2: RandomHorizontalFlip(p=0.5)"
    assert lines[2] == "3: ToFloat() + ToChw() (one pass into the batch)"
    assert Compose([Decode(), Crop(0, 0, 2, 2)]).explain().endswith("(of a JPEG: rows down to the box)")
    apart = Compose(chain.steps, plan=False)
    assert len(apart.explain().splitlines()) == 5


def test_what_is_planned_is_made_again_after_pickling():
    chain = Compose([Decode("RGB"), RandomResizedCrop(16), ToFloat(), Normalize.imagenet(), ToChw()])
    again = pickle.loads(pickle.dumps(chain))
    np.testing.assert_array_equal(run(again, JPEGS["4:2:0"], 4), run(chain, JPEGS["4:2:0"], 4))
    assert again.explain() == chain.explain()


def test_labels_travel_through_a_planned_chain():
    image, label, name = run(Compose([Decode(), RandomCrop(5)]), (JPEGS["gray"], 3, "x"))
    assert image.shape == (5, 5, 1)
    assert (label, name) == (3, "x")


def test_steps_of_ones_own_may_be_regions():
    class Top(ImageStep):
        def box(self, height, width, context):
            return 0, 0, 3, width

        def least_size(self, height, width):
            return height, width

        def from_part(self, part, box, context):
            return part[:3]

        def apply(self, image, context):
            return image[:3]

    planned, plain = both(Decode(), Top())
    np.testing.assert_array_equal(planned(JPEGS["4:2:0"]), plain(JPEGS["4:2:0"]))
    assert isinstance(planned._runs[0][1], DecodeRegion)
    assert isinstance(Compose([ToFloat()])._runs[0][1], FloatTail)
