from datetime import timedelta

import pytest

from shared.core.values.timing import DURATION_MAX, format_duration, parse_duration

READ = {
    "0": 0,
    "0s": 0,
    "00": 0,
    "3600": 3600,
    "000000000090": 90,
    "90s": 90,
    "90m": 5400,
    "1h30m": 5400,
    "36h": 129_600,
    "2d": 172_800,
    "1w": 604_800,
    "1w2d3h4m5s": 604_800 + 172_800 + 10_800 + 240 + 5,
    "1d5s": 86_405,
    "0w0d0h0m0s": 0,
    "36500d": 36_500 * 86_400,
    "3153600000": 36_500 * 86_400,
}

# Other texts that users write, also by mistake.
NOT_READ = {
    "nothing": "",
    "a space": " ",
    "a space before": " 1h",
    "a space after": "1h ",
    "a space between": "1h 30m",
    "a new line after seconds": "90\n",
    "a new line after a unit": "90s\n",
    "a minus": "-1",
    "a minus before a unit": "-1h",
    "a plus": "+1",
    "a fraction": "1.5h",
    "a fraction of seconds": "0.5",
    "a thousands comma": "3,600",
    "an underscore": "3_600",
    "an exponent": "1e3",
    "a unit alone": "h",
    "a unit first": "h1",
    "a number without its unit at the end": "1h30",
    "the smaller unit first": "30m1h",
    "the same unit twice": "1h1h",
    "an upper-case unit": "1H",
    "a unit in words": "1 hour",
    "milliseconds": "500ms",
    "months": "1mo",
    "years": "1y",
    "an ISO duration": "PT1H",
    "Arabic digits": "٣٦٠٠",
    "full-width digits": "\uff13\uff16",
    "superscript digits": "²",
    "never": "never",
    "infinity": "inf",
    "not a number": "nan",
    "hexadecimal": "0x10",
    "a lone surrogate": "\ud800",
    "a null byte": "1h\x00",
    "thirteen digits with a unit": "0000000000001s",
}


@pytest.mark.parametrize(("text", "seconds"), READ.items(), ids=READ)
def test_valid_duration_is_read(text, seconds):
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", NOT_READ.values(), ids=NOT_READ)
def test_malformed_duration_is_rejected(text):
    with pytest.raises(ValueError, match=r"^expected seconds \(3600\) or a duration such as 90s, 1h30m, 2d, 1w, got "):
        parse_duration(text)


@pytest.mark.parametrize(
    "text", ["3153600001", "1" + 20 * "0", "36501d", "36500d1s", "5215w", "999999999999w999999999999d"]
)
def test_duration_of_more_than_a_century_is_rejected(text):
    with pytest.raises(ValueError, match=f"^expected at most {DURATION_MAX.days}d, got '{text}'$"):
        parse_duration(text)


def test_error_quotes_only_the_beginning_of_a_long_text():
    with pytest.raises(ValueError, match=r"got '1111.*\.\.\.'$") as error:
        parse_duration("1" * 100_000)

    assert len(str(error.value)) < 200


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (timedelta(0), "0s"),
        (timedelta(seconds=1), "1s"),
        (timedelta(seconds=60), "1m"),
        (timedelta(seconds=90), "1m30s"),
        (timedelta(hours=1), "1h"),
        (timedelta(hours=25), "1d1h"),
        (timedelta(days=10), "10d"),
        (timedelta(days=1, seconds=1), "1d1s"),
        (DURATION_MAX, "36500d"),
        (timedelta(milliseconds=1999), "1s"),
        (timedelta(seconds=-90), "-1m30s"),
        (timedelta(milliseconds=-500), "0s"),
        (timedelta(days=-1), "-1d"),
        (timedelta.min, "-999999999d"),
    ],
    ids=str,
)
def test_duration_is_written_with_its_largest_units(duration, text):
    assert format_duration(duration) == text
