"""SQL92 expressions: what they mean, what is refused with which words, and what input may do."""

from __future__ import annotations

import time
from contextlib import suppress
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orbitmq.errors import ConfigError
from orbitmq.filters.sql92 import SHORT_LENGTH, compile_sql
from orbitmq.filters.sql92_parser import MAX_LENGTH
from orbitmq.filters.sql92_values import EvaluationError
from orbitmq.filters.subscription import MessageSelector, build_subscription
from tests.filters.sql92_cases import PROPERTIES, SOUP, expression

MESSAGE = {"price": "12", "carrier": "UA", "note": "it's late", "ratio": "0.5"}


def outcome(text: str, message: dict[str, str] | None = None) -> bool | str | None:
    lookup = (MESSAGE if message is None else message).get
    try:
        return compile_sql(text).evaluate(lookup)
    except EvaluationError:
        return "error"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("price = 12", True),
        ("price <> 12", False),
        ("price > 11 AND price < 13", True),
        ("price >= 12.0", True),
        ("12 <= price", True),
        ("price > - 5", True),
        ("price > '9'", "refused"),
        ("carrier = 'UA'", True),
        ("carrier = 'ua'", False),
        ("CARRIER = 'UA'", None),
        ("note = 'it''s late'", True),
        ("price BETWEEN 12 AND 12", True),
        ("price not between 1 and 11", True),
        ("price BETWEEN 13 AND 1", "refused"),
        ("carrier IN ('AA', 'UA')", True),
        ("carrier NOT IN ('AA', 'UA', 'A', 'B', 'C')", False),
        ("missing IN ('AA')", None),
        ("missing NOT IN ('AA')", None),
        ("price IN (12)", "refused"),
        ("missing IS NULL", True),
        ("price IS NULL", False),
        ("price IS NOT NULL", True),
        ("note CONTAINS 's l'", True),
        ("note NOT CONTAINS 's l'", False),
        ("note STARTSWITH 'it'", True),
        ("note NOT ENDSWITH 'it'", True),
        ("missing NOT CONTAINS 'x'", False),
        ("note CONTAINS ''", False),
        ("note NOT CONTAINS ''", False),
        ("TRUE", True),
        ("NULL", None),
        ("carrier", False),
        ("missing", None),
    ],
)
def test_what_conditions_mean(text: str, expected: bool | str | None) -> None:
    if expected == "refused":
        with pytest.raises(ConfigError):
            compile_sql(text)
    else:
        assert outcome(text) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("carrier = 'UA' OR ratio > 5", True),  # what is behind OR is not looked at
        ("ratio > 5 OR carrier = 'UA'", "error"),  # 0.5 is no Integer
        ("ratio > 0.4", True),
        ("carrier > 5", "error"),
        ("carrier > carrier", "error"),
        ("price > ratio", True),  # two properties are compared as doubles
        ("price = 12L", True),
        ("missing = 1 OR TRUE", True),
        ("missing = 1 OR FALSE", None),
        ("missing = 1 AND FALSE", False),
        ("missing = 1 AND TRUE", None),
        ("missing = absent", True),
        ("TRUE = carrier", "error"),
        ("carrier = TRUE", False),
        ("NOT carrier = 'UA'", "error"),  # (NOT carrier) = 'UA'
        ("NOT (carrier = 'UA')", False),
        ("NOT missing", None),
        ("price = 12 OR price = 1 AND price = 2", True),  # AND before OR
        ("(price = 12 OR price = 1) AND price = 2", False),
        ("price = 12 = TRUE", True),
        ("price /* a */ = -- b\n 12", True),
    ],
)
def test_javas_finer_points(text: str, expected: bool | str | None) -> None:
    assert outcome(text) == expected
    assert compile_sql(text).matches(MESSAGE.get) is (expected is True)


@pytest.mark.parametrize(
    ("literal", "value", "expected"),
    [
        ("5", "+05", True),
        ("5", "\u0665", True),  # Arabic-Indic five
        ("5", "5.0", "error"),
        ("5", " 5", "error"),
        ("5", "5_0", "error"),
        ("5", "2147483648", "error"),
        ("2147483648", "2147483648", True),
        ("2147483648", "9223372036854775808", "error"),
        ("-2147483648", "3000000000", False),  # a Long: 2147483648 was, before the sign
        ("5.0", " 5 ", True),
        ("5.0", "5d", True),
        ("16.0", "0x1p4", True),
        ("5.0", "inf", "error"),
        ("5.0", "NaN", False),
        ("5.0", "1" * 5000, False),
        ("5", "1" * 5000, "error"),
        ("'5'", "5", True),
    ],
)
def test_strings_become_numbers_as_in_java(literal: str, value: str, expected: bool | str) -> None:
    assert outcome(f"a = {literal}", {"a": value}) == expected
    assert outcome(f"{literal} = a", {"a": value}) == expected


@pytest.mark.parametrize(
    ("smaller", "greater"),
    [("-0.0", "0.0"), ("Infinity", "NaN"), ("1e308", "0x1p99999"), ("-0x1p99999", "-1e308")],
)
def test_doubles_are_ordered_as_in_java(smaller: str, greater: str) -> None:
    message = {"a": smaller, "b": greater}
    assert outcome("a < b AND b > a AND a <= b AND b >= a", message) is True
    assert outcome("a >= b OR b <= a", message) is False


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "at its end: here must be a property"),
        ("price >", "at its end: here must be a property"),
        ("price > AND a = 1", "at character 9, 'AND': here must be a property"),
        ("(price = 1", "at its end: here must be a ) for the ("),
        ("price ! 1", "at character 7, '!': no expression has this"),
        ("carrier = 'UA", 'at character 11, "\'": this string does not end'),
        ("carrier /* = 1", "at character 9, '/': this comment does not end"),
        ("carrier IN 'UA'", "at character 12, \"'UA'\": here must be a ( and strings"),
        ("carrier IN ('UA' 'AA')", "at character 18, \"'AA'\": here must be a ) behind"),
        ("carrier CONTAINS 5", "at character 18, '5': here must be a string"),
        ("carrier IS 'UA'", "at character 12, \"'UA'\": here must be NULL or NOT NULL"),
        ("a BETWEEN 1 OR 2", "at character 13, 'OR': here must be AND and the other end"),
        ("a BETWEEN 2 AND 1", "at character 3, 'BETWEEN': there is nothing between 2 and 1"),
        ("a = 1 NOT b = 2", "at character 11, 'b': NOT stands before BETWEEN"),
        ("NOT price > 1", "at character 11, '>': > compares numbers and properties, a condition"),
        ("a > 'x'", "at character 3, '>': > compares numbers and properties, 'x' is neither"),
        ("a = NULL", "at character 3, '=': nothing equals NULL: write IS NULL"),
        ("TRUE = 5", "at character 6, '=': True cannot be compared with 5"),
        ("5 IN ('5')", "at character 3, 'IN': IN asks for a property, not for 5"),
        ("5", "at character 1, '5': 5 is neither true nor false: compare it"),
        ("a = 1 AND 'x'", "at character 7, 'AND': 'x' is neither true nor false"),
        ("a = 9223372036854775808", "at character 5, '9223372036854775808': an integer is 92233"),
        ("a = 0.0", "at character 5, '0.0': a number with a point is 4.9e-324"),
        ("a = 1e400", "at character 5, '1e400': a number with a point is 4.9e-324"),
    ],
)
def test_what_is_refused_says_where_and_what_would_do(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        compile_sql(text)
    assert str(refused.value).startswith(f"expression={text!r} is not allowed: {words}")


@pytest.mark.parametrize(
    ("text", "ignored"),
    [
        ("price = 12 b = 2", "b = 2"),
        ("price = 012", "12"),
        ("price = 12)", ")"),
        ("price = 12 * 5", None),
        ("carrier IS NOT NULL > 5", "> 5"),
        ("price = 12 -- the end", ""),
        ("price = 12 /* the end */ ", ""),
    ],
)
def test_java_stops_where_an_expression_can_end(text: str, ignored: str | None) -> None:
    if ignored is None:
        with pytest.raises(ConfigError):
            compile_sql(text)
        return
    assert compile_sql(text).ignored == ignored


def test_a_selector_is_checked_where_it_is_made() -> None:
    selector = MessageSelector.by_sql("price > 10")
    assert build_subscription("T", selector).sub_string == "price > 10"
    for mistake, words in (("price >", "at its end"), ("a = 1 b = 2", "would ignore 'b = 2'")):
        with pytest.raises(ConfigError, match=words):
            MessageSelector.by_sql(mistake)
        unchecked = MessageSelector.by_sql(mistake, check=False)
        assert build_subscription("T", unchecked).expression_type == "SQL92"


def test_an_error_shows_the_place_of_a_long_expression() -> None:
    text = " OR ".join(["a = 1"] * 400) + " OR b ?"
    with pytest.raises(ConfigError) as refused:
        compile_sql(text)
    assert len(str(refused.value)) < 300
    assert "OR b ?" in str(refused.value)


def test_length_depth_and_tests_are_bounded() -> None:
    chain = " OR ".join(f"a = {number}" for number in range(500))
    assert outcome(chain, {"a": "499"}) is True
    values = ", ".join(f"'{number}'" for number in range(5_000))
    assert outcome(f"a IN ({values})", {"a": "4999"}) is True
    assert outcome("(" * 60 + "a = 1" + ")" * 60, {"a": "1"}) is True
    with pytest.raises(ConfigError, match="65536 at most"):
        compile_sql(f"a = '{'x' * MAX_LENGTH}'")
    for deep in (
        "(" * 1000,
        "NOT " * 1000 + "a",
        "a = " + "- " * 1000 + "1",
        "a" + " IS NULL" * 500,
    ):
        with pytest.raises(ConfigError, match="too deep"):
            compile_sql(deep)
    for costly in (
        chain + " OR b IS NULL" * 20,
        " AND ".join(["a = - - - - 1"] * 120),
        " OR ".join(["NOT (a <> b)"] * 200),
    ):
        with pytest.raises(ConfigError, match=r"more than 512 tests: .* by IN"):
            compile_sql(costly)


@pytest.mark.parametrize(
    "text",
    [
        "a = " + "-" * 60_000 + "1",
        " OR ".join(["a = --1"] * 6_000),
        "'" * 60_000,
        "a IN ('" + "''" * 30_000,
        "a = 1" + "/**/" * 15_000,
        "\n" * 60_000 + "a = ",
        "1" * 60_000 + "x",
    ],
)
def test_hostile_text_costs_little_time(text: str) -> None:
    begin = time.thread_time()
    with suppress(ConfigError):
        compile_sql(text)
    assert time.thread_time() - begin < 2  # where it costs the square it takes ten times this


def test_a_hostile_property_costs_little_time() -> None:
    begin = time.perf_counter()
    for value in ("1" * 32_000 + "x", "1" * 32_000, "0x" + "f" * 32_000, " " * 32_000 + "x"):
        assert outcome("a = 1.5", {"a": value}) in (False, "error")
        assert outcome("a = 1", {"a": value}) == "error"
    assert time.perf_counter() - begin < 2


@given(st.integers(min_value=0))
def test_no_expression_does_more_than_be_refused(seed: int) -> None:
    outcome_or_refused(expression(Random(seed)))


@given(st.one_of(st.text(max_size=30), st.lists(st.sampled_from(SOUP)).map(" ".join)))
@example("\ud800")
@example("'\ud800' = a")
def test_no_text_does_more_than_be_refused(text: str) -> None:
    outcome_or_refused(text)


def outcome_or_refused(text: str) -> None:
    with suppress(ConfigError):
        assert outcome(text, dict.fromkeys(PROPERTIES, "1")) in (True, False, None, "error")


LOGIC = st.recursive(
    st.sampled_from(["TRUE", "FALSE", "NULL"]),
    lambda inner: st.one_of(
        inner.map(lambda one: ("NOT", one)),
        st.tuples(st.sampled_from(["AND", "OR"]), inner, inner),
    ),
    max_leaves=12,
)


@given(LOGIC)
def test_logic_has_three_values(tree: object) -> None:
    assert outcome(written(tree)) is {0: False, 1: None, 2: True}[truth(tree)]


def written(tree: object) -> str:
    if isinstance(tree, str):
        return tree
    assert isinstance(tree, tuple)
    if tree[0] == "NOT":
        return f"NOT ({written(tree[1])})"
    return f"({written(tree[1])}) {tree[0]} ({written(tree[2])})"


def truth(tree: object) -> int:
    """Kleene's logic: 0 false, 1 unknown, 2 true; AND is the least, OR the greatest."""
    if isinstance(tree, str):
        return ["FALSE", "NULL", "TRUE"].index(tree)
    assert isinstance(tree, tuple)
    values = [truth(part) for part in tree[1:]]
    if tree[0] == "NOT":
        return 2 - values[0]
    return min(values) if tree[0] == "AND" else max(values)


INTEGERS = st.integers(-(1 << 31) + 1, (1 << 31) - 1)


@given(INTEGERS, INTEGERS, INTEGERS)
def test_integers_are_ordered(value: int, low: int, high: int) -> None:
    message = {"a": str(value)}
    assert outcome(f"a > {low}", message) is (value > low)
    assert outcome(f"{low} <= a", message) is (low <= value)
    assert outcome(f"a = {low}", message) is (value == low)
    assert outcome(f"a <> {high}", message) is (value != high)
    assert outcome(f"a NOT BETWEEN {low} AND {high}", message) is (value < low or value > high)


@given(st.text(max_size=6), st.lists(st.text(max_size=6), min_size=1, max_size=7))
def test_strings_are_what_is_quoted(value: str, texts: list[str]) -> None:
    quoted = ["'" + text.replace("'", "''") + "'" for text in texts]
    message = {"a": value}
    assert outcome(f"a IN ({', '.join(quoted)})", message) is (value in texts)
    assert outcome(f"a = {quoted[0]}", message) is (value == texts[0])
    if texts[0]:
        assert outcome(f"a CONTAINS {quoted[0]}", message) is (texts[0] in value)
        assert outcome(f"a STARTSWITH {quoted[0]}", message) is value.startswith(texts[0])


def test_of_long_expressions_few_are_remembered() -> None:
    short, first = "a = 'first'", f"a = '{'x' * SHORT_LENGTH}'"
    compiled, long = compile_sql(short), compile_sql(first)
    assert compile_sql(first) is long
    for number in range(16):
        compile_sql(f"a = '{'y' * SHORT_LENGTH}{number}'")
    assert compile_sql(first) is not long
    assert compile_sql(short) is compiled


@given(
    st.lists(st.text("ab ',()\n", max_size=5), min_size=1, max_size=6),
    st.sampled_from([",", " ,", ",\t", "\n, "]),
    st.sampled_from(["", " AND b = 1", ")"]),
)
def test_a_list_of_strings_is_read_at_once_as_token_by_token(
    texts: list[str], comma: str, rest: str
) -> None:
    strings = comma.join("'" + text.replace("'", "''") + "'" for text in texts)
    at_once, by_tokens = f"a IN ({strings}){rest}", f"a IN (/**/{strings}){rest}"
    assert compile_sql(at_once).ignored == compile_sql(by_tokens).ignored
    for value in {*texts, "a", "'", "b'"}:
        message = {"a": value, "b": "1"}
        assert outcome(at_once, message) == outcome(by_tokens, message) == (value in texts)


@pytest.mark.parametrize("broken", ["'a', 'b'", "'a' 'b')", "'a',)", ")", "'a', b)", "'a', 'b"])
def test_a_broken_list_of_strings_is_told_with_its_place(broken: str) -> None:
    with pytest.raises(ConfigError, match="here must be|does not end"):
        compile_sql(f"x IN ({broken}")


def test_java_clients_may_list_thousands_of_strings() -> None:
    strings = ",".join(f"'{number:04}'" for number in range(9_000))
    compiled = compile_sql(f"a IN ({strings})")
    assert compiled.evaluate({"a": "8999"}.get)
    assert compiled.evaluate({"a": "9000"}.get) is False
    assert compiled.tests < 5


def test_pluses_count_as_tests() -> None:
    assert outcome("+ " * 500 + "a = 1", {"a": "1"}) is True
    with pytest.raises(ConfigError, match="512 tests"):
        compile_sql("+ " * 512 + "a = 1")
    with pytest.raises(ConfigError, match="too deep"):
        compile_sql("+ " * 30_000 + "a = 1")
