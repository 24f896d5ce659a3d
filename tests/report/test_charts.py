"""The SVG charts: round numbers on axes, correct positions, escaped text, well-formed XML."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from burnish.report.charts import (
    Dots,
    Line,
    Row,
    interval_chart,
    line_chart,
    percent,
    point_chart,
    points,
    short,
    standalone,
    ticks,
)

SVG = "{http://www.w3.org/2000/svg}"


def drawn(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)


def test_ticks_are_round_numbers_inside_the_range() -> None:
    assert ticks(0, 1) == [0, 0.2, 0.4, 0.6, 0.8, 1.0]
    assert ticks(0, 2_000_000, 4) == [0, 500_000, 1_000_000, 1_500_000, 2_000_000]
    assert ticks(-0.13, 0.21, 3) == [0.0, 0.2]
    assert ticks(3, 3) == [3]
    assert ticks(0, 10, 1) == ticks(0, 10, 0) == [0, 10]


def test_numbers_are_written_short() -> None:
    assert [short(v) for v in (0, 12, 1500, 2_000_000, 3.2e12, 1e-4)] == ["0", "12", "1.5k", "2M", "3.2T", "0.0001"]
    assert [percent(v) for v in (0.5, 0.125, 1.0)] == ["50%", "12.5%", "100%"]
    assert [points(v) for v in (0.05, -0.123, 0.0)] == ["+5", "-12.3", "0"]


def test_a_line_goes_through_its_points_and_its_band_around_it() -> None:
    svg = drawn(line_chart([Line("a", [(0, 0.0), (10, 1.0)], band=[(0, 0.0, 0.2), (10, 0.8, 1.0)])], y_range=(0, 1)))
    path = next(iter(svg.iter(f"{SVG}polyline"))).get("points", "").split()
    (x0, y0), (x1, y1) = (map(float, pair.split(",")) for pair in path)
    assert x0 < x1 and y0 > y1  # up in the picture is less
    band = [float(pair.split(",")[1]) for pair in next(iter(svg.iter(f"{SVG}polygon"))).get("points", "").split()]
    assert min(band) == y1 and max(band) == y0


def test_labels_at_the_ends_do_not_stand_on_each_other() -> None:
    svg = drawn(line_chart([Line(name, [(0, 0.0), (1, 0.9 + i / 1000)]) for i, name in enumerate("abcd")]))
    at = sorted(float(t.get("y", "")) for t in svg.iter(f"{SVG}text") if t.text in set("abcd"))
    assert len(at) == 4 and min(b - a for a, b in zip(at, at[1:], strict=False)) >= 12.9


def test_an_interval_spans_from_low_to_high_around_its_value() -> None:
    svg = drawn(interval_chart([Row("a", 0.5, 0.25, 0.75)], form=percent, x_range=(0, 1), rule=0.5))
    dot = next(iter(svg.iter(f"{SVG}circle")))
    bar = next(line for line in svg.iter(f"{SVG}line") if line.get("stroke-width") == "5")
    low, high = float(bar.get("x1", "")), float(bar.get("x2", ""))
    assert float(dot.get("cx", "")) == pytest.approx((low + high) / 2, abs=0.2)
    assert "a: 50% [25%, 75%]" in [title.text for title in svg.iter(f"{SVG}title")]


def test_powers_of_ten_stand_equally_far_apart() -> None:
    svg = drawn(point_chart([Dots("", [(1e-5, 0), (1e-4, 1), (1e-3, 2)])], log_x=True))
    a, b, c = (float(dot.get("cx", "")) for dot in svg.iter(f"{SVG}circle"))
    assert b - a == pytest.approx(c - b, abs=0.2)


@pytest.mark.parametrize(
    "svg",
    [
        line_chart([], title="none"),
        interval_chart([]),
        point_chart([]),
        line_chart([Line("<b>&", [(1, 1)])], title="a < b & c", x="<", y=">"),
        interval_chart([Row('"&<', 1.0)], title="'"),
        line_chart([Line(str(i), [(0, i), (1, i)]) for i in range(20)]),
    ],
)
def test_every_chart_is_well_formed(svg: str) -> None:
    assert drawn(svg).tag == f"{SVG}svg"
    whole = standalone(svg)
    assert "prefers-color-scheme:dark" in whole and drawn(whole).tag == f"{SVG}svg"
    assert "http" not in whole.replace("http://www.w3.org/2000/svg", "")
