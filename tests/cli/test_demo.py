"""`feedline demo` does what it says, and would notice if it did not."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="the demo needs the extra 'demo'")

import feedline.cli.demo as demo
import feedline.cli.training as training
from feedline.cli.digits import Classifier, load_digits, nudge
from feedline.cli.training import Run
from feedline.transforms.protocol import ItemContext


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """Run the whole demo once: its output, and the folder that it kept its files in."""
    import contextlib
    import io

    from feedline.cli.main import run

    folder = tmp_path_factory.mktemp("demo") / "made by the demo"
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = run(["demo", "--dir", str(folder)])
    return code, out.getvalue(), folder


def test_the_demo_succeeds_and_says_that_nothing_changed(told) -> None:
    code, out, _ = told
    assert code == 0
    assert "all 675 batches are equal, bit for bit" in out
    assert "all 13 arrays at the end are equal, bit for bit" in out


def test_the_demo_learns_to_recognise_digits(told) -> None:
    facts = json.loads((told[2] / "resumed.json").read_text())
    assert facts["accuracy"] >= 0.97
    assert f"{facts['accuracy']:.1%} of the held-out digits" in told[1]


def test_the_demo_stops_within_an_epoch_and_saves_a_position_there(told) -> None:
    state = json.loads((told[2] / "state.json").read_text())
    assert state["epoch"] == demo.STOP_EPOCH
    digests = json.loads((told[2] / "resumed.json").read_text())["digests"]
    assert len(digests) == 675 - demo.STOP_EPOCH * 45 - demo.STOP_BATCH


def test_another_seed_would_have_been_noticed(told) -> None:
    _, _, folder = told
    rest = json.loads((folder / "resumed.json").read_text())["digests"]
    final = Classifier.load(folder / "resumed.npz", 675).state
    other = {**final, "w1": np.nextafter(final["w1"], np.inf)}
    result = demo.compare((rest, final), (rest[1:] + rest[:1], other))
    assert not result.same
    assert result.differing_batches == len(rest)
    assert result.differing_arrays == ("w1",)


@pytest.fixture
def two_epochs(monkeypatch):
    """Let the demo be short: it stops in the second of two epochs."""
    monkeypatch.setattr(demo, "EPOCHS", 2)
    monkeypatch.setattr(training, "EPOCHS", 2)
    monkeypatch.setattr(demo, "STOP_EPOCH", 1)


def test_a_difference_ends_the_demo_with_exit_code_1(cli, two_epochs, tmp_path, monkeypatch) -> None:
    def resume_wrongly(folder, console):
        run = Run(folder, resume=True)
        run.close()
        run.model.save(folder / "resumed.npz")  # as if the new process had learned nothing
        return {"digests": [], "accuracy": 0.5, "pid": 1}

    monkeypatch.setattr(demo, "_resume_elsewhere", resume_wrongly)
    result = cli("demo", "--dir", tmp_path)
    assert result.code == 1
    assert "NOT EQUAL" in result.out
    assert "25 of 90 batches differ" in result.out
    assert result.err == "feedline: the resumed run differs from the unbroken one\n"


def test_a_second_process_that_fails_ends_the_demo_with_exit_code_1(
    cli, two_epochs, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(demo.sys, "executable", "/bin/false")
    result = cli("demo", "--dir", tmp_path)
    assert result.code == 1
    assert result.err == "feedline: the process that was to resume the training ended with exit code 1\n"


def test_without_a_folder_to_keep_nothing_is_left(cli, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(demo.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(demo, "_tell", lambda folder, *_, **__: folder.is_dir())
    assert cli("demo").code == 0
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_can_not_be_made_is_one_line(cli, tmp_path) -> None:
    (tmp_path / "file").write_text("in the way")
    result = cli("demo", "--dir", tmp_path / "file")
    assert (result.code, result.out) == (1, "")
    assert result.err == f"feedline: File exists: {tmp_path / 'file'}\n"


def test_without_scikit_learn_it_says_what_to_install(cli, monkeypatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "sklearn.datasets", None)
    result = cli("demo")
    assert (result.code, result.out) == (1, "")
    assert result.err == "feedline: the demo needs an optional library: pip install 'feedline[demo]'\n"


def test_no_digit_is_both_trained_on_and_held_out() -> None:
    digits = load_digits()
    assert (len(digits.train_x), len(digits.held_x)) == (1437, 360)
    trained = {row.tobytes() for row in digits.train_x}
    assert not any(row.tobytes() in trained for row in digits.held_x)


def test_a_nudge_keeps_the_image_within_its_frame_and_depends_on_the_item_alone() -> None:
    digits = load_digits()
    item = digits.train_x[0], digits.train_y[0]
    before = item[0].copy()
    images = [nudge(item, ItemContext(index, 0, 7))[0] for index in (0, 0, 1)]
    assert np.array_equal(images[0], images[1])
    assert not np.array_equal(images[0], images[2])
    assert all(image.shape == (64,) and image.min() >= 0 and image.max() <= 1 for image in images)
    assert np.array_equal(item[0], before)


def test_the_classifier_descends_the_gradient() -> None:
    digits = load_digits()
    model = Classifier(steps=200)
    x, y = digits.train_x[:64], digits.train_y[:64]
    losses = [model.step(x, y) for _ in range(20)]
    assert losses[-1] < 0.1 * losses[0]
    assert model.accuracy(x, y) == 1.0


def test_a_classifier_that_was_saved_goes_on_as_if_it_had_not(tmp_path) -> None:
    digits = load_digits()
    batches = [(digits.train_x[i : i + 32], digits.train_y[i : i + 32]) for i in range(0, 320, 32)]
    whole = Classifier(steps=10)
    for batch in batches:
        whole.step(*batch)
    part = Classifier(steps=10)
    for batch in batches[:4]:
        part.step(*batch)
    part.save(tmp_path / "weights.npz")
    rest = Classifier.load(tmp_path / "weights.npz", steps=10)
    for batch in batches[4:]:
        rest.step(*batch)
    assert demo.compare(([], rest.state), ([], whole.state)).same
