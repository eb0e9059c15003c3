"""The picture of the README: the final screen of a terminal, without downloads by a browser."""

from tests.builders import ROOT
from tests.demo_svg import draw, replay


def test_replay_keeps_the_last_state_of_a_redrawn_view():
    redrawn = "start\n\x1b[?25lone\ntwo\r\x1b[2K\x1b[1A\x1b[2K\x1b[32mthree\x1b[0m\nfour\x1b[?25h\n"
    assert replay(redrawn) == "start\n\x1b[32mthree\x1b[0m\nfour\n"


def test_picture_shows_the_lines_and_downloads_nothing():
    svg = draw("job/build-1   \x1b[32mgone\x1b[0m\nTry next: nothing of this is shown\n")
    assert "job/build-1" in svg
    assert "gone" in svg
    assert "Try" not in svg
    assert "url(http" not in svg


def test_readme_shows_the_picture():
    assert "](docs/demo.svg)" in (ROOT / "README.md").read_text()
    picture = (ROOT / "docs/demo.svg").read_text()
    assert "job/build-1" in picture
    assert "deleted" in picture
