"""Carbon-intensity files: columns, time zones, resampling, and what is wrong with them."""

from __future__ import annotations

import gzip
import warnings
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from wattsched.instances.errors import NoticeWarning
from wattsched.instances.generators.shifting import shifting_horizon
from wattsched.instances.shifting.instance import faults_of
from wattsched.instances.traces.carbon import read_carbon, shown, utc_time
from wattsched.reading.units import Quantity


def written(folder: Path, text: str) -> Path:
    path = folder / "carbon.csv"
    path.write_text(text, encoding="utf-8")
    return path


HOURS = "\n".join(f"2022-01-01 {hour:02d}:00:00,{100 + hour}" for hour in range(24))


def test_two_columns_with_and_without_a_header_and_compressed(tmp_path: Path) -> None:
    begin = utc_time("2022-01-01T02:00")
    expected = [102.0, 103.0, 104.0]
    assert read_carbon(written(tmp_path, HOURS)).slots(begin, 3, 3600.0) == pytest.approx(expected)
    with_header = written(tmp_path, f"time,g\n{HOURS}\n")
    assert read_carbon(with_header).slots(begin, 3, 3600.0) == pytest.approx(expected)
    compressed = tmp_path / "carbon.csv.gz"
    compressed.write_bytes(gzip.compress(with_header.read_bytes()))
    assert read_carbon(compressed).slots(begin, 3, 3600.0) == pytest.approx(expected)


def test_resampling_averages_and_repeats(tmp_path: Path) -> None:
    trace = read_carbon(written(tmp_path, HOURS))
    begin = utc_time("2022-01-01")
    assert trace.slots(begin, 2, 7200.0) == pytest.approx([100.5, 102.5])
    assert trace.slots(begin, 4, 1800.0) == pytest.approx([100.0, 100.0, 101.0, 101.0])
    late = utc_time("2022-01-01T00:30")
    assert trace.slots(late, 1, 3600.0) == pytest.approx([100.5])


def test_time_zones_and_exports(tmp_path: Path) -> None:
    export = "Datetime (UTC),Country,Zone id,Carbon intensity gCO₂eq/kWh (direct),"
    export += "Carbon intensity gCO₂eq/kWh (Life cycle)\n"
    export += "2023-01-01 00:00:00,Spain,ES,90,120\n2023-01-01 01:00:00,Spain,ES,91,130\n"
    trace = read_carbon(written(tmp_path, export))
    assert trace.slots(utc_time("2023-01-01 02:00+02:00"), 2, 3600.0) == pytest.approx([120.0, 130.0])
    zoned = "time,DE,FR\n2022-06-01T00:00+02:00,1,5\n2022-06-01T01:00+02:00,2,6\n"
    trace = read_carbon(written(tmp_path, zoned), "FR")
    assert trace.slots(utc_time("2022-05-31T22:00"), 2, 3600.0) == pytest.approx([5.0, 6.0])


def test_where_a_time_or_the_file_alone_has_a_zone_it_is_told(tmp_path: Path) -> None:
    local, zoned = (f"time,g_per_kwh\n2022-01-01T00:00{zone},1\n" for zone in ("", "Z"))
    stated = zoned.replace("time", "Datetime (UTC)").replace("Z", "")
    for text, start, told in (
        (local, "2022-01-01T01:00+01:00", "its times have no zone and are UTC"),
        (zoned, "2022-01-01T00:00", "'2022-01-01T00:00' has no zone and is UTC"),
        (stated, "2022-01-01T00:00", "'2022-01-01T00:00' has no zone and is UTC"),
    ):
        with pytest.warns(NoticeWarning, match=told):
            assert read_carbon(written(tmp_path, text)).moment(start) == utc_time("2022-01-01")
    for text, start in ((local, "2022-01-01"), (zoned, "2022-01-01T00Z"), (stated, "1640995200")):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert read_carbon(written(tmp_path, text)).moment(start) == utc_time("2022-01-01")


@pytest.mark.parametrize(
    ("text", "column", "words"),
    [
        ("time,g\n2022-01-01 00:00,5\n2022-01-01 01:00Z,6\n", None, "line 3, column 'time': times with and"),
        ("time,g\n2022-01-01 00:00,5\n2022-01-01 00:00,6\n", None, "line 3: the times do not ascend"),
        (
            "time,g\n2022-01-01 00:00,5\n2022-01-01 02:00,6\n2022-01-01 01:00,6\n",
            *(None, "01:00 comes after 2022-01-01 02:00 (sort them; all in UTC;"),
        ),
        (
            "time,g\n2022-01-01 02:00,5\n2022-01-01 00:00,6\n2022-01-01 01:00,6\n",
            *(None, "line 3: the times do not ascend, 2022-01-01 00:00 comes after 2022-01-01 01:00"),
        ),
        ("time,g\n2022-01-01 00:00,5\n2022-01-01 00:00,5\n", None, "line 3: the times do not ascend"),
        *(
            (f"time,Zone name,g\n{rows}", "g", "(rows are of 'DE' and of 'FR' by column 'Zone name'; keep")
            for rows in (
                "2022-01-01 00:00,DE,5\n2022-01-01 00:00,FR,6\n",
                "2022-01-01 00:00,DE,5\n2022-01-01 01:00,DE,5\n2022-01-01 00:00,FR,5\n",
                "2022-01-01 01:00,FR,5\n2022-01-01 00:00,FR,5\n2022-01-01 01:00,DE,5\n",
            )
        ),
        ("time,g\n2022-01-01 00:00,-5\n", None, "line 2, column 'g': must be at least 0"),
        ("time,g\nyesterday,5\n", None, "'yesterday' is neither"),
        ("time,g\n2022-01-01 00:00,much\n", None, "'much' is not a number"),
        ("time,g\n2022-01-01 00:00,1e300\n", None, "column 'g': must be at most 1,000,000, got 1e300"),
        ("time,g,g\n2022-01-01 00:00,1,2\n", None, "line 1: the column 'g' occurs twice"),
        (
            "time,a,b\n2022-01-01 00:00,1,2\n",
            None,
            "no zone is named: one of the columns 'a', 'b'; give it as `zone`",
        ),
        ("time,a,b\n2022-01-01 00:00,1,2\n", "c", "no column 'c', found 'a', 'b'"),
        ("time,DE,FR\n2022-01-01 00:00,1,2\n", "de", "no column 'de' (did you mean 'DE'?)"),
        ("when,a,b\n2022-01-01 00:00,1,2\n", None, "no column of times"),
        ("time,g\n", None, "has no rows"),
    ],
)
def test_faults(tmp_path: Path, text: str, column: str | None, words: str) -> None:
    with pytest.raises(ValueError, match=r"carbon\.csv") as error:
        read_carbon(written(tmp_path, text), column)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("column", "write"),
    [
        ("time", "{:%Y-%m-%dT%H:%M%z}"),
        ("time (Europe/Berlin)", "{:%Y-%m-%d %H:%M}"),
        ("time", "{:%s}"),
        ("time", "{:%s}000"),
    ],
)
def test_rows_that_are_backwards_or_come_again_are_read_as_those_in_order(
    tmp_path: Path, column: str, write: str
) -> None:
    """Also in the night in which clocks go back."""
    zone = ZoneInfo("Europe/Berlin")
    begin_s = datetime(2026, 10, 24, 20, tzinfo=UTC).timestamp()
    moments = [datetime.fromtimestamp(begin_s + 1800 * n, zone) for n in range(20)]
    rows = [
        f"{write.replace('%s', str(int(moment.timestamp()))).format(moment)},{n % 7}"
        for n, moment in enumerate(moments)
    ]
    expected = np.arange(20) % 7
    zoned = column != "time"
    again = [row for row in rows if not (zoned and " 02:" in row)]
    for some, told in (
        (rows, None),
        (rows[::-1], "read from its end, as the newest rows come first"),
        *(
            []
            if zoned
            else [([row for row in rows for _ in range(2)], "not used: 20 rows that are the same")]
        ),
        ([*rows, *again[-5:]], "not used: 5 rows that are the same as earlier ones"),
        ([*rows, *again[-5:]][::-1], "not used: 5 rows that are the same as earlier ones"),
    ):
        file = written(tmp_path, "\n".join([f"{column},g_per_kwh", *some, ""]))
        with pytest.warns(NoticeWarning, match=told) if told else nullcontext():
            found = read_carbon(file)
        np.testing.assert_array_equal(found.per_kwh, expected)
        np.testing.assert_array_equal(found.begin_s, begin_s + 1800 * np.arange(20))
    with pytest.raises(ValueError, match="the times do not ascend"):
        read_carbon(written(tmp_path, "\n".join([f"{column},g_per_kwh", *rows, f"{rows[-1]}5", ""])))


def test_missing_hours_are_named(tmp_path: Path) -> None:
    lines = HOURS.splitlines()
    gap = read_carbon(written(tmp_path, "\n".join(["time,g", *lines[:5], *lines[7:]])))
    assert len(gap.slots(utc_time("2022-01-01"), 5, 3600.0)) == 5
    with pytest.raises(ValueError, match="slot 5, which begins at 2022-01-01 05:00"):
        gap.slots(utc_time("2022-01-01"), 8, 3600.0)
    with pytest.raises(ValueError, match="to 2022-01-02 00:00"):
        gap.slots(utc_time("2022-01-01T20:00"), 8, 3600.0)
    empty = read_carbon(written(tmp_path, "time,g\n" + HOURS.replace("103", "")))
    with pytest.raises(ValueError, match="slot 3"):
        empty.slots(utc_time("2022-01-01"), 5, 3600.0)


def test_public_files(data_dir: Path) -> None:
    for file, zone, start in (
        ("carbon-eia-us-2022/CISO_2022_hourly.csv.gz", None, "2022-07-12"),
        ("carbon-electricitymaps/ES_2021_2023_hourly.csv.gz", None, "2023-02-01"),
        ("carbon-electricitymaps/zones123_2022_hourly_lca.csv.gz", "DE", "2022-07-12"),
    ):
        instance = shifting_horizon(
            jobs=5, slots=24, carbon=str(data_dir / file), zone=zone, start=start, seed=1
        )
        assert not faults_of(instance)
        assert instance.carbon_g_per_kwh is not None
        assert 10 < min(instance.carbon_g_per_kwh) < max(instance.carbon_g_per_kwh) < 1000


@pytest.mark.parametrize("market", ["US-CAL-CISO", "US-MIDA-PJM", "US-TEX-ERCO"])
def test_prices_of_2022_of_which_some_are_negative(data_dir: Path, market: str) -> None:
    file = data_dir / "electricity-prices-2022" / f"{market}_2022.csv.gz"
    prices = read_carbon(file, quantity="money")
    negative = prices.begin_s[prices.per_kwh < 0]
    assert (len(negative), prices.currency) == ({"US-CAL-CISO": 36, "US-MIDA-PJM": 4}.get(market, 0), "USD")
    start = shown(negative[0] if len(negative) else prices.begin_s[0])
    day = shifting_horizon(jobs=5, slots=24, tariff=file, start=start, seed=1)
    assert not faults_of(day)
    assert day.currency == "USD"
    assert day.price_per_kwh is not None
    assert (min(day.price_per_kwh) < 0) == bool(len(negative))
    assert max(day.price_per_kwh) < 1


def test_times_at_the_end_of_each_hour_are_told(tmp_path: Path) -> None:
    rows = "2026-11-02 01:00,1000\n2026-11-02 02:00,100\n"
    for name in (
        "UTC Time at End of Hour",
        "interval_end_utc",
        "Hour Ending (UTC)",
        "UTC time",
        "SETTLEMENTDATE",
    ):
        with pytest.warns(NoticeWarning, match="are the ends of steps of 3600 s"):
            found = read_carbon(written(tmp_path, f"{name},g/kWh\n{rows}"))
        begin = "2026-11-02T00:00+10:00" if name == "SETTLEMENTDATE" else "2026-11-02T00:00Z"
        assert found.slots(utc_time(begin), 2, 3600.0) == [1000.0, 100.0]


def test_decimals_follow_a_comma_where_semicolons_separate_cells(tmp_path: Path) -> None:
    """But not where the comma may separate thousands, or a point is a mark of the column, too."""
    for texts, told in (
        (("40,50", "-35,2", "1,040", "0,1 EUR/MWh"), None),
        (("0,150", "1,040"), None),
        (("1,040", "1.040"), "line 3, column 'price .EUR/MWh.': '1.040' has a '.', others a ','"),
        (("1,040", "2,000"), "'2,000' may be thousands: write 1.5 or 1500"),
        (("1.034,50",), "'1.034,50' has a comma"),
    ):
        rows = (f"2026-11-01 0{hour}:00;{text}\n" for hour, text in enumerate(texts))
        file = written(tmp_path, f"time;price (EUR/MWh)\n{''.join(rows)}")
        with pytest.raises(ValueError, match=told) if told else nullcontext():
            found = read_carbon(file, quantity="money").per_kwh * 1000
            assert found.tolist() == pytest.approx(
                [float(text.split()[0].replace(",", ".")) for text in texts]
            )


@pytest.mark.parametrize("text", ["40,50", "1,040", "-35,20", "1,1 EUR/MWh"])
def test_commas_in_numbers_are_refused_in_so_many_words(tmp_path: Path, text: str) -> None:
    file = written(tmp_path, f'time,price (EUR/MWh)\n2026-11-01,"{text}"\n')
    with pytest.raises(ValueError, match=f"'{text}' has a comma; write decimals and thousands as in 1234.5"):
        read_carbon(file, quantity="money")


def test_intensities_are_never_taken_for_prices(tmp_path: Path) -> None:
    file = written(tmp_path, "time,carbon_intensity,day ahead [EUR/MWh]\n2026-01-01 00:00,400,80\n")
    assert read_carbon(file, quantity="money").per_kwh.tolist() == pytest.approx([0.08])
    with pytest.warns(NoticeWarning, match="in g/kWh, as neither"):
        assert read_carbon(file).per_kwh.tolist() == [400.0]
    file = written(tmp_path, "time,carbon_intensity,price\n2026-01-01 00:00,400,.08\n")
    with pytest.raises(ValueError, match="no zone is named: one of the columns 'carbon_intensity', 'price'"):
        read_carbon(file, quantity="money")


@pytest.mark.parametrize(
    ("quantity", "odd", "doubtful"),
    [
        ("money", "-99999", True),
        ("carbon", "99999", True),
        ("carbon", "9999", True),
        ("money", "-900", False),
        ("carbon", "", False),
    ],
)
def test_a_value_far_from_all_others_is_pointed_at(
    tmp_path: Path, quantity: Quantity, odd: str, doubtful: bool, recwarn: pytest.WarningsRecorder
) -> None:
    path, unit = tmp_path / "odd.csv", {"carbon": "g/kWh", "money": "EUR/MWh"}[quantity]
    hours = (f"2026-11-02T{hour:02}:00Z,{odd if hour == 5 else 100 + hour}" for hour in range(24))
    path.write_text("\n".join([f"time,{unit}", *hours]))
    read_carbon(path, quantity=quantity)
    assert any("may stand for a missing value" in str(one.message) for one in recwarn) == doubtful


def steps(*parts: tuple[str, int, int]) -> str:
    """A price for each step of parts: their begins, how many minutes steps have, and how many there are."""
    rows = [
        f"{shown(utc_time(begin).timestamp() + 60 * minutes * n)}Z,{n + 1}"
        for begin, minutes, count in parts
        for n in range(count)
    ]
    return "\n".join(["time,EUR/MWh", *rows, ""])


@pytest.mark.parametrize("column", ["time", "interval_end"])
def test_steps_may_become_shorter_within_a_file(tmp_path: Path, column: str) -> None:
    """Europe's markets went from hours to quarters."""
    text = steps(("2025-09-30", 60, 24), ("2025-10-01", 15, 96)).replace("time", column, 1)
    found = read_carbon(written(tmp_path, text), quantity="money")
    begin = "2025-09-29 23:00" if column == "interval_end" else "2025-09-30 00:00"
    assert shown(found.begin_s[0]) == begin
    first = 2 if column == "interval_end" else 1
    hours = found.slots(utc_time("2025-09-30"), 24, 3600.0)
    assert hours[:22] == pytest.approx([0.001 * (first + n) for n in range(22)])
    assert found.begin_s[:-1] + found.step_s[:-1] == pytest.approx(found.begin_s[1:])
    # A hole among the hours stays one.
    text = steps(("2025-09-30", 60, 10), ("2025-09-30T12:00", 60, 12), ("2025-10-01", 15, 96))
    found = read_carbon(written(tmp_path, text), quantity="money")
    with pytest.raises(ValueError, match="no value for a part of slot 10, which begins at 2025-09-30 10:00"):
        found.slots(utc_time("2025-09-30"), 24, 3600.0)


def test_rows_that_are_thinned_for_a_stretch_are_told(tmp_path: Path) -> None:
    thin = (("2025-02-01", 60, 24), ("2025-02-02", 180, 16), ("2025-02-04", 60, 24))
    with pytest.warns(NoticeWarning, match="assumed: steps of 3 h from 2025-02-02 00:00 on, after shorter"):
        read_carbon(written(tmp_path, steps(*thin)), quantity="money")
    for even in (thin[:1], thin[1:], [("2025-09-30", 60, 24), ("2025-10-01", 15, 96)]):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            read_carbon(written(tmp_path, steps(*even)), quantity="money")


@pytest.mark.parametrize(
    ("cells", "refused"),
    [
        (["31.250", "28.900"], True),
        (["31.250", "950", "-1.000"], True),
        (["31.250 EUR/MWh", "28.900 EUR/MWh"], True),
        (["31.250", "28.9"], False),
        (["31.250", "0.125"], False),
        (["31.250", "1250"], False),
        (["31", "28"], False),
    ],
)
def test_points_that_may_separate_thousands_are_refused(
    tmp_path: Path, cells: list[str], refused: bool
) -> None:
    """Where semicolons separate cells, 31.250 may stand for 31250, or for 31.25."""
    told = r"carbon.csv, column '.*': '.*' may be thousands: write 1.5 or 1500"
    for separator in ";,":
        rows = [f"2026-11-01T{hour:02}:00Z{separator}{cell}\n" for hour, cell in enumerate(cells)]
        header = f"time{separator}{'price' if 'EUR' in cells[0] else 'EUR/MWh'}\n"
        file = written(tmp_path, "".join([header, *rows]))
        expected = pytest.raises(ValueError, match=told) if refused and separator == ";" else nullcontext()
        with expected:
            read_carbon(file, quantity="money")


def test_text_in_other_encodings_is_not_said_to_be_cut(tmp_path: Path) -> None:
    file = tmp_path / "prices.csv"
    file.write_text("time,EUR/MWh\n2025-10-26,1\n", encoding="utf-16-le")
    file.write_bytes(b"\xff\xfe" + file.read_bytes())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match="is UTF-16 or UTF-32 text; save it as UTF-8"):
            read_carbon(file, quantity="money")


def test_that_carbon_is_made_up_beside_prices_is_told(tmp_path: Path) -> None:
    prices = written(tmp_path, f"time,EUR/kWh\n{HOURS}\n")
    with pytest.warns(
        NoticeWarning, match="assumed: carbon intensities are made up, days with a dip at noon"
    ):
        shifting_horizon(jobs=2, gpus=8, slots=4, tariff=prices)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        shifting_horizon(jobs=2, gpus=8, slots=4)
